/**
 * The tiny Transformer of the experiments, computed in the page from its weights:
 * the same layers in the same order as relpos_lib/experiments/model.py.
 */

/** Numbers stored as float16, in a DataView. */
export function halfFloats(view) {
  const out = new Float64Array(view.byteLength / 2);
  for (let k = 0; k < out.length; k++) {
    const bits = view.getUint16(2 * k, true);
    const [power, part] = [(bits >> 10) & 31, bits & 1023];
    const [unit, whole] = power ? [2 ** (power - 15), 1] : [2 ** -14, 0];
    const size = unit * (whole + part / 1024);
    out[k] = bits >> 15 ? -size : size;
  }
  return out;
}

/** Weights by name: `layout` lists [name, shape, place of the first number]. */
export function weightsFrom(numbers, layout) {
  const tensors = {};
  for (const [name, shape, start] of layout) {
    const count = shape.reduce((product, n) => product * n, 1);
    tensors[name] = numbers.subarray(start, start + count);
  }
  return tensors;
}

/** The error function, to 1.5e-7: Abramowitz and Stegun, formula 7.1.26. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series =
    t *
    (0.254829592 +
      t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const size = 1 - series * Math.exp(-x * x);
  return x < 0 ? -size : size;
}

/** GELU in place. */
function gelu(x) {
  for (let k = 0; k < x.length; k++)
    x[k] = 0.5 * x[k] * (1 + erf(x[k] * Math.SQRT1_2));
  return x;
}

/** Add y to x, in place. */
function plus(x, y) {
  for (let k = 0; k < x.length; k++) x[k] += y[k];
  return x;
}

/**
 * Add x, (rows, n), times a matrix, (m, n), transposed, to `out`, (rows, m). Nearly all
 * time goes here: two rows of x and four of the matrix share each number that is read,
 * and no sum waits for another. (Plain numbers instead of destructured ones, here and
 * below: those would leave garbage in every call.)
 */
function addProducts(out, x, matrix, m, n) {
  const rows = x.length / n;
  for (let i = 0; i < rows; i += 2) {
    const isLast = i + 1 === rows; // then its sums are made twice, and added once
    const first = i * n;
    const second = isLast ? first : first + n;
    let k = 0;
    for (let row = 0; k + 3 < m; k += 4, row += 4 * n) {
      let a = 0;
      let b = 0;
      let c = 0;
      let d = 0;
      let a2 = 0;
      let b2 = 0;
      let c2 = 0;
      let d2 = 0;
      for (let j = 0; j < n; j++) {
        const one = x[first + j];
        const two = x[second + j];
        let number = matrix[row + j];
        a += one * number;
        a2 += two * number;
        number = matrix[row + n + j];
        b += one * number;
        b2 += two * number;
        number = matrix[row + 2 * n + j];
        c += one * number;
        c2 += two * number;
        number = matrix[row + 3 * n + j];
        d += one * number;
        d2 += two * number;
      }
      const at = i * m + k;
      out[at] += a;
      out[at + 1] += b;
      out[at + 2] += c;
      out[at + 3] += d;
      if (isLast) continue;
      out[at + m] += a2;
      out[at + m + 1] += b2;
      out[at + m + 2] += c2;
      out[at + m + 3] += d2;
    }
    for (; k < m; k++)
      for (let j = 0; j < n; j++) {
        out[i * m + k] += x[first + j] * matrix[k * n + j];
        if (!isLast) out[i * m + m + k] += x[second + j] * matrix[k * n + j];
      }
  }
}

/** (L, n) times (m, n) transposed, plus a bias: (L, m). */
function linear(x, weight, bias) {
  const m = bias.length;
  const n = weight.length / m;
  const out = new Float64Array((x.length / n) * m);
  for (let start = 0; start < out.length; start += m) out.set(bias, start);
  addProducts(out, x, weight, m, n);
  return out;
}

function layerNorm(x, weight, bias) {
  const n = weight.length;
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += n) {
    let mean = 0;
    let square = 0;
    for (let c = 0; c < n; c++) mean += x[start + c] / n;
    for (let c = 0; c < n; c++) square += (x[start + c] - mean) ** 2 / n;
    const scale = 1 / Math.sqrt(square + 1e-5);
    for (let c = 0; c < n; c++)
      out[start + c] = (x[start + c] - mean) * scale * weight[c] + bias[c];
  }
  return out;
}

/** Embeddings of the symbols, (L, E), with sines and cosines added if wanted. */
function embedded(symbols, table, width, isSinusoidal) {
  const out = new Float64Array(symbols.length * width);
  for (let c = 0; c < width; c++) {
    const frequency = 10000 ** (-(c - (c % 2)) / width);
    const wave = c % 2 ? Math.cos : Math.sin;
    symbols.forEach((symbol, place) => {
      const code = isSinusoidal ? wave(place * frequency) : 0;
      out[place * width + c] = table[symbol * width + c] + code;
    });
  }
  return out;
}

/** (m, n) to (n, m). */
function transposed(x, n) {
  const m = x.length / n;
  const out = new Float64Array(x.length);
  for (let row = 0; row < m; row++)
    for (let c = 0; c < n; c++) out[c * m + row] = x[row * n + c];
  return out;
}

/** What belongs to one head of x, (L, H D), times a factor: (L, D). */
function headOf(x, head, { L, H, D }, factor = 1) {
  const out = new Float64Array(L * D);
  for (let i = 0; i < L; i++)
    for (let c = 0; c < D; c++) out[i * D + c] = factor * x[(i * H + head) * D + c];
  return out;
}

/** What queries add to their scores for each row -K … K: a bias, or q times a vector. */
function rowScores(layer, head, queries, { L, H, D, K }) {
  const { bias, keys, slopes } = layer;
  const count = 2 * K + 1;
  const rows = new Float64Array(L * count);
  for (let row = 0; row < count; row++) {
    if (bias) rows[row] = bias[row * H + head];
    if (slopes) rows[row] = -slopes[head] * Math.abs(row - K);
  }
  for (let i = 1; i < L; i++) rows.copyWithin(i * count, 0, count);
  if (keys) addProducts(rows, queries, keys, count, D);
  return rows;
}

/**
 * Position scores of every query, from those of the rows. Keys up to K away have a row
 * to themselves; the first and the last row serve all that are farther.
 */
function setPositions(scores, rows, { L, K }) {
  for (let i = 0; i < L; i++) {
    const own = i * (2 * K + 1);
    const start = i * L;
    const left = Math.max(0, i - K);
    const right = Math.min(L, i + K + 1);
    scores.fill(rows[own], start, start + left);
    for (let j = left; j < right; j++) scores[start + j] = rows[own + j - i + K];
    scores.fill(rows[own + 2 * K], start + right, start + L);
  }
}

/** What the weights of every query add up to for each row: (L, 2K+1). */
function binsOf(weights, { L, K }) {
  const bins = new Float64Array(L * (2 * K + 1));
  for (let i = 0; i < L; i++) {
    const own = i * (2 * K + 1);
    const start = i * L;
    const left = Math.max(0, i - K);
    const right = Math.min(L, i + K + 1);
    let past = 0;
    let future = 0;
    for (let j = 0; j < left; j++) past += weights[start + j];
    for (let j = left; j < right; j++) bins[own + j - i + K] = weights[start + j];
    for (let j = right; j < L; j++) future += weights[start + j];
    bins[own] += past;
    bins[own + 2 * K] += future;
  }
  return bins;
}

/** Softmax in place of L numbers from `start` on. */
function softmaxHere(scores, start, L) {
  let most = -Infinity;
  let sum = 0;
  for (let j = start; j < start + L; j++) if (scores[j] > most) most = scores[j];
  for (let j = start; j < start + L; j++) {
    scores[j] = Math.exp(scores[j] - most);
    sum += scores[j];
  }
  const factor = 1 / sum;
  for (let j = start; j < start + L; j++) scores[j] *= factor;
}

/** Attention of all heads, (L, H D); their weights, (H, L, L), go into `weights`. */
function attention(layer, [query, key, value], sizes, weights) {
  const { L, H, D, K } = sizes;
  const out = new Float64Array(L * H * D);
  const table = layer.values && transposed(layer.values, D);
  for (let head = 0; head < H; head++) {
    const queries = headOf(query, head, sizes, 1 / Math.sqrt(D));
    const keys = headOf(key, head, sizes);
    const values = transposed(headOf(value, head, sizes), D);
    const scores = weights.subarray(head * L * L, (head + 1) * L * L);
    setPositions(scores, rowScores(layer, head, queries, sizes), sizes);
    addProducts(scores, queries, keys, L, D);
    for (let i = 0; i < L; i++) softmaxHere(scores, i * L, L);
    const mean = new Float64Array(L * D);
    addProducts(mean, scores, values, D, L);
    if (table) addProducts(mean, binsOf(scores, sizes), table, D, 2 * K + 1);
    for (let i = 0; i < L; i++)
      out.set(mean.subarray(i * D, (i + 1) * D), (i * H + head) * D);
  }
  return out;
}

/** ALiBi's slopes, for a number of heads that is a power of two. */
const alibiSlopes = (H) =>
  Array.from({ length: H }, (_, h) => 2 ** ((-8 * (h + 1)) / H));

/** The tables of a layer, those that there are. */
function tablesOf(tensors, name, scheme, H) {
  return {
    bias: tensors[`${name}.rpe.bias`],
    keys: tensors[`${name}.rpe.keys.embedding.weight`],
    values: tensors[`${name}.rpe.values.embedding.weight`],
    slopes: scheme === "alibi" ? alibiSlopes(H) : null,
  };
}

/** K of a layer: of its tables, or all distances for ALiBi, or none to tell. */
function distanceOf({ bias, keys, values, slopes }, { L, H, D }) {
  if (bias) return (bias.length / H - 1) / 2;
  const table = keys ?? values;
  if (table) return (table.length / D - 1) / 2;
  return slopes ? L - 1 : 0;
}

/** Room for the weights of all layers: written into again, it leaves no garbage. */
export const roomForMaps = ({ heads, layers }, longest) =>
  Array.from({ length: layers }, () => new Float64Array(heads * longest * longest));

/**
 * Logits (L, N) of a sequence of symbols, and the weights (H, L, L) of each layer.
 * `model` is { tensors, scheme, width, heads, layers }.
 */
export function transformer(model, symbols, room = roomForMaps(model, symbols.length)) {
  const { tensors, scheme, width, heads } = model;
  const sizes = { L: symbols.length, H: heads, D: width / heads };
  const use = (f, x, name) => f(x, tensors[`${name}.weight`], tensors[`${name}.bias`]);
  const codes = scheme === "sinusoidal";
  const x = embedded(symbols, tensors["embedding.weight"], width, codes);
  const maps = room.map((all, n) => {
    const name = `layers.${n}`;
    const layer = tablesOf(tensors, name, scheme, heads);
    const weights = all.subarray(0, heads * sizes.L ** 2);
    const y = use(layerNorm, x, `${name}.norm1`);
    const three = ["wq", "wk", "wv"].map((w) => use(linear, y, `${name}.${w}`));
    const now = { ...sizes, K: distanceOf(layer, sizes) };
    plus(x, use(linear, attention(layer, three, now, weights), `${name}.wo`));
    const z = use(linear, use(layerNorm, x, `${name}.norm2`), `${name}.network.0`);
    plus(x, use(linear, gelu(z), `${name}.network.2`));
    return weights;
  });
  return { logits: use(linear, use(layerNorm, x, "norm"), "readout"), maps };
}

/** A character as a symbol: its code modulo 16, so that a is 1 and p is 0. */
export const symbolOf = (character) => character.codePointAt(0) % 16;

/** Characters of a text, without halves of surrogate pairs, which are none. */
export const charactersOf = (text) => [...text.replace(/\p{Surrogate}/gu, "\uFFFD")];

/** Where the answers of the task "switch" stand; -1 if there is no such place. */
export const switchPlaces = (symbols) =>
  symbols.map((symbol, i) => {
    const place = i + (symbol % 2 ? 2 : -1);
    return place < symbols.length ? place : -1;
  });

/** The largest of each row of logits. */
export function predictions(logits, L) {
  const N = logits.length / L;
  return Array.from({ length: L }, (_, i) => {
    let best = 0;
    for (let k = 1; k < N; k++)
      if (logits[i * N + k] > logits[i * N + best]) best = k;
    return best;
  });
}

/** Mean weight of a head, (L, L), on the places asked for; NaN if there are none. */
export function weightOnPlaces(weights, places) {
  const asked = places.flatMap((place, i) => (place < 0 ? [] : [[i, place]]));
  const sum = asked.reduce((so, [i, j]) => so + weights[i * places.length + j], 0);
  return sum / asked.length;
}
