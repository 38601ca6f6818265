/** A trained model at work: type a sequence, make it long, see where it goes wrong. */
import { button } from "./controls.js";
import { css, format, inkOn, roundUp, viridis } from "./core.js";
import {
  KEYS_STAY,
  div,
  figureRoot,
  follow,
  freshId,
  make,
  nodesOf,
  setText,
  update,
} from "./dom.js";
import { choice, colourBar, matrix, readout, slider } from "./matrix.js";
import { weightText } from "./panels.js";
import {
  charactersOf,
  halfFloats,
  predictions,
  roomForMaps,
  switchPlaces,
  symbolOf,
  transformer,
  weightOnPlaces,
  weightsFrom,
} from "./transformer_math.js";

const TRAITS = ["text", "length", "scheme", "layer", "head"];
const LETTERS = "pabcdefghijklmno";
const LONGEST_TEXT = 64;
/** Longer sequences are written small, without the right answers. */
const ROOMY = 64;

/** The models by scheme, their weights read from float16. */
function modelsOf(model) {
  const numbers = halfFloats(model.get("_weights"));
  const sizes = {
    width: model.get("width"),
    heads: model.get("num_heads"),
    layers: model.get("num_layers"),
  };
  const made = Object.entries(model.get("_layouts")).map(([scheme, layout]) => [
    scheme,
    { tensors: weightsFrom(numbers, layout), scheme, ...sizes },
  ]);
  return Object.fromEntries(made);
}

/** Text field for the beginning of the sequence, with a word on what is not used. */
function textField(model) {
  const [id, hintId] = [freshId("text"), freshId("hint")];
  const input = make("input", {
    id,
    type: "text",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-describedby": hintId,
    ...KEYS_STAY,
  });
  const hint = make(
    "p",
    { id: hintId, class: "rp-note" },
    "Symbols are the letters a to p; any other character stands for one of them.",
  );
  const warning = make("p", { class: "rp-model-warning", role: "status" });
  let last = "";
  input.addEventListener("input", () => {
    const typed = charactersOf(input.value).slice(0, LONGEST_TEXT);
    const [L, longest] = [model.get("length"), model.get("max_length")];
    // The sequence grows with its text, unless the reader has made it shorter.
    const grows = charactersOf(last).length <= L;
    const length = grows ? Math.min(Math.max(L, typed.length), longest) : L;
    last = typed.join("");
    model.set({ text: last, length });
    model.save_changes();
    warn();
  });
  function warn() {
    const [typed, L] = [charactersOf(input.value).length, model.get("length")];
    const used = Math.min(LONGEST_TEXT, L);
    setText(warning, typed > used ? `Only the first ${used} characters are used.` : "");
  }
  function show() {
    const text = model.get("text");
    if (text !== last) input.value = last = text;
    warn();
  }
  const label = make("label", { for: id }, "Type how the sequence begins");
  const field = div("rp-control", label, input);
  const node = div("rp-model-text", field, hint, warning);
  return { node, show };
}

/** How a character is shown: spaces, and marks that join others, are made visible. */
function visible(character) {
  if (/\s/u.test(character)) return "\u2423";
  return /\p{Mark}/u.test(character) ? `\u25CC${character}` : character;
}

/**
 * The sequence: of each place what was typed, its symbol, the model's answer and, below
 * a wrong one, the right one. Cells are made once, for the longest sequence.
 */
function strip(longest, trained, onPlace) {
  const cells = Array.from({ length: longest }, (_, place) => {
    const [typed, symbol, said, answer] = ["small", "span", "b", "i"].map((tag) =>
      make(tag),
    );
    const node = make("span", { class: "rp-model-cell", "data-place": place });
    if (place >= trained) node.setAttribute("data-past", "");
    node.append(typed, symbol, said, answer);
    return { node, typed, symbol, said, answer };
  });
  const node = make("div", { class: "rp-model-strip", role: "img", dir: "ltr" });
  node.append(...nodesOf(cells));
  for (const type of ["pointermove", "pointerdown"])
    node.addEventListener(type, ({ target }) => {
      const cell = target.closest(".rp-model-cell");
      if (cell) onPlace(Number(cell.getAttribute("data-place")));
    });

  function drawCell(cell, place, { symbols, characters, answers, said }) {
    const isAsked = answers[place] >= 0;
    const isWrong = isAsked && answers[place] !== said[place];
    const typed = characters[place];
    setText(cell.typed, typed ? visible(typed) : "");
    setText(cell.symbol, LETTERS[symbols[place]]);
    setText(cell.said, isAsked ? LETTERS[said[place]] : "\u00b7");
    setText(cell.answer, isWrong ? LETTERS[answers[place]] : "");
    update(cell.node, "data-kind", isWrong ? "wrong" : isAsked ? "right" : "none");
  }
  function draw(now, alt) {
    const L = now.symbols.length;
    const isTyped = now.characters.some(
      (character, place) => character.toLowerCase() !== LETTERS[now.symbols[place]],
    );
    node.classList.toggle("rp-model-typed", isTyped);
    node.classList.toggle("rp-model-small", L > ROOMY);
    cells.forEach((cell, place) => {
      if (cell.node.hidden !== place >= L) cell.node.hidden = place >= L;
      if (place < L) drawCell(cell, place, now);
    });
    update(node, "aria-label", alt);
  }
  /** Colour the symbols by the weights of a query; mark the query and a key. */
  function mark(query, key, weights, L, top) {
    for (let place = 0; place < L; place++) {
      const colour = viridis(weights[query * L + place] / top);
      const { node: cell, symbol } = cells[place];
      update(symbol, "style", `background: ${css(colour)}; color: ${inkOn(colour)}`);
      const name = place === query ? "query" : place === key ? "key" : null;
      if (name) update(cell, "data-mark", name);
      else if (cell.hasAttribute("data-mark")) cell.removeAttribute("data-mark");
    }
  }
  return { node, draw, mark };
}

/** How to read the strip, with samples of its cells. */
function legend(trained) {
  const sample = (attributes, ...letters) => {
    const parts = letters.map(([tag, letter]) => make(tag, {}, letter));
    return make("span", { class: "rp-model-cell", ...attributes }, ...parts);
  };
  const items = [
    [
      sample({ "data-mark": "query" }, ["span", "a"]),
      "the symbols, coloured by how much the outlined one attends to them;",
    ],
    [sample({}, ["b", "d"]), "below each: the model\u2019s answer;"],
    [
      sample({ "data-kind": "wrong" }, ["b", "k"], ["i", "d"]),
      "a wrong one, and the right one under it (up to length 64);",
    ],
    [
      sample({ "data-past": "" }, ["span", "a"]),
      `past the longest training sequence, ${trained}.`,
    ],
  ].map((item) => make("span", {}, ...item));
  return make("p", { class: "rp-note rp-model-legend" }, ...items);
}

/** What the models were trained to say. */
const theTask = () =>
  make(
    "p",
    {},
    make("b", {}, "b d f h j l n p"),
    " ask for the symbol before them, ",
    make("b", {}, "a c e g i k m o"),
    " for the symbol two places on.",
  );

/** A button for each head, with how much of its weight is where the answers stand. */
function headTable(model, layers, heads) {
  const named = (word, count) =>
    Array.from({ length: count }, (_, k) => `${word} ${k + 1}`);
  const rows = named("layer", layers).map((name, row) => {
    const buttons = named("head", heads).map((head, column) => {
      const made = button("", () => {
        model.set({ layer: row + 1, head: column + 1 });
        model.save_changes();
      });
      return { ...made, name: `${name}, ${head}` };
    });
    const cells = buttons.map(({ node }) => make("td", {}, node));
    const title = make("th", { scope: "row" }, name);
    return { buttons, node: make("tr", {}, title, ...cells) };
  });
  const columns = named("head", heads).map((name) =>
    make("th", { scope: "col" }, name),
  );
  const caption = "Share of its weight that each head puts where the answers stand";
  const node = make(
    "table",
    { class: "rp-model-heads" },
    make("caption", {}, caption),
    make("thead", {}, make("tr", {}, make("td"), ...columns)),
    make("tbody", {}, ...nodesOf(rows)),
  );
  /** `shares` are texts, by layer and head. */
  function show(shares) {
    const [layer, head] = ["layer", "head"].map((trait) => model.get(trait));
    rows.forEach(({ buttons }, row) =>
      buttons.forEach((one, column) => {
        setText(one.node, shares[row][column]);
        update(one.node, "aria-label", `${one.name}: ${shares[row][column]}`);
        one.press(row === layer - 1 && column === head - 1);
      }),
    );
  }
  return { node, show };
}

/** Places of mistakes. */
const mistakesOf = ({ answers, said }) =>
  answers.flatMap((answer, i) => (answer < 0 || answer === said[i] ? [] : [i]));

function resultInWords({ answers, asked, right }, scheme, trained) {
  const L = answers.length;
  const past = L > trained ? `, ${L - trained} more than in training` : "";
  if (!asked) return `${scheme}: no answer is asked for at length ${L}.`;
  const share = format((100 * right) / asked);
  const found = `${right} of ${asked} answers right (${share}%)`;
  return `${scheme}: ${found} at length ${L}${past}.`;
}

function mistakesInWords(mistakes) {
  const what = "The sequence with the model's answers:";
  if (!mistakes.length) return `${what} no mistake.`;
  const first = mistakes.slice(0, 10).join(", ");
  const more = mistakes.length > 10 ? " and more" : "";
  const noun = mistakes.length > 1 ? "mistakes, at positions" : "mistake, at position";
  return `${what} ${mistakes.length} ${noun} ${first}${more}.`;
}

function render({ model, el }) {
  const models = modelsOf(model);
  const [trained, longest] = [model.get("trained"), model.get("max_length")];
  const invented = model.get("_invented");
  const schemes = Object.fromEntries(model.get("schemes").map((name) => [name, name]));
  const room = roomForMaps(Object.values(models)[0], longest);
  const everywhere = new Uint8Array(longest ** 2).fill(1);
  const controls = [
    textField(model),
    slider(model, "length", "Length", "L", 2, longest),
    choice(model, "scheme", "Scheme", schemes),
  ];
  const heads = headTable(model, model.get("num_layers"), model.get("num_heads"));
  const [bar, numbers] = [colourBar(), readout()];
  const score = make("output", { class: "rp-model-score", "aria-live": "polite" });
  const next = button("Next mistake", () => {
    const { mistakes } = now;
    if (mistakes.length) goTo(mistakes.find((place) => place > at[0]) ?? mistakes[0]);
  });
  const cells = matrix({ name: "Attention", onCanvas: true, onCell: tell });
  const inside = div("rp-model-trained");
  const frame = { class: "rp-model-frame", "aria-hidden": "true" };
  cells.node.append(make("div", frame, inside));
  const sequence = strip(longest, trained, goTo);
  let [now, wanted, at] = [null, [], null];

  /** Run the model, if sequence or scheme are not those of the last time. */
  function compute() {
    const state = ["text", "length", "scheme"].map((trait) => model.get(trait));
    if (state.every((value, k) => value === wanted[k])) return;
    wanted = state;
    const [text, L, scheme] = state;
    const characters = charactersOf(text).slice(0, L);
    const typed = characters.map(symbolOf);
    const symbols = [...typed, ...invented.slice(typed.length, L)];
    const { logits, maps } = transformer(models[scheme], symbols, room);
    const [places, said] = [switchPlaces(symbols), predictions(logits, L)];
    const answers = places.map((place) => (place < 0 ? -1 : symbols[place]));
    const mistakes = mistakesOf({ answers, said });
    const asked = places.filter((place) => place >= 0).length;
    const right = asked - mistakes.length;
    now = { characters, symbols, places, answers, said, mistakes, asked, right, maps };
    now.shares = sharesOf(now);
  }
  /** Look at a query, and at the key where its answer stands. */
  function goTo(query) {
    const key = now.places[query] < 0 ? query : now.places[query];
    cells.select(query, key);
    tell(query, key);
  }
  function tell(i, j) {
    const { symbols, answers, said, weights, top } = now;
    const L = symbols.length;
    at = [Math.min(i, L - 1), Math.min(j, L - 1)];
    const [query, key] = at;
    sequence.mark(query, key, weights, L, top);
    const isAsked = answers[query] >= 0;
    const verdict = answers[query] === said[query] ? "right" : "wrong";
    numbers.tell([
      ["i", "query i =", String(query)],
      ["symbol", "symbol", LETTERS[symbols[query]]],
      ["answer", "right answer", isAsked ? LETTERS[answers[query]] : "none"],
      ["said", "model says", LETTERS[said[query]] + (isAsked ? `, ${verdict}` : "")],
      ["j", "key j =", String(key)],
      ["offset", "offset", format(key - query)],
      ["key", "symbol", LETTERS[symbols[key]]],
      ["weight", "weight", weightText(weights[query * L + key], true)],
    ]);
  }
  /** How much each head looks where the answers stand, in words, by layer and head. */
  function sharesOf({ maps, symbols, places, asked }) {
    const size = symbols.length ** 2;
    return maps.map((map) =>
      Array.from({ length: map.length / size }, (_, head) => {
        const weights = map.subarray(head * size, (head + 1) * size);
        return asked ? `${format(100 * weightOnPlaces(weights, places))}%` : "none";
      }),
    );
  }
  function drawMap(words) {
    const [layer, head] = ["layer", "head"].map((trait) => model.get(trait));
    const L = now.symbols.length;
    const start = (head - 1) * L * L;
    const weights = now.maps[layer - 1].subarray(start, start + L * L);
    let most = 0;
    for (let cell = 0; cell < L * L; cell++)
      if (weights[cell] > most) most = weights[cell];
    const top = roundUp(most);
    Object.assign(now, { weights, top });
    heads.show(now.shares);
    const shade = { values: weights, allowed: everywhere, top, signed: false };
    const alt =
      `Attention weights of layer ${layer}, head ${head}, ${L} by ${L}; ` +
      `${now.shares[layer - 1][head - 1]} of them where the answers stand. ${words}`;
    cells.draw({ queries: L, keys: L, shade, alt });
    inside.hidden = L <= trained;
    inside.style.width = inside.style.height = `${(100 * trained) / L}%`;
    bar.show("0", String(top), `weight in layer ${layer}, head ${head}`, viridis);
  }
  function redraw() {
    compute();
    for (const control of controls) control.show();
    const words = resultInWords(now, model.get("scheme"), trained);
    setText(score, words);
    update(next.node, "aria-disabled", !now.mistakes.length);
    sequence.draw(now, mistakesInWords(now.mistakes));
    drawMap(words);
    if (at) tell(...at);
    else goTo(now.mistakes[0] ?? Math.floor(now.symbols.length / 2));
  }

  const side = div("rp-side", heads.node, numbers.node);
  const stage = div("rp-stage", cells.node);
  el.append(
    figureRoot(
      "Trained model explorer",
      "rp-model",
      div("rp-controls", ...nodesOf(controls)),
      div("rp-model-result", score, next.node),
      theTask(),
      sequence.node,
      legend(trained),
      div("rp-columns", side, div("rp-main", bar.node, stage)),
    ),
  );
  return follow(model, TRAITS, redraw);
}

export default { render };
