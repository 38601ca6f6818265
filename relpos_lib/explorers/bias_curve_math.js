/** What is behind a drawn bias curve: which numbers it may hold, and what they do. */
import { clipOffset, relativeOffset } from "./core.js";

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

/** How many (query, key) pairs read the row of a clipped offset. */
export function pairsReading(offset, { Q, S, K }) {
  let pairs = 0;
  for (let i = 0; i < Q; i++)
    for (let j = 0; j < S; j++)
      if (clipOffset(relativeOffset(i, j, Q, S), K) === offset) pairs++;
  return pairs;
}

/** A pair with this offset, as near as there is to query i; null if there is none. */
export function pairAt(offset, i, { Q, S }) {
  const [first, last] = [Math.max(0, Q - S - offset), Math.min(Q, Q - offset) - 1];
  if (first > last) return null;
  const query = Math.max(first, Math.min(last, i));
  return [query, S - Q + query + offset];
}
