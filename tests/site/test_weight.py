"""First visits are light, and figures wait for nothing that they do not need."""

from __future__ import annotations

import re

import pytest

from book.tools import weigh
from book.tools.notebooks import chapters
from tests.site.built import SITE, page_names
from tests.site.sound import settle

MOST = 1_000_000  # a first visit, compressed, pictures included
MOST_JAVASCRIPT = 60_000
CHAPTERS = [path.stem for path in chapters()]
WEIGHED: dict[str, weigh.Weight] = {}
NOT_ICONS = {"fa-solid", "fa-lg", "fa-fw"}


def html_of(chapter):
    return (SITE / "book" / f"{chapter}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_first_visit(page, site_url, chapter):
    """It is light, and formulas are drawn with fonts of the site."""
    fonts = []
    page.on("request", lambda r: fonts.append(r.url) if ".woff" in r.url else None)
    weight = weigh.weigh(page, f"{site_url}book/{chapter}.html")
    print(weight.told(chapter))
    WEIGHED[chapter] = weight
    weigh.save(WEIGHED)
    assert weight.kinds["formulas"] > 0
    assert weight.kinds.get("other", 0) == 0
    assert weight.total <= MOST
    assert weight.our_javascript <= MOST_JAVASCRIPT
    settle(page)
    assert page.locator("mjx-container").count() >= 1
    page.wait_for_function("() => document.fonts.status === 'loaded'")
    assert [font for font in fonts if "/_static/mathjax/" in font]
    assert page.locator("mjx-merror").count() == 0


def test_a_page_is_weighed_whole(page, blank_url):
    """Scripts inside the page count as ours, and what is sent twice counts twice."""
    state = '{"state": {"a": {"state": {"_esm": "one"}}, "b": {"state": {}}}}'
    tag = f'<script type="application/vnd.jupyter.widget-state+json">{state}</script>'
    assert weigh.modules(tag + tag) == ["one", "one"]
    assert weigh.compressed(b"a" * 9000) < 100
    assert weigh.compressed(b"a") == 1
    weight = weigh.weigh(page, blank_url)
    assert set(weight.kinds) == {"page, with the figures' scripts and data"}
    assert 50 < weight.total < 500


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_only_figures_that_are_shown_are_sent(chapter):
    """A chapter may make others, to compute with them."""
    html = html_of(chapter)
    assert len(weigh.modules(html)) == html.count('class="live-figure')


@pytest.mark.parametrize(
    "chapter", [each for each in CHAPTERS if "live-figure" in html_of(each)]
)
def test_the_first_figure_does_not_wait_for_formulas(page, site_url, chapter):
    held = []
    page.route("**/mathjax/**", lambda route: held.append(route))  # never answered
    page.goto(f"{site_url}book/{chapter}.html", wait_until="domcontentloaded")
    figure = page.locator(".rp-figure").first
    control = figure.locator("input:not([type='text'])").first
    control.wait_for()
    before = figure.inner_html()
    at_end = control.input_value() == control.get_attribute("max")
    ticks = control.get_attribute("type") == "checkbox"
    control.press("Space" if ticks else "ArrowLeft" if at_end else "ArrowRight")
    control.press("Enter")  # a quiz waits for it, and nothing else minds
    page.wait_for_function(
        "([figure, before]) => figure.innerHTML !== before",
        arg=[figure.element_handle(), before],
    )
    assert held
    assert page.locator("mjx-container").count() == 0
    for route in held:
        route.fulfill(body="", content_type="text/javascript")


@pytest.mark.parametrize("name", page_names())
def test_every_icon_is_drawn_by_our_own_styles(name):
    html = (SITE / name).read_text(encoding="utf-8")
    styles = (SITE / "_static" / "icons.css").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^\.(fa-[\w-]+) \{$", styles, re.M)) | NOT_ICONS
    used = {
        icon
        for names in re.findall(r'class="([^"]*)"', html)
        for icon in names.split()
        if icon.startswith("fa-")
    }
    assert used <= drawn
    assert "fontawesome" not in html


def test_pictures_of_live_figures_are_fetched_when_seen():
    for chapter in CHAPTERS:
        live = re.findall(
            r'<div class="[^"]*live-figure(?:(?!</div>).)*?<img ([^>]*)>',
            html_of(chapter),
            re.S,
        )
        assert all('loading="lazy"' in image for image in live), chapter
