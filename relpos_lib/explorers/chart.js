/**
 * Line charts: axes, lines with bands of spread, and points that mouse, touch and
 * keyboard can read and, where the reader may, move.
 */
import { format, roundUp } from "./core.js";
import { KEYS_STAY, div, make, setText, update } from "./dom.js";
import { svgNode, within } from "./matrix.js";

/** The inside is this many units wide and high, whatever its size on the page. */
const SIDE = 1000;
/** The share of the width that stays free on either side of the points. */
const FREE = 0.025;
/** Colours of the book for lines; after them come the same ones with other dashes. */
const LINE_COLOURS = 4;
/** From this many points on a line has no dots. */
const MANY_POINTS = 16;

/** Round numbers from low to high, at most `most` of them, as [number, text]. */
export function roundTicks(low, high, { most = 7, whole = false } = {}) {
  const span = (high - low) / most || 1;
  const unit = 10 ** Math.max(Math.floor(Math.log10(span)), whole ? 0 : -300);
  const [first, last] = [
    (step) => Math.ceil(low / step - 1e-9),
    (step) => Math.floor(high / step + 1e-9),
  ];
  const step = [1, 2, 5, 10]
    .map((factor) => factor * unit)
    .find((one) => last(one) - first(one) < most);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return Array.from({ length: last(step) - first(step) + 1 }, (_, k) => {
    const tick = Number(((first(step) + k) * step).toFixed(digits));
    return [tick, format(tick, digits)];
  });
}

/** Where numbers lie: fractions of the width from the left, of the height from below. */
export function chartScales({ x, xLog = false, yRange: [low, high] }) {
  const bend = xLog ? Math.log2 : Number;
  const [from, to] = [bend(x[0]), bend(x.at(-1))];
  const share = (value) => (to > from ? (bend(value) - from) / (to - from) : 0.5);
  const across = (value) => FREE + (1 - 2 * FREE) * share(value);
  const up = (value) => (value - low) / (high - low);
  const valueAt = (fraction) => low + Math.max(0, Math.min(1, fraction)) * (high - low);
  return { across, up, valueAt };
}

/** The point nearest to a fraction of the width. */
export function nearestPoint(x, across, fraction) {
  let best = 0;
  for (let k = 1; k < x.length; k++)
    if (Math.abs(across(x[k]) - fraction) < Math.abs(across(x[best]) - fraction))
      best = k;
  return best;
}

/** Share of the axis that one character of a number may take, on a phone. */
const CHARACTER = 0.048;

/** Numbers on the x axis: the points themselves if their scale is logarithmic. */
function xTicksOf({ x, xLog }, across) {
  if (!xLog) {
    const whole = x.every(Number.isInteger);
    // Numbers with two digits and a sign need more room.
    return roundTicks(x[0], x.at(-1), { whole, most: x[0] < -9 ? 5 : 7 });
  }
  const kept = [];
  for (const value of [...x].reverse()) {
    const [text, next] = [format(value), kept.at(-1)];
    const room = (CHARACTER * (text.length + (next?.[1].length ?? 0))) / 2;
    if (!next || across(next[0]) - across(value) > room) kept.push([value, text]);
  }
  return kept;
}

/** First and last of every stretch of points that have a number. */
function stretches(values) {
  const found = [];
  values.forEach((value, k) => {
    if (!Number.isFinite(value)) return;
    if (found.length && found.at(-1)[1] === k - 1) found.at(-1)[1] = k;
    else found.push([k, k]);
  });
  return found;
}

const isNumber = (value) => Number.isFinite(value);

/** How colour and dashes of a line are chosen, by its number. */
function lineClass(colour) {
  const dashes = Math.floor(colour / LINE_COLOURS) % 4;
  return `rp-chart-line rp-chart-c${colour % LINE_COLOURS} rp-chart-d${dashes}`;
}

/** A short piece of a line, for legends and beside checkboxes. */
export function lineSample(colour) {
  const [svg, group, stroke] = ["svg", "g", "path"].map((tag) => svgNode(tag, {}));
  update(svg, "class", "rp-chart-sample");
  update(svg, "viewBox", "0 0 32 8");
  update(svg, "aria-hidden", "true");
  update(group, "class", lineClass(colour));
  update(stroke, "class", "rp-chart-stroke");
  update(stroke, "d", "M1 4H31");
  group.append(stroke);
  svg.append(group);
  return svg;
}

/** The paths of one line, made once and moved after. */
function linePaths() {
  const node = svgNode("g", {});
  const paths = Object.fromEntries(
    ["band", "stroke", "dots", "at"].map((part) => {
      const path = svgNode("path", { class: `rp-chart-${part}` });
      node.append(path);
      return [part, path];
    }),
  );
  return { node, ...paths };
}

/** Draw a line, its band and its dots; `place(k, value)` is a point in SVG's words. */
function drawLine(paths, line, place, withDots) {
  const { values, low, high, shown = true } = line;
  update(paths.node, "display", shown ? "inline" : "none");
  if (!shown) return;
  const along = ([a, b], of) =>
    Array.from({ length: b - a + 1 }, (_, k) => place(a + k, of[a + k]));
  const parts = stretches(values);
  const stroke = parts.map((part) => `M${along(part, values).join("L")}`);
  const bands = (low && high ? parts : []).map((part) => {
    const edge = [...along(part, high), ...along(part, low).reverse()];
    return `M${edge.join("L")}Z`;
  });
  const dots = [...values.keys()].filter((k) => withDots && isNumber(values[k]));
  update(paths.stroke, "d", stroke.join(""));
  update(paths.band, "d", bands.join(""));
  update(paths.dots, "d", dots.map((k) => `M${place(k, values[k])}h0`).join(""));
}

/**
 * A chart of lines over the same points x. `onPoint(index, line)` is called when the
 * reader points near a point or moves to it by keyboard; `line` is the number of the
 * nearest line. With `draggable(index, value, more)` the reader moves the points of the
 * first line: by drawing over them, or with the up and down keys by `step`; `more` says
 * that other points follow at once. `say(value)` is a value in words. With `mustPress`
 * pointing without pressing does nothing.
 */
export function lineChart(options) {
  const { name, xLabel, yLabel, mustPress, onPoint, draggable, step } = options;
  const { say = (value) => (isNumber(value) ? format(value, 3) : "nothing") } = options;
  const [xTicks, yTicks, markBox, rule] = ["x", "y", "marks", "rule"].map((part) =>
    div(`rp-chart-${part}`),
  );
  const xName = div("rp-chart-x-name", xLabel);
  const yName = div("rp-chart-y-name", yLabel);
  for (const part of [xTicks, yTicks, markBox, rule, xName, yName])
    update(part, "aria-hidden", "true");
  const svg = svgNode("svg", {
    role: "img",
    viewBox: `0 0 ${SIDE} ${SIDE}`,
    preserveAspectRatio: "none",
  });
  const gridLines = svgNode("path", { class: "rp-chart-grid" });
  const zero = svgNode("path", { class: "rp-chart-grid rp-chart-zero" });
  svg.append(gridLines, zero);
  const handle = make("div", { class: "rp-chart-handle", role: "slider", tabindex: 0 });
  for (const [key, value] of Object.entries(KEYS_STAY)) update(handle, key, value);
  const keys = draggable
    ? "choose a point with left and right, move it with up and down"
    : "choose a point with the arrow keys";
  update(handle, "aria-label", `${name}: ${keys}`);
  if (draggable) handle.classList.add("rp-chart-draggable");
  const area = div("rp-chart-area", svg, yTicks, xTicks, markBox, rule, handle);
  const node = div("rp-chart-box", yName, area, xName);
  const groups = [];
  let [now, scales, at, line, pressed] = [null, null, 0, 0, null];

  const place = (k, value) =>
    `${(SIDE * scales.across(now.x[k])).toFixed(1)} ` +
    `${(SIDE * (1 - scales.up(value))).toFixed(1)}`;
  /** Lines that have a shown point there. */
  const linesAt = (index) =>
    [...now.lines.keys()].filter(
      (k) => now.lines[k].shown !== false && isNumber(now.lines[k].values[index]),
    );

  /** Fill an axis with spans, unless it says the same already. */
  function label(axis, side, ticks) {
    const key = ticks.flat().join(" ");
    if (axis.dataset.ticks === key) return;
    axis.dataset.ticks = key;
    const spans = ticks.map(([fraction, text]) => {
      const span = make("span", {}, text);
      span.style[side] = `${100 * fraction}%`;
      if (fraction > 0.6) span.className = "rp-chart-late";
      return span;
    });
    axis.replaceChildren(...spans);
  }
  function drawAxes() {
    const { across, up } = scales;
    const { yNames = [] } = now;
    const apart =
      (y) =>
      ([named]) =>
        Math.abs(up(named) - up(y)) > 0.07;
    const alone = ([y]) => yNames.every(apart(y));
    const rows = [...roundTicks(...now.yRange).filter(alone), ...yNames];
    const columns = xTicksOf(now, across);
    label(
      yTicks,
      "bottom",
      rows.map(([y, text]) => [up(y), text]),
    );
    label(
      xTicks,
      "left",
      columns.map(([x, text]) => [across(x), text]),
    );
    const marks = now.marks ?? [];
    label(
      markBox,
      "left",
      marks.map((mark) => [across(mark.x), mark.label]),
    );
    const heights = rows.map(([y]) => (SIDE * (1 - up(y))).toFixed(1));
    update(gridLines, "d", heights.map((y) => `M0 ${y}H${SIDE}`).join(""));
    update(zero, "d", up(0) > 0 && up(0) < 1 ? `M0 ${SIDE * (1 - up(0))}H${SIDE}` : "");
  }
  function drawLines() {
    while (groups.length < now.lines.length) {
      groups.push(linePaths());
      svg.append(groups.at(-1).node);
    }
    for (const extra of groups.splice(now.lines.length)) extra.node.remove();
    const few = now.x.length < MANY_POINTS;
    now.lines.forEach((one, k) => {
      drawLine(groups[k], one, place, few || (draggable && k === 0));
    });
  }
  /** Show which point is current, and the dots of all lines there. */
  function select(index, nearest = line) {
    at = within(index, now.x.length);
    line = within(nearest, now.lines.length);
    rule.style.left = `${100 * scales.across(now.x[at])}%`;
    const here = linesAt(at);
    now.lines.forEach(({ values, colour }, k) => {
      const dot = here.includes(k) ? `M${place(at, values[at])}h0` : "";
      update(groups[k].at, "d", dot);
      const current = k === line && now.lines.length > 1 ? " rp-chart-on" : "";
      update(groups[k].node, "class", lineClass(colour ?? k) + current);
    });
    describeHandle();
  }
  function describeHandle() {
    const { x, yRange, lines } = now;
    const value = lines[line]?.values[at];
    const [low, high, here] = draggable ? [...yRange, value] : [x[0], x.at(-1), x[at]];
    update(handle, "aria-valuemin", low);
    update(handle, "aria-valuemax", high);
    update(handle, "aria-valuenow", here);
    const named = lines.length > 1 ? `, ${lines[line].label}` : "";
    const point = format(x[at], Number.isInteger(x[at]) ? 0 : 2);
    update(handle, "aria-valuetext", `${now.xLabel} ${point}${named}: ${say(value)}`);
  }
  function choose(index, nearest) {
    const before = [at, line];
    select(index, nearest);
    if (before[0] !== at || before[1] !== line) onPoint?.(at, line);
  }
  /** The shown line nearest to a value; the one of before if there is none. */
  function nearestLine(index, value) {
    const gap = (k) => Math.abs(now.lines[k].values[index] - value);
    const shown = linesAt(index);
    return shown.reduce((best, k) => (gap(k) < gap(best) ? k : best), shown[0] ?? line);
  }
  function move(index, value, more = false) {
    draggable(index, scales.valueAt(scales.up(value)), more);
  }
  /** Move the point under the pointer, and those it jumped over since the last time. */
  function drawOver(index, value) {
    const from = pressed.index === null ? { index, value } : pressed;
    const steps = Math.max(1, Math.abs(index - from.index));
    for (let k = 1; k <= steps; k++)
      move(
        from.index + Math.round(((index - from.index) * k) / steps),
        from.value + ((value - from.value) * k) / steps,
        k < steps,
      );
    pressed = { index, value };
  }
  function point(event) {
    const box = handle.getBoundingClientRect();
    const index = nearestPoint(
      now.x,
      scales.across,
      (event.clientX - box.left) / box.width,
    );
    const value = scales.valueAt(1 - (event.clientY - box.top) / box.height);
    choose(index, draggable ? 0 : nearestLine(index, value));
    if (pressed) drawOver(index, value);
  }
  handle.addEventListener("pointermove", (event) => {
    if (!mustPress || event.buttons) point(event);
  });
  handle.addEventListener("pointerdown", (event) => {
    if (draggable && event.isPrimary && event.button === 0) {
      pressed = { index: null };
      handle.setPointerCapture(event.pointerId);
    }
    point(event);
  });
  for (const end of ["pointerup", "pointercancel"])
    handle.addEventListener(end, () => {
      pressed = null;
    });
  handle.addEventListener("focus", () => onPoint?.(at, line));

  /** Up and down: to the next line there, or the point itself. */
  function vertical(sign, far) {
    if (!draggable) {
      const height = (k) => now.lines[k].values[at];
      const order = linesAt(at).sort((a, b) => height(a) - height(b));
      const next = order.indexOf(line) + sign * (far ? 5 : 1);
      if (order.length) choose(at, order[within(next, order.length)]);
      return;
    }
    const [low, high] = now.yRange;
    const size = step ?? roundUp((high - low) / 100);
    const value = now.lines[0].values[at];
    const start = isNumber(value) ? value : sign > 0 ? low : high;
    const moved = (Math.round(start / size) + sign * (far ? 10 : 1)) * size;
    move(at, Number(moved.toPrecision(12)));
  }
  const moves = {
    ArrowLeft: () => choose(at - 1, line),
    ArrowRight: () => choose(at + 1, line),
    Home: () => choose(0, line),
    End: () => choose(now.x.length - 1, line),
    ArrowUp: () => vertical(1, false),
    ArrowDown: () => vertical(-1, false),
    PageUp: () => vertical(1, true),
    PageDown: () => vertical(-1, true),
  };
  handle.addEventListener("keydown", (event) => {
    if (!moves[event.key] || event.altKey || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    moves[event.key]();
  });

  /**
   * Draw `lines` of {label, values, low, high, shown, colour} over the points `x`;
   * `colour` is a number, NaN leaves a gap, `marks` are {x, label}, `yNames` are
   * [value, text] on the y axis, and `alt` says in words what is shown. The name of
   * the x axis may change.
   */
  function draw(chart) {
    now = { xLabel, ...chart };
    scales = chartScales(chart);
    setText(xName, now.xLabel);
    drawAxes();
    drawLines();
    update(svg, "aria-label", chart.alt);
    select(at, line);
  }
  return { node, draw, select };
}
