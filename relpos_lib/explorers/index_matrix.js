/** Index matrix: which row of the table does every (query, key) pair read? */
import {
  clipOffset,
  diverging,
  format,
  keysOfRow,
  mayAttend,
  queryPosition,
  relativeOffset,
  tableRow,
  viridis,
} from "./core.js";
import {
  KEYS_STAY,
  div,
  figureRoot,
  follow,
  freshId,
  make,
  nodesOf,
  update,
} from "./dom.js";
import {
  checkbox,
  choice,
  colourBar,
  matrix,
  readout,
  slider,
  svgNode,
  within,
} from "./matrix.js";

const NUMBERS_UP_TO = 12;
/** So many rows of the table have their names beside them. */
const NAMES = 13;
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

/** The offsets that read a row of the table; those of an edge row have no end. */
function offsetsOf(row, K) {
  const offset = format(row - K);
  if (K === 0) return "all";
  if (row === 0) return `\u2264 ${offset}`;
  return row === 2 * K ? `\u2265 ${offset}` : offset;
}

const pairsOfRow = (row, now) =>
  Array.from({ length: now.Q }, (_, i) => keysOfRow(row, i, now));

function pairsInWords(row, now) {
  const runs = pairsOfRow(row, now);
  const count = runs.reduce((sum, [first, end]) => sum + end - first, 0);
  return `${count || "no"} ${count === 1 ? "pair" : "pairs"}`;
}

/** The numbers of one cell, each step of the arithmetic written out. */
function numbersOf(i, j, now) {
  const { Q, S, K, causal } = now;
  const [position, offset] = [queryPosition(i, Q, S), relativeOffset(i, j, Q, S)];
  const place = Q === S ? String(i) : `${i}, at position ${format(position)}`;
  const from = position < 0 ? `(${format(position)})` : position;
  const row = tableRow(offset, K);
  return [
    ["i", "query i =", place],
    ["j", "key j =", String(j)],
    ["offset", `offset ${j} \u2212 ${from} =`, format(offset)],
    ["clipped", `clipped to \u00b1${K}:`, format(clipOffset(offset, K))],
    ["row", `row ${format(clipOffset(offset, K))} + ${K} =`, String(row)],
    mayAttend(i, j, Q, S, causal)
      ? ["pairs", "read by", pairsInWords(row, now)]
      : ["masked", "", "masked"],
  ];
}

/** Colours from top to bottom, one pixel a row, enlarged by the browser. */
function colourColumn() {
  const node = make("canvas", { width: 1 });
  const context = node.getContext("2d", { willReadFrequently: true });
  const paint = (count, colourOf) => {
    if (node.height !== count) node.height = count;
    const image = context.createImageData(1, count);
    for (let row = 0; row < count; row++)
      image.data.set([...colourOf(row), 255], 4 * row);
    context.putImageData(image, 0, 0);
  };
  return { node, paint };
}

/**
 * The rows of the table, from top to bottom: one tab stop, arrow keys move. `onRow` is
 * called when the reader points at a row or moves to it. As in a matrix, only the
 * current row exists for screen readers.
 */
function tableOfRows(onRow) {
  const quiet = { "aria-hidden": "true" };
  const option = make("div", { role: "option", id: freshId("row") });
  option.setAttribute("aria-selected", "true");
  const colours = colourColumn();
  const names = Array.from({ length: NAMES }, () =>
    make("div", quiet, make("span"), make("span")),
  );
  const list = make(
    "div",
    { role: "listbox", tabindex: 0, "aria-activedescendant": option.id, ...KEYS_STAY },
    ...[make("div", quiet, colours.node), ...names, option],
  );
  const columns = ["row", "offset"].map((name) => make("span", {}, name));
  const heading = make("div", quiet, ...columns);
  const node = div("rp-index-table", heading, list);
  let [current, count] = [0, 0];

  function choose(row) {
    const next = within(row, count);
    if (next !== current) onRow(next);
  }
  function point(event) {
    const { top, height } = list.getBoundingClientRect();
    choose(Math.floor(((event.clientY - top) / height) * count));
  }
  list.addEventListener("pointermove", point);
  list.addEventListener("pointerdown", point);
  list.addEventListener("focus", () => onRow(current));
  const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -5, PageDown: 5 };
  const ends = { Home: 0, End: Infinity };
  list.addEventListener("keydown", (event) => {
    const next = ends[event.key] ?? current + moves[event.key];
    if (Number.isNaN(next) || event.altKey || event.metaKey) return;
    event.preventDefault();
    choose(next);
  });

  function draw(K, colourOf) {
    count = 2 * K + 1;
    update(list, "aria-label", `Table of ${count} rows, move with the arrow keys`);
    colours.paint(count, colourOf);
    const step = [1, 2, 3, 5, 10].find((s) => count / s <= NAMES);
    names.forEach((name, k) => {
      const row = (K % step) + k * step;
      name.hidden = row >= count;
      if (name.hidden) return;
      name.style.top = `${(100 * (row + 0.5)) / count}%`;
      [row, offsetsOf(row, K)].forEach((text, part) => {
        name.children[part].textContent = text;
      });
    });
  }
  /** Mark a row, and say whether it is lit. */
  function select(row, K, isLit) {
    current = within(row, count);
    option.style.top = `${(100 * current) / count}%`;
    option.style.height = `${100 / count}%`;
    option.classList.toggle("rp-index-on", isLit);
    update(option, "aria-label", `row ${current}, offset ${offsetsOf(current, K)}`);
    update(option, "aria-posinset", current + 1);
    update(option, "aria-setsize", count);
  }
  return { node, list, draw, select };
}

/** A veil over the matrix that leaves the pairs of one row of the table free. */
function veil() {
  const path = svgNode("path", { "fill-rule": "evenodd" });
  const node = svgNode("svg", {
    class: "rp-index-veil",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  node.append(path);
  function draw(row, now) {
    const { Q, S } = now;
    update(node, "viewBox", `0 0 ${S} ${Q}`);
    const runs = row === null ? [] : pairsOfRow(row, now);
    const free = runs.map(([first, end], i) =>
      end > first ? `M${first} ${i}H${end}V${i + 1}H${first}z` : "",
    );
    update(path, "d", row === null ? "" : `M0 0H${S}V${Q}H0z${free.join("")}`);
  }
  return { node, draw };
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
  const table = tableOfRows(onRow);
  const shade = veil();
  cells.node.append(shade.node);
  let [current, unread] = [null, null];

  const state = () => ({
    Q: model.get("query_length"),
    S: model.get("key_length"),
    K: model.get("max_distance"),
    causal: model.get("causal"),
    view: model.get("view"),
  });
  function onCell(i, j) {
    [current, unread] = [[i, j], null];
    tell(state());
  }
  /** Go to a cell that reads this row, in the same query if there is one. */
  function onRow(row) {
    const now = state();
    const runs = pairsOfRow(row, now);
    const reads = ([first, end]) => end > first;
    const i = reads(runs[current[0]]) ? current[0] : runs.findIndex(reads);
    unread = i < 0 ? row : null;
    if (i >= 0) current = [i, row ? runs[i][0] : runs[i][1] - 1];
    tell(now);
  }
  /** Whether the reader is at the matrix or the table; only then is something lit. */
  const isHere = () =>
    [cells.grid, table.list].some((node) => node.matches(":hover, :focus"));
  function tell(now) {
    const [i, j] = current ?? [now.Q - 1, 0];
    current = [Math.min(i, now.Q - 1), Math.min(j, now.S - 1)];
    const [query, key] = current;
    const { Q, S, K } = now;
    const row = unread ?? tableRow(relativeOffset(query, key, Q, S), K);
    const isRead = unread === null && mayAttend(query, key, Q, S, now.causal);
    const isLit = isHere() && (isRead || unread !== null);
    cells.select(query, key);
    table.select(row, K, isLit);
    shade.draw(isLit ? row : null, now);
    numbers.tell(
      unread === null
        ? numbersOf(query, key, now)
        : [
            ["row", "row", String(row)],
            ["offset", "offset", offsetsOf(row, K)],
            ["pairs", "read by", "no pair"],
          ],
    );
  }
  for (const node of [cells.grid, table.list])
    for (const event of ["pointerenter", "pointerleave", "focus", "blur"])
      node.addEventListener(event, () => tell(state()));
  function redraw() {
    const now = state();
    unread = null;
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
    table.draw(K, (row) => colour(view === "row" ? row : row - K));
    tell(now);
  }

  const side = div("rp-side", ...nodesOf(controls), numbers.node);
  const stage = div("rp-stage", cells.node);
  const beside = div("rp-index-beside", stage, table.node);
  const main = div("rp-main", bar.node, beside);
  el.append(
    figureRoot("Index matrix explorer", "rp-index", div("rp-columns", side, main)),
  );
  return follow(model, TRAITS, redraw);
}

export default { render };
