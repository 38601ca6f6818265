/** Arithmetic of the length plot: gaps, and who is ahead. */

/** Numbers of a line, with NaN where it has none. */
export const withGaps = (numbers) => numbers.map((number) => number ?? NaN);

/** Numbers of the lines that have one at a point, from the highest to the lowest. */
export function rankingAt(lines, point) {
  return [...lines.keys()]
    .filter((k) => Number.isFinite(lines[k].values[point]))
    .sort((a, b) => lines[b].values[point] - lines[a].values[point]);
}
