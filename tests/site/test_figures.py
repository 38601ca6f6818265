"""The figures in a browser: drawing, controls, reading, accessibility, host script."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from figure_pages import (
    assert_colours,
    assert_nothing_grows,
    assert_nothing_overflows,
    assert_unique_ids,
    axe_findings,
    colours_of,
    drawn,
    hover_cell,
    html_of,
    move_slider,
    number,
    pixels_of_cells,
    play_slider,
    readout,
    serve,
    show,
    slider_of,
    tab_stops,
)

from relpos_lib.bias import SimpleBiasRPE
from relpos_lib.explorers import AttentionMapExplorer, IndexMatrixExplorer
from relpos_lib.explorers._picture import round_up
from relpos_lib.shaw import RelativeMultiHeadAttention

H, L, D = 3, 11, 5


def shaw_explorer(**options):
    torch.manual_seed(0)
    module = RelativeMultiHeadAttention(H * D, H, 6)
    return AttentionMapExplorer.from_shaw(module, torch.randn(L, H * D), **options)


def bias_explorer(q_len=7, k_len=L, **options):
    torch.manual_seed(1)
    query, key = torch.randn(H, q_len, D), torch.randn(H, k_len, D)
    return AttentionMapExplorer.from_bias(query, key, SimpleBiasRPE(H, 5), **options)


# Drawing


@pytest.mark.parametrize(
    ("q_len", "k_len", "distance", "causal", "view", "tag"),
    [
        (6, 6, 3, False, "row", "svg"),
        (1, 1, 0, True, "row", "svg"),
        (3, 32, 5, True, "offset", "svg"),
        (32, 3, 0, False, "clipped", "svg"),
        (7, 12, 39, False, "offset", "svg"),
        (33, 32, 5, True, "row", "canvas"),
        (40, 40, 39, False, "clipped", "canvas"),
        (1, 40, 2, True, "row", "canvas"),
    ],
)
def test_index_drawing(open_figure, q_len, k_len, distance, causal, view, tag):
    """Set through the controls, from another state; Python says what to see."""
    figure = open_figure(IndexMatrixExplorer())
    move_slider(figure, "Query length", q_len)
    move_slider(figure, "Key length", k_len)
    move_slider(figure, "Maximum distance", distance)
    figure.get_by_label("Causal mask").set_checked(causal)
    figure.get_by_role("radio", name=view, exact=True).check()
    expected = IndexMatrixExplorer(
        query_length=q_len,
        key_length=k_len,
        max_distance=distance,
        causal=causal,
        view=view,
    )
    values = expected.values().double()
    shown = values.masked_fill(~expected.allowed(), float("nan"))
    assert figure.locator(f".rp-cells:is({tag}, :has(> {tag}))").count() == 1
    assert_colours(figure, shown, *expected._range())
    numbers = figure.locator(".rp-cells text").all_text_contents()
    if max(q_len, k_len) <= 12:
        texts = [text.replace("\N{MINUS SIGN}", "-") for text in numbers]
        wanted = ["" if np.isnan(x) else f"{x:.0f}" for x in shown.flatten().tolist()]
        assert texts == wanted
    else:
        assert numbers == []


@pytest.mark.parametrize(
    ("before", "size"),
    [
        ((13, 17), (13, 17)),
        ((37, 31), (37, 31)),
        ((40, 40), (37, 31)),
        ((33, 33), (40, 35)),
    ],
)
def test_what_is_seen_lies_where_it_is_pointed_at(open_figure, before, size):
    """Pixels of a screenshot, under the grid that listens: SVG and canvas."""
    explorer, first = (
        IndexMatrixExplorer(query_length=q_len, key_length=k_len, view="offset")
        for q_len, k_len in (size, before)
    )
    figure = open_figure(first, color_scheme="light")
    move_slider(figure, "Query length", size[0])
    move_slider(figure, "Key length", size[1])
    seen = pixels_of_cells(figure, *size)
    expected = colours_of(explorer.values(), *explorer._range())
    # The current cell wears a ring, and is the last query's first key.
    current = (min(before[0], size[0]) - 1) * size[1]
    seen, expected = (np.delete(rgb, current, axis=0) for rgb in (seen, expected))
    np.testing.assert_allclose(seen, expected, atol=1.5)


def test_a_matrix_that_shrank_leaves_nothing_beside_it(open_figure):
    figure = open_figure(IndexMatrixExplorer(query_length=40, key_length=40))
    move_slider(figure, "Key length", 20)
    beside = pixels_of_cells(figure, 40, 20, columns=[22, 30, 38])
    assert len(np.unique(beside, axis=0)) == 1


@pytest.mark.parametrize(
    ("make", "distance", "heads", "causal", "view"),
    [
        (shaw_explorer, 6, 3, False, "weights"),
        (shaw_explorer, 0, 2, True, "weights"),
        (shaw_explorer, 2, 1, False, "position"),
        (bias_explorer, 3, 3, True, "score"),
        (bias_explorer, 4, 2, False, "content"),
        (lambda **o: bias_explorer(34, 35, **o), 2, 2, True, "position"),
        (lambda **o: bias_explorer(9, 4, **o), 1, 3, True, "weights"),
    ],
)
def test_attention_drawing(open_figure, make, distance, heads, causal, view):
    figure = open_figure(make(heads_shown=1))
    move_slider(figure, "Maximum distance", distance)
    move_slider(figure, "Heads shown", heads)
    figure.get_by_label("Causal mask").set_checked(causal)
    figure.get_by_role("radio", name=view, exact=True).check()
    expected = make(max_distance=distance, heads_shown=heads, causal=causal, view=view)
    allowed = expected.maps()[view].masked_fill(~expected.allowed(), 0)
    top = round_up(allowed.abs().max().item())
    panels = figure.locator(".rp-panel:visible")
    assert panels.count() == heads
    for head, values in enumerate(expected.values().numpy()):
        low = 0 if view == "weights" else -top
        assert_colours(panels.nth(head), values, low, top)
    bar = figure.locator(".rp-bar").inner_text().replace("\N{MINUS SIGN}", "-").split()
    assert float(bar[0]) == (0 if view == "weights" else -top)
    assert float(bar[1]) == pytest.approx(top)


def test_the_longest_axes_keep_their_numbers(open_figure):
    """One number in a hundred cells, not none at all."""
    query, key = torch.randn(1, 360, 2), torch.randn(1, 512, 2)
    explorer = AttentionMapExplorer(query, key, bias_table=torch.randn(1, 3))
    figure = open_figure(explorer)
    assert figure.locator(".rp-x span").all_text_contents() == [
        str(k) for k in range(0, 512, 100)
    ]
    assert figure.locator(".rp-y span").all_text_contents() == [
        str(k) for k in range(0, 360, 100)
    ]


# Controls


def test_slider_dragged_by_mouse(open_figure):
    figure = open_figure(IndexMatrixExplorer())
    before = drawn(figure)
    slider = slider_of(figure, "Query length")
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    mouse = figure.page.mouse
    mouse.move(box["x"] + box["width"] * 5 / 39, middle)
    mouse.down()
    mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    mouse.up()
    value = int(slider.input_value())
    assert 15 < value < 26
    assert figure.locator(".rp-control output").first.inner_text() == str(value)
    assert len(drawn(figure)) == value * 6 != len(before)


def test_slider_moved_by_keyboard(open_figure):
    figure = open_figure(IndexMatrixExplorer())
    slider = slider_of(figure, "Maximum distance")
    slider.press("ArrowRight")
    assert_colours(figure, IndexMatrixExplorer(max_distance=4).values(), 0, 8)
    assert readout(figure)["clipped"] == "-4"
    slider.press("Home")
    assert_colours(figure, IndexMatrixExplorer(max_distance=0).values(), 0, 1)
    slider.press("End")
    assert_colours(figure, IndexMatrixExplorer(max_distance=39).values(), 0, 78)


def test_whole_figure_by_keyboard(open_figures):
    """Tab reaches each control once, each matrix and each table once."""
    page = open_figures(IndexMatrixExplorer(), shaw_explorer(heads_shown=2))
    controls = ["range"] * 3 + ["radio", "checkbox"]
    index, maps = [*controls, "grid", "listbox"], [*controls, "grid", "grid"]
    assert tab_stops(page, 14) == index + maps


# Reading cells


def numbers_of_cell(explorer, i, j):
    offset = j - (explorer.key_length - explorer.query_length + i)
    clipped = max(-explorer.max_distance, min(explorer.max_distance, offset))
    row = clipped + explorer.max_distance
    return {"j": j, "offset": offset, "clipped": clipped, "row": row, "i": i}


def assert_readout(figure, explorer, i, j):
    found = readout(figure)
    for name, value in numbers_of_cell(explorer, i, j).items():
        assert number(found[name]) == value, name


@pytest.mark.parametrize("size", [(5, 9), (36, 40), (9, 5)])
def test_hover_tells_the_cell(open_figure, size):
    explorer = IndexMatrixExplorer(query_length=size[0], key_length=size[1])
    figure = open_figure(explorer)
    for i, j in ((0, 0), (size[0] - 1, size[1] - 1), (2, 4), (4, 1)):
        hover_cell(figure, i, j, *size)
        assert_readout(figure, explorer, i, j)


def test_keyboard_focus_tells_the_cell(open_figure):
    explorer = IndexMatrixExplorer(query_length=7, key_length=11, max_distance=2)
    figure = open_figure(explorer)
    grid = figure.get_by_role("grid")
    grid.focus()
    i, j = 6, 0
    assert_readout(figure, explorer, i, j)
    moves = {
        "ArrowUp": (-1, 0),
        "ArrowRight": (0, 1),
        "ArrowDown": (1, 0),
        "ArrowLeft": (0, -1),
        "End": (0, 99),
        "PageUp": (-5, 0),
        "Home": (0, -99),
        "PageDown": (5, 0),
    }
    for key in [*moves, "ArrowDown", "ArrowLeft", "ArrowLeft"]:
        grid.press(key)
        i = max(0, min(6, i + moves[key][0]))
        j = max(0, min(10, j + moves[key][1]))
        assert_readout(figure, explorer, i, j)
        cell = figure.get_by_role("gridcell")
        assert cell.get_attribute("aria-label") == f"query {i}, key {j}"
        assert grid.get_attribute("aria-activedescendant") == cell.get_attribute("id")


def test_masked_cell_is_called_masked(open_figure):
    explorer = IndexMatrixExplorer(causal=True)
    figure = open_figure(explorer)
    hover_cell(figure, 2, 2, 6, 6)
    assert "masked" not in readout(figure)
    hover_cell(figure, 2, 3, 6, 6)
    assert readout(figure)["masked"] == "masked"


@pytest.mark.parametrize("make", [shaw_explorer, bias_explorer])
def test_hover_tells_scores_and_weight(open_figure, make):
    explorer = make(causal=True, max_distance=2)
    figure = open_figure(explorer)
    size = explorer.query_length, explorer.key_length
    maps = explorer.maps()
    for head, i, j in ((0, 0, 0), (1, 5, 4), (2, 6, size[1] - 1)):
        hover_cell(figure, i, j, *size, panel=head)
        found = readout(figure)
        assert_readout(figure, explorer, i, j)
        assert found["head"] == str(head + 1)
        for name in ("content", "position", "score"):
            expected = maps[name][head, i, j].item()
            assert float(found[name]) == pytest.approx(expected, abs=6e-4)
        expected = maps["weights"][head, i, j].item()
        assert number(found["weight"]) == pytest.approx(expected, abs=6e-4)
        assert ("masked" in found["weight"]) == (not explorer.allowed()[i, j])


def test_touch_tells_the_cell(open_figures):
    explorer = IndexMatrixExplorer()
    page = open_figures(explorer, has_touch=True)
    box = page.get_by_role("grid").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.6)
    assert_readout(page.locator(".rp-figure"), explorer, 3, 2)


def test_current_cell_stays_inside_when_the_matrix_shrinks(open_figure):
    figure = open_figure(IndexMatrixExplorer())
    hover_cell(figure, 5, 5, 6, 6)
    move_slider(figure, "Query length", 2)
    move_slider(figure, "Key length", 3)
    small = IndexMatrixExplorer(query_length=2, key_length=3)
    assert_readout(figure, small, 1, 2)


# For everybody


def test_text_alternative_follows_the_state(open_figures):
    page = open_figures(IndexMatrixExplorer(), shaw_explorer(heads_shown=2))
    index, maps = page.locator(".rp-figure").all()
    move_slider(index, "Maximum distance", 2)
    alt = index.get_by_role("img").last.get_attribute("aria-label")
    assert "6 queries by 6 keys" in alt
    assert "Maximum distance 2, so the table has 5 rows" in alt
    move_slider(maps, "Maximum distance", 1)
    alt = maps.locator(".rp-cells").nth(1).get_attribute("aria-label")
    weights = shaw_explorer(max_distance=1).maps()["weights"][1]
    i, j = divmod(int(weights.argmax()), L)
    assert "head 2" in alt
    assert "maximum distance 1" in alt
    assert f"{weights.max():.3f}, at query {i}, key {j}." in alt


def test_readout_is_announced(open_figure):
    figure = open_figure(shaw_explorer())
    assert figure.locator("output.rp-readout[aria-live=polite]").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    page = open_figures(
        IndexMatrixExplorer(causal=True),
        IndexMatrixExplorer(query_length=40, view="offset"),
        shaw_explorer(),
        bias_explorer(view="score"),
        theme=theme,
    )
    assert axe_findings(page) == []


def background(figure):
    return figure.evaluate("(n) => getComputedStyle(n).backgroundColor")


def test_dark_by_the_theme_of_the_page(open_figure):
    figure = open_figure(IndexMatrixExplorer(), theme="dark")
    assert background(figure) == "rgb(20, 24, 32)"


@pytest.mark.parametrize(
    ("scheme", "attributes", "dark"),
    [
        ("light", "", False),
        ("dark", "", True),
        ("dark", "document.body.dataset.jpThemeLight = 'true'", False),
        ("light", "document.body.dataset.jpThemeLight = 'false'", True),
        ("light", "document.documentElement.setAttribute('theme', 'dark')", True),
    ],
)
def test_dark_in_notebooks(open_figures, scheme, attributes, dark):
    """Without the book's palette, as in JupyterLab and Colab."""
    page = open_figures(IndexMatrixExplorer(), color_scheme=scheme)
    page.evaluate("""() => {
      delete document.documentElement.dataset.theme;
      document.querySelector("link[rel=stylesheet]").remove();
    }""")
    page.evaluate(f"() => {{ {attributes} }}")
    found = background(page.locator(".rp-figure"))
    assert found == ("rgb(20, 24, 32)" if dark else "rgb(253, 252, 249)")


def test_nothing_overflows(open_figures):
    page = open_figures(
        IndexMatrixExplorer(query_length=40, key_length=3),
        IndexMatrixExplorer(query_length=3, key_length=40, max_distance=39),
        shaw_explorer(),
        bias_explorer(view="score", causal=True),
    )
    assert_nothing_overflows(page, [280, 320, 480, 1100])


def test_names_and_numbers_of_small_axes_stay_apart(open_figures):
    query, key = torch.randn(2, 360, 2), torch.randn(2, 512, 2)
    wide = AttentionMapExplorer(query, key, bias_table=torch.randn(2, 3))
    page = open_figures(
        shaw_explorer(), wide, bias_explorer(), viewport={"width": 320, "height": 700}
    )
    for axis in page.locator(".rp-panel:visible .rp-x").all():
        boxes = [n.bounding_box() for n in axis.locator("span:visible").all()]
        assert len(boxes) > 1
        for one, other in pairwise(boxes):
            assert one["x"] + one["width"] < other["x"]
    for plot in page.locator(".rp-panel:visible .rp-plot").all():
        name, box = plot.locator(".rp-y-name").bounding_box(), plot.bounding_box()
        assert name["y"] + name["height"] <= box["y"] + box["height"] + 2


def test_nothing_moves_by_itself(open_figures):
    page = open_figures(IndexMatrixExplorer(), reduced_motion="reduce")
    move_slider(page.locator(".rp-figure"), "Query length", 9)
    assert page.evaluate("document.getAnimations().length") == 0


# Lasting


def test_nothing_grows(open_figures):
    page = open_figures(IndexMatrixExplorer(), shaw_explorer())
    index, maps = page.locator(".rp-figure").all()

    def play(rounds):
        for figure, label, top in (
            (index, "Query length", 40),
            (index, "Maximum distance", 39),
            (maps, "Maximum distance", 6),
            (maps, "Heads shown", 3),
        ):
            play_slider(figure, label, [*(k % (top + 1) for k in range(rounds)), 2])

    assert_nothing_grows(page, play, 10, 200)


def test_copies_of_one_model_move_together(open_figures):
    page = open_figures(IndexMatrixExplorer(), copies=2)
    first, second = page.locator(".rp-figure").all()
    move_slider(first, "Maximum distance", 1)
    assert_colours(second, IndexMatrixExplorer(max_distance=1).values(), 0, 2)
    hover_cell(first, 0, 0, 6, 6)
    assert readout(second)["i"] == "5"


def test_two_figures_do_not_disturb_each_other(open_figures):
    page = open_figures(IndexMatrixExplorer(), IndexMatrixExplorer(max_distance=2))
    first, second = page.locator(".rp-figure").all()
    first.get_by_role("radio", name="offset", exact=True).check()
    move_slider(first, "Query length", 3)
    assert second.get_by_role("radio", name="row", exact=True).is_checked()
    assert_colours(second, IndexMatrixExplorer(max_distance=2).values(), 0, 4)
    assert_unique_ids(page)


# The host script


def test_pictures_give_way_and_the_style_comes_once(open_figures):
    page = open_figures(IndexMatrixExplorer(), shaw_explorer())
    assert page.locator(".live-figure img").count() == 0
    assert page.locator("style").count() == 1


def test_without_javascript_the_picture_stays(open_page, server_url):
    page = open_page(java_script_enabled=False)
    page.goto(serve(server_url, html_of([IndexMatrixExplorer()])))
    assert page.get_by_alt_text("static picture").count() == 1


def test_a_broken_figure_keeps_its_picture_and_spoils_no_other(
    used_page, server_url, page_problems
):
    page = used_page()
    broken, whole = IndexMatrixExplorer(), shaw_explorer()
    broken.set_trait("_esm", "export default { render() { throw Error('no'); } }")
    show(page, server_url, html_of([broken, whole]), figures=1)
    assert page.get_by_alt_text("static picture").count() == 1
    found, page_problems[:] = "\n".join(page_problems), []
    assert "its still form stays" in found


def test_host_offers_what_anywidget_does(used_page, server_url):
    """A module that tries the contract out and writes what it saw into its place."""
    page = used_page()
    probe = shaw_explorer()
    probe.set_trait(
        "_esm",
        """export default async () => ({
          initialize({ model }) { model.begun = true; },
          render({ model, el }) {
            const seen = [];
            const note = (m, value) => seen.push(value);
            const any = () => seen.push("any");
            model.on("change:max_distance", note);
            model.on("change", any);
            model.set("max_distance", 1);
            model.set("max_distance", 1);
            model.set({ max_distance: 2, causal: true });
            model.off("change:max_distance", note);
            model.off("change");
            model.set("max_distance", 3);
            model.save_changes();
            model.send({ to: "nobody" });
            const view = model.get("_query");
            el.className = "rp-figure";
            el.textContent = JSON.stringify([
              model.begun, seen, model.get("max_distance"), view instanceof DataView,
              view.byteLength, view.getFloat32(8, true),
            ]);
          },
        });""",
    )
    show(page, server_url, html_of([probe]), figures=1)
    begun, seen, distance, is_view, size, third = page.locator(".rp-figure").evaluate(
        "(n) => JSON.parse(n.textContent)"
    )
    assert begun
    assert seen == [1, "any", 2, "any", "any"]
    assert distance == 3
    assert is_view
    assert size == 4 * H * L * D
    assert third == np.frombuffer(probe._query, "<f4")[2]
