/** Controls beyond those of single traits: buttons, and sliders of any number. */
import { KEYS_STAY, div, freshId, make, update } from "./dom.js";

/** A button; `press(on)` says whether what it does is how things stand now. */
export function button(label, onPress) {
  const node = make("button", { type: "button", class: "rp-button" }, label);
  node.addEventListener("click", onPress);
  return { node, press: (on) => update(node, "aria-pressed", on) };
}

/** Range input for a number that is read and written by functions. */
export function numberSlider(options) {
  const { word, label, letter, min, max, step, read, write, text } = options;
  const id = freshId(word);
  const input = make("input", { id, type: "range", min, max, step, ...KEYS_STAY });
  const output = make("output", { for: id });
  input.addEventListener("input", () => write(Number(input.value)));
  const show = () => {
    input.value = read();
    output.textContent = text(read());
    update(input, "aria-valuetext", text(read()));
  };
  const name = make("label", { for: id }, label, make("i", {}, ` ${letter}`));
  return { node: div("rp-control", name, output, input), show };
}
