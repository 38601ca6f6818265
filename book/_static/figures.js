/**
 * Brings the book's figures to life on a page without a kernel.
 *
 * The page holds the saved state of its widgets as JSON and, where each figure belongs,
 * a tag with the id of its model, followed by its still form, mostly a picture. Every
 * model carries its own ES module; this script gives it what anywidget would (get, set,
 * on, off, …) and takes the still form away once the figure stands. If anything fails
 * it stays.
 */
const STATE = 'script[type="application/vnd.jupyter.widget-state+json"]';
const VIEW = 'script[type="application/vnd.jupyter.widget-view+json"]';

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** The state of a saved model, with its binary traits as DataViews. */
function stateOf({ state, buffers = [] }) {
  const whole = structuredClone(state);
  for (const { path, data } of buffers) {
    const parent = path.slice(0, -1).reduce((node, step) => node[step], whole);
    parent[path.at(-1)] = new DataView(bytes(data).buffer);
  }
  return whole;
}

/** The model that a figure sees; views of one model share it. */
class Model {
  #state;
  #listeners = new Map();

  constructor(saved) {
    this.#state = stateOf(saved);
  }
  get(name) {
    return this.#state[name];
  }
  set(name, value) {
    if (typeof name === "object") {
      for (const [key, each] of Object.entries(name)) this.set(key, each);
    } else if (this.#state[name] !== value) {
      this.#state[name] = value;
      this.#tell(`change:${name}`, value);
      this.#tell("change");
    }
  }
  on(event, listener) {
    if (!this.#listeners.has(event)) this.#listeners.set(event, new Set());
    this.#listeners.get(event).add(listener);
  }
  off(event, listener) {
    if (!event) this.#listeners.clear();
    else if (listener) this.#listeners.get(event)?.delete(listener);
    else this.#listeners.delete(event);
  }
  #tell(event, value) {
    for (const listener of [...(this.#listeners.get(event) ?? [])])
      listener(this, value);
  }
  /** There is no kernel to save to or to send to. */
  save_changes() {}
  send() {}
}

const modules = new Map();
const styles = new Set();

/** The default export of a module's text; the same text is loaded once. */
function load(text) {
  if (!modules.has(text)) {
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const loading = import(address).finally(() => URL.revokeObjectURL(address));
    modules.set(
      text,
      loading.then((module) => module.default),
    );
  }
  return modules.get(text);
}

function addStyle(text) {
  if (!text || styles.has(text)) return;
  styles.add(text);
  const style = document.createElement("style");
  style.textContent = text;
  document.head.append(style);
}

async function begin(saved) {
  const model = new Model(saved);
  const loaded = await load(model.get("_esm"));
  const widget = typeof loaded === "function" ? await loaded() : loaded;
  await widget.initialize?.({ model });
  return { model, widget };
}

/** Put a figure in the place of its tag and still form. */
async function show(tag, started) {
  const el = document.createElement("div");
  try {
    const { model, widget } = await started;
    addStyle(model.get("_css"));
    await widget.render({ model, el });
  } catch (error) {
    console.error("A figure could not be shown; its still form stays.", error);
    return;
  }
  tag
    .closest(".live-figure")
    ?.querySelectorAll("img, .rp-still")
    .forEach((still) => still.remove());
  tag.replaceWith(el);
}

const saved = {};
for (const tag of document.querySelectorAll(STATE))
  Object.assign(saved, JSON.parse(tag.textContent).state);
const started = new Map();
for (const tag of document.querySelectorAll(VIEW)) {
  const id = JSON.parse(tag.textContent).model_id;
  if (saved[id]?.model_module !== "anywidget") continue;
  if (!started.has(id)) started.set(id, begin(saved[id]));
  show(tag, started.get(id));
}
