/**
 * What every figure is made of: labelled controls bound to traits, a matrix of coloured
 * cells that mouse, touch and keyboard can explore, and a colour bar.
 */
import { css, diverging, inkOn, shadePixels, viridis } from "./core.js";
import { KEYS_STAY, div, freshId, make, setText, update } from "./dom.js";

/** Up to this many cells a side a matrix is SVG; above it, a canvas. */
export const SVG_LIMIT = 32;
const SVG = "http://www.w3.org/2000/svg";
function assign(model, trait, value) {
  model.set(trait, value);
  model.save_changes();
}

/** Labelled range input; `valueAt` and `placeOf` lead from its places to values. */
function rangeInput(model, trait, [label, letter], ends, valueAt, placeOf) {
  const id = freshId(trait);
  const input = make("input", { id, type: "range", ...ends, step: 1, ...KEYS_STAY });
  const output = make("output", { for: id });
  input.addEventListener("input", () => assign(model, trait, valueAt(input.value)));
  const show = () => {
    const value = model.get(trait);
    input.value = placeOf(value);
    output.textContent = String(value).replace("-", "\u2212");
    if (input.value !== String(value)) update(input, "aria-valuetext", value);
    else input.removeAttribute("aria-valuetext");
  };
  const name = make("label", { for: id }, label, letter && make("i", {}, ` ${letter}`));
  return { node: div("rp-control", name, output, input), show };
}

/** Range input for a whole number; `label` may end in the book's letter for it. */
export function slider(model, trait, label, letter, min, max) {
  const names = [label, letter];
  return rangeInput(model, trait, names, { min, max }, Number, Number);
}

/** Range input that steps through some numbers of a trait that may be others, too. */
export function stepSlider(model, trait, label, letter, steps) {
  const ends = { min: 0, max: steps.length - 1 };
  const placeOf = (value) => {
    const next = steps.findIndex((step) => step >= value);
    return next < 0 ? ends.max : next;
  };
  const valueAt = (place) => steps[place];
  return rangeInput(model, trait, [label, letter], ends, valueAt, placeOf);
}

/** Radio buttons for a trait that is one of a few words. */
export function choice(model, trait, legend, options) {
  const name = freshId(trait);
  const inputs = Object.keys(options).map((value) =>
    make("input", { type: "radio", name, value, ...KEYS_STAY }),
  );
  const labels = inputs.map((input) => {
    input.addEventListener("change", () => assign(model, trait, input.value));
    return make("label", {}, input, make("span", {}, options[input.value]));
  });
  const show = () => {
    for (const input of inputs) input.checked = input.value === model.get(trait);
  };
  const row = div("rp-choice", ...labels);
  return { node: make("fieldset", {}, make("legend", {}, legend), row), show };
}

/** Checkbox for a trait that is true or false. */
export function checkbox(model, trait, label) {
  const input = make("input", { type: "checkbox", ...KEYS_STAY });
  input.addEventListener("change", () => assign(model, trait, input.checked));
  const show = () => {
    input.checked = model.get(trait);
  };
  return { node: make("label", { class: "rp-check" }, input, label), show };
}

/** One line of named numbers that screen readers announce when it changes. */
export function readout() {
  const node = make("output", { class: "rp-readout", "aria-live": "polite" });
  const parts = [];
  const newPart = () => {
    const [label, number] = [document.createTextNode(""), make("b")];
    return { label, number, node: make("span", {}, label, number) };
  };
  const tell = (fields) => {
    while (parts.length < fields.length) parts.push(newPart());
    if (node.childElementCount !== fields.length)
      node.replaceChildren(
        ...parts.slice(0, fields.length).flatMap((part) => [part.node, " "]),
      );
    fields.forEach(([name, label, value], k) => {
      const part = parts[k];
      if (part.label.data !== `${label} `) part.label.data = `${label} `;
      update(part.number, "data-field", name);
      setText(part.number, value);
    });
  };
  return { node, tell };
}

/** Colour bar with its ends written out. */
export function colourBar() {
  const [low, high, unit] = [make("span"), make("span"), make("span")];
  const ramp = make("span", { class: "rp-ramp" });
  const node = make("div", { class: "rp-bar", role: "img" }, low, ramp, high, unit);
  const show = (from, to, name, colourAt) => {
    const stops = Array.from({ length: 21 }, (_, k) => css(colourAt(k / 20)));
    ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    setText(low, from);
    setText(high, to);
    setText(unit, name);
    update(node, "aria-label", `Colour scale of the ${name}: from ${from} to ${to}`);
  };
  return { node, show };
}

/** Every how many cells an axis has a number; a very long one has it at cell 0 only. */
const tickStep = (count, most) =>
  [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000].find((s) => count / s <= most) ??
  count;

function drawTicks(axis, count, most, side) {
  const step = tickStep(count, most);
  const ticks = most ? Math.ceil(count / step) : 0;
  while (axis.childElementCount < ticks) axis.append(make("span"));
  while (axis.childElementCount > ticks) axis.lastChild.remove();
  [...axis.children].forEach((tick, k) => {
    const number = String(k * step);
    setText(tick, number);
    tick.style[side] = `${(100 * (k * step + 0.5)) / count}%`;
    // In the middle by a margin: a transform of each number takes longer to draw.
    if (side === "left") tick.style.marginLeft = `${-0.5 * number.length}ch`;
  });
}

/** An SVG element with attributes. */
export function svgNode(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes))
    node.setAttribute(name, value);
  return node;
}

/** Rectangles, and numbers where wanted, in units of cells. */
function svgPicture(Q, S, numbers) {
  const svg = svgNode("svg", { viewBox: `0 0 ${S} ${Q}`, preserveAspectRatio: "none" });
  const [rects, texts] = [[], []];
  for (let i = 0; i < Q; i++)
    for (let j = 0; j < S; j++) {
      rects.push(svgNode("rect", { x: j, y: i, width: 1, height: 1 }));
      if (numbers) texts.push(svgNode("text", { x: j + 0.5, y: i + 0.5 }));
    }
  svg.append(...rects, ...texts);
  const paint = (cell) => {
    for (let k = 0; k < rects.length; k++) {
      const { colour, text } = cell(Math.floor(k / S), k % S);
      update(rects[k], "fill", colour ? css(colour) : "none");
      if (!numbers) continue;
      update(texts[k], "fill", colour ? inkOn(colour) : "none");
      setText(texts[k], text);
    }
  };
  return { node: svg, paint };
}

/** Room for the pixels of any matrix: a canvas copies them, so that one is enough. */
let scratch = new Uint32Array(0);

/**
 * One pixel a cell, enlarged by the browser; masked cells stay transparent. The canvas
 * only grows: to give it another size takes longer than to draw it. What is not of use
 * lies outside the box that is seen.
 */
function canvasPicture() {
  const canvas = make("canvas", { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const node = div("", canvas);
  let [Q, S] = [0, 0];
  const resize = (rows, columns) => {
    [Q, S] = [rows, columns];
    if (canvas.width < S) canvas.width = S;
    if (canvas.height < Q) canvas.height = Q;
    const [high, wide] = [canvas.height / Q, canvas.width / S];
    Object.assign(canvas.style, { height: `${100 * high}%`, width: `${100 * wide}%` });
  };
  const paint = (cell, shade) => {
    const cells = Q * S;
    if (scratch.length < cells) scratch = new Uint32Array(cells);
    const bytes = new Uint8ClampedArray(scratch.buffer, 0, 4 * cells);
    if (shade) shadePixels(scratch.subarray(0, cells), shade);
    else
      for (let i = 0, at = 0; i < Q; i++)
        for (let j = 0; j < S; j++, at += 4) {
          const { colour } = cell(i, j);
          for (let c = 0; c < 3; c++) bytes[at + c] = colour ? colour[c] : 0;
          bytes[at + 3] = colour ? 255 : 0;
        }
    context.putImageData(new ImageData(bytes, S, Q), 0, 0);
  };
  return { node, paint, resize };
}

/** Cells of numbers on a scale, as shadePixels() takes them. */
function cellsOf({ values, start = 0, allowed, top, signed }, S) {
  const colour = signed ? diverging : viridis;
  return (i, j) => {
    const value = values[start + i * S + j];
    const seen = allowed[i * S + j] && value > -Infinity;
    return { colour: seen ? colour(value / top) : null };
  };
}

/** Where the keys lead from a cell; `n` is how far an arrow moves. */
const MOVES = {
  ArrowUp: (i, j, n) => [i - n, j],
  ArrowDown: (i, j, n) => [i + n, j],
  ArrowLeft: (i, j, n) => [i, j - n],
  ArrowRight: (i, j, n) => [i, j + n],
  Home: (i) => [i, 0],
  End: (i) => [i, Infinity],
  PageUp: (i, j, n) => [i - 5 * n, j],
  PageDown: (i, j, n) => [i + 5 * n, j],
};
/** A number of `count`, or the nearest that there is. */
export const within = (k, count) => Math.max(0, Math.min(count - 1, k));
const QUERIES_AND_KEYS = {
  rows: "query position i",
  columns: "key position j",
  cell: (i, j) => `query ${i}, key ${j}`,
};

/**
 * A matrix of cells. `onCell(i, j)` is called when the reader points at a cell or moves
 * to it by keyboard. Screen readers meet a picture with a text alternative and a grid
 * of which only the current cell exists, so that it is one tab stop of any size.
 * A picture of the figure's own, { node, paint }, may take the place of the cells.
 * `words` says what rows and columns are. With `mustPress`, pointing at one
 * without pressing does nothing; with `onCanvas` a small one is drawn as a large one.
 * At most `ticks` numbers stand at an axis.
 */
export function matrix({
  name,
  ticks = 12,
  ownPicture = null,
  words = QUERIES_AND_KEYS,
  mustPress = false,
  onCanvas = false,
  onCell,
}) {
  const [xTicks, yTicks] = [div("rp-x"), div("rp-y")];
  const [xName, yName] = [div("rp-x-name"), div("rp-y-name")];
  const cell = make("div", { role: "gridcell", id: freshId("cell") });
  const row = make("div", { role: "row" }, cell);
  const grid = make("div", { role: "grid", tabindex: 0, ...KEYS_STAY }, row);
  grid.setAttribute("aria-activedescendant", cell.id);
  const plot = div("rp-plot", xName, xTicks, yName, yTicks, grid);
  for (const axis of [xTicks, yTicks, xName, yName])
    axis.setAttribute("aria-hidden", "true");
  let [Q, S, at, picture, drawn, pace] = [0, 0, [0, 0], null, "", 1];
  let pixels = null;

  function select(i, j) {
    at = [within(i, Q), within(j, S)];
    Object.assign(cell.style, {
      top: `${(100 * at[0]) / Q}%`,
      left: `${(100 * at[1]) / S}%`,
      height: `${100 / Q}%`,
      width: `${100 / S}%`,
    });
    update(row, "aria-rowindex", at[0] + 1);
    update(cell, "aria-colindex", at[1] + 1);
    update(cell, "aria-label", words.cell(...at));
  }
  function choose(i, j) {
    const [oldI, oldJ] = at;
    select(i, j);
    if (oldI !== at[0] || oldJ !== at[1]) onCell(...at);
  }
  function point(event) {
    const box = grid.getBoundingClientRect();
    choose(
      Math.floor(((event.clientY - box.top) / box.height) * Q),
      Math.floor(((event.clientX - box.left) / box.width) * S),
    );
  }
  grid.addEventListener("pointermove", (event) => {
    if (!mustPress || event.buttons) point(event);
  });
  grid.addEventListener("pointerdown", point);
  grid.addEventListener("focus", () => onCell(...at));
  grid.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move || event.altKey || event.metaKey) return;
    event.preventDefault();
    choose(...move(...at, pace));
  });

  function resize(numbers) {
    const wanted = `${Q} ${S} ${numbers}`;
    if (wanted === drawn) return;
    drawn = wanted;
    const small = !onCanvas && Math.max(Q, S) <= SVG_LIMIT;
    if (!ownPicture && !small) (pixels ??= canvasPicture()).resize(Q, S);
    const next = ownPicture ?? (small ? svgPicture(Q, S, numbers) : pixels);
    if (next !== picture) {
      picture?.node.remove();
      plot.insertBefore(next.node, grid);
    }
    picture = next;
    update(picture.node, "role", "img");
    update(picture.node, "class", numbers ? "rp-cells rp-apart" : "rp-cells");
    // Shares of the longer side: while they stay, nothing has a new place.
    const [rows, columns] = [Q, S].map((count) => count / Math.max(Q, S));
    update(plot, "style", `--rows: ${rows}; --columns: ${columns}`);
    drawTicks(xTicks, S, ticks, "left");
    drawTicks(yTicks, Q, ticks, "top");
    update(grid, "aria-rowcount", Q);
    update(grid, "aria-colcount", S);
  }

  /**
   * Draw cellOf(i, j) -> {colour or null, text}, or `shade`, numbers on a scale as
   * shadePixels() takes them; `alt` says in words what is shown, `stride` is how many
   * cells an arrow key moves. A picture of the figure's own is given whatever `cellOf`
   * is.
   */
  function draw(options) {
    const { queries, keys, cellOf, shade, alt, numbers = false, stride = 1 } = options;
    [Q, S, pace] = [queries, keys, stride];
    resize(numbers);
    picture.paint(cellOf ?? (shade && cellsOf(shade, S)), shade);
    update(picture.node, "aria-label", alt);
    update(grid, "aria-label", `${name}: cells, move with the arrow keys`);
    setText(xName, words.columns);
    const shift = words === QUERIES_AND_KEYS ? S - Q : 0;
    const shifted = shift ? ` ${shift < 0 ? "\u2212" : "+"} ${Math.abs(shift)}` : "";
    setText(yName, words.rows + shifted);
    select(...at);
  }
  return { node: plot, grid, draw, select };
}
