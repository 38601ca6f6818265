/** Attention maps: what happens in one cell, and how weights fall into table rows. */
import {
  clipOffset,
  keysOfRow,
  queryPosition,
  relativeOffset,
  tableRow,
} from "./core.js";

/** Scores beyond this are made smaller before the exponential, as a computer does. */
const PLAIN_SCORES = 8;

/** The largest absolute number of all heads, and where each head has its largest. */
export function peaksOf(values, allowed, H) {
  const [cells, best] = [allowed.length, new Int32Array(H).fill(-1)];
  let most = 0;
  for (let head = 0; head < H; head++) {
    let peak = -Infinity;
    for (let cell = 0, at = head * cells; cell < cells; cell++, at++) {
      const value = values[at];
      if (value > peak && allowed[cell]) {
        peak = value;
        best[head] = cell;
      }
      const size = Math.abs(value);
      if (size > most && allowed[cell]) most = size;
    }
  }
  return { most, best };
}

/** What the weights of query i add up to for each row of a table, (2K+1,). */
export function binsOf(weights, head, i, { Q, S, K }) {
  const bins = new Float64Array(2 * K + 1);
  const start = (head * Q + i) * S;
  for (let j = 0; j < S; j++)
    bins[tableRow(relativeOffset(i, j, Q, S), K)] += weights[start + j];
  return bins;
}

/** A row of a table whose middle is row `reach`, of this head or of all heads. */
function vectorAt(table, head, row, { reach, width }) {
  const rows = 2 * reach + 1;
  const own = table.length > rows * width ? head * rows : 0;
  const start = (own + row) * width;
  return table.subarray(start, start + width);
}

/** The scores that query i sees: how many, their exponentials' sum, and the shift. */
function denominatorOf(score, start, seen) {
  let [most, sum] = [-Infinity, 0];
  for (let k = start; k < start + seen; k++) most = Math.max(most, score[k]);
  const shift = Math.abs(most) > PLAIN_SCORES ? most : 0;
  for (let k = start; k < start + seen; k++) sum += Math.exp(score[k] - shift);
  return { shift: seen ? shift : 0, denominator: sum };
}

/**
 * Every number on the way of one cell, from the results of attend(). `now` has the
 * sizes of what is shown and the maximum distances of now: K of the slider, and keyK
 * and valueK of the two tables, which may be smaller.
 */
export function cellSteps(data, result, [head, i, j], now) {
  const { Q, S, K, keyK, valueK, causal } = now;
  const start = (head * Q + i) * S;
  const cell = start + j;
  const offset = relativeOffset(i, j, Q, S);
  const scale = Math.sqrt(data.D);
  const seen = causal ? Math.max(0, Math.min(S, queryPosition(i, Q, S) + 1)) : S;
  const [content, position, score, weight] = [
    result.content,
    result.position,
    result.score,
    result.weights,
  ].map((numbers) => numbers[cell]);
  const { shift, denominator } = denominatorOf(result.score, start, seen);
  const valueRow = tableRow(offset, valueK);
  const at = (head * data.S + j) * data.Dv;
  const value = data.value.subarray(at, at + data.Dv);
  const vector = vectorAt(data.valueTable, head, valueRow + data.valueReach - valueK, {
    reach: data.valueReach,
    width: data.Dv,
  });
  const added = Array.from(
    { length: data.Dv },
    (_, d) => weight * ((value[d] ?? 0) + (vector[d] ?? 0)),
  );
  const [first, end] = keysOfRow(valueRow, i, { Q, S, K: valueK, causal });
  return {
    ...{ offset, clipped: clipOffset(offset, K), keyRow: tableRow(offset, keyK) },
    ...{ content, position, score, weight, shift, denominator, seen },
    ...{ dotKey: content * scale, dotRow: position * scale },
    exponential: Math.exp(score - shift),
    ...{ valueRow, value, vector, added },
    bin: binsOf(result.weights, head, i, { Q, S, K: valueK })[valueRow],
    binKeys: end - first,
  };
}
