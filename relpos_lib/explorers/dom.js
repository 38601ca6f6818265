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

/** Set an attribute or a text only if it differs: no needless work or announcement. */
export function update(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/** Call redraw now and whenever one of the traits changes; returns the way to stop. */
export function follow(model, traits, redraw) {
  for (const trait of traits) model.on(`change:${trait}`, redraw);
  redraw();
  return () => {
    for (const trait of traits) model.off(`change:${trait}`, redraw);
  };
}
