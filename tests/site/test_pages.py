"""Every page of the built site, in a real browser."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from axe_playwright_python.sync_playwright import Axe

from book._ext import site as extension
from book.tools.notebooks import chapters
from tests.site.built import MAIN, SITE, page_names, read_page

# Loading style sheets a second time would fail on one that the theme imports.
AXE = {"preload": False, "resultTypes": ["violations"]}
CONTRAST = "color-contrast"
ALL_BUT_CONTRAST = {**AXE, "rules": {CONTRAST: {"enabled": False}}}
CONTRAST_ONLY = {**AXE, "runOnly": [CONTRAST]}
# Contrast takes longest. It depends on these few things, so one text of each is looked
# at: thousands of names in code are no different from the first.
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
SAMPLES = {"include": [["[data-sample]"]]}
PHONE = {"width": 320, "height": 640}
DESK = {"width": 1280, "height": 900}
# What the theme repeats on every page is its own; the content is ours.
TOLERATED_OUTSIDE = {"minor", "moderate"}


def settle(page) -> None:
    """Wait until the page is loaded and its formulas and figures stand."""
    page.wait_for_load_state("load")
    page.evaluate("() => window.MathJax?.startup?.promise")
    page.wait_for_function(
        "() => !document.querySelector('.live-figure script[type*=widget-view]')"
    )


def violations(page, options, context=None) -> list[str]:
    """What axe finds: anything in the content, serious things elsewhere."""
    found = []
    answer = Axe().run(page, context=context, options=options).response
    for violation in answer["violations"]:
        for node in violation["nodes"]:
            inside = page.evaluate(
                "([target, main]) => !!document.querySelector(target)?.closest(main)",
                [node["target"][-1], MAIN],
            )
            if inside or violation["impact"] not in TOLERATED_OUTSIDE:
                what = f"{violation['id']} ({violation['impact']})"
                found.append(f"{what}: {node['html']}")
    return found


@pytest.mark.parametrize("name", page_names())
def test_page_is_sound(used_page, site_url, name):
    """No problem of the guard, none of accessibility, and nothing too wide."""
    for size in (PHONE, DESK):
        # Without motion the colours of another theme are there at once.
        page = used_page(viewport=size, reduced_motion="reduce")
        page.goto(site_url + name)
        settle(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"]
        assert violations(page, ALL_BUT_CONTRAST) == [], size
    for look in ("light", "dark"):
        page.emulate_media(color_scheme=look)
        page.wait_for_function(
            "look => document.documentElement.dataset.theme === look", arg=look
        )
        page.evaluate(MARK_SAMPLES)
        assert violations(page, CONTRAST_ONLY, SAMPLES) == [], look


def test_bad_contrast_is_found(used_page, site_url):
    page = used_page()
    page.goto(site_url + "book/glossary.html")
    colour = "document.querySelectorAll('dd')[9].style.color = 'silver'"
    page.evaluate(colour)
    page.evaluate(MARK_SAMPLES)
    assert CONTRAST in "".join(violations(page, CONTRAST_ONLY, SAMPLES))


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
def test_wide_formulas_show_their_beginning_first(used_page, site_url, chapter):
    page = used_page(viewport=PHONE)
    page.goto(f"{site_url}book/{chapter}.html")
    settle(page)
    starts = page.locator("article div.math").evaluate_all(
        """frames => frames.map(frame =>
             frame.querySelector("mjx-container").getBoundingClientRect().left
             - frame.getBoundingClientRect().left)"""
    )
    assert starts
    assert min(starts) > -1


@pytest.mark.parametrize("chapter", [path.stem for path in chapters()])
def test_no_line_begins_with_the_mark_behind_a_formula(used_page, site_url, chapter):
    page = used_page(viewport=PHONE)
    page.goto(f"{site_url}book/{chapter}.html")
    settle(page)
    gaps = page.locator("article span.math").evaluate_all(
        """formulas => formulas.flatMap(formula => {
             const mark = formula.nextSibling;
             if (!/^[.,;:!?)]/.test(mark?.data ?? "")) return [];
             const range = document.createRange();
             range.setStart(mark, 0);
             range.setEnd(mark, 1);
             const [box, end] = [range, formula].map(each => each.getClientRects());
             return [box[0].left - end[end.length - 1].right];
           })"""
    )
    assert gaps
    assert max(map(abs, gaps)) < 3


@pytest.mark.parametrize("side", ["primary", "secondary"])
@pytest.mark.parametrize("key", [None, "Enter"])
def test_buttons_of_a_phone_open_lists(used_page, site_url, side, key):
    """Book and page have lists of contents; Escape leads back to the button."""
    page = used_page(viewport=PHONE)
    page.goto(site_url + "book/04-shaw.html")
    settle(page)
    button = page.locator(f".bd-header-article .{side}-toggle")
    if key:
        button.press(key)
    else:
        button.click()
    dialog = page.locator(f"#pst-{side}-sidebar-modal")
    assert dialog.evaluate("dialog => dialog.open && dialog.matches(':modal')")
    links = dialog.get_by_role("link")
    addresses = links.evaluate_all("links => links.map(a => a.pathname + a.hash)")
    if side == "primary":
        stems = {address.split("/")[-1].removesuffix(".html") for address in addresses}
        assert stems >= {path.stem for path in chapters()} - {"04-shaw"}
    else:
        assert len([each for each in addresses if "#" in each]) > 5
    assert links.last.evaluate("link => link.checkVisibility()")
    assert violations(page, ALL_BUT_CONTRAST) == []
    page.evaluate(MARK_SAMPLES)
    assert violations(page, CONTRAST_ONLY, SAMPLES) == []
    page.keyboard.press("Escape")
    page.wait_for_function("dialog => !dialog.open", arg=dialog.element_handle())
    assert button.evaluate("button => button === document.activeElement")


def test_a_section_chosen_in_the_dialog_is_seen(used_page, site_url):
    page = used_page(viewport=PHONE, reduced_motion="reduce")
    page.goto(site_url + "book/04-shaw.html")
    settle(page)
    page.locator(".bd-header-article .secondary-toggle").click()
    dialog = page.locator("#pst-secondary-sidebar-modal")
    link = dialog.get_by_role("link").nth(2)
    target = page.locator(link.get_attribute("href"))
    link.click()
    page.wait_for_function("dialog => !dialog.open", arg=dialog.element_handle())
    page.wait_for_function(
        "place => Math.abs(place.getBoundingClientRect().top) < innerHeight / 2",
        arg=target.element_handle(),
    )


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


@pytest.mark.parametrize("chapter", [path.stem for path in chapters()])
def test_pictures_of_a_phone_stay_readable(used_page, site_url, chapter):
    """They keep their size up to that of a column, and scroll, by keyboard too.

    Those that scroll say so.
    """
    page = used_page(viewport=PHONE)
    page.goto(f"{site_url}book/{chapter}.html")
    settle(page)
    seen = page.locator("article .wide-picture > img").evaluate_all(
        """pictures => pictures.map(picture => ({
             width: picture.width,
             natural: picture.naturalWidth,
             hidden: picture.parentElement.scrollWidth
               - picture.parentElement.clientWidth,
             told: picture.parentElement.classList.contains("scrolls"),
             key: picture.parentElement.tabIndex}))"""
    )
    assert page.locator("article figure > img").count() == 0
    assert seen
    for each in seen:
        assert each["width"] >= min(each["natural"], 500)
        assert (each["key"] == 0) == each["told"] == (each["hidden"] > 0)


def test_the_arrow_beside_next_is_not_cut_off(used_page, site_url):
    page = used_page(viewport=PHONE)
    page.goto(site_url + "book/index.html")
    settle(page)
    over = page.locator(".prev-next-area a").evaluate_all(
        "links => links.map(link => link.scrollWidth - link.clientWidth)"
    )
    assert over
    assert max(over) == 0


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
def test_the_site_works_from_disk(page, site_dir, chapter):
    """Whoever opens the address that ``make book`` prints sees figures and formulas."""
    page.goto((site_dir / "book" / f"{chapter}.html").as_uri())
    settle(page)
    assert page.locator("mjx-container").count() >= 1
