"""Every page of the built site, in a real browser."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from book.tools.notebooks import chapters
from tests.site.built import MAIN, page_names

# Loading style sheets a second time would fail on one that the theme imports.
AXE = {"preload": False, "resultTypes": ["violations"]}
# Colours do not depend on the width, and measuring them takes longest.
AXE_PHONE = {**AXE, "rules": {"color-contrast": {"enabled": False}}}
PHONE = {"width": 320, "height": 640}
DESK = {"width": 1280, "height": 900}
LOOKS = {
    "light": {"color_scheme": "light", "viewport": DESK},
    "dark": {"color_scheme": "dark", "viewport": DESK},
    "phone": {"color_scheme": "light", "viewport": PHONE},
}
# What the theme repeats on every page is its own; the content is ours.
TOLERATED_OUTSIDE = {"minor", "moderate"}


def settle(page) -> None:
    """Wait until the page is loaded and its formulas and figures stand."""
    page.wait_for_load_state("load")
    page.evaluate("() => window.MathJax?.startup?.promise")
    page.wait_for_function(
        "() => !document.querySelector('.live-figure script[type*=widget-view]')"
    )


def violations(page, options) -> list[str]:
    """What axe finds: anything in the content, serious things elsewhere."""
    found = []
    for violation in Axe().run(page, options=options).response["violations"]:
        for node in violation["nodes"]:
            inside = page.evaluate(
                "([target, main]) => !!document.querySelector(target)?.closest(main)",
                [node["target"][-1], MAIN],
            )
            if inside or violation["impact"] not in TOLERATED_OUTSIDE:
                what = f"{violation['id']} ({violation['impact']})"
                found.append(f"{what}: {node['html']}")
    return found


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", page_names())
def test_page_is_sound(open_page, site_url, name, look):
    """No problem of the guard, none of accessibility, and nothing too wide."""
    page = open_page(**LOOKS[look])
    page.goto(site_url + name)
    settle(page)
    assert page.evaluate("document.documentElement.dataset.theme") == (
        "dark" if look == "dark" else "light"
    )
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= LOOKS[look]["viewport"]["width"]
    assert violations(page, AXE_PHONE if look == "phone" else AXE) == []


@pytest.mark.parametrize("chapter", [path.stem for path in chapters()])
def test_formulas_are_drawn_with_fonts_of_the_site(page, site_url, chapter):
    fonts = []
    page.on("request", lambda r: fonts.append(r.url) if ".woff" in r.url else None)
    page.goto(f"{site_url}book/{chapter}.html")
    settle(page)
    assert page.locator("mjx-container").count() >= 1
    page.wait_for_function("() => document.fonts.status === 'loaded'")
    assert [font for font in fonts if "/_static/mathjax/" in font]
    assert page.locator("mjx-merror").count() == 0


@pytest.mark.parametrize("chapter", [path.stem for path in chapters()])
def test_wide_formulas_show_their_beginning_first(open_page, site_url, chapter):
    page = open_page(viewport=PHONE)
    page.goto(f"{site_url}book/{chapter}.html")
    settle(page)
    starts = page.locator("article div.math").evaluate_all(
        """frames => frames.map(frame =>
             frame.querySelector("mjx-container").getBoundingClientRect().left
             - frame.getBoundingClientRect().left)"""
    )
    assert starts
    assert min(starts) > -1


def test_the_front_address_leads_to_the_first_page(page, site_url):
    page.goto(site_url)
    page.wait_for_url(site_url + "book/index.html")
    assert page.locator("article h1").is_visible()


def test_search_finds_a_word(page, site_url):
    page.goto(site_url + "search.html?q=offset")
    results = page.locator("#search-results li a")
    results.first.wait_for()
    results.first.click()
    page.wait_for_load_state("load")
    assert "offset" in page.locator(MAIN).inner_text().lower()


def test_the_reader_can_choose_the_dark(page, site_url):
    page.goto(site_url + "book/index.html")
    root = "document.documentElement.dataset"
    ground = "getComputedStyle(document.body).backgroundColor"
    button = page.locator(".theme-switch-button").first
    seen = {}
    for _ in range(3):
        seen[page.evaluate(f"{root}.mode")] = page.evaluate(ground)
        button.click()
    assert set(seen) == {"auto", "light", "dark"}
    assert seen["light"] != seen["dark"]


@pytest.mark.parametrize("chapter", [path.stem for path in chapters()])
def test_the_site_works_from_disk(page, site_dir, chapter):
    """Whoever opens the address that ``make book`` prints sees figures and formulas."""
    page.goto((site_dir / "book" / f"{chapter}.html").as_uri())
    settle(page)
    assert page.locator("mjx-container").count() >= 1
