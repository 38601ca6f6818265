/** Near and far: how all pairs are divided, and what each form of attention costs. */
import { css, diverging, format, viridis } from "./core.js";
import { div, figureRoot, follow, make, nodesOf, update } from "./dom.js";
import { checkbox, colourBar, matrix, readout, stepSlider, svgNode } from "./matrix.js";
import {
  costsOf,
  countsOf,
  divisionOf,
  partAt,
  roundSteps,
  withPrefix,
} from "./near_far_math.js";

/** The picture is a canvas of this many pixels a side, whatever the length. */
const CANVAS = 768;
/** Rectangles of fewer pixels touch; larger ones leave a gap to the next. */
const APART_FROM = 12;
/** More equal rectangles than this are not outlined one by one. */
const MOST_OUTLINES = 128;
const NEAR = diverging(0.5);
const IN_TILE = diverging(0.25);
const GAP = diverging(0);
const TRAITS = ["length", "max_distance", "leaf", "causal"];
const FORMS = {
  plain: "no positions",
  usual: "usual, (L, L, D)",
  gather: "gather",
  nearFar: "near and far",
};
/** Bars begin at a thousand. */
const LOW = 3;

/** A number and a word, which has an s if it needs one. */
const counted = (number, what, many = `${what}s`) =>
  `${number} ${number === 1 ? what : many}`;
const countedQueries = (number) => counted(number, "query", "queries");

/** Colour of far rectangles by their queries, dark for large. */
function shadesOf(rectangles) {
  const sizes = [...new Set(rectangles.map((one) => one.queries))];
  sizes.sort((a, b) => b - a);
  const at = (k) => viridis(0.1 + (0.65 * k) / Math.max(1, sizes.length - 1));
  return { sizes, shades: new Map(sizes.map((size, k) => [size, at(k)])) };
}

/** What the picture shows now, in words. */
function inWords({ lengths, rectangles }, counts, share) {
  const { length, maxDistance, tile, causal } = lengths;
  const [largest] = rectangles;
  const far = largest
    ? `${counted(counts.rectangles, "far rectangle")}, the largest of ` +
      `${countedQueries(largest.queries)} by ${counted(largest.keys, "key")}, ` +
      `in ${counted(counts.calls, "call")} of the kernel. `
    : "No far rectangle: every pair is in a tile. ";
  return (
    `${length} queries by ${length} keys, divided for maximum distance ` +
    `${maxDistance}${causal ? ", causal" : ""}. ${far}` +
    `${counted(counts.tiles, "near tile")} of ${countedQueries(tile)} ` +
    `along the diagonal: ${share} of all pairs.`
  );
}

/** Every rectangle of an area, as call(first query, first key). */
function each({ firstQuery, firstKey, number, step }, call) {
  for (let n = 0; n < number; n++) call(firstQuery + n * step, firstKey + n * step);
}

/** The division on a canvas, and outlines over it. */
function divisionPicture() {
  const canvas = make("canvas", { width: CANVAS, height: CANVAS });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const kinds = ["alike", "halo", "one"];
  const paths = kinds.map((kind) => svgNode("path", { class: `rp-nearfar-${kind}` }));
  const svg = svgNode("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(...paths);
  const node = make("div", {}, canvas, svg);

  function paint({ lengths, areas, shades }) {
    const { length: L, maxDistance: K, causal } = lengths;
    const pixel = (at) => Math.round((at * CANVAS) / L);
    const fill = (i, j, rows, columns) => {
      const [x, y] = [pixel(j), pixel(i)];
      context.fillRect(x, y, pixel(j + columns) - x, pixel(i + rows) - y);
    };
    context.clearRect(0, 0, CANVAS, CANVAS);
    for (const area of areas) {
      context.fillStyle = css(area.isFar ? shades.get(area.queries) : IN_TILE);
      each(area, (i, j) => fill(i, j, area.queries, area.keys));
    }
    // Near pairs, a row of pixels at a time where a query has less than one.
    context.fillStyle = css(NEAR);
    const rows = Math.min(L, CANVAS);
    for (let row = 0; row < rows; row++) {
      const [i, next] = [(row * L) / rows, ((row + 1) * L) / rows];
      const query = Math.floor(i);
      const first = Math.max(0, query - K + 1);
      const after = Math.min(L, query + (causal ? 1 : K));
      fill(i, first, next - i, after - first);
    }
    context.fillStyle = css(GAP);
    for (const area of areas) part(area, pixel);
    update(svg, "viewBox", `0 0 ${L} ${L}`);
  }
  /** A thin gap at the right and below. */
  function part(area, pixel) {
    if (pixel(Math.min(area.queries, area.keys)) < APART_FROM) return;
    each(area, (i, j) => {
      const [x, y] = [pixel(j), pixel(i)];
      const [right, below] = [pixel(j + area.keys), pixel(i + area.queries)];
      if (right < CANVAS) context.fillRect(right - 2, y, 2, below - y);
      if (below < CANVAS) context.fillRect(x, below - 2, right - x, 2);
    });
  }
  /** Outline the part of a pair, and those that are done in the same call. */
  function outline(found) {
    const box = (i, j) => `M${j} ${i}h${found.area.keys}v${found.area.queries}`;
    const closed = (i, j) => `${box(i, j)}h${-found.area.keys}z`;
    const one = found ? closed(found.firstQuery, found.firstKey) : "";
    const alike = [];
    if (found && found.area.number <= MOST_OUTLINES)
      each(found.area, (i, j) => alike.push(closed(i, j)));
    [alike.join(""), one, one].forEach((d, k) => update(paths[k], "d", d));
  }
  return { node, paint, outline };
}

/** A table of costs with a bar for each number, on a logarithmic scale. */
function costTable(high) {
  const place = (x) => (100 * Math.max(0, Math.log10(x) - LOW)) / (high - LOW);
  const parts = Object.keys(FORMS).map((form) => {
    const cells = ["multiplications", "bytes"].map((field) => {
      const [text, bar] = [make("span"), make("i", { class: "rp-nearfar-bar" })];
      return { field, text, bar, node: make("td", {}, text, bar) };
    });
    const head = make("th", { scope: "row" }, FORMS[form]);
    const row = make("tr", { class: `rp-nearfar-${form}` }, head);
    row.append(...nodesOf(cells));
    return { form, cells, row };
  });
  const ticks = () => {
    const all = Array.from(
      { length: Math.ceil((high - LOW) / 3) },
      (_, k) => LOW + 3 * k,
    );
    const texts = all.map((power) => {
      const tick = make("span", {}, ["k", "M", "G", "T"][power / 3 - 1]);
      tick.style.left = `${place(10 ** power)}%`;
      return tick;
    });
    return make("td", { class: "rp-nearfar-ticks" }, make("div", {}, ...texts));
  };
  const heads = ["form", "multiplications", "bytes written out"].map((name) =>
    make("th", { scope: "col" }, name),
  );
  const node = make(
    "table",
    { class: "rp-nearfar-costs" },
    make("thead", {}, make("tr", {}, ...heads)),
    make("tbody", {}, ...parts.map((part) => part.row)),
    make(
      "tfoot",
      { "aria-hidden": "true" },
      make("tr", {}, make("td"), ticks(), ticks()),
    ),
  );
  function show(costs) {
    for (const { form, cells } of parts)
      for (const { field, text, bar } of cells) {
        const number = costs[form][field];
        const ratio = number / costs.plain.multiplications;
        text.textContent =
          field === "bytes"
            ? `${withPrefix(number)}B`
            : `${withPrefix(number)} \u00b7 ${format(ratio, 2)}\u00d7`;
        bar.style.width = `${number ? place(number) : 0}%`;
      }
  }
  return { node, show };
}

/** What a colour means, where there is no bar for it. */
function key(colour, text) {
  const swatch = make("i", { class: "rp-nearfar-swatch" });
  if (colour) swatch.style.background = css(colour);
  return make("span", {}, swatch, text);
}

const span = (first, count) => `${first}\u2013${first + count - 1}`;

/** Where a pair belongs and which row of the table it reads. */
function partInWords(found, i, j, { maxDistance: K, causal }) {
  const offset = j - i;
  const hidden = causal && offset > 0;
  const row = Math.max(-K, Math.min(K, offset)) + K;
  if (!found) return [["part", "", "hidden by the mask, never computed"]];
  const { area } = found;
  const where = [
    ["queries", "queries", span(found.firstQuery, area.queries)],
    ["keys", "keys", span(found.firstKey, area.keys)],
  ];
  if (area.isFar)
    return [
      ["part", "", area.isPast ? "far, in the past" : "far, in the future"],
      ...where,
      ["row", "one row for all:", String(row)],
      ["alike", "in one call:", counted(area.number, "such rectangle")],
    ];
  const own = Math.abs(offset) < K;
  const why = hidden ? "computed, then hidden" : own ? "near" : "far, but in a tile";
  return [
    ["part", "", why],
    ...where,
    [
      "row",
      own ? "its own row:" : "the row of its side:",
      hidden ? "none" : String(row),
    ],
    ["alike", "of this shape:", counted(area.number, "tile")],
  ];
}

function render({ model, el }) {
  const [H, D] = [model.get("num_heads"), model.get("head_width")];
  const [atOnce, longest] = [model.get("_at_once"), model.get("_longest")];
  const controls = [
    stepSlider(model, "length", "Length", "L", roundSteps(8, longest)),
    stepSlider(model, "max_distance", "Maximum distance", "K", roundSteps(1, 1024)),
    stepSlider(model, "leaf", "Smallest tile", "T", roundSteps(1, 512)),
    checkbox(model, "causal", "Causal mask"),
  ];
  const picture = divisionPicture();
  const cells = matrix({
    name: "Division",
    ticks: 8,
    ownPicture: picture,
    onCell: (i, j) => {
      pointed = [i, j].map((at) => (at + 0.5) / now.lengths.length);
      tell();
    },
  });
  const [bar, counts, numbers] = [colourBar(), readout(), readout()];
  const high = Math.ceil(Math.log10(4 * H * D * longest ** 2));
  const table = costTable(high);
  // The place of the pointer as a share of the length, which may change under it.
  let [pointed, now] = [[0.7, 0.2], null];

  function tell() {
    const { lengths } = now;
    const [i, j] = pointed.map((at) => Math.floor(at * lengths.length));
    const found = partAt(now, i, j);
    cells.select(i, j);
    picture.outline(found);
    numbers.tell([
      ["i", "query i =", String(i)],
      ["j", "key j =", String(j)],
      ["offset", "offset", format(j - i)],
      ...partInWords(found, i, j, lengths),
    ]);
  }
  function redraw() {
    const [length, maxDistance, leaf, causal] = TRAITS.map((t) => model.get(t));
    const division = divisionOf({ length, maxDistance, leaf, causal });
    const count = countsOf(division);
    const { sizes, shades } = shadesOf(division.rectangles);
    const percent = (100 * count.nearPairs) / length ** 2;
    const share = `${format(percent, percent < 1 ? 2 : 1)}%`;
    now = { ...division, shades };
    for (const control of controls) control.show();
    cells.draw({
      queries: length,
      keys: length,
      cellOf: now,
      alt: inWords(division, count, share),
      stride: Math.max(1, Math.round(length / 64)),
    });
    bar.node.hidden = !sizes.length;
    if (sizes.length) {
      const ends = [sizes[0], sizes.at(-1)].map(String);
      bar.show(...ends, "queries of a far rectangle", (t) => viridis(0.1 + 0.65 * t));
    }
    hidden.hidden = !causal;
    counts.tell([
      ["near_pairs", "pairs in near tiles", share],
      ["tiles", "near tiles", String(count.tiles)],
      ["rectangles", "far rectangles", String(count.rectangles)],
      ["calls", "kernel calls for them", String(count.calls)],
    ]);
    table.show(costsOf(division, { H, D, atOnce }));
    tell();
  }

  const hidden = key(null, "hidden");
  const keys = div(
    "rp-nearfar-keys",
    key(NEAR, "near, a row for each offset"),
    key(IN_TILE, "the rest of its tile"),
    hidden,
  );
  const side = div("rp-side", ...nodesOf(controls), counts.node);
  const stage = div("rp-stage", cells.node);
  const main = div("rp-main", bar.node, keys, stage);
  const note = make(
    "p",
    { class: "rp-note" },
    `Shaw's keys and values, forward, float32, H = ${H}, D = ${D}. ` +
      "A multiplication comes with its addition: 2 FLOPs. " +
      "\u00d7: over attention without positions. Bars on a logarithmic scale.",
  );
  el.append(
    figureRoot(
      "Near and far explorer",
      "rp-nearfar",
      div("rp-columns", side, main, numbers.node),
      table.node,
      note,
    ),
  );
  return follow(model, TRAITS, redraw);
}

export default { render };
