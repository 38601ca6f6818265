"""Every page of the built site, in a real browser."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from book._ext import site as extension
from book.tools.notebooks import chapters
from tests.site.built import FIGURES, MAIN, SITE, page_names, read_page
from tests.site.sound import COLOURS, settle, violations

DESK = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def loaded(stand, request):
    return stand(request.param, DESK)


@pytest.mark.parametrize("loaded", page_names(), indirect=True)
def test_page_is_sound(standing):
    """No problem of the guard, none of accessibility, and nothing too wide."""
    assert standing.evaluate("document.documentElement.scrollWidth") <= DESK["width"]
    assert violations(standing) == []
    standing.emulate_media(color_scheme="dark")
    standing.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert violations(standing, COLOURS) == []


@pytest.mark.parametrize(
    ("loaded", "kinds"),
    [(f"book/{chapter}.html", kinds) for chapter, kinds in FIGURES.items()],
    indirect=["loaded"],
)
def test_every_figure_is_alive(standing, kinds):
    standing.wait_for_function("!document.querySelector('.live-figure img')")
    for kind in kinds:
        assert standing.locator(kind).count() >= 1
    tags = standing.locator("script[type='application/vnd.jupyter.widget-view+json']")
    assert tags.count() == 0


def test_bad_contrast_is_found(used_page, site_url):
    page = used_page()
    page.goto(site_url + "book/glossary.html")
    page.evaluate("document.querySelectorAll('dd')[9].style.color = 'silver'")
    assert "color-contrast" in "".join(violations(page))


def test_the_sidebar_can_be_folded_away(open_page, site_url):
    page = open_page(viewport={"width": 1300, "height": 900})
    page.goto(site_url + "book/index.html")
    settle(page)
    button = page.locator(".bd-header-article .primary-toggle")
    sidebar = page.locator("#pst-primary-sidebar")
    assert sidebar.is_visible()
    button.click()
    sidebar.wait_for(state="hidden")
    button.press("Enter")
    sidebar.wait_for(state="visible")


def test_headings_of_the_library_have_one_size(page, site_url):
    page.goto(site_url + "book/api.html")
    sizes = page.locator("dl.py :is(.rubric, .field-list > dt)").evaluate_all(
        "all => all.map(each => getComputedStyle(each).fontSize)"
    )
    assert page.locator("dl.py .rubric").count() > 0
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("name", page_names())
def test_every_page_says_its_terms(name):
    html = (SITE / name).read_text(encoding="utf-8")
    [footer] = re.findall(r'<footer class="bd-footer-content.*?</footer>', html, re.S)
    assert "CC BY 4.0" in footer
    assert "MIT License" in footer


def test_the_front_address_names_its_icon(tmp_path):
    """Without one, browsers ask for /favicon.ico, which no site has."""
    config = SimpleNamespace(
        html_favicon="book/_static/icon.svg", html_title="A & B", root_doc="book/first"
    )
    builder = SimpleNamespace(format="html")
    app = SimpleNamespace(outdir=tmp_path, builder=builder, config=config)
    extension.lead_to_first_page(app, None)
    written = tmp_path / "index.html"
    assert read_page(written).targets == ["_static/icon.svg", "book/first.html"]
    assert "A &amp; B" in written.read_text(encoding="utf-8")


def test_the_front_address_points_to_what_exists():
    targets = read_page(SITE / "index.html").targets
    assert targets == ["_static/logo.svg", "book/index.html"]
    assert all((SITE / target).is_file() for target in targets)


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
def test_the_site_works_from_disk(used_page, site_dir, chapter):
    """Whoever opens the address that ``make book`` prints sees figures and formulas."""
    page = used_page()
    page.goto((site_dir / "book" / f"{chapter}.html").as_uri())
    settle(page)
    assert page.locator("mjx-container").count() >= 1
