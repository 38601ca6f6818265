/* Small helps for the reader's hands; the figures have a script of their own. */

/* What is wider than the page scrolls inside itself; the keyboard must reach it. */
const watch = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const scrolls = target.scrollWidth > target.clientWidth;
    target.classList.toggle("scrolls", scrolls);
    if (scrolls) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

/* On a phone a picture stays large enough to read, in a frame that scrolls. One that
   fits is left alone, as those of live figures are, which give way to the figure. */
addEventListener("DOMContentLoaded", () => {
  for (const picture of document.querySelectorAll("article img")) {
    if (picture.closest(".live-figure, .wide-picture, .fits")) continue;
    const frame = document.createElement("div");
    frame.className = "wide-picture";
    picture.replaceWith(frame);
    frame.append(picture);
  }
});

/* The theme listens to the first of each button only, which stands in the bar that
   book.css hides: pass on what the others hear. */
addEventListener("DOMContentLoaded", () => {
  for (const kind of [".primary-toggle", ".secondary-toggle"]) {
    const [first, ...others] = document.querySelectorAll(kind);
    for (const button of others) button.addEventListener("click", () => first.click());
  }
  /* Whoever chooses a section in the dialog wants to see it. The theme gives the
     focus back to the button, which scrolls away again: go there after that. */
  const dialog = document.getElementById("pst-secondary-sidebar-modal");
  dialog?.addEventListener("click", ({ target }) => {
    const id = decodeURIComponent(target.closest("a")?.hash.slice(1) ?? "");
    const section = document.getElementById(id);
    if (!section) return;
    const show = () => requestAnimationFrame(() => section.scrollIntoView());
    dialog.addEventListener("close", show, { once: true });
    dialog.close();
  });
});

/* No line begins with the full stop or comma that stands behind a formula. */
addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll("article span.math")) {
    const text = formula.nextSibling;
    const mark = /^[.,;:!?)\]\u201d\u2019]+/.exec(text?.data ?? "");
    if (!mark) continue;
    const frame = document.createElement("span");
    frame.className = "formula-and-mark";
    formula.replaceWith(frame);
    text.deleteData(0, mark[0].length);
    frame.append(formula, mark[0]);
  }
});

addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  document
    .querySelectorAll("article div.math, .wide-picture")
    .forEach((each) => watch.observe(each));
});
