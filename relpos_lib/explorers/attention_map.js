/** Attention, one cell at a time: content + position = score -> softmax -> values. */
import { binsOf, cellSteps, peaksOf } from "./attention_map_math.js";
import {
  attend,
  clipOffset,
  diverging,
  floats,
  format,
  keysOfRow,
  prepare,
  relativeOffset,
  roomFor,
  roundUp,
  tableRow,
  viridis,
} from "./core.js";
import { div, figureRoot, follow, make, nodesOf, setText, update } from "./dom.js";
import {
  checkbox,
  choice,
  colourBar,
  matrix,
  readout,
  slider,
  svgNode,
} from "./matrix.js";

const SHOWN = ["max_distance", "length", "heads_shown", "causal", "view"];
const CHOSEN = ["head", "query_index", "key_index"];
const VIEWS = {
  content: "content score",
  position: "position score",
  score: "score",
  weights: "attention weight",
};
const STEPS_OF_ALL = Object.keys(VIEWS);
const SIGNS = { content: "", position: "+ ", score: "= ", weights: "\u2192 " };
/** So many numbers of a vector are written out. */
const WRITTEN = 3;

function dataOf(model) {
  const [H, Q, S, D, Dv] = [
    "num_heads",
    "query_length",
    "key_length",
    "head_width",
    "value_width",
  ].map((trait) => model.get(trait));
  const [query, key, table, value, valueTable] = [
    "_query",
    "_key",
    "_table",
    "_value",
    "_value_table",
  ].map((trait) => floats(model.get(trait)));
  const [scheme, tables] = [model.get("scheme"), model.get("tables")];
  const Kmax = model.get("key_distance");
  return {
    ...{ H, Q, S, D, Dv, query, key, table, value, valueTable, scheme, Kmax },
    valueReach: model.get("value_distance"),
    hasKeys: tables.includes("key_table"),
    hasBins: tables.includes("value_table"),
  };
}

/** A weight: one that is not zero must not look like it. */
const share = (weight) => (weight > 0 && weight < 5e-4 ? "< 0.001" : format(weight, 3));

/** A number with three digits, or in powers of ten if it would look like zero. */
const plain = (x) =>
  x === 0 || Math.abs(x) >= 1e-3
    ? format(x, 3)
    : x.toExponential(1).replaceAll("-", "\u2212");

const counted = (keys) => `${keys} ${keys === 1 ? "key" : "keys"}`;

/** A vector as its first few numbers. */
function vectorText(vector) {
  const numbers = [...vector.slice(0, WRITTEN)].map((x) => format(x, 2));
  return `[${numbers.join(", ")}${vector.length > WRITTEN ? ", \u2026" : ""}]`;
}

/** An offset; that of an edge row stands for all beyond. */
function beyond(row, K) {
  const offset = format(row - K);
  if (K === 0) return `${offset} and all others`;
  if (row === 0) return `${offset} and less`;
  return row === 2 * K ? `${offset} and more` : offset;
}

/** What one panel shows now, in words; content does not depend on the distance. */
function inWords(head, view, best, { Q, S, K, causal, result }) {
  const most = result[view][head * Q * S + best];
  const peak =
    best < 0
      ? "No query may attend to a key."
      : `Largest, ${format(most, 3)}, ` +
        `at query ${Math.floor(best / S)}, key ${best % S}.`;
  const distance = view === "content" ? "" : `, maximum distance ${K}`;
  return (
    `${VIEWS[view]}s of head ${head + 1}: ${Q} queries by ${S} keys` +
    `${distance}${causal ? ", causal" : ""}. ${peak}`
  );
}

/** The bars of one head: how the weights of a query fall into the rows of a table. */
function binBars(head, onRow) {
  const [bars, own] = [svgNode("path", {}), svgNode("path", {})];
  own.setAttribute("class", "rp-maps-own");
  const svg = svgNode("svg", {
    class: "rp-maps-bars",
    role: "img",
    preserveAspectRatio: "none",
  });
  svg.append(bars, own);
  const [top, low, high] = [make("span"), make("span"), make("span")];
  const ends = (...parts) =>
    make("div", { class: "rp-maps-ends", "aria-hidden": "true" }, ...parts);
  const node = div(
    "rp-maps-bin",
    ends(make("span", { class: "rp-maps-name" }, `head ${head + 1}`), top),
    svg,
    ends(low, high),
  );
  let count = 1;
  const rowAt = (event) => {
    const { left, width } = svg.getBoundingClientRect();
    const row = Math.floor(((event.clientX - left) / width) * count);
    return Math.max(0, Math.min(count - 1, row));
  };
  svg.addEventListener("pointermove", (event) => onRow(rowAt(event), false));
  svg.addEventListener("pointerdown", (event) => onRow(rowAt(event), true));
  const bar = (row, height) => `M${row + 0.06} 1v${-height}h0.88v${height}z`;

  function draw(bins, row, most, query) {
    count = bins.length;
    const K = (count - 1) / 2;
    update(svg, "viewBox", `0 0 ${count} 1`);
    const heights = Array.from(bins, (bin) => bin / most);
    update(bars, "d", heights.map((height, r) => bar(r, height)).join(""));
    update(own, "d", bar(row, heights[row]));
    setText(top, format(most, most < 0.1 ? 3 : 2));
    setText(low, K ? `\u2264 ${format(-K)}` : "all offsets");
    setText(high, K ? `\u2265 ${K}` : "");
    const best = bins.indexOf(Math.max(...bins));
    const alt =
      `Weights of query ${query} in head ${head + 1}, added up for each of ${count} ` +
      `rows of the value table. Most, ${format(bins[best], 3)}, falls into row ` +
      `${best}, offset ${beyond(best, K)}; ${format(bins[row], 3)} into row ${row}.`;
    update(svg, "aria-label", alt);
  }
  return { node, draw };
}

/** A dot product divided by the root of the width. */
function scaledText(name, dot, x, { D }) {
  const root = plain(Math.sqrt(D));
  return `${name} / \u221a${D} = ${plain(dot)} / ${root} = ${plain(x)}`;
}

function positionText({ keyRow, position, dotRow }, data) {
  if (data.scheme === "bias") return `b[row ${keyRow}] = ${plain(position)}`;
  if (!data.hasKeys) return "0: the keys have no table";
  return scaledText(`q\u00b7a[row ${keyRow}]`, dotRow, position, data);
}

/** a + b or a - b, as it is written by hand. */
const sumText = (a, b) => `${plain(a)} ${b < 0 ? "\u2212" : "+"} ${plain(Math.abs(b))}`;

function softmaxText({ score, shift, seen, exponential, denominator, weight }) {
  const shifted = shift ? sumText(score, -shift) : plain(score);
  const divided = `${plain(exponential)} / ${plain(denominator)} = ${plain(weight)}`;
  return `exp(${shifted}) / sum over ${counted(seen)} = ${divided}`;
}

/** What the cell adds to the output: weight times value and its row of the table. */
function valueText({ weight, value, vector, valueRow, added }, data) {
  const parts = [
    ...(data.value.length ? [["v", value]] : []),
    ...(data.hasBins ? [[`a[row ${valueRow}]`, vector]] : []),
  ];
  const join = (texts) => (texts.length > 1 ? `(${texts.join(" + ")})` : texts[0]);
  const [names, vectors] = [
    parts.map(([name]) => name),
    parts.map(([, numbers]) => vectorText(numbers)),
  ].map(join);
  const times = `${plain(weight)} \u00b7`;
  return `${times} ${names} = ${times} ${vectors} = ${vectorText(added)}`;
}

function binText({ binKeys, bin, valueRow }, { valueK }) {
  const read = `${counted(binKeys)} ${binKeys === 1 ? "reads" : "read"}`;
  const row = `row ${valueRow} (offset ${beyond(valueRow, valueK)})`;
  return `${read} ${row} of the value table, with weight ${plain(bin)} in all`;
}

/** The lines of the arithmetic of one cell: [name, label, text]. */
function linesOf(data, steps, now, allowed) {
  const { content, position, score } = steps;
  const softmax = allowed ? softmaxText(steps) : "masked: not in the sum, weight 0";
  const lines = [
    ["content", "content", scaledText("q\u00b7k", steps.dotKey, content, data)],
    ["position", "+ position", positionText(steps, data)],
    ["score", "= score", `${sumText(content, position)} = ${plain(score)}`],
    ["softmax", "\u2192 weight", softmax],
  ];
  if (data.Dv) lines.push(["value", "\u00d7 value", valueText(steps, data)]);
  if (data.hasBins) lines.push(["bin", "bin", binText(steps, now)]);
  return lines;
}

/** The arithmetic of the chosen cell, as a short text that is announced. */
function arithmetic() {
  const title = div("rp-maps-name");
  const rows = div("rp-maps-lines");
  const node = make(
    "output",
    { class: "rp-maps-cell", "aria-live": "polite" },
    title,
    rows,
  );
  const made = {};
  function tell(name, lines) {
    setText(title, name);
    for (const [step, label, text] of lines) {
      made[step] ??= rows.appendChild(
        make("div", {}, make("b"), " ", make("span", { "data-step": step })),
      );
      const [heading, , body] = made[step].childNodes;
      setText(heading, label);
      setText(body, text);
    }
  }
  return { node, tell };
}

function render({ model, el }) {
  const data = dataOf(model);
  const fixed = prepare(data);
  const room = roomFor(fixed);
  const { H, Q, S } = fixed;
  const farthest = model.get("table_distance");
  const controls = [
    slider(model, "max_distance", "Maximum distance", "K", 0, farthest),
    slider(model, "length", "Sequence length", "", 1, Math.max(Q, S)),
    slider(model, "heads_shown", "Heads shown", "", 1, H),
    choice(model, "view", "Show", {
      content: "content",
      position: "position",
      score: "score",
      weights: "weights",
      steps: "all four",
    }),
    checkbox(model, "causal", "Causal mask"),
  ];
  const [bar, weightBar, numbers, cell] = [
    colourBar(),
    colourBar(),
    readout(),
    arithmetic(),
  ];
  /** Panels of every head: of the one step that is shown, or of all four. */
  const panels = Array.from({ length: H }, (_, head) => [newPanel(head, 0)]);
  const headings = panels.map((_, head) => div("rp-maps-head", `head ${head + 1}`));
  const boxes = panels.flatMap(([{ box }], head) => [headings[head], box]);
  const grid = div("rp-panels", ...boxes);
  const bins = Array.from({ length: H }, (_, head) =>
    binBars(head, (row, isPress) => onRow(head, row, isPress)),
  );
  const binTitle = make("p");
  const binBox = make(
    "div",
    {},
    binTitle,
    div("rp-panels", ...bins.map(({ node }) => node)),
  );
  binBox.hidden = !data.hasBins;
  let [now, pointed, last] = [null, null, ""];
  const kept = {};

  function newPanel(head, slot) {
    const cells = matrix({
      name: `Head ${head + 1}${slot ? `, ${STEPS_OF_ALL[slot]}` : ""}`,
      ticks: slot ? 0 : 7,
      onCanvas: true,
      onCell: (i, j) => point(head, i, j),
    });
    const [run, chosen] = [make("div"), div("rp-maps-chosen")];
    const quiet = { class: "rp-maps-marks", "aria-hidden": "true" };
    const marks = make("div", quiet, run, chosen);
    cells.node.append(marks);
    const title = div("rp-title");
    const name = slot ? "rp-panel rp-maps-next" : "rp-panel";
    const box = make("div", { class: name }, title, cells.node);
    const listen = (event, listener) => cells.grid.addEventListener(event, listener);
    // A finger has left the cell before the click comes.
    let pressed = null;
    listen("pointerdown", () => {
      pressed = pointed;
    });
    listen("click", () => set(pressed ?? pointed));
    listen("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      set(pointed);
    });
    listen("pointerenter", () => point(head, ...shownCell().slice(1)));
    for (const end of ["pointerleave", "blur"])
      listen(end, () => {
        if (!isHere()) point(...chosenCell());
      });
    return { ...cells, box, title, run, chosen };
  }
  /** Whether the reader is at one of the panels. */
  const isHere = () =>
    panels.flat().some(({ grid: cells }) => cells.matches(":hover, :focus"));
  function point(...cell) {
    pointed = cell;
    tell();
  }
  function set([head, i, j]) {
    model.set({ head: head + 1, query_index: i, key_index: j });
    model.save_changes();
  }
  /** The reader points at a bar: at the key nearest to the query that reads its row. */
  function onRow(head, row, isPress) {
    const [, i] = shownCell();
    const [first, end] = keysOfRow(row, i, { ...now, K: now.valueK });
    if (first >= end) return;
    point(head, i, row ? first : end - 1);
    if (isPress) set(pointed);
  }
  /** A cell, or the nearest that is shown. */
  const nearest = ([head, i, j]) => [
    Math.min(head, now.shown - 1),
    Math.min(i, now.Q - 1),
    Math.min(j, now.S - 1),
  ];
  const chosenCell = () => {
    const [head, i, j] = CHOSEN.map((trait) => model.get(trait));
    return nearest([head - 1, i, j]);
  };
  /** The cell that the readout is about. */
  const shownCell = () => nearest(pointed);
  function place({ style }, top, left, width) {
    Object.assign(style, {
      top: `${(100 * top) / now.Q}%`,
      left: `${(100 * left) / now.S}%`,
      height: `${100 / now.Q}%`,
      width: `${(100 * width) / now.S}%`,
    });
  }
  /** Mark the cell in every panel, to compare heads, and say its numbers. */
  function tell() {
    const [head, i, j] = shownCell();
    const [own, row, column] = chosenCell();
    const valueRow = tableRow(relativeOffset(i, j, now.Q, now.S), now.valueK);
    const [first, end] = keysOfRow(valueRow, i, { ...now, K: now.valueK });
    panels.slice(0, now.shown).forEach((steps, h) => {
      for (const panel of steps.slice(0, now.slots)) {
        panel.select(i, j);
        panel.box.classList.toggle("rp-current", h === head);
        panel.chosen.hidden = h !== own || (row === i && column === j);
        if (!panel.chosen.hidden) place(panel.chosen, row, column, 1);
        panel.run.hidden = !data.hasBins || end - first < 2;
        if (!panel.run.hidden) place(panel.run, i, first, end - first);
      }
    });
    tellNumbers(head, i, j);
    if (data.hasBins) drawBins(i, valueRow);
  }
  function tellNumbers(head, i, j) {
    const at = (head * now.Q + i) * now.S + j;
    const { result, K, keyK } = now;
    const offset = relativeOffset(i, j, now.Q, now.S);
    const rowsK = data.hasBins && !data.hasKeys ? now.valueK : keyK;
    const number = (name) => format(result[name][at], 3);
    const allowed = result.allowed[i * now.S + j];
    numbers.tell([
      ["head", "head", String(head + 1)],
      ["i", "query i =", String(i)],
      ["j", "key j =", String(j)],
      ["offset", "offset", format(offset)],
      ["clipped", "clipped", format(clipOffset(offset, K))],
      ["row", "row", String(tableRow(offset, rowsK))],
      ["content", "content", number("content")],
      ["position", "+ position", number("position")],
      ["score", "= score", number("score")],
      ["weight", "\u2192 weight", allowed ? share(result.weights[at]) : "0, masked"],
    ]);
  }
  function drawBins(i, valueRow) {
    const shown = bins.slice(0, now.shown);
    const heights = shown.map((_, head) =>
      binsOf(now.result.weights, head, i, { ...now, K: now.valueK }),
    );
    const most = roundUp(Math.max(...heights.map((one) => Math.max(...one))));
    shown.forEach((one, head) => one.draw(heights[head], valueRow, most, i));
    bins.forEach(({ node }, head) => {
      node.hidden = head >= now.shown;
    });
    const text =
      `Value side: the weights of query ${i}, added up for each of the ` +
      `${2 * now.valueK + 1} rows of the value table`;
    setText(binTitle, text);
  }
  function tellArithmetic() {
    const [head, i, j] = chosenCell();
    const steps = cellSteps(data, now.result, [head, i, j], now);
    const { offset, clipped } = steps;
    const clip = clipped === offset ? "" : `, clipped to ${format(clipped)}`;
    const place = `Head ${head + 1}, query ${i}, key ${j}`;
    const name = `${place}: offset ${format(offset)}${clip}`;
    const allowed = now.result.allowed[i * now.S + j];
    cell.tell(name, linesOf(data, steps, now, allowed));
  }
  /** What the numbers of a step depend on. */
  const keyOf = (step) => {
    const { Q: q, S: s, K, causal } = now;
    return [step, q, s, causal, step === "content" ? "" : K].join();
  };
  /** Peaks of a step, looked for again only when its numbers are others. */
  function peaksAt(step) {
    const key = keyOf(step);
    if (kept[step]?.key !== key)
      kept[step] = { key, ...peaksOf(now.result[step], now.result.allowed, H) };
    return kept[step];
  }
  function drawPanels() {
    const { Q: q, S: s, result, view, slots } = now;
    const views = slots > 1 ? STEPS_OF_ALL : [view];
    const peaks = Object.fromEntries(views.map((step) => [step, peaksAt(step)]));
    // Scores share one scale, so that content + position = score can be seen.
    const scores = views.filter((step) => step !== "weights");
    const most = Math.max(...scores.map((step) => peaks[step].most), 0);
    const topOf = (step) => roundUp(step === "weights" ? peaks.weights.most : most);
    panels.forEach((steps, head) => {
      while (head < now.shown && steps.length < slots) {
        const panel = newPanel(head, steps.length);
        steps.at(-1).box.after(panel.box);
        steps.push(panel);
      }
      headings[head].hidden = head >= now.shown || slots === 1;
      steps.forEach((panel, slot) => {
        panel.box.hidden = head >= now.shown || slot >= slots;
        if (panel.box.hidden) return;
        const step = views[slot];
        const title = slots > 1 ? SIGNS[step] + step : `head ${head + 1}`;
        setText(panel.title, title);
        const look = `${keyOf(step)} ${topOf(step)}`;
        if (panel.look === look) return;
        panel.look = look;
        const shade = {
          ...{ values: result[step], start: head * q * s, allowed: result.allowed },
          ...{ top: topOf(step), signed: step !== "weights" },
        };
        const alt = inWords(head, step, peaks[step].best[head], now);
        panel.draw({ queries: q, keys: s, shade, alt });
      });
    });
    grid.classList.toggle("rp-maps-all", slots > 1);
    const showBar = (one, step) => {
      const [signed, top] = [step !== "weights", topOf(step)];
      const ends = [signed ? -top : 0, top].map((end) =>
        String(end).replace("-", "\u2212"),
      );
      one.show(...ends, VIEWS[step], signed ? (t) => diverging(2 * t - 1) : viridis);
    };
    showBar(bar, views.length > 1 ? "score" : view);
    if (views.length > 1) showBar(weightBar, "weights");
    if (views.length > 1) bar.node.after(weightBar.node);
    else weightBar.node.remove();
  }
  function redraw() {
    const [K, length, shown, causal, view] = SHOWN.map((trait) => model.get(trait));
    const [q, s] = [Math.min(length, Q), Math.min(length, S)];
    const wanted = [K, length, causal].join();
    const result =
      wanted === last ? now.result : attend(fixed, K, causal, [q, s], room);
    last = wanted;
    now = {
      ...{ Q: q, S: s, K, causal, view, result, shown },
      slots: view === "steps" ? 4 : 1,
      keyK: Math.min(K, data.Kmax),
      valueK: Math.min(K, data.valueReach),
    };
    for (const control of controls) control.show();
    pointed ??= chosenCell();
    drawPanels();
    tell();
    tellArithmetic();
  }
  function chosen() {
    point(...chosenCell());
    tellArithmetic();
  }

  const position = data.scheme === "shaw" ? "q\u00b7a / \u221aD" : "b";
  const note = make(
    "p",
    { class: "rp-note" },
    `content q\u00b7k / \u221aD + position ${position} = score; ` +
      "softmax over keys gives the weight. Point at a cell to read it; click it, or " +
      "press Enter on it, for its arithmetic.",
  );
  el.append(
    figureRoot(
      "Attention map explorer",
      "rp-maps",
      div("rp-controls", ...nodesOf(controls)),
      bar.node,
      grid,
      numbers.node,
      binBox,
      cell.node,
      note,
    ),
  );
  const stop = [follow(model, SHOWN, redraw), follow(model, CHOSEN, chosen)];
  return () => stop.forEach((end) => end());
}

export default { render };
