/* A formula wider than the page scrolls inside itself; the keyboard must reach it. */
const watch = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  document.querySelectorAll("article div.math").forEach((each) => watch.observe(each));
});
