"""Attention map explorer in a browser: steps, bins, and the arithmetic of a cell."""

import re
from itertools import product

import numpy as np
import pytest
import torch
from figure_pages import (
    assert_colours,
    assert_nothing_grows,
    assert_nothing_overflows,
    axe_findings,
    hover_cell,
    move_slider,
    play_slider,
    readout,
)

from relpos_lib.bias import SimpleBiasRPE
from relpos_lib.explorers import AttentionMapExplorer
from relpos_lib.explorers._picture import round_up
from relpos_lib.shaw import RelativeMultiHeadAttention

H, L, D = 2, 9, 5
STEPS = ("content", "position", "score", "weights")

# Steps, bins and one cell's numbers of every case [K, length, causal, head, i, j].
PARITY = """async ([address, data, cases]) => {
  const math = await import(address);
  const core = await import(address.replace("attention_map_math", "core"));
  for (const name of ["query", "key", "table", "value", "valueTable"])
    data[name] = Float32Array.from(data[name]);
  const fixed = core.prepare(data);
  const room = core.roomFor(fixed);
  return cases.map(([K, length, causal, head, i, j]) => {
    const [Q, S] = [Math.min(length, data.Q), Math.min(length, data.S)];
    const keyK = Math.min(K, data.Kmax);
    const valueK = Math.min(K, data.valueReach);
    const result = core.attend(fixed, K, causal, [Q, S], room);
    const now = { Q, S, K, keyK, valueK, causal };
    const cell = math.cellSteps(data, result, [head, i, j], now);
    const steps = ["content", "position", "score", "weights"];
    return {
      steps: steps.map((name) => [...result[name]]),
      bins: [...math.binsOf(result.weights, head, i, { ...now, K: valueK })],
      cell: { ...cell, added: [...cell.added], value: 0, vector: 0 },
    };
  });
}"""


def explorer_of(length=L, **options):
    """A module with K = 3 for values and 8 for keys, unless options say otherwise."""
    shown = {
        name: options.pop(name)
        for name in ("view", "heads_shown", "causal", "max_distance")
        if name in options
    }
    torch.manual_seed(3)
    options = {"max_relative_positions": 8, "max_value_positions": 3} | options
    module = RelativeMultiHeadAttention(H * D, H, **options)
    return AttentionMapExplorer.from_shaw(module, torch.randn(length, H * D), **shown)


def bias_of(q_len, k_len):
    torch.manual_seed(4)
    query, key = torch.randn(H, q_len, D), torch.randn(H, k_len, D)
    return AttentionMapExplorer.from_bias(query, key, SimpleBiasRPE(H, 6))


def as_data(explorer):
    """What attention_map.js reads from the model."""
    traits = {"query": "_query", "key": "_key", "table": "_table"}
    traits |= {"value": "_value", "valueTable": "_value_table"}
    numbers = {
        name: np.frombuffer(getattr(explorer, trait), "<f4").tolist()
        for name, trait in traits.items()
    }
    return numbers | {
        "H": explorer.num_heads,
        "Q": explorer.query_length,
        "S": explorer.key_length,
        "D": explorer.head_width,
        "Dv": explorer.value_width,
        "scheme": explorer.scheme,
        "Kmax": explorer.key_distance,
        "valueReach": explorer.value_distance,
    }


@pytest.mark.parametrize(
    "explorer",
    [
        pytest.param(explorer_of, id="keys and values"),
        pytest.param(lambda: explorer_of(per_head=True), id="per head"),
        pytest.param(lambda: explorer_of(keys=False), id="values"),
        pytest.param(lambda: explorer_of(values=False), id="keys"),
        pytest.param(lambda: bias_of(5, 9), id="bias, fewer queries"),
        pytest.param(lambda: bias_of(9, 5), id="bias, more queries"),
    ],
)
def test_page_and_library_agree(module, explorer):
    """Every pair of maximum distance and length, with and without the mask."""
    explorer = explorer()
    rng = np.random.default_rng(0)
    cases = []
    for distance, length, causal in product(
        range(explorer.table_distance + 1), range(1, L + 1), (False, True)
    ):
        i = rng.integers(min(length, explorer.query_length)).item()
        j = rng.integers(min(length, explorer.key_length)).item()
        cases.append([distance, length, causal, rng.integers(H).item(), i, j])
    found = module("attention_map_math.js", PARITY, as_data(explorer), cases)
    for case, ours in zip(cases, found, strict=True):
        explorer.max_distance, explorer.length, explorer.causal = case[:3]
        explorer.head, explorer.query_index, explorer.key_index = (
            case[3] + 1,
            *case[4:],
        )
        for name, steps in zip(explorer.maps().items(), ours["steps"], strict=True):
            expected = name[1].flatten().numpy()
            np.testing.assert_allclose(steps, expected, atol=1e-5, err_msg=f"{case}")
        if "value_table" in explorer.tables:
            bins = explorer.bins()[case[3], case[4]]
            np.testing.assert_allclose(ours["bins"], bins, atol=1e-5, err_msg=f"{case}")
        assert_same_cell(ours["cell"], explorer.arithmetic(), case)


def assert_same_cell(ours, theirs, case):
    """The names of one side are camelCase."""
    names = {"key_row": "keyRow", "value_row": "valueRow"}
    for name, expected in theirs.items():
        found = ours[names.get(name, name)]
        np.testing.assert_allclose(
            found, expected, atol=1e-5, rtol=1e-5, err_msg=f"{name} of {case}"
        )


# Drawing


@pytest.mark.parametrize(
    ("distance", "length", "heads", "causal"),
    [(8, 9, 2, False), (2, 6, 1, True), (0, 1, 2, False)],
)
def test_all_four_steps_are_drawn_on_one_scale(
    open_figure, distance, length, heads, causal
):
    figure = open_figure(explorer_of())
    figure.get_by_role("radio", name="all four").check()
    move_slider(figure, "Maximum distance", distance)
    move_slider(figure, "Sequence length", length)
    move_slider(figure, "Heads shown", heads)
    figure.get_by_label("Causal mask").set_checked(causal)
    expected = explorer_of(
        view="steps", max_distance=distance, heads_shown=heads, causal=causal
    )
    expected.length = length
    ends = expected._scale_ends(list(STEPS))
    panels = figure.locator(".rp-panel:visible")
    assert panels.count() == 4 * heads
    for head, (step, values) in product(
        range(heads), enumerate(expected.values().numpy())
    ):
        top = ends[STEPS[step]]
        low = 0 if STEPS[step] == "weights" else -top
        assert_colours(panels.nth(4 * head + step), values[head], low, top)
    bars = figure.locator(".rp-bar").all_inner_texts()
    assert [float(re.split(r"\s+", text)[1]) for text in bars] == pytest.approx(
        [ends["score"], ends["weights"]]
    )


def bars_of(figure):
    """Heights of the bars of every head that is shown, as shares of the picture."""
    paths = figure.locator(".rp-maps-bin:visible path:first-child")
    return [
        [float(height) for height in re.findall(r"1v-?([\d.e-]+)h", path)]
        for path in paths.evaluate_all("ps => ps.map((p) => p.getAttribute('d'))")
    ]


def test_bars_follow_the_query_and_the_distance(open_figure):
    explorer = explorer_of(causal=True)
    figure = open_figure(explorer)
    for distance, (i, j) in ((8, (8, 0)), (2, (5, 3)), (0, (3, 3))):
        move_slider(figure, "Maximum distance", distance)
        hover_cell(figure, i, j, L, L)
        explorer.max_distance = distance
        bins = explorer.bins()[:, i].numpy()
        top = round_up(bins.max().item())
        np.testing.assert_allclose(bars_of(figure), bins / top, atol=1e-5)
        alt = figure.locator(".rp-maps-bars").nth(1).get_attribute("aria-label")
        best = bins[1].argmax()
        assert f"Weights of query {i} in head 2" in alt
        assert f"Most, {bins[1].max():.3f}, falls into row {best}" in alt


def test_pointing_at_a_bar_goes_to_a_key_that_reads_its_row(open_figure):
    figure = open_figure(explorer_of(max_distance=3))
    bars = figure.locator(".rp-maps-bars").nth(1)
    box = bars.bounding_box()
    for row, key in ((0, 5), (1, 6), (3, 8)):
        x = (row + 0.5) * box["width"] / 7
        bars.hover(position={"x": x, "y": 10})
        found = readout(figure)
        assert (found["head"], found["i"], found["j"]) == ("2", "8", str(key))


def test_without_a_value_table_there_are_no_bars(open_figures):
    page = open_figures(explorer_of(values=False), bias_of(5, 9))
    assert page.locator(".rp-maps-bars:visible").count() == 0
    texts = page.locator("[data-step=value]").all_inner_texts()
    assert len(texts) == 1  # values are there, their table is not
    assert "a[row" not in texts[0]


# The arithmetic of a cell


def plain_text(node):
    return node.inner_text().replace("\N{MINUS SIGN}", "-")


def numbers_in(text):
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", text)]


def assert_arithmetic(figure, explorer):
    """The text of the chosen cell says what Python computes."""
    head, i, j = explorer.cell()
    expected = explorer.arithmetic()
    cell = figure.locator(".rp-maps-cell")
    title = plain_text(cell.locator(".rp-maps-name"))
    assert title.startswith(f"Head {head + 1}, query {i}, key {j}: offset {j - i}")
    lines = {
        name: numbers_in(plain_text(cell.locator(f"[data-step={name}]")))
        for name in ("content", "position", "score", "softmax", "value", "bin")
    }
    for name in ("content", "position", "score"):
        assert lines[name][-1] == pytest.approx(expected[name], abs=6e-4)
    if explorer.allowed()[i, j]:
        assert lines["softmax"][-1] == pytest.approx(expected["weight"], abs=6e-4)
        assert lines["softmax"][-2] == pytest.approx(expected["denominator"], abs=6e-4)
    assert lines["value"][-3:] == pytest.approx(
        expected["added"][:3].tolist(), abs=6e-3
    )
    assert lines["bin"][1] == expected["value_row"]
    assert lines["bin"][-1] == pytest.approx(expected["bin"], abs=6e-4)


def test_a_click_writes_out_the_arithmetic_and_pointing_does_not(open_figure):
    explorer = explorer_of(causal=True, max_distance=2)
    figure = open_figure(explorer)
    assert_arithmetic(figure, explorer)
    hover_cell(figure, 6, 5, L, L, panel=1)
    assert readout(figure)["i"] == "6"
    assert_arithmetic(figure, explorer)
    for head, i, j in ((2, 6, 5), (1, 2, 7)):
        hover_cell(figure, i, j, L, L, panel=head - 1)
        figure.page.mouse.down()
        figure.page.mouse.up()
        explorer.head, explorer.query_index, explorer.key_index = head, i, j
        assert_arithmetic(figure, explorer)
    assert "masked" in figure.locator("[data-step=softmax]").inner_text()


def test_after_pointing_the_readout_goes_back_to_the_chosen_cell(open_figure):
    figure = open_figure(explorer_of())
    hover_cell(figure, 2, 3, L, L)
    assert readout(figure)["i"] == "2"
    figure.page.mouse.move(1, 1)
    assert readout(figure)["i"] == "8"


def test_enter_and_space_choose_a_cell(open_figure):
    explorer = explorer_of()
    figure = open_figure(explorer)
    grid = figure.get_by_role("grid").nth(1)
    grid.focus()
    for key, (i, j) in (("Enter", (7, 2)), (" ", (6, 4))):
        for step in ("ArrowUp", "ArrowRight", "ArrowRight"):
            grid.press(step)
        grid.press(key)
        explorer.head, explorer.query_index, explorer.key_index = 2, i, j
        assert_arithmetic(figure, explorer)


def test_a_tap_chooses_a_cell(open_figures):
    explorer = explorer_of()
    page = open_figures(explorer, has_touch=True)
    box = page.get_by_role("grid").nth(1).bounding_box()
    page.touchscreen.tap(
        box["x"] + box["width"] * 3.5 / L, box["y"] + box["height"] * 5.5 / L
    )
    explorer.head, explorer.query_index, explorer.key_index = 2, 5, 3
    assert_arithmetic(page.locator(".rp-figure"), explorer)


def test_a_chosen_cell_stays_inside_a_shorter_sequence(open_figure):
    explorer = explorer_of()
    figure = open_figure(explorer)
    move_slider(figure, "Sequence length", 4)
    explorer.length = 4
    assert_arithmetic(figure, explorer)
    move_slider(figure, "Sequence length", L)
    explorer.length = L
    assert_arithmetic(figure, explorer)


# For everybody


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    page = open_figures(explorer_of(view="steps"), explorer_of(keys=False), theme=theme)
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    page = open_figures(
        explorer_of(view="steps"),
        explorer_of(length=40, max_relative_positions=39),
    )
    assert_nothing_overflows(page, [280, 320, 720, 1100])


def test_the_arithmetic_is_announced_once(open_figure):
    figure = open_figure(explorer_of())
    assert figure.locator("output.rp-maps-cell[aria-live=polite]").count() == 1


def test_nothing_grows_after_a_thousand_moves(open_figures):
    page = open_figures(explorer_of(view="steps"))
    figure = page.locator(".rp-figure")

    def play(rounds):
        for label, low, high in (
            ("Maximum distance", 0, 8),
            ("Sequence length", 1, L),
            ("Heads shown", 1, H),
        ):
            values = [low + k % (high - low + 1) for k in range(rounds)]
            play_slider(figure, label, [*values, high])
        for view in ("weights", "all four"):
            figure.get_by_role("radio", name=view, exact=True).check()

    assert_nothing_grows(page, play, 20, 334)


def test_copies_share_the_chosen_cell_and_nothing_else(open_figures):
    explorer = explorer_of()
    page = open_figures(explorer, copies=2)
    first, second = page.locator(".rp-figure").all()
    hover_cell(first, 1, 2, L, L)
    assert readout(second)["i"] == "8"
    page.mouse.down()
    page.mouse.up()
    explorer.query_index, explorer.key_index = 1, 2
    assert_arithmetic(second, explorer)
