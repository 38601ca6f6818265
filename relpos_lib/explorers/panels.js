/** Matrices side by side on one colour scale: of several heads, or of two settings. */
import { diverging, format, viridis } from "./core.js";
import { div } from "./dom.js";
import { colourBar, matrix } from "./matrix.js";

/** What a panel looks like depends on these. */
const SHADE = ["values", "allowed", "top"];

/** A number at the end of a colour scale. */
const scaleEnd = (end) => String(end).replace("-", "\u2212");

/**
 * Panels with titles (lists of nodes or text) and `names` for screen readers.
 * `onCell(k, i, j)` is called when the reader points at a cell of panel k.
 */
export function panelRow(titles, names, onCell) {
  const bar = colourBar();
  const panels = titles.map((title, k) => {
    const cells = matrix({
      name: names[k],
      ticks: 7,
      onCell: (i, j) => onCell(k, i, j),
    });
    const head = div("rp-title", ...title);
    const box = div("rp-panel", head, cells.node);
    return { ...cells, box, last: {} };
  });
  const boxes = panels.map((panel) => panel.box);
  const node = div("rp-group", bar.node, div("rp-panels", ...boxes));

  /** Draw a panel, unless nothing about it has changed. */
  function drawPanel(panel, now) {
    const { last } = panel;
    if (SHADE.every((part) => last[part] === now[part])) return;
    panel.last = now;
    panel.draw({ queries: now.Q, keys: now.S, shade: now, alt: now.alt() });
  }
  /**
   * Draw the panels that `shown` names; `of(k)` is {values, alt}, with alt() the text
   * of the picture, `top` the end of the colour scale and `unit` what it means.
   */
  function draw({ shown, of, Q, S, allowed, top, signed, unit }) {
    panels.forEach((panel, k) => {
      panel.box.hidden = !shown.includes(k);
      if (!panel.box.hidden) drawPanel(panel, { ...of(k), allowed, Q, S, top, signed });
    });
    const low = scaleEnd(signed ? -top : 0);
    bar.show(low, scaleEnd(top), unit, signed ? (t) => diverging(2 * t - 1) : viridis);
  }
  /** Mark a cell in every panel, and the panels that are looked at. */
  function select(i, j, isCurrent) {
    panels.forEach((panel, k) => {
      panel.box.classList.toggle("rp-current", isCurrent(k));
      if (panel.last.values) panel.select(i, j);
    });
  }
  return { node, draw, select };
}

/** The largest allowed number of a matrix, in words. */
export function peakInWords(values, allowed, S) {
  let best = -1;
  for (let cell = 0; cell < values.length; cell++)
    if (allowed[cell] && values[cell] > (values[best] ?? -Infinity)) best = cell;
  if (best < 0) return "No query may attend to a key.";
  const at = `query ${Math.floor(best / S)}, key ${best % S}`;
  return `Largest, ${format(values[best], 3)}, at ${at}.`;
}

/** A weight: one that is not zero must not look like it. */
export function weightText(weight, isAllowed) {
  if (!isAllowed) return "0, masked";
  return weight > 0 && weight < 5e-4 ? "< 0.001" : format(weight, 3);
}
