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

/** Offset held inside [-K, K]; adding 0 turns -0 into 0. */
export const clipOffset = (offset, K) => Math.max(-K, Math.min(K, offset)) + 0;

/** Row of a table with 2K + 1 rows. */
export const tableRow = (offset, K) => clipOffset(offset, K) + K;

/** Whether query i may attend to key j. */
export const mayAttend = (i, j, Q, S, causal) =>
  !causal || relativeOffset(i, j, Q, S) <= 0;

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

/** Every query reads the same bias: (H, N) -> (H, Q, N). */
export function repeatForQueries(bias, { H, Q, N }) {
  const out = new Float64Array(H * Q * N);
  for (let row = 0; row < H * Q; row++) {
    const first = Math.floor(row / Q) * N;
    out.set(bias.subarray(first, first + N), row * N);
  }
  return out;
}

/**
 * What each query scores at each row of the table, read at the pairs' offsets:
 * (H, Q, 2 Kmax + 1) -> (H, Q, S). A smaller K reads the middle 2K + 1 rows.
 */
export function positionScores(rowScores, { H, Q, S, K, Kmax }) {
  const out = new Float64Array(H * Q * S);
  const rows = tableRows(Q, S, K).map((row) => row + Kmax - K);
  for (let line = 0; line < H * Q; line++) {
    const [from, pairs, to] = [line * (2 * Kmax + 1), (line % Q) * S, line * S];
    for (let j = 0; j < S; j++) out[to + j] = rowScores[from + rows[pairs + j]];
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

/** Content, position, score and weights, each (H, Q, S). */
export function attend({ H, Q, S, Kmax, content, rowScores }, K, causal) {
  const position = positionScores(rowScores, { H, Q, S, K, Kmax });
  const score = content.map((value, cell) => value + position[cell]);
  const allowed = allowedPairs(Q, S, causal);
  return { content, position, score, weights: softmaxRows(score, allowed, S), allowed };
}

/**
 * Attention of one head that adds bias[offset]: content (Q, S) and 2 Kmax + 1 numbers to
 * position, score and weights, each (Q, S). A bias of -Infinity hides its keys.
 */
export function attendWithBias(content, bias, { Q, S, K, Kmax, allowed }) {
  const position = matrixOf(
    Q,
    S,
    (i, j) => bias[clipOffset(relativeOffset(i, j, Q, S), K) + Kmax],
  );
  const score = content.map((value, cell) => value + position[cell]);
  return { position, score, weights: softmaxRows(score, allowed, S) };
}

/** Largest absolute value over the allowed cells of every head. */
export function largest(values, allowed) {
  let most = 0;
  for (let start = 0; start < values.length; start += allowed.length)
    for (let cell = 0; cell < allowed.length; cell++)
      if (allowed[cell]) most = Math.max(most, Math.abs(values[start + cell]));
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
function ramp(stops) {
  const table = Array.from({ length: 1025 }, (_, k) => between(stops, k / 1024));
  return (t) => table[Math.round(1024 * Math.max(0, Math.min(1, t)))];
}
const sequential = ramp(VIRIDIS);
const twoSided = ramp(BLUE_ORANGE);

/** Colour of a magnitude t in [0, 1], as [red, green, blue]. */
export const viridis = (t) => sequential(t);

/** Colour of a signed t in [-1, 1]: blue below 0, orange above. */
export const diverging = (t) => twoSided((t + 1) / 2);

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
