/**
 * Arithmetic shared by every figure: positions, scores, softmax and colours.
 *
 * Pure functions with no DOM. Letters as in the book: Q queries, S keys, D head
 * width, K maximum distance, H heads; offset = key position - query position.
 * Matrices are flat arrays in row-major order.
 */

/** A bytes trait (a DataView) as little-endian float32. */
export function floats(view) {
  const { buffer, byteOffset, byteLength } = view;
  return new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength));
}

/** Position of query i: the last query stands on the last key. */
export const queryPosition = (i, Q, S) => S - Q + i;

/** Offset of key j from query i. */
export const relativeOffset = (i, j, Q, S) => j - queryPosition(i, Q, S);

/** A number held inside [low, high]. */
const held = (x, low, high) => Math.max(low, Math.min(high, x));

/** Offset held inside [-K, K]; adding 0 turns -0 into 0. */
export const clipOffset = (offset, K) => held(offset, -K, K) + 0;

/** Row of a table with 2K + 1 rows. */
export const tableRow = (offset, K) => clipOffset(offset, K) + K;

/** Whether query i may attend to key j. */
export const mayAttend = (i, j, Q, S, causal) =>
  !causal || relativeOffset(i, j, Q, S) <= 0;

/**
 * The keys that query i reads with a row of a table: the first, and the one after the
 * last. They are neighbours; masked ones do not count.
 */
export function keysOfRow(row, i, { Q, S, K, causal }) {
  const query = queryPosition(i, Q, S);
  const key = query + row - K;
  const first = row ? held(key, 0, S) : 0;
  const last = Math.min(row < 2 * K ? key : S - 1, causal ? query : S - 1);
  return [first, held(last + 1, first, S)];
}

/** A Q x S matrix of cell(i, j). */
export function matrixOf(Q, S, cell, Kind = Float64Array) {
  const out = new Kind(Q * S);
  for (let i = 0; i < Q; i++) for (let j = 0; j < S; j++) out[i * S + j] = cell(i, j);
  return out;
}

/** Offset of every key from every query, (Q, S). */
export const relativeOffsets = (Q, S) =>
  matrixOf(Q, S, (i, j) => relativeOffset(i, j, Q, S), Int32Array);

/** Row of the table that every (query, key) pair reads, (Q, S). */
export const tableRows = (Q, S, K) =>
  matrixOf(Q, S, (i, j) => tableRow(relativeOffset(i, j, Q, S), K), Int32Array);

/** 1 where a query may attend, (Q, S). */
export const allowedPairs = (Q, S, causal) =>
  matrixOf(Q, S, (i, j) => mayAttend(i, j, Q, S, causal), Uint8Array);

/**
 * scale * query . vector for every pair: (H, Q, D) and (H, N, D) -> (H, Q, N).
 * Vectors of shape (N, D) serve all heads.
 */
export function dotProducts(query, vectors, { H, Q, N, D, scale }) {
  const perHead = vectors.length > N * D ? N * D : 0;
  const out = new Float64Array(H * Q * N);
  for (let row = 0; row < H * Q; row++) {
    const first = Math.floor(row / Q) * perHead;
    for (let n = 0; n < N; n++) {
      let sum = 0;
      for (let d = 0; d < D; d++)
        sum += query[row * D + d] * vectors[first + n * D + d];
      out[row * N + n] = scale * sum;
    }
  }
  return out;
}

/** Numbers in so many equal parts, as of heads. */
export const partsOf = (all, count) =>
  Array.from({ length: count }, (_, k) =>
    all.subarray((k * all.length) / count, ((k + 1) * all.length) / count),
  );

/** Sizes of a figure that adds a table to content, and the content (Q, S) by head. */
export function contentOf(model) {
  const [H, Q, S, D, Kmax] = [
    "num_heads",
    "query_length",
    "key_length",
    "head_width",
    "table_distance",
  ].map((trait) => model.get(trait));
  const [query, key] = ["_query", "_key"].map((trait) => floats(model.get(trait)));
  const all = dotProducts(query, key, { H, Q, N: S, D, scale: 1 / Math.sqrt(D) });
  return { H, Q, S, Kmax, content: partsOf(all, H) };
}

/** Every query reads the same bias: (H, N) -> (H, Q, N). */
export function repeatForQueries(bias, { H, Q, N }) {
  const out = new Float64Array(H * Q * N);
  for (let row = 0; row < H * Q; row++) {
    const first = Math.floor(row / Q) * N;
    out.set(bias.subarray(first, first + N), row * N);
  }
  return out;
}

/** Softmax over the allowed keys of each query; one that sees no key gives zeros. */
export function softmaxRows(scores, allowed, S) {
  const out = new Float64Array(scores.length);
  for (let start = 0; start < scores.length; start += S) {
    const mask = start % allowed.length;
    let largest = -Infinity;
    for (let j = 0; j < S; j++)
      if (allowed[mask + j]) largest = Math.max(largest, scores[start + j]);
    if (largest === -Infinity) continue;
    let sum = 0;
    for (let j = 0; j < S; j++)
      if (allowed[mask + j])
        sum += out[start + j] = Math.exp(scores[start + j] - largest);
    for (let j = 0; j < S; j++) out[start + j] /= sum;
  }
  return out;
}

/** What does not change with the controls: content and per-row position scores. */
export function prepare(problem) {
  const { query, key, table, scheme, H, Q, S, D, Kmax } = problem;
  const scale = 1 / Math.sqrt(D);
  const N = 2 * Kmax + 1;
  const rowScores =
    scheme === "shaw"
      ? dotProducts(query, table, { H, Q, N, D, scale })
      : repeatForQueries(table, { H, Q, N });
  const content = dotProducts(query, key, { H, Q, N: S, D, scale });
  return { H, Q, S, Kmax, content, rowScores };
}

/** Room for what attend() computes: written into again, it leaves no garbage. */
export function roomFor({ H, Q, S }) {
  const [content, position, score, weights] = Array.from(
    { length: 4 },
    () => new Float64Array(H * Q * S),
  );
  return { content, position, score, weights };
}

/** One query's position scores: the table's edges before and after its middle rows. */
function readPositions(to, start, rowScores, middle, at, K, S) {
  const left = held(at - K, 0, S);
  const right = held(at + K + 1, left, S);
  const shift = middle - at;
  for (let j = 0; j < left; j++) to[start + j] = rowScores[middle - K];
  for (let j = left; j < right; j++) to[start + j] = rowScores[shift + j];
  for (let j = right; j < S; j++) to[start + j] = rowScores[middle + K];
}

/** Softmax of `seen` numbers from `start` on; the rest up to `end` becomes 0. */
function softmaxInto(to, scores, start, seen, end) {
  let [most, sum] = [-Infinity, 0];
  for (let k = start; k < start + seen; k++) if (scores[k] > most) most = scores[k];
  for (let k = start; k < start + seen; k++) sum += to[k] = Math.exp(scores[k] - most);
  for (let k = start; k < start + seen; k++) to[k] /= sum;
  for (let k = start + seen; k < end; k++) to[k] = 0;
}

/**
 * Content, position, score and weights, each (H, q, s) for the first q queries and s
 * keys. A table is clipped to its middle 2K + 1 rows, if it has as many.
 */
export function attend(fixed, K, causal, [q, s] = [fixed.Q, fixed.S], room = null) {
  const { H, Q, S, Kmax, rowScores } = fixed;
  const out = Object.fromEntries(
    Object.entries(room ?? roomFor(fixed)).map(([name, all]) => [
      name,
      all.subarray(0, H * q * s),
    ]),
  );
  const { content, position, score, weights } = out;
  const distance = Math.min(K, Kmax);
  for (let head = 0, start = 0; head < H; head++)
    for (let i = 0; i < q; i++, start += s) {
      const [from, at] = [head * Q + i, queryPosition(i, q, s)];
      const middle = from * (2 * Kmax + 1) + Kmax;
      readPositions(position, start, rowScores, middle, at, distance, s);
      for (let j = 0; j < s; j++) {
        const value = fixed.content[from * S + j];
        content[start + j] = value;
        score[start + j] = value + position[start + j];
      }
      const seen = causal ? held(at + 1, 0, s) : s;
      softmaxInto(weights, score, start, seen, start + s);
    }
  return { ...out, allowed: allowedPairs(q, s, causal) };
}

/**
 * Attention of one head that adds bias[offset]: content (Q, S) and 2 Kmax + 1 numbers
 * to position, score and weights, each (Q, S). A bias of -Infinity hides its keys.
 */
export function attendWithBias(content, bias, { Q, S, K, Kmax, allowed }) {
  const [position, score] = [new Float64Array(Q * S), new Float64Array(Q * S)];
  for (let i = 0, cell = 0; i < Q; i++) {
    const at = queryPosition(i, Q, S);
    for (let j = 0; j < S; j++, cell++) {
      position[cell] = bias[clipOffset(j - at, K) + Kmax];
      score[cell] = content[cell] + position[cell];
    }
  }
  return { position, score, weights: softmaxRows(score, allowed, S) };
}

/** Largest absolute value over the allowed cells of every head. */
export function largest(values, allowed) {
  let most = 0;
  for (let start = 0; start < values.length; start += allowed.length)
    for (let cell = 0; cell < allowed.length; cell++) {
      const size = Math.abs(values[start + cell]);
      if (size > most && allowed[cell]) most = size;
    }
  return most;
}

/**
 * A round number at or just above a positive x, so that a scale rarely jumps; 1 for
 * anything else, as for numbers beside which a power of ten is zero or infinite.
 */
export function roundUp(x) {
  if (!(x > 1e-300 && x < 1e300)) return 1;
  const unit = 10 ** Math.floor(Math.log10(x));
  const step = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((s) => s * unit >= x * (1 - 1e-9));
  return Number((step * unit).toPrecision(2));
}

const colours = (text) =>
  text.split(",").map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
const VIRIDIS = colours(
  "440154,472d7b,3b528b,2c728e,21918c,28ae80,5ec962,addc30,fde725",
);
const BLUE_ORANGE = colours(
  "053061,2a71b2,6bacd1,c2ddec,f7f6f6,fdcf9b,e99e4a,b9610a,7f3b08",
);

function between(stops, t) {
  const x = t * (stops.length - 1);
  const k = Math.min(Math.floor(x), stops.length - 2);
  return stops[k].map((from, c) =>
    Math.round(from + (x - k) * (stops[k + 1][c] - from)),
  );
}

/** Colours made once and looked up after: there may be 10^5 cells to draw. */
const STEPS = 1024;
const rampOf = (stops) =>
  Array.from({ length: STEPS + 1 }, (_, k) => between(stops, k / STEPS));
const lookUp = (ramp, t) => ramp[Math.round(STEPS * held(t, 0, 1))];
const [sequential, twoSided] = [VIRIDIS, BLUE_ORANGE].map(rampOf);

/** The same colours as pixels: red, green, blue and opacity read as one number. */
const pixelsOf = (ramp) =>
  new Uint32Array(Uint8Array.from(ramp.flatMap((rgb) => [...rgb, 255])).buffer);
const [sequentialPixels, twoSidedPixels] = [sequential, twoSided].map(pixelsOf);

/**
 * Colours of the cells of one matrix: `values` from `start` on, on a scale that ends at
 * `top`, and at -top if it is signed. What is not allowed or has no place on the scale
 * stays without a colour.
 */
export function shadePixels(pixels, { values, start = 0, allowed, top, signed }) {
  const ramp = signed ? twoSidedPixels : sequentialPixels;
  const [zero, size] = signed ? [STEPS / 2, STEPS / 2] : [0, STEPS];
  const factor = size / top;
  for (let cell = 0; cell < pixels.length; cell++) {
    const value = values[start + cell];
    const step = held(zero + factor * value + 0.5, 0, STEPS) | 0;
    pixels[cell] = allowed[cell] && value > -Infinity ? ramp[step] : 0;
  }
}

/** Colour of a magnitude t in [0, 1], as [red, green, blue]. */
export const viridis = (t) => lookUp(sequential, t);

/** Colour of a signed t in [-1, 1]: blue below 0, orange above. */
export const diverging = (t) => lookUp(twoSided, (t + 1) / 2);

/** [red, green, blue] as a CSS colour. */
export const css = (rgb) => `rgb(${rgb.join(", ")})`;

/** Black or white, whichever is easier to read on the colour. */
export const inkOn = ([r, g, b]) =>
  0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2 >
  0.18
    ? "#000"
    : "#fff";

/** A number as the book prints it, with a true minus sign and no -0. */
export function format(x, digits = 0) {
  const text = x.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "\u2212");
}
