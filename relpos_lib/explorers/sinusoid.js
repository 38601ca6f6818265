/** Sinusoids: clocks that name positions; of two codes only the distance matters. */
import { lineChart, lineSample } from "./chart.js";
import { diverging, format, roundUp } from "./core.js";
import { div, figureRoot, follow, make, nodesOf, update } from "./dom.js";
import {
  choice,
  colourBar,
  matrix,
  readout,
  slider,
  stepSlider,
  svgNode,
} from "./matrix.js";
import {
  handProducts,
  handSpeed,
  productsAround,
  sinusoidalCodes,
} from "./sinusoid_math.js";

const CONTROLS = ["position", "offset", "dimension", "base", "along"];
const BASES = [2, 10, 100, 1000, 10_000, 100_000, 1_000_000];
const X_NAMES = { offset: "offset \u03b4", position: "position q = p + \u03b4" };
/** Lines of the two hands and of the curve outside the sequence: colour and dashes. */
const [HERE, THERE, OUTSIDE] = [0, 5, 8];

/** State of the figure, with what follows from it. */
function stateOf(model) {
  const [L, E] = [model.get("length"), model.get("width")];
  const [p, offset, d, base, along] = CONTROLS.map((trait) => model.get(trait));
  const m = Math.floor(d / 2);
  const reach = L - 1;
  const products = productsAround(p, reach, E, base);
  return {
    ...{ L, E, p, offset, d, base, along, m, reach, products },
    q: p + offset,
    speed: handSpeed(m, E, base),
    product: products[reach + offset],
  };
}

/** A number that may be anything from 0.001 to millions. */
const short = (x) => (x < 1000 ? format(x, x < 1 ? 3 : 1) : format(x));

/** The clock of one hand at two positions, and the way between them as a spiral. */
function clock() {
  const line = (part) => svgNode("path", { class: `rp-chart-stroke ${part}` });
  const [here, there, way] = [
    line("rp-sinusoid-hand"),
    line("rp-sinusoid-hand"),
    line("rp-sinusoid-way"),
  ];
  const svg = svgNode("svg", { role: "img", viewBox: "-110 -110 220 220" });
  update(svg, "class", "rp-sinusoid-clock");
  const frame = svgNode("path", { class: "rp-chart-grid" });
  update(frame, "d", "M-100 0H100M0 -100V100M100 0A100 100 0 1 1 100 -0.01Z");
  const group = (colour, ...nodes) => {
    const dashes = Math.floor(colour / 4);
    const node = svgNode("g", {
      class: `rp-chart-line rp-chart-c${colour % 4} rp-chart-d${dashes}`,
    });
    node.append(...nodes);
    return node;
  };
  const words = [
    ["sin", 84, -6],
    ["cos", 6, -84],
  ].map(([text, x, y]) => {
    const node = svgNode("text", { x, y });
    node.textContent = text;
    return node;
  });
  svg.append(frame, ...words, way, group(HERE, here), group(THERE, there));
  /** The tip of a hand: the sine to the right, the cosine upwards. */
  const tip = (angle, r) =>
    `${(r * Math.sin(angle)).toFixed(1)} ${(-r * Math.cos(angle)).toFixed(1)}`;

  function draw({ p, q, speed }, alt) {
    update(here, "d", `M0 0L${tip(p * speed, 100)}`);
    update(there, "d", `M0 0L${tip(q * speed, 100)}`);
    const turn = (q - p) * speed;
    const steps = Math.ceil(Math.abs(turn) / 0.15) + 1;
    const spiral = Array.from({ length: steps + 1 }, (_, k) =>
      tip(p * speed + (turn * k) / steps, 28 + (4 * Math.abs(turn) * k) / steps / 6.3),
    );
    update(way, "d", `M${spiral.join("L")}`);
    update(svg, "aria-label", alt);
  }
  return { node: svg, draw };
}

/** What the clock shows, in words. */
function clockInWords({ p, q, m, offset, speed }) {
  const degrees = (angle) => format(((angle * 180) / Math.PI) % 360);
  return (
    `Clock of hand ${m}, dimensions ${2 * m} and ${2 * m + 1}: at position ${p} it ` +
    `stands at ${degrees(p * speed)}\u00b0, at position ${format(q)} at ` +
    `${degrees(q * speed)}\u00b0. Between them it turns by ${format(offset)} times ` +
    `${format(speed, 3)} = ${format(offset * speed, 2)} radians, wherever p is.`
  );
}

function heatInWords({ L, E, base }) {
  const slowest = (2 * Math.PI) / handSpeed(E / 2 - 1, E, base);
  return (
    `Heat map of the code of ${L} positions with ${E} dimensions, from ` +
    `${format(-1)} to 1. The left columns repeat every 6.3 positions, the ones to the ` +
    `right more and more slowly, the last two every ${short(slowest)}.`
  );
}

function curveInWords({ p, E, offset, product, along }) {
  const where = along === "offset" ? "It stands still" : "It moves along, unchanged,";
  return (
    `Dot product of the code of position ${p} with the others: ${E / 2} at distance 0, ` +
    `${format(product, 2)} at distance ${Math.abs(offset)} on either side. ` +
    `${where} when p moves: only the distance matters.`
  );
}

/**
 * The curve, inside the sequence and outside. Over offsets it stands still and the
 * sequence moves with p; over positions it is the other way round.
 */
function curvesOf({ L, p, reach, products, along }) {
  const [count, shift] = along === "offset" ? [2 * reach + 1, 0] : [3 * reach + 1, p];
  const x = Array.from({ length: count }, (_, k) => k - reach);
  const [first, last] = [shift - p, shift - p + L - 1];
  const where = (test) =>
    x.map((place, k) => (test(place) ? products[k - shift] : null) ?? NaN);
  const inside = where((place) => place >= first && place <= last);
  const outside = where((place) => place <= first || place >= last);
  return { x, inside, outside, shift };
}

function render({ model, el }) {
  const [L, E] = [model.get("length"), model.get("width")];
  const set = (values) => {
    model.set(values);
    model.save_changes();
  };
  const controls = [
    slider(model, "position", "Position", "p", 0, L - 1),
    slider(model, "offset", "Offset", "\u03b4", 1 - L, L - 1),
    slider(model, "dimension", "Dimension", "", 0, E - 1),
    stepSlider(model, "base", "Base", "", BASES),
  ];
  const along = choice(model, "along", "Dot products over", {
    offset: "offset \u03b4",
    position: "position q",
  });
  const heat = matrix({
    name: "Code",
    ticks: 7,
    words: {
      rows: "position p",
      columns: "dimension",
      cell: (p, d) => `position ${p}, dimension ${d}`,
    },
    mustPress: true,
    onCell: (position, dimension) => set({ position, dimension }),
  });
  const [bar, numbers, hand] = [colourBar(), readout(), clock()];
  const chart = lineChart({
    name: "Dot products",
    xLabel: X_NAMES.offset,
    yLabel: "code(p) \u00b7 code(p + \u03b4)",
    mustPress: true,
    onPoint,
  });
  const bands = ["here", "there", "columns"].map((part) => div(`rp-sinusoid-${part}`));
  heat.node.append(
    make("div", { class: "rp-sinusoid-bands", "aria-hidden": "true" }, ...bands),
  );
  bar.show(format(-1), "1", "value", (t) => diverging(2 * t - 1));
  const places = [HERE, THERE].map((colour) => {
    const text = make("span");
    return { text, node: div("rp-sinusoid-place", lineSample(colour), text) };
  });

  function onPoint(index) {
    const shift = model.get("along") === "offset" ? 0 : model.get("position");
    set({ offset: Math.max(1 - L, Math.min(L - 1, index - (L - 1) - shift)) });
  }
  /** Frames around the two rows and the two columns that are looked at. */
  function frame({ p, q, m }) {
    const [here, there, columns] = bands;
    for (const [band, place] of [
      [here, p],
      [there, q],
    ]) {
      band.hidden = place < 0 || place >= L;
      band.style.top = `${(100 * place) / L}%`;
      band.style.height = `${100 / L}%`;
    }
    columns.style.left = `${(200 * m) / E}%`;
    columns.style.width = `${200 / E}%`;
  }
  function tell(now) {
    const { p, q, m, E: width, base, offset, speed, product } = now;
    const { sines, cosines, sum } = handProducts(p, offset, m, width, base);
    const inBrackets = (x) => (x < 0 ? `(${format(x)})` : format(x));
    numbers.tell([
      ["p", "p =", String(p)],
      ["q", "q = p + \u03b4 =", format(q)],
      ["hand", "hand", String(m)],
      ["turn", "full turn in", `${short((2 * Math.PI) / speed)} positions`],
      ["sines", "sin\u00b7sin", format(sines, 3)],
      ["cosines", "+ cos\u00b7cos", format(cosines, 3)],
      [
        "sum",
        `= cos(${inBrackets(offset)} \u00b7 ${format(speed, 3)}) =`,
        format(sum, 3),
      ],
      [
        "product",
        `sum over ${width / 2} hands: code(p)\u00b7code(q) =`,
        format(product, 2),
      ],
    ]);
    [p, q].forEach((place, k) => {
      const angle = place * speed;
      places[k].text.textContent =
        ` position ${format(place)}: sin ${format(Math.sin(angle), 2)}, ` +
        `cos ${format(Math.cos(angle), 2)}`;
    });
  }
  function redraw() {
    const now = stateOf(model);
    const codes = sinusoidalCodes(0, L, E, now.base);
    for (const control of [...controls, along]) control.show();
    heat.draw({
      queries: L,
      keys: E,
      cellOf: (p, d) => ({ colour: diverging(codes[p * E + d]) }),
      alt: heatInWords(now),
    });
    heat.select(now.p, now.d);
    frame(now);
    hand.draw(now, clockInWords(now));
    const { x, inside, outside, shift } = curvesOf(now);
    const lowest = Math.min(...now.products);
    chart.draw({
      x,
      xLabel: X_NAMES[now.along],
      yRange: [lowest < -1e-9 ? -roundUp(-lowest) : 0, E / 2],
      lines: [
        { label: "in the sequence", values: inside, colour: HERE },
        { label: "outside of it", values: outside, colour: OUTSIDE },
      ],
      marks: now.along === "position" ? [{ x: now.p, label: `p = ${now.p}` }] : [],
      alt: curveInWords(now),
    });
    chart.select(now.reach + shift + now.offset, now.q < 0 || now.q >= L ? 1 : 0);
    tell(now);
  }

  const parts = [
    [bar.node, div("rp-stage", heat.node)],
    [along.node, chart.node],
    [hand.node, ...nodesOf(places)],
    [numbers.node],
  ].map((nodes) => make("div", {}, ...nodes));
  el.append(
    figureRoot(
      "Sinusoid explorer",
      "rp-sinusoid",
      div("rp-controls", ...nodesOf(controls)),
      div("rp-sinusoid-parts", ...parts),
    ),
  );
  return follow(model, CONTROLS, redraw);
}

export default { render };
