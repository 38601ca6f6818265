/**
 * The division of all pairs into far rectangles and near tiles, and what it costs:
 * relpos_lib/backends/near_far/quadtree.py once more, with the same names.
 */

/** Round numbers from low to high, two for every doubling: 1, 2, 3, 4, 6, 8, … */
export function roundSteps(low, high) {
  const steps = [];
  for (let power = 1; power <= high; power *= 2)
    for (const step of [power, 1.5 * power])
      if (Number.isInteger(step) && step >= low && step <= high) steps.push(step);
  return steps;
}

/** What a division depends on, as the library's operator makes it from its inputs. */
export const lengthsOf = ({ length, maxDistance, leaf, causal }) => ({
  length,
  maxDistance: Math.max(1, Math.min(maxDistance, length - 1)),
  causal,
  tile: Math.min(leaf, length),
});

/** How many offsets are near: those above -K and below K, or up to 0. */
export const nearOffsets = ({ maxDistance, causal }) =>
  causal ? maxDistance : 2 * maxDistance - 1;

/** Call found(isPast, isFirst, firstQuery, queries, firstKey, keys) on far pairs. */
function divide(lengths, first, last, past, future, found) {
  const { length, maxDistance, causal, tile } = lengths;
  const inside = (key) => Math.max(past, Math.min(future, key));
  const left = inside(first - maxDistance + 1);
  if (left > past) found(true, past === 0, first, last - first, past, left - past);
  past = left;
  if (!causal) {
    const right = inside(last - 1 + maxDistance);
    if (right < future)
      found(false, future === length, first, last - first, right, future - right);
    future = right;
  }
  if (last - first <= tile || past >= future) return;
  let half = tile;
  while (2 * half < last - first) half *= 2;
  divide(lengths, first, first + half, past, future, found);
  divide(lengths, first + half, last, past, future, found);
}

/** Every far pair once, largest rectangles first; equal ones that follow are one. */
export function farRectangles(lengths) {
  const runs = new Map();
  const { length } = lengths;
  divide(lengths, 0, length, 0, length, (...found) => {
    const [isPast, isFirst, firstQuery, queries, firstKey, keys] = found;
    const key = `${queries} ${keys} ${isPast} ${isFirst} ${firstKey - firstQuery}`;
    const run = runs.get(key);
    if (!run) {
      const one = { isPast, isFirst, firstQuery, queries, firstKey, keys };
      runs.set(key, { ...one, number: 1, step: 0 });
    } else if (++run.number === 2) run.step = firstQuery - run.firstQuery;
  });
  const order = (one) => [
    -one.queries,
    -one.keys,
    one.isPast,
    one.isFirst,
    one.firstKey - one.firstQuery,
  ];
  return [...runs.values()].sort((a, b) => {
    const [of, than] = [order(a), order(b)];
    const at = of.findIndex((number, k) => number !== than[k]);
    return at < 0 ? 0 : of[at] - than[at];
  });
}

/** Every query once, with the band of keys that may be near it. */
export function nearTiles(lengths) {
  const { length, maxDistance, tile } = lengths;
  const runs = [];
  for (let firstQuery = 0; firstQuery < length; firstQuery += tile) {
    const queries = Math.min(tile, length - firstQuery);
    const width = queries + nearOffsets(lengths) - 1;
    const firstKey = firstQuery - maxDistance + 1;
    const start = Math.min(Math.max(-firstKey, 0), width);
    const stop = Math.max(Math.min(length - firstKey, width), start);
    const run = runs.at(-1);
    if (run && run.queries === queries && run.start === start && run.stop === stop)
      run.number++;
    else runs.push({ firstQuery, queries, firstKey, start, stop, number: 1 });
  }
  return runs;
}

/** The whole division, and its parts as rectangles of one kind. */
export function divisionOf(controls) {
  const lengths = lengthsOf(controls);
  const [rectangles, tiles] = [farRectangles(lengths), nearTiles(lengths)];
  const areas = [
    ...rectangles.map((one) => ({ ...one, isFar: true })),
    ...tiles.map((one) => ({
      ...one,
      isFar: false,
      firstKey: one.firstKey + one.start,
      keys: one.stop - one.start,
      step: one.queries,
    })),
  ];
  return { lengths, rectangles, tiles, areas };
}

const total = (parts, of) => parts.reduce((sum, one) => sum + of(one) * one.number, 0);

/** How much there is of everything. */
export function countsOf({ rectangles, areas }) {
  const pairs = (one) => one.queries * one.keys;
  const near = areas.filter((one) => !one.isFar);
  return {
    calls: rectangles.length,
    rectangles: total(rectangles, () => 1),
    tiles: total(near, () => 1),
    farPairs: total(rectangles, pairs),
    nearPairs: total(near, pairs),
    merged: total(rectangles, (one) => one.queries),
  };
}

/** The area that pair (i, j) belongs to, and where its own part begins; or null. */
export function partAt({ areas }, i, j) {
  for (const area of areas) {
    const n = area.step ? Math.floor((i - area.firstQuery) / area.step) : 0;
    const [row, column] = [
      i - area.firstQuery - n * area.step,
      j - area.firstKey - n * area.step,
    ];
    const isThere =
      n >= 0 &&
      n < area.number &&
      row >= 0 &&
      row < area.queries &&
      column >= 0 &&
      column < area.keys;
    if (isThere) return { area, firstQuery: i - row, firstKey: j - column };
  }
  return null;
}

/**
 * Multiplications, and bytes of float32 that are written out beside the output, of
 * attention with H heads of width D; `atOnce` is how many scores of tiles the library
 * works on at a time.
 */
export function costsOf(division, { H, D, atOnce }) {
  const { lengths } = division;
  const { length: L, maxDistance, causal, tile } = lengths;
  const { farPairs, nearPairs, merged } = countsOf(division);
  const rows = 2 * maxDistance + 1;
  const ownRows = causal ? maxDistance + 1 : rows;
  const width = tile + nearOffsets(lengths) - 1;
  const plain = 2 * H * L * L * D;
  const [tiles, most] = [Math.floor(L / tile), Math.floor(atOnce / (tile * width))];
  const held = partOf(H, Math.floor(most / tiles)) * partOf(tiles, most);
  const sides = causal ? 1 : 2;
  return {
    plain: {
      multiplications: causal ? H * L * (L + 1) * D : plain,
      bytes: 0,
    },
    usual: {
      multiplications: 2 * plain,
      bytes: 4 * (2 * L * L * D + H * L * L),
    },
    gather: {
      multiplications: plain + 2 * H * L * rows * D,
      bytes: 4 * (H * L * rows + H * L * L),
    },
    nearFar: {
      multiplications:
        2 * H * (farPairs + nearPairs) * D + 2 * H * L * ownRows * D + H * merged * D,
      bytes:
        4 *
        (sides * H * L * (D + 1) +
          held * (tile * (width + ownRows) + 2 * width * D)),
    },
  };
}

/** The largest of as few, as equal parts as can be, of at most so many, or of one. */
function partOf(whole, most) {
  return Math.ceil(whole / Math.ceil(whole / Math.max(1, most)));
}

/** Three digits and a prefix, with a space for a unit to follow. */
export function withPrefix(x) {
  let [number, at] = [x, 0];
  for (; number >= 999.5; at++) number /= 1000;
  const digits = number < 9.995 ? 2 : number < 99.95 ? 1 : 0;
  return `${number.toFixed(at ? digits : 0)} ${["", "k", "M", "G", "T"][at]}`;
}
