/** Length plot: a result by length, a line a setting, its seeds in a band. */
import { lineChart, lineSample } from "./chart.js";
import { button } from "./controls.js";
import { format } from "./core.js";
import { KEYS_STAY, div, figureRoot, follow, make, nodesOf } from "./dom.js";
import { rankingAt, withGaps } from "./length_plot_math.js";
import { checkbox, readout } from "./matrix.js";

const DIGITS = 3;

/** The lines of the chart, whether shown or not. */
function linesOf({ lines }) {
  return lines.map(({ name, label, mean, low, high }, colour) => {
    const [values, lows, highs] = [mean, low, high].map(withGaps);
    return { name, label, values, low: lows, high: highs, colour };
  });
}

/** A mean with the range of its seeds; nothing where the line has no number. */
function numberAt({ values, low, high }, point) {
  if (!Number.isFinite(values[point])) return ["", ""];
  const [mean, least, most] = [values, low, high].map((of) =>
    format(of[point], DIGITS),
  );
  return [mean, `${least}\u2013${most}`];
}

/** What the chart shows, in words: who is ahead at the greatest length. */
function inWords({ lengths, trained, yLabel }, lines) {
  const last = lengths.length - 1;
  const ends = rankingAt(lines, last).map(
    (k) => `${lines[k].label} ${format(lines[k].values[last], 2)}`,
  );
  return (
    `${yLabel} by length from ${lengths[0]} to ${lengths[last]} for ` +
    `${lines.length} settings${trained ? `, trained up to length ${trained}` : ""}. ` +
    (ends.length ? `At length ${lengths[last]}, from high to low: ` : "") +
    `${ends.join(", ")}.`
  );
}

/** One row of the legend: checkbox, piece of the line, name, number. */
function legendRow({ label }, colour, onToggle) {
  const input = make("input", { type: "checkbox", ...KEYS_STAY });
  input.addEventListener("change", () => onToggle(input.checked));
  const [mean, range] = [make("b"), make("span")];
  const name = make("label", { class: "rp-check" }, input, lineSample(colour), label);
  const node = div("rp-length-row", name, mean, range);
  const show = (shown, [number, ends]) => {
    input.checked = shown;
    [mean.textContent, range.textContent] = [number, ends];
  };
  return { node, input, show };
}

function render({ model, el }) {
  const data = model.get("_data");
  const lines = linesOf(data);
  const { lengths, trained, yLabel, yRange } = data;
  const start = lengths.indexOf(trained);
  let [point, current] = [start < 0 ? 0 : start, 0];

  const show = (names) => {
    const kept = lines.map(({ name }) => name).filter((name) => names.includes(name));
    model.set("shown", kept);
    model.save_changes();
  };
  const rows = lines.map((line, k) =>
    legendRow(line, k, (on) => {
      const others = model.get("shown").filter((name) => name !== line.name);
      show(on ? [...others, line.name] : others);
    }),
  );
  const spread = checkbox(model, "spread", "Spread over seeds");
  const buttons = [
    button("Show all", () => show(lines.map(({ name }) => name))),
    button("Hide all", () => show([])),
  ];
  const heading = make("legend");
  const legend = make(
    "fieldset",
    { class: "rp-length-legend" },
    heading,
    ...nodesOf(rows),
  );
  const numbers = readout();
  const chart = lineChart({
    name: yLabel,
    xLabel: "length L",
    yLabel,
    onPoint: (index, line) => {
      [point, current] = [index, line];
      tell();
    },
  });
  rows.forEach((row, k) => {
    for (const event of ["pointerenter", "focusin"])
      row.node.addEventListener(event, () => {
        current = k;
        chart.select(point, k);
        tell();
      });
  });

  const isShown = (k) => model.get("shown").includes(lines[k].name);
  /** The numbers of all shown lines beside their names, those of one in words. */
  function tell() {
    heading.textContent = `Settings, and their numbers at length ${lengths[point]}`;
    rows.forEach((row, k) => {
      row.show(isShown(k), isShown(k) ? numberAt(lines[k], point) : ["", ""]);
      row.node.classList.toggle("rp-length-on", k === current && isShown(k));
    });
    const [mean, range] = isShown(current) ? numberAt(lines[current], point) : [];
    numbers.tell([
      ["length", "length", String(lengths[point])],
      ...(mean
        ? [
            ["line", "", lines[current].label],
            ["mean", "mean", mean],
            ["range", "seeds", range],
          ]
        : []),
    ]);
  }
  function redraw() {
    const shown = lines.filter((_, k) => isShown(k));
    const bands = model.get("spread");
    if (!isShown(current) && shown.length) current = lines.indexOf(shown[0]);
    spread.show();
    const inside = trained >= lengths[0] && trained <= lengths.at(-1);
    chart.draw({
      x: lengths,
      xLog: true,
      yRange,
      lines: lines.map(({ low, high, ...line }, k) => ({
        ...line,
        ...(bands ? { low, high } : {}),
        shown: isShown(k),
      })),
      marks: inside ? [{ x: trained, label: "trained up to here" }] : [],
      alt: inWords(data, shown),
    });
    chart.select(point, current);
    tell();
  }

  const tools = div("rp-length-tools", spread.node, ...nodesOf(buttons));
  const left = make("div", {}, chart.node, numbers.node);
  el.append(
    figureRoot(
      "Length plot explorer",
      "rp-length",
      div("rp-length-columns", left, make("div", {}, tools, legend)),
    ),
  );
  return follow(model, ["shown", "spread"], redraw);
}

export default { render };
