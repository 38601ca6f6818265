/** Index matrix: which row of the table does every (query, key) pair read? */
import {
  clipOffset,
  diverging,
  format,
  mayAttend,
  queryPosition,
  relativeOffset,
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

const NUMBERS_UP_TO = 12;
const TRAITS = ["query_length", "key_length", "max_distance", "causal", "view"];
const VIEWS = {
  offset: { label: "offset", unit: "offset", of: (offset) => offset },
  clipped: { label: "clipped", unit: "clipped offset", of: clipOffset },
  row: { label: "row", unit: "row of the table", of: tableRow },
};

/** Value range of a view: signed ones are symmetric about 0. */
function rangeOf(view, Q, S, K) {
  const reach = Math.max(Q, S, 2) - 1;
  if (view === "row") return [0, Math.max(2 * K, 1)];
  const most = view === "clipped" ? Math.max(1, Math.min(K, reach)) : reach;
  return [-most, most];
}

function colourIn(view, [low, high]) {
  return (value) =>
    view === "row" ? viridis((value - low) / (high - low)) : diverging(value / high);
}

/** What the picture shows now, in words. */
function inWords({ Q, S, K, causal, view }) {
  const reach = Math.max(Q, S) - 1;
  const beyond =
    K < reach ? "offsets beyond it read the edge rows" : "no offset is beyond it";
  return (
    `Matrix of ${Q} queries by ${S} keys showing the ${VIEWS[view].unit}. ` +
    `Maximum distance ${K}, so the table has ${2 * K + 1} rows; ${beyond}. ` +
    (causal ? "Keys later than the query are masked." : "No key is masked.")
  );
}

/** The numbers of one cell, each step of the arithmetic written out. */
function numbersOf(i, j, { Q, S, K, causal }) {
  const [position, offset] = [queryPosition(i, Q, S), relativeOffset(i, j, Q, S)];
  const place = Q === S ? String(i) : `${i}, at position ${format(position)}`;
  const from = position < 0 ? `(${format(position)})` : position;
  return [
    ["i", "query i =", place],
    ["j", "key j =", String(j)],
    ["offset", `offset ${j} \u2212 ${from} =`, format(offset)],
    ["clipped", `clipped to \u00b1${K}:`, format(clipOffset(offset, K))],
    [
      "row",
      `row ${format(clipOffset(offset, K))} + ${K} =`,
      String(tableRow(offset, K)),
    ],
    ...(mayAttend(i, j, Q, S, causal) ? [] : [["masked", "", "masked"]]),
  ];
}

function render({ model, el }) {
  const longest = model.get("max_length");
  const controls = [
    slider(model, "query_length", "Query length", "Q", 1, longest),
    slider(model, "key_length", "Key length", "S", 1, longest),
    slider(model, "max_distance", "Maximum distance", "K", 0, longest - 1),
    choice(
      model,
      "view",
      "Show",
      Object.fromEntries(
        Object.entries(VIEWS).map(([view, { label }]) => [view, label]),
      ),
    ),
    checkbox(model, "causal", "Causal mask"),
  ];
  const [cells, bar, numbers] = [
    matrix({ name: "Index matrix", onCell }),
    colourBar(),
    readout(),
  ];
  let current = null;

  const state = () => ({
    Q: model.get("query_length"),
    S: model.get("key_length"),
    K: model.get("max_distance"),
    causal: model.get("causal"),
    view: model.get("view"),
  });
  function onCell(i, j) {
    current = [i, j];
    tell(state());
  }
  function tell(now) {
    const [i, j] = current ?? [now.Q - 1, 0];
    current = [Math.min(i, now.Q - 1), Math.min(j, now.S - 1)];
    cells.select(...current);
    numbers.tell(numbersOf(...current, now));
  }
  function redraw() {
    const now = state();
    const { Q, S, K, causal, view } = now;
    const range = rangeOf(view, Q, S, K);
    const colour = colourIn(view, range);
    const value = (i, j) => VIEWS[view].of(relativeOffset(i, j, Q, S), K);
    const cellOf = (i, j) =>
      mayAttend(i, j, Q, S, causal)
        ? { colour: colour(value(i, j)), text: format(value(i, j)) }
        : { colour: null, text: "" };
    const few = Math.max(Q, S) <= NUMBERS_UP_TO;
    for (const control of controls) control.show();
    cells.draw({ queries: Q, keys: S, cellOf, numbers: few, alt: inWords(now) });
    const ends = range.map((end) => format(end));
    const along = (t) => colour(range[0] + t * (range[1] - range[0]));
    bar.show(...ends, VIEWS[view].unit, along);
    tell(now);
  }

  const side = make(
    "div",
    { class: "rp-side" },
    ...controls.map((c) => c.node),
    numbers.node,
  );
  const stage = make("div", { class: "rp-stage" }, cells.node);
  const main = make("div", { class: "rp-main" }, bar.node, stage);
  const root = make(
    "div",
    {
      class: "rp-figure rp-index",
      role: "group",
      "aria-label": "Index matrix explorer",
    },
    make("div", { class: "rp-columns" }, side, main),
  );
  el.append(root);
  return follow(model, TRAITS, redraw);
}

export default { render };
