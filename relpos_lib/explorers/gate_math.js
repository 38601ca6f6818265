/** Gate and scale: the strength of a head, and other settings with the same one. */

/** Logarithm of the logistic function. */
export const logSigmoid = (x) => -Math.log1p(Math.exp(-x));

/** What a head multiplies its table with. */
export const gateStrength = (gate, scale) => Math.exp(scale) / (1 + Math.exp(-gate));

/** The gate whose logistic function has this logarithm, which is below 0. */
const gateOfLog = (log) => log - Math.log(-Math.expm1(log));

/**
 * The lowest and the highest gate, within gateLimit, that reach the strength of a
 * setting by some scale within scaleLimit.
 */
export function gatesOfStrength(gate, scale, { gateLimit, scaleLimit }) {
  const log = logSigmoid(gate) + scale;
  const [low, high] = [log - scaleLimit, log + scaleLimit];
  return [
    Math.max(-gateLimit, gateOfLog(low)),
    high < 0 ? Math.min(gateLimit, gateOfLog(high)) : gateLimit,
  ];
}

/**
 * A pair of gate and scale other than the given one and with the same strength; null if
 * the limits leave none. Called again with what it found as `before`, it finds another.
 */
export function otherSetting([gate, scale], before, limits) {
  const [low, high] = gatesOfStrength(gate, scale, limits);
  const width = high - low;
  if (width < 0.05) return null;
  const start = Math.max(low, Math.min(high, before));
  // Steps of the golden section come back to no place for long.
  const after = (place) => low + ((place - low + 0.382 * width) % width);
  let found = after(start);
  if (Math.abs(found - gate) < width / 10) found = after(found);
  const short = Number(found.toFixed(2));
  if (short >= low && short <= high) found = short;
  const most = limits.scaleLimit;
  const other = logSigmoid(gate) + scale - logSigmoid(found);
  return [found + 0, Math.max(-most, Math.min(most, other))];
}
