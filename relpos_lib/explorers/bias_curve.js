/** Draw your own bias: the curve b[offset] of a head, its scores and its weights. */
import {
  biasesOf,
  curveFloor,
  curveHeight,
  curveStep,
  headsShown,
  largestFinite,
  pairAt,
  pairsReading,
  rowOf,
  settleBias,
} from "./bias_curve_math.js";
import { lineChart, lineSample } from "./chart.js";
import { button } from "./controls.js";
import {
  allowedPairs,
  attendWithBias,
  clipOffset,
  contentOf,
  floats,
  format,
  partsOf,
  relativeOffset,
  roundUp,
} from "./core.js";
import { div, figureRoot, follow, make, nodesOf } from "./dom.js";
import { checkbox, readout, slider } from "./matrix.js";
import { panelRow, peakInWords, weightText } from "./panels.js";

const TRAITS = ["curve", "max_distance", "head", "heads_shown", "causal", "content"];

/** Rows of every preset: name -> head -> row of the trait. */
function presetsOf(model, H) {
  const names = model.get("preset_names");
  const all = partsOf(floats(model.get("_presets")), names.length);
  const rows = (preset) => partsOf(preset, H).map((row) => rowOf(row));
  return names.map((name, p) => ({ name, rows: rows(all[p]) }));
}

const sameRow = (one, other) => one.every((bias, k) => bias === other[k]);

const biasText = (bias) => (bias === -Infinity ? "hidden" : format(bias, 3));

/** An offset; at the edge of the table it stands for all beyond. */
function offsetText(offset, K, Kmax) {
  const beyond = Math.abs(offset) === K && K < Kmax ? " and beyond" : "";
  return `${offset > 0 ? "+" : ""}${format(offset)}${beyond}`;
}

/** A curve in words: its ends, its highest point and what it hides. */
function curveInWords(head, biases, K) {
  const most = Math.max(...biases);
  const hidden = biases.filter((bias) => bias === -Infinity).length;
  const at = format(biases.indexOf(most) - K);
  const flat = biases.every((bias) => bias === most);
  return (
    `Bias of head ${head + 1} over the offsets ${format(-K)} to ${K}: ` +
    (flat ? `${biasText(most)} everywhere` : `highest, ${biasText(most)}, at ${at}`) +
    (hidden ? `, ${hidden} of ${biases.length} offsets hidden.` : ".")
  );
}

/** What one head computes, kept as long as nothing about it changes. */
function headResults(fixed) {
  const kept = [];
  const none = new Float64Array(fixed.Q * fixed.S);
  return (head, row, now) => {
    const content = now.content ? fixed.content[head] : none;
    const found = kept[head];
    if (
      found?.row === row &&
      found.K === now.K &&
      found.allowed === now.allowed &&
      found.content === content
    )
      return found;
    const { K, allowed } = now;
    const result = attendWithBias(content, biasesOf(row), { ...fixed, K, allowed });
    const most = {
      score: largestFinite(result.score, allowed),
      weights: largestFinite(result.weights, allowed),
    };
    return (kept[head] = { ...result, most, row, K, allowed, content });
  };
}

function render({ model, el }) {
  const fixed = contentOf(model);
  const { H, Q, S, Kmax } = fixed;
  const [limit, resultOf] = [model.get("limit"), headResults(fixed)];
  const presets = presetsOf(model, H);
  const masks = [false, true].map((causal) => allowedPairs(Q, S, causal));
  const hasContent = fixed.content.some((matrix) => matrix.some((value) => value));
  const controls = [
    slider(model, "max_distance", "Maximum distance", "K", 0, Kmax),
    ...(H > 1 ? [slider(model, "head", "Head to draw", "", 1, H)] : []),
    ...(H > 1 ? [slider(model, "heads_shown", "Heads shown", "", 1, H)] : []),
    checkbox(model, "causal", "Causal mask"),
    ...(hasContent ? [checkbox(model, "content", "Content scores")] : []),
  ];
  const buttons = presets.map(({ name, rows }) =>
    button(name, () => setRow(rows[model.get("head") - 1].slice())),
  );
  const chart = lineChart({
    name: "Bias curve",
    xLabel: "offset j \u2212 i",
    yLabel: "bias b",
    step: curveStep(limit),
    say: (height) => biasText(settleBias(height, limit)),
    onPoint: (index) => {
      offset = index - now.K;
      cell = pairAt(offset, cell[0], fixed) ?? cell;
      head = now.head;
      tell();
    },
    draggable: drawPoint,
  });
  const heads = Array.from({ length: H }, (_, h) => `head ${h + 1}`);
  const named = (unit) => heads.map((name) => `${unit}s of ${name}`);
  const titles = () => heads.map((name, h) => [lineSample(h), name]);
  const onCell = (h, i, j) => {
    [head, cell] = [h, [i, j]];
    offset = clipOffset(relativeOffset(i, j, Q, S), now.K);
    tell();
  };
  const scores = panelRow(titles(), named("Score"), onCell);
  const weights = panelRow(titles(), named("Attention weight"), onCell);
  const numbers = readout();
  let [now, draft, head] = [null, null, model.get("head") - 1];
  let offset = Kmax ? -1 : 0;
  let cell = pairAt(offset, Q - 1, fixed) ?? [Q - 1, 0];

  /** Give the head that is drawn another row of numbers. */
  function setRow(row) {
    const curve = [...model.get("curve")];
    const edited = model.get("head") - 1;
    if (sameRow(row, curve[edited])) return;
    curve[edited] = row;
    model.set("curve", curve);
    model.save_changes();
  }
  /** The reader moved a point: keep its height as a number, when all have moved. */
  function drawPoint(index, height, more) {
    draft ??= [...model.get("curve")[now.head]];
    const bias = settleBias(height, limit);
    draft[index + Kmax - now.K] = bias === -Infinity ? null : bias;
    if (more) return;
    const row = draft;
    draft = null;
    setRow(row);
  }
  /** Mark the offset and the cell that are looked at, and say their numbers. */
  function tell() {
    const { K, allowed, shown } = now;
    if (!shown.includes(head)) head = now.head;
    offset = clipOffset(offset, K);
    const [i, j] = cell;
    chart.select(offset + K);
    for (const row of [scores, weights]) row.select(i, j, (h) => h === head);
    const result = resultOf(head, now.curve[head], now);
    const at = i * S + j;
    const bias = biasesOf(now.curve[head])[offset + Kmax];
    numbers.tell([
      ["head", "head", String(head + 1)],
      ["offset", "offset", offsetText(offset, K, Kmax)],
      ["bias", "bias b =", biasText(bias)],
      ["factor", "weight \u00d7", format(Math.exp(bias), 3)],
      ["pairs", "read by", `${pairsReading(offset, now)} pairs`],
      ["i", "query i =", String(i)],
      ["j", "key j =", String(j)],
      ["content", "content", format(result.content[at], 3)],
      ["position", "+ b", biasText(result.position[at])],
      ["score", "= score", biasText(result.score[at])],
      ["weight", "\u2192 weight", weightText(result.weights[at], allowed[at])],
    ]);
  }
  function drawChart() {
    const { K, shown, curve } = now;
    const offsets = Array.from({ length: 2 * K + 1 }, (_, k) => k - K);
    const middle = (h) => biasesOf(curve[h]).subarray(Kmax - K, Kmax + K + 1);
    const lines = [now.head, ...shown.filter((h) => h !== now.head)].map((h) => ({
      label: `head ${h + 1}`,
      colour: h,
      values: Array.from(middle(h), (bias) => curveHeight(bias, limit)),
    }));
    chart.draw({
      x: offsets,
      lines,
      yRange: [curveFloor(limit), limit],
      yNames: [[curveFloor(limit), "hidden"]],
      alt: curveInWords(now.head, middle(now.head), K),
    });
  }
  function drawPanels() {
    const { K, causal, allowed, shown } = now;
    const results = shown.map((h) => resultOf(h, now.curve[h], now));
    const top = (part) => roundUp(Math.max(...results.map(({ most }) => most[part])));
    const setting = `maximum distance ${K}${causal ? ", causal" : ""}`;
    const parts = [
      [scores, "score", true],
      [weights, "weights", false],
    ];
    for (const [row, part, signed] of parts) {
      const unit = signed ? "score" : "attention weight";
      const of = (h) => {
        const values = resultOf(h, now.curve[h], now)[part];
        const what = `${unit}s of ${heads[h]}: ${Q} queries by ${S} keys, ${setting}.`;
        return { values, alt: () => `${what} ${peakInWords(values, allowed, S)}` };
      };
      row.draw({ shown, of, Q, S, allowed, top: top(part), signed, unit });
    }
  }
  function redraw() {
    const [curve, K, causal, content] = [
      "curve",
      "max_distance",
      "causal",
      "content",
    ].map((trait) => model.get(trait));
    const edited = model.get("head") - 1;
    if (now && now.head !== edited) head = edited;
    const shown = headsShown(model.get("heads_shown"), edited);
    const allowed = masks[Number(causal)];
    now = { Q, S, K, Kmax, causal, content, allowed, curve, shown, head: edited };
    for (const control of controls) control.show();
    legend.textContent = H > 1 ? `Fill head ${edited + 1} with` : "Fill the curve with";
    buttons.forEach(({ press }, p) => {
      press(sameRow(presets[p].rows[edited], curve[edited]));
    });
    groups.classList.toggle("rp-beside", shown.length <= 2);
    drawChart();
    drawPanels();
    tell();
  }

  const groups = div("rp-groups", scores.node, weights.node);
  const legend = make("legend");
  const row = div("rp-buttons", ...nodesOf(buttons));
  const note = make(
    "p",
    { class: "rp-note" },
    "Draw over the chart, or choose an offset with the left and right keys and move " +
      "it with up and down. The bottom of the chart hides an offset.",
  );
  el.append(
    figureRoot(
      "Bias curve explorer",
      "rp-maps rp-curve",
      div("rp-controls", ...nodesOf(controls)),
      make("fieldset", {}, legend, row),
      make("div", {}, note, chart.node),
      numbers.node,
      groups,
    ),
  );
  return follow(model, TRAITS, redraw);
}

export default { render };
