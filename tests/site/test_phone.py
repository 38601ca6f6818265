"""The built site at the width of a phone, in a real browser."""

from __future__ import annotations

import pytest
from figure_pages import sticking_out

from book.tools.notebooks import chapters
from tests.site.built import FIGURES, page_names
from tests.site.sound import settle, violations

PHONE = {"width": 320, "height": 640}


@pytest.fixture(scope="module")
def loaded(stand, request):
    return stand(request.param, PHONE)


every_page = pytest.mark.parametrize("loaded", page_names(), indirect=True)
every_chapter = pytest.mark.parametrize(
    "loaded", [f"book/{path.stem}.html" for path in chapters()], indirect=True
)


@every_page
def test_page_is_sound(standing):
    """No problem of the guard, none of accessibility, and nothing too wide."""
    assert standing.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert violations(standing) == []


@every_chapter
def test_wide_formulas_show_their_beginning_first(standing):
    starts = standing.locator("article div.math").evaluate_all(
        """frames => frames.map(frame =>
             frame.querySelector("mjx-container").getBoundingClientRect().left
             - frame.getBoundingClientRect().left)"""
    )
    assert starts
    assert min(starts) > -1


@every_chapter
def test_no_line_begins_with_the_mark_behind_a_formula(standing):
    gaps = standing.locator("article span.math").evaluate_all(
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


@every_chapter
def test_pictures_of_a_phone_stay_readable(standing):
    """They keep their size up to that of a column, and scroll, by keyboard too.

    Those that scroll say so.
    """
    seen = standing.locator("article .wide-picture > img").evaluate_all(
        """pictures => pictures.map(picture => ({
             width: picture.width,
             natural: picture.naturalWidth,
             hidden: picture.parentElement.scrollWidth
               - picture.parentElement.clientWidth,
             told: picture.parentElement.classList.contains("scrolls"),
             key: picture.parentElement.tabIndex}))"""
    )
    assert standing.locator("article figure > img").count() == 0
    assert seen
    for each in seen:
        assert each["width"] >= min(each["natural"], 500)
        assert (each["key"] == 0) == each["told"] == (each["hidden"] > 0)


@pytest.mark.parametrize(
    "loaded", [f"book/{chapter}.html" for chapter in FIGURES], indirect=True
)
def test_figures_fit_a_phone(standing):
    standing.wait_for_function("!document.querySelector('.live-figure img')")
    figures = standing.locator(".rp-figure").all()
    assert figures
    for figure in figures:
        box = figure.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        assert sticking_out(figure) == []


def test_the_arrow_beside_next_is_not_cut_off(used_page, site_url):
    page = used_page(viewport=PHONE)
    page.goto(site_url + "book/index.html")
    settle(page)
    over = page.locator(".prev-next-area a").evaluate_all(
        "links => links.map(link => link.scrollWidth - link.clientWidth)"
    )
    assert over
    assert max(over) == 0


@pytest.mark.parametrize("side", ["primary", "secondary"])
@pytest.mark.parametrize("key", [None, "Enter"])
def test_buttons_of_a_phone_open_lists(used_page, site_url, side, key):
    """Book and page have lists of contents; Escape leads back to the button."""
    page = used_page(viewport=PHONE)
    page.goto(site_url + "book/10-debug.html")
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
        assert stems >= {path.stem for path in chapters()} - {"10-debug"}
    else:
        assert len([each for each in addresses if "#" in each]) > 5
    assert links.last.evaluate("link => link.checkVisibility()")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.wait_for_function("dialog => !dialog.open", arg=dialog.element_handle())
    assert button.evaluate("button => button === document.activeElement")


def test_a_section_chosen_in_the_dialog_is_seen(used_page, site_url):
    page = used_page(viewport=PHONE, reduced_motion="reduce")
    page.goto(site_url + "book/10-debug.html")
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
