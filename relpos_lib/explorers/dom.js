/** Elements, ids and traits: what every figure is built with. */

/** Attributes without which JupyterLab takes the arrow keys for itself. */
export const KEYS_STAY = { "data-lm-suppress-shortcuts": "true" };

const page = Math.random().toString(36).slice(2, 8);
let made = 0;
/** An id that no other element has. */
export const freshId = (word) => `rp-${word}-${page}-${made++}`;

/** An element with attributes and children; strings become text, never markup. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A div of these classes with children. */
export const div = (classes, ...children) =>
  make("div", { class: classes }, ...children);

/** The whole of a figure: a group with a name. */
export const figureRoot = (name, classes, ...children) =>
  make(
    "div",
    { class: `rp-figure ${classes}`, role: "group", "aria-label": name },
    ...children,
  );

/** The nodes of controls, or of whatever else has one. */
export const nodesOf = (parts) => parts.map((part) => part.node);

/** Set an attribute only if it differs: no needless work or announcement. */
export function update(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Set the text of a node only if it differs: no needless layout or announcement. */
export function setText(node, text) {
  if (node.textContent !== String(text)) node.textContent = text;
}

/** Call redraw now and whenever one of the traits changes; returns the way to stop. */
export function follow(model, traits, redraw) {
  for (const trait of traits) model.on(`change:${trait}`, redraw);
  redraw();
  return () => {
    for (const trait of traits) model.off(`change:${trait}`, redraw);
  };
}
