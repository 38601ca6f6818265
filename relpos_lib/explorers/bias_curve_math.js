/** What is behind a drawn bias curve: which numbers it may hold, and what they do. */
import { clipOffset } from "./core.js";

/** How far the up and down keys move a point. */
export const curveStep = (limit) => limit / 50;

/** Where hidden offsets lie on the chart: one step below the lowest number. */
export const curveFloor = (limit) => -limit - curveStep(limit);

/** Height of a bias on the chart. */
export const curveHeight = (bias, limit) =>
  bias === -Infinity ? curveFloor(limit) : bias;

/** The bias that a height on the chart stands for, with few digits. */
export function settleBias(height, limit) {
  if (height < -limit - curveStep(limit) / 2) return -Infinity;
  const fine = limit / 500;
  const bias = Math.round(Math.max(-limit, Math.min(limit, height)) / fine) * fine;
  return Number(bias.toPrecision(6)) + 0;
}

/** A row of the trait, in which null stands for a hidden offset. */
export const biasesOf = (row) => Float64Array.from(row, (bias) => bias ?? -Infinity);

/** Numbers as a row of the trait. */
export const rowOf = (biases) =>
  Array.from(biases, (bias) =>
    bias === -Infinity ? null : Number(bias.toPrecision(7)) + 0,
  );

/** The first `count` heads; the edited one takes the last place if it is not there. */
export function headsShown(count, head) {
  const heads = Array.from({ length: count }, (_, k) => k);
  if (head >= count) heads[count - 1] = head;
  return heads;
}

/** First and last query, if any, that have a key at this offset. */
const queriesWith = (offset, { Q, S }) => [
  Math.max(0, Q - S - offset),
  Math.min(Q, Q - offset) - 1,
];

/** How many (query, key) pairs read the row of a clipped offset. */
export function pairsReading(clipped, { Q, S, K }) {
  let pairs = 0;
  for (let offset = -Q - S; offset <= Q + S; offset++) {
    const [first, last] = queriesWith(offset, { Q, S });
    if (clipOffset(offset, K) === clipped) pairs += Math.max(0, last - first + 1);
  }
  return pairs;
}

/** A pair with this offset, as near as there is to query i; null if there is none. */
export function pairAt(offset, i, { Q, S }) {
  const [first, last] = queriesWith(offset, { Q, S });
  if (first > last) return null;
  const query = Math.max(first, Math.min(last, i));
  return [query, S - Q + query + offset];
}

/** Largest absolute value of the allowed cells; what is hidden has none. */
export function largestFinite(values, allowed) {
  let most = 0;
  for (let cell = 0; cell < values.length; cell++) {
    const size = Math.abs(values[cell]);
    if (size > most && size < Infinity && allowed[cell]) most = size;
  }
  return most;
}
