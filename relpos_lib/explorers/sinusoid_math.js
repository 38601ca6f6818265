/**
 * Arithmetic of the sinusoidal code: E dimensions, two to each hand of a clock. Dimension
 * 2m is the sine and 2m + 1 the cosine of the angle of hand m.
 */

/** The angle by which hand m turns from one position to the next. */
export const handSpeed = (m, E, base) => base ** ((-2 * m) / E);

/** Codes of `count` positions from `start` on, (count, E) in row-major order. */
export function sinusoidalCodes(start, count, E, base) {
  const out = new Float64Array(count * E);
  for (let m = 0; 2 * m < E; m++) {
    const speed = handSpeed(m, E, base);
    for (let k = 0; k < count; k++) {
      const angle = (start + k) * speed;
      out[k * E + 2 * m] = Math.sin(angle);
      out[k * E + 2 * m + 1] = Math.cos(angle);
    }
  }
  return out;
}

/** Dot product of the code of p with those of p - reach to p + reach. */
export function productsAround(p, reach, E, base) {
  const codes = sinusoidalCodes(p - reach, 2 * reach + 1, E, base);
  return Array.from({ length: 2 * reach + 1 }, (_, k) => {
    let sum = 0;
    for (let d = 0; d < E; d++) sum += codes[reach * E + d] * codes[k * E + d];
    return sum;
  });
}

/** The two products of hand m at p and at p + offset, and their sum. */
export function handProducts(p, offset, m, E, base) {
  const speed = handSpeed(m, E, base);
  const [here, there] = [p * speed, (p + offset) * speed];
  const sines = Math.sin(here) * Math.sin(there);
  const cosines = Math.cos(here) * Math.cos(there);
  return { sines, cosines, sum: sines + cosines };
}
