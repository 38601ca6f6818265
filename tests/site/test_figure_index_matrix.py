"""Index matrix explorer in a browser: the table beside the matrix."""

from itertools import product

import numpy as np
import pytest
from figure_pages import (
    assert_nothing_grows,
    assert_nothing_overflows,
    axe_findings,
    hover_cell,
    move_slider,
    number,
    play_slider,
    readout,
    slider_of,
)

from relpos_lib.explorers import IndexMatrixExplorer
from relpos_lib.offsets import table_rows

# For every case [Q, S, K, causal] the sum over rows of row + 1 where a pair reads it.
READERS = """async ([address, cases]) => {
  const { keysOfRow } = await import(address);
  return cases.map(([Q, S, K, causal]) => {
    const found = new Array(Q * S).fill(0);
    for (let row = 0; row <= 2 * K; row++)
      for (let i = 0; i < Q; i++) {
        const [first, end] = keysOfRow(row, i, { Q, S, K, causal });
        for (let j = first; j < end; j++) found[i * S + j] += row + 1;
      }
    return found;
  });
}"""
# Which cells are not under the veil, row by row.
LIT = """(figure) => {
  const veil = figure.querySelector(".rp-index-veil");
  const path = veil.firstChild;
  if (!path.getAttribute("d")) return null;
  const { width, height } = veil.viewBox.baseVal;
  const point = veil.createSVGPoint();
  return Array.from({ length: width * height }, (_, k) => {
    point.x = (k % width) + 0.5;
    point.y = Math.floor(k / width) + 0.5;
    return !path.isPointInFill(point);
  });
}"""


@pytest.mark.parametrize("causal", [False, True])
def test_page_and_library_agree_on_who_reads_a_row(module, causal):
    sizes = (1, 2, 5, 8)
    cases = [[*case, causal] for case in product(sizes, sizes, range(9))]
    cases += [[40, 37, 39, causal], [37, 40, 20, causal]]
    found = module("core.js", READERS, cases)
    for (q_len, k_len, distance, _), ours in zip(cases, found, strict=True):
        rows = table_rows(q_len, k_len, distance)
        explorer = IndexMatrixExplorer(
            query_length=q_len, key_length=k_len, max_distance=distance, causal=causal
        )
        expected = (rows + 1) * explorer.allowed()
        assert ours == expected.flatten().tolist(), (q_len, k_len, distance)


def lit(figure):
    found = figure.evaluate(LIT)
    return None if found is None else np.array(found)


def assert_lit(figure, explorer, row):
    np.testing.assert_array_equal(lit(figure), explorer.readers(row).flatten())
    assert figure.locator(".rp-index-on").count() == 1
    assert current_row(figure) == row


def current_row(figure):
    option = figure.get_by_role("option")
    return int(number(option.get_attribute("aria-label")))


def hover_row(figure, row, rows):
    table = figure.get_by_role("listbox")
    height = table.bounding_box()["height"]
    table.hover(position={"x": 20, "y": (row + 0.5) * height / rows})


@pytest.mark.parametrize(
    ("q_len", "k_len", "distance", "causal"),
    [(6, 6, 2, False), (6, 6, 2, True), (5, 9, 3, True), (36, 40, 39, False)],
)
def test_pointing_at_a_cell_lights_its_row_and_its_diagonal(
    open_figure, q_len, k_len, distance, causal
):
    explorer = IndexMatrixExplorer(
        query_length=q_len, key_length=k_len, max_distance=distance, causal=causal
    )
    figure = open_figure(explorer)
    assert lit(figure) is None
    rows = table_rows(q_len, k_len, distance)
    for i, j in ((0, 0), (q_len - 1, k_len - 1), (q_len - 2, 1)):
        hover_cell(figure, i, j, q_len, k_len)
        if explorer.allowed()[i, j]:
            assert_lit(figure, explorer, rows[i, j].item())
    figure.page.mouse.move(1, 1)
    assert lit(figure) is None
    assert figure.locator(".rp-index-on").count() == 0


def test_a_masked_cell_lights_nothing(open_figure):
    figure = open_figure(IndexMatrixExplorer(causal=True))
    hover_cell(figure, 2, 4, 6, 6)
    assert lit(figure) is None
    assert readout(figure)["masked"] == "masked"


def test_pointing_at_a_row_lights_its_pairs(open_figure):
    explorer = IndexMatrixExplorer(max_distance=2, causal=True)
    figure = open_figure(explorer)
    for row, pairs in ((0, "10 pairs"), (1, "5 pairs"), (2, "6 pairs")):
        hover_row(figure, row, 5)
        assert_lit(figure, explorer, row)
        assert readout(figure)["row"] == str(row)
        assert readout(figure)["pairs"] == pairs
    hover_row(figure, 4, 5)
    assert_lit(figure, explorer, 4)  # all masked: no pair is free of the veil
    assert readout(figure)["pairs"] == "no pair"


def test_the_table_by_keyboard(open_figure):
    explorer = IndexMatrixExplorer(max_distance=4)
    figure = open_figure(explorer)
    table = figure.get_by_role("listbox")
    table.focus()
    assert_lit(figure, explorer, 0)
    for key, row in (
        ("ArrowDown", 1),
        ("PageDown", 6),
        ("ArrowUp", 5),
        ("End", 8),
        ("ArrowDown", 8),
        ("PageUp", 3),
        ("Home", 0),
    ):
        table.press(key)
        assert_lit(figure, explorer, row)
        option = figure.get_by_role("option")
        assert table.get_attribute("aria-activedescendant") == option.get_attribute(
            "id"
        )
        assert option.get_attribute("aria-posinset") == str(row + 1)
    figure.get_by_role("grid").focus()
    assert lit(figure) is not None
    slider_of(figure, "Query length").focus()
    assert lit(figure) is None


def test_the_table_by_touch(open_figures):
    explorer = IndexMatrixExplorer(max_distance=2)
    page = open_figures(explorer, has_touch=True)
    box = page.get_by_role("listbox").bounding_box()
    page.touchscreen.tap(box["x"] + 10, box["y"] + box["height"] * 0.7)
    assert_lit(page.locator(".rp-figure"), explorer, 3)


def test_the_table_names_its_offsets(open_figure):
    figure = open_figure(IndexMatrixExplorer(max_distance=2))
    names = figure.locator("[role=listbox] > div:visible:not(:first-child) > span")
    texts = [text.replace("\N{MINUS SIGN}", "-") for text in names.all_inner_texts()]
    assert texts == ["0", "≤ -2", "1", "-1", "2", "0", "3", "1", "4", "≥ 2"]
    move_slider(figure, "Maximum distance", 0)
    assert [text for text in names.all_inner_texts() if text] == ["0", "all"]
    move_slider(figure, "Maximum distance", 39)
    assert 5 < names.count() / 2 < 14


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_while_something_is_lit(open_figures, theme):
    page = open_figures(IndexMatrixExplorer(max_distance=2), theme=theme)
    page.get_by_role("listbox").focus()
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    page = open_figures(
        IndexMatrixExplorer(),
        IndexMatrixExplorer(max_length=64, query_length=64, max_distance=63),
    )
    assert_nothing_overflows(page, [280, 320, 600, 1100])


def test_nothing_grows_after_a_thousand_moves(open_figures):
    page = open_figures(IndexMatrixExplorer())
    figure = page.locator(".rp-figure")

    def play(rounds):
        for key in ("End", "Home"):
            figure.get_by_role("listbox").press(key)
        for label in ("Maximum distance", "Query length"):
            play_slider(figure, label, [*(k % 41 for k in range(rounds)), 2])

    assert_nothing_grows(page, play, 50, 500)
