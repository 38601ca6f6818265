/** Attention maps of every head: content + position = score -> softmax -> weight. */
import {
  attend,
  clipOffset,
  diverging,
  floats,
  format,
  largest,
  prepare,
  relativeOffset,
  roundUp,
  tableRow,
  viridis,
} from "./core.js";
import {
  checkbox,
  choice,
  colourBar,
  follow,
  make,
  matrix,
  readout,
  slider,
} from "./matrix.js";

const TRAITS = ["max_distance", "heads_shown", "causal", "view"];
const VIEWS = {
  content: "content score",
  position: "position score",
  score: "score",
  weights: "attention weight",
};

function problemOf(model) {
  return {
    query: floats(model.get("_query")),
    key: floats(model.get("_key")),
    table: floats(model.get("_table")),
    scheme: model.get("scheme"),
    H: model.get("num_heads"),
    Q: model.get("query_length"),
    S: model.get("key_length"),
    D: model.get("head_width"),
    Kmax: model.get("table_distance"),
  };
}

/** A weight: one that is not zero must not look like it. */
const share = (weight) => (weight > 0 && weight < 5e-4 ? "< 0.001" : format(weight, 3));

/** What one head's picture shows now, in words. */
function inWords(head, values, { Q, S, K, causal, view, result }) {
  let best = -1;
  for (let cell = 0; cell < Q * S; cell++)
    if (result.allowed[cell] && !(values[best] >= values[cell])) best = cell;
  const peak =
    best < 0
      ? "No query may attend to a key."
      : `Largest, ${format(values[best], 3)}, ` +
        `at query ${Math.floor(best / S)}, key ${best % S}.`;
  return (
    `${VIEWS[view]}s of head ${head + 1}: ${Q} queries by ${S} keys, ` +
    `maximum distance ${K}${causal ? ", causal" : ""}. ${peak}`
  );
}

function render({ model, el }) {
  const fixed = prepare(problemOf(model));
  const { H, Q, S, Kmax } = fixed;
  const controls = [
    slider(model, "max_distance", "Maximum distance", "K", 0, Kmax),
    slider(model, "heads_shown", "Heads shown", "", 1, H),
    choice(model, "view", "Show", {
      content: "content",
      position: "position",
      score: "score",
      weights: "weights",
    }),
    checkbox(model, "causal", "Causal mask"),
  ];
  const [bar, numbers] = [colourBar(), readout()];
  const panels = Array.from({ length: H }, (_, head) => {
    const cells = matrix({
      name: `Head ${head + 1}`,
      ticks: 7,
      onCell: (i, j) => onCell(head, i, j),
    });
    const title = make("div", { class: "rp-title" }, `head ${head + 1}`);
    return { ...cells, box: make("div", { class: "rp-panel" }, title, cells.node) };
  });
  let current = { head: 0, i: Q - 1, j: 0 };
  let now = null;

  function onCell(head, i, j) {
    current = { head, i, j };
    tell();
  }
  /** Mark the cell in every head, to compare heads, and say its numbers. */
  function tell() {
    const { i, j } = current;
    const head = Math.min(current.head, now.shown - 1);
    for (const panel of panels) panel.select(i, j);
    panels.forEach((panel, h) => panel.box.classList.toggle("rp-current", h === head));
    const cell = (head * Q + i) * S + j;
    const { content, position, score, weights, allowed } = now.result;
    const offset = relativeOffset(i, j, Q, S);
    const number = (name) => format(name[cell], 3);
    numbers.tell([
      ["head", "head", String(head + 1)],
      ["i", "query i =", String(i)],
      ["j", "key j =", String(j)],
      ["offset", "offset", format(offset)],
      ["clipped", "clipped", format(clipOffset(offset, now.K))],
      ["row", "row", String(tableRow(offset, now.K))],
      ["content", "content", number(content)],
      ["position", "+ position", number(position)],
      ["score", "= score", number(score)],
      [
        "weight",
        "\u2192 weight",
        allowed[i * S + j] ? share(weights[cell]) : "0, masked",
      ],
    ]);
  }
  function redraw() {
    const [K, causal, view] = ["max_distance", "causal", "view"].map((t) =>
      model.get(t),
    );
    const result = attend(fixed, K, causal);
    now = { Q, S, K, causal, view, result, shown: model.get("heads_shown") };
    const signed = view !== "weights";
    const top = roundUp(largest(result[view], result.allowed));
    const colour = (value) => (signed ? diverging(value / top) : viridis(value / top));
    for (const control of controls) control.show();
    panels.forEach((panel, head) => {
      panel.box.hidden = head >= now.shown;
      if (panel.box.hidden) return;
      const values = result[view].subarray(head * Q * S, (head + 1) * Q * S);
      const cellOf = (i, j) => ({
        colour: result.allowed[i * S + j] ? colour(values[i * S + j]) : null,
      });
      panel.draw({ queries: Q, keys: S, cellOf, alt: inWords(head, values, now) });
    });
    const ends = [signed ? -top : 0, top].map((end) =>
      String(end).replace("-", "\u2212"),
    );
    bar.show(...ends, VIEWS[view], signed ? (t) => diverging(2 * t - 1) : viridis);
    tell();
  }

  const position = model.get("scheme") === "shaw" ? "q\u00b7a / \u221aD" : "b";
  const note = make(
    "p",
    { class: "rp-note" },
    `content q\u00b7k / \u221aD + position ${position} = score; ` +
      "softmax over keys gives the weight",
  );
  const root = make(
    "div",
    {
      class: "rp-figure rp-maps",
      role: "group",
      "aria-label": "Attention map explorer",
    },
    make("div", { class: "rp-controls" }, ...controls.map((c) => c.node)),
    bar.node,
    make("div", { class: "rp-panels" }, ...panels.map((panel) => panel.box)),
    numbers.node,
    note,
  );
  el.append(root);
  return follow(model, TRAITS, redraw);
}

export default { render };
