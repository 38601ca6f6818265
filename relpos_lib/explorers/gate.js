/** Gate and scale: one table in two settings, and the difference that is left. */
import { lineChart, lineSample } from "./chart.js";
import { button, numberSlider } from "./controls.js";
import {
  allowedPairs,
  attendWithBias,
  clipOffset,
  contentOf,
  floats,
  format,
  largest,
  partsOf,
  relativeOffset,
  roundUp,
} from "./core.js";
import { div, figureRoot, follow, make, nodesOf, setText } from "./dom.js";
import { gateStrength, otherSetting } from "./gate_math.js";
import { checkbox, readout, slider } from "./matrix.js";
import { panelRow, peakInWords, weightText } from "./panels.js";

const SETTINGS = [
  { name: "A", gate: "gate", scale: "log_scale", colour: 1 },
  { name: "B", gate: "second_gate", scale: "second_log_scale", colour: 6 },
];
const TRAITS = [
  "gate",
  "log_scale",
  "second_gate",
  "second_log_scale",
  "head",
  "causal",
];
/** A difference below this is the rounding of the computer. */
const NOTHING = 1e-9;

/** Set one head's number in a trait that has one for every head. */
function assignHead(model, trait, head, value) {
  const numbers = [...model.get(trait)];
  numbers[head] = value;
  model.set(trait, numbers);
}

/** Gate and scale of one setting: two sliders and their product. */
function settingControls(model, { name, gate, scale, colour }, limits, ...more) {
  const head = () => model.get("head") - 1;
  const dial = (trait, label, letter, most) =>
    numberSlider({
      word: trait,
      label: `${label} ${name}`,
      letter,
      min: -most,
      max: most,
      step: 0.05,
      read: () => model.get(trait)[head()],
      write: (value) => {
        assignHead(model, trait, head(), value);
        model.save_changes();
      },
      text: (value) => format(value, 2),
    });
  const parts = [
    dial(gate, "Gate", "g", limits.gateLimit),
    dial(scale, "Log-scale", "s", limits.scaleLimit),
  ];
  const product = make("output", { class: "rp-gate-product" });
  const legend = make("legend", {}, lineSample(colour), ` Setting ${name}`);
  const node = make("fieldset", {}, legend, ...nodesOf(parts), product);
  node.append(...more);
  const show = () => {
    for (const part of parts) part.show();
    const [g, s] = [gate, scale].map((trait) => model.get(trait)[head()]);
    const text = `\u03c3(g)\u00b7e\u02e2 = ${format(gateStrength(g, s), 4)}`;
    setText(product, text);
  };
  return { node, show };
}

/** What the comparison of two settings comes to, in words. */
const verdictOf = (most) =>
  most < NOTHING
    ? "0: both settings are the same model"
    : `${most < 5e-4 ? "below 0.001" : format(most, 3)}: different models`;

function render({ model, el }) {
  const { H, Q, S, Kmax, content } = contentOf(model);
  const table = partsOf(Float64Array.from(floats(model.get("_table"))), H);
  const limits = {
    gateLimit: model.get("gate_limit"),
    scaleLimit: model.get("scale_limit"),
  };
  const masks = [false, true].map((causal) => allowedPairs(Q, S, causal));
  const find = button("Find another pair with the same product", findPair);
  const alone = make("p", { class: "rp-note", role: "status" });
  const settings = SETTINGS.map((setting, k) =>
    settingControls(model, setting, limits, ...(k ? [find.node, alone] : [])),
  );
  const controls = [
    ...(H > 1 ? [slider(model, "head", "Head", "", 1, H)] : []),
    checkbox(model, "causal", "Causal mask"),
  ];
  const chart = lineChart({
    name: "Tables",
    xLabel: "offset j \u2212 i",
    yLabel: "bias",
    onPoint: (index) => {
      offset = index - Kmax;
      tell();
    },
  });
  const onCell = (panel, i, j) => {
    cell = [i, j];
    offset = clipOffset(relativeOffset(i, j, Q, S), Kmax);
    tell();
  };
  const weights = panelRow(
    SETTINGS.map(({ name, colour }) => [lineSample(colour), name]),
    SETTINGS.map(({ name }) => `Attention weights in setting ${name}`),
    onCell,
  );
  const difference = panelRow([["A \u2212 B"]], ["Difference of the weights"], onCell);
  const numbers = readout();
  let [now, cell, offset] = [null, [Q - 1, 0], Kmax ? -1 : 0];

  function findPair() {
    const head = model.get("head") - 1;
    const [first, second] = SETTINGS.map(({ gate, scale }) =>
      [gate, scale].map((trait) => model.get(trait)[head]),
    );
    const found = otherSetting(first, second[0], limits);
    alone.textContent = found ? "" : "The sliders reach no other pair.";
    if (!found) return;
    assignHead(model, "second_gate", head, found[0]);
    assignHead(model, "second_log_scale", head, found[1]);
    model.save_changes();
  }
  function tell() {
    const { tables, results, gap, allowed, most } = now;
    const [i, j] = cell;
    const at = i * S + j;
    chart.select(offset + Kmax);
    weights.select(i, j, () => true);
    difference.select(i, j, () => true);
    const row = offset + Kmax;
    const [inA, inB] = results.map((r) => weightText(r.weights[at], allowed[at]));
    numbers.tell([
      ["verdict", "largest difference of the weights", verdictOf(most)],
      ["offset", "offset", format(offset)],
      ["stored", "stored b =", format(tables[0][row], 3)],
      ["first", "A adds", format(tables[1][row], 3)],
      ["second", "B adds", format(tables[2][row], 3)],
      ["i", "query i =", String(i)],
      ["j", "key j =", String(j)],
      ["weightA", "weight in A", inA],
      ["weightB", "in B", inB],
      ["gap", "difference", format(gap[at], 3)],
    ]);
  }
  function drawChart() {
    const { tables, strengths, head } = now;
    const labels = ["stored table", "setting A adds", "setting B adds"];
    const top = roundUp(Math.max(...tables.flatMap((t) => Array.from(t, Math.abs))));
    chart.draw({
      x: Array.from({ length: 2 * Kmax + 1 }, (_, k) => k - Kmax),
      lines: tables.map((table, k) => ({
        label: labels[k],
        colour: k ? SETTINGS[k - 1].colour : 0,
        values: Array.from(table),
      })),
      yRange: [-top, top],
      alt:
        `Table of head ${head + 1} over the offsets ${format(-Kmax)} to ${Kmax}, as ` +
        `stored and as added: setting A multiplies it by ${format(strengths[0], 3)}, ` +
        `setting B by ${format(strengths[1], 3)}.`,
    });
  }
  function drawPanels() {
    const { results, gap, allowed, most, head } = now;
    const top = roundUp(Math.max(...results.map((r) => largest(r.weights, allowed))));
    const shape = { Q, S, allowed, top };
    const of = (k) => ({
      values: results[k].weights,
      alt: () =>
        `Attention weights of head ${head + 1} in setting ${SETTINGS[k].name}. ` +
        peakInWords(results[k].weights, allowed, S),
    });
    weights.draw({ ...shape, shown: [0, 1], of, signed: false, unit: "weight" });
    difference.draw({
      ...shape,
      shown: [0],
      of: () => ({
        values: gap,
        alt: () =>
          `Weights of setting A minus those of B. Largest: ${verdictOf(most)}.`,
      }),
      signed: true,
      unit: "difference",
    });
  }
  function redraw() {
    const head = model.get("head") - 1;
    const allowed = masks[Number(model.get("causal"))];
    const strengths = SETTINGS.map(({ gate, scale }) =>
      gateStrength(model.get(gate)[head], model.get(scale)[head]),
    );
    const stored = table[head];
    const tables = [stored, ...strengths.map((a) => stored.map((b) => a * b))];
    const options = { Q, S, K: Kmax, Kmax, allowed };
    const results = tables
      .slice(1)
      .map((added) => attendWithBias(content[head], added, options));
    const [a, b] = results.map((result) => result.weights);
    const gap = a.map((weight, at) => weight - b[at]);
    const most = largest(gap, allowed);
    now = { head, allowed, strengths, tables, results, gap, most };
    for (const control of [...controls, ...settings]) control.show();
    drawChart();
    drawPanels();
    tell();
  }
  /** What no other pair was found for may have changed. */
  const clear = () => {
    alone.textContent = "";
  };

  const note = make(
    "p",
    { class: "rp-note" },
    lineSample(0),
    " The stored table b. A head adds \u03c3(g)\u00b7e\u02e2\u00b7b to its scores; " +
      "softmax over keys gives the weights.",
  );
  el.append(
    figureRoot(
      "Gate explorer",
      "rp-maps rp-gate",
      div("rp-controls", ...nodesOf(controls)),
      div("rp-gate-settings", ...nodesOf(settings)),
      make("div", {}, note, chart.node),
      numbers.node,
      div("rp-groups", weights.node, difference.node),
    ),
  );
  const stops = [follow(model, TRAITS, redraw), follow(model, TRAITS, clear)];
  return () => stops.forEach((stop) => stop());
}

export default { render };
