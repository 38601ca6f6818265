"""What is wrong with a page that stands in the browser."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe

from tests.site.built import MAIN

# Contrast depends on these few things, so one text of each is looked at, with what it
# contains: thousands of names in code are no different from the first.
MARK_SAMPLES = """() => {
  const seen = new Set();
  for (const element of document.querySelectorAll("body *")) {
    delete element.dataset.sample;
    const nodes = [...element.childNodes];
    if (!nodes.some(node => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(element);
    const look = [style.color, style.fontSize, style.fontWeight];
    for (let each = element; each; each = each.parentElement) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(each);
      const behind = [backgroundColor, backgroundImage, opacity].join();
      if (behind !== "rgba(0, 0, 0, 0),none,1") look.push(behind);
    }
    if (seen.has(look.join("|"))) continue;
    seen.add(look.join("|"));
    element.dataset.sample = "";
  }
}"""
# As part of a whole run: on a large page axe needs a second to find out what lies
# where, before it looks at the first colour.
CONFIGURE = """;axe.configure({ rules: [
  { id: "color-contrast", selector: "[data-sample], [data-sample] *" },
] });"""
AXE = Axe(AXE_SCRIPT + CONFIGURE)
# Loading style sheets a second time would fail on one that the theme imports.
OPTIONS = {"preload": False, "resultTypes": ["violations"]}
COLOURS = ("color-contrast", "link-in-text-block")
# What the theme repeats on every page is its own; the content is ours.
TOLERATED_OUTSIDE = {"minor", "moderate"}


def settle(page) -> None:
    """Wait until the page is loaded and its formulas and figures stand."""
    page.wait_for_load_state("load")
    page.evaluate("() => window.MathJax?.startup?.promise")
    page.wait_for_function(
        "() => !document.querySelector('.live-figure script[type*=widget-view]')"
    )


def violations(page, rules=()) -> list[str]:
    """What axe finds: anything in the content, serious things elsewhere.

    By all of its rules, or by these.
    """
    page.evaluate(MARK_SAMPLES)
    options = OPTIONS | ({"runOnly": list(rules)} if rules else {})
    found = []
    for violation in AXE.run(page, options=options).response["violations"]:
        for node in violation["nodes"]:
            inside = page.evaluate(
                "([target, main]) => !!document.querySelector(target)?.closest(main)",
                [node["target"][-1], MAIN],
            )
            if inside or violation["impact"] not in TOLERATED_OUTSIDE:
                what = f"{violation['id']} ({violation['impact']})"
                found.append(f"{what}: {node['html']}")
    return found
