"""The figures on the built site, with no kernel."""

from pathlib import Path

import numpy as np
import pytest
from figure_pages import (
    assert_colours,
    drawn,
    hover_cell,
    number,
    readout,
    slider_of,
)

from relpos_lib.explorers import (
    IndexMatrixExplorer,
    NearFarExplorer,
    TrainedModelExplorer,
)
from relpos_lib.offsets import relative_offsets, table_rows
from tests.site.built import FIGURES

BOOK = Path(__file__).resolve().parents[2] / "book"


def chapters(kind=None):
    """Chapters that have a figure of this kind, as far as they are written."""
    return [
        chapter
        for chapter, kinds in FIGURES.items()
        if (BOOK / f"{chapter}.ipynb").is_file() and kind in (None, *kinds)
    ]


@pytest.fixture
def open_chapter(used_page, site_url):
    def open_chapter(chapter, **options):
        page = used_page(**options)
        page.goto(f"{site_url}book/{chapter}.html")
        page.wait_for_selector(".rp-figure")
        page.wait_for_function("!document.querySelector('.live-figure img')")
        return page

    return open_chapter


def value_of(figure, label):
    return int(slider_of(figure, label).input_value())


def drag(figure, label, share):
    """Drag a slider from where it is to a share of its way."""
    slider = slider_of(figure, label)
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    low, high = (float(slider.get_attribute(end)) for end in ("min", "max"))
    now = (float(slider.input_value()) - low) / (high - low)
    y = box["y"] + box["height"] / 2
    mouse = figure.page.mouse
    # The thumb is 16 pixels wide and stays inside the track.
    start, end = (box["x"] + 8 + at * (box["width"] - 16) for at in (now, share))
    mouse.move(start, y)
    mouse.down()
    mouse.move(end, y, steps=4)
    mouse.up()


def index_state(figure):
    """The figure's controls, as arguments of the Python class."""
    view = figure.locator(".rp-choice input:checked").get_attribute("value")
    return IndexMatrixExplorer(
        query_length=value_of(figure, "Query length"),
        key_length=value_of(figure, "Key length"),
        max_distance=value_of(figure, "Maximum distance"),
        causal=figure.get_by_label("Causal mask").is_checked(),
        view=view,
    )


def assert_index_drawn(figure):
    state = index_state(figure)
    values = state.values().double().masked_fill(~state.allowed(), float("nan"))
    assert_colours(figure, values, *state._range())
    return state


@pytest.mark.parametrize("chapter", chapters())
def test_without_javascript_there_are_pictures(used_page, site_url, chapter):
    page = used_page(java_script_enabled=False)
    page.goto(f"{site_url}book/{chapter}.html")
    pictures = page.locator(".live-figure img").all()
    assert len(pictures) >= len(FIGURES[chapter])
    for picture in pictures:
        assert len(picture.get_attribute("alt")) > 20
        assert picture.is_visible()


@pytest.mark.parametrize("chapter", chapters(".rp-index"))
def test_index_matrix_follows_mouse_and_keyboard(open_chapter, chapter):
    figure = open_chapter(chapter).locator(".rp-index").first
    assert_index_drawn(figure)
    for label in ("Query length", "Key length", "Maximum distance"):
        before = value_of(figure, label)
        drag(figure, label, 0.9)
        dragged = value_of(figure, label)
        assert dragged > before
        assert_index_drawn(figure)
        slider_of(figure, label).press("ArrowLeft")
        assert value_of(figure, label) == dragged - 1
        assert_index_drawn(figure)
        slider_of(figure, label).press("Home")
        assert_index_drawn(figure)


def assert_cell(figure, i, j, queries, keys, distance):
    found = readout(figure)
    offset = relative_offsets(queries, keys)[i, j].item()
    row = table_rows(queries, keys, distance)[i, j].item()
    wanted = {"i": i, "j": j, "offset": offset, "clipped": row - distance, "row": row}
    assert {name: number(found[name]) for name in wanted} == wanted


@pytest.mark.parametrize("chapter", chapters(".rp-index"))
def test_index_cells_tell_their_numbers(open_chapter, chapter):
    figure = open_chapter(chapter).locator(".rp-index").first
    state = index_state(figure)
    size = state.query_length, state.key_length
    for i, j in ((0, 0), (size[0] - 1, size[1] - 1), (size[0] // 2, 0)):
        hover_cell(figure, i, j, *size)
        assert_cell(figure, i, j, *size, state.max_distance)
    grid = figure.get_by_role("grid")
    grid.press("ArrowRight")
    assert_cell(figure, size[0] // 2, min(1, size[1] - 1), *size, state.max_distance)


@pytest.mark.parametrize("chapter", chapters(".rp-maps"))
def test_attention_maps_follow_mouse_and_keyboard(open_chapter, chapter):
    figure = open_chapter(chapter).locator(".rp-maps").first
    figure.get_by_role("radio", name="position", exact=True).check()
    slider_of(figure, "Maximum distance").press("End")
    # The gate of the first head may be all but closed, that of the last is not.
    panel = figure.locator(".rp-panel:visible").last
    whole = drawn(panel)
    drag(figure, "Maximum distance", 0.0)
    clipped = drawn(panel)
    assert value_of(figure, "Maximum distance") == 0
    assert not np.array_equal(whole, clipped, equal_nan=True)
    heads = slider_of(figure, "Heads shown")
    heads.press("Home")
    assert figure.locator(".rp-panel:visible").count() == 1
    heads.press("ArrowRight")
    assert figure.locator(".rp-panel:visible").count() == 2


@pytest.mark.parametrize("chapter", chapters(".rp-maps"))
def test_attention_cells_tell_their_numbers(open_chapter, chapter):
    figure = open_chapter(chapter).locator(".rp-maps").first
    grid = figure.get_by_role("grid").first
    size = [int(grid.get_attribute(f"aria-{axis}count")) for axis in ("row", "col")]
    distance = value_of(figure, "Maximum distance")
    for i, j in ((0, 0), (size[0] - 1, size[1] - 1), (size[0] // 2, size[1] // 3)):
        hover_cell(figure, i, j, *size)
        assert_cell(figure, i, j, *size, distance)
        found = readout(figure)
        parts = float(found["content"]) + float(found["position"])
        assert parts == pytest.approx(float(found["score"]), abs=2e-3)
        assert 0 <= number(found["weight"]) <= 1


@pytest.mark.parametrize("chapter", chapters(".rp-nearfar"))
def test_pairs_are_divided_as_the_text_says(open_chapter, chapter):
    figure = open_chapter(chapter).locator(".rp-nearfar")
    state = NearFarExplorer()

    def assert_told():
        found = readout(figure)
        assert found["near_pairs"] == f"{state.near_share():.1%}"
        assert int(found["calls"]) == len(state.rectangles())

    assert_told()
    slider_of(figure, "Length").press("End")
    state.length = 8192
    assert_told()
    drag(figure, "Smallest tile", 1.0)
    state.leaf = 512
    assert_told()


@pytest.mark.parametrize("chapter", chapters(".rp-model"))
def test_trained_models_err_as_the_text_says(open_chapter, chapter):
    figure = open_chapter(chapter).locator(".rp-model")
    state = TrainedModelExplorer(text="headline", length=32, head=3)

    def assert_told():
        right, asked = state.right()
        told = figure.locator(".rp-model-score").inner_text()
        assert f"{right} of {asked} answers right" in told

    assert_told()
    slider_of(figure, "Length").press("ArrowRight")
    state.length = 33
    assert_told()
    drag(figure, "Length", 1.0)
    state.length = 256
    for scheme in state.schemes:
        figure.get_by_role("radio", name=scheme).check()
        state.scheme = scheme
        assert_told()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_follow_the_theme(open_chapter, theme):
    page = open_chapter("02-bias", color_scheme=theme)
    for figure in page.locator(".rp-figure").all():
        colour = figure.evaluate("(n) => getComputedStyle(n).backgroundColor")
        dark = sum(int(part) for part in colour[4:-1].split(",")) < 3 * 128
        assert dark == (theme == "dark")
