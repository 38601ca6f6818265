"""Bias curve explorer in a browser: its arithmetic, drawing by hand, and everybody."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from figure_pages import (
    MODEL,
    assert_colours,
    assert_nothing_grows,
    assert_nothing_overflows,
    assert_numbers_stand_apart,
    assert_unique_ids,
    axe_findings,
    content_of,
    hover_cell,
    move_slider,
    number,
    readout,
    tab_stops,
)

from relpos_lib.bias import SimpleBiasRPE
from relpos_lib.explorers import BiasCurveExplorer
from relpos_lib.explorers._picture import round_up
from relpos_lib.offsets import farthest_offset, relative_offsets, table_rows

H, D = 3, 5
FREE = 0.025  # share of the chart's width beside its points

CURVE = """async ([address, traits, cases]) => {
  const { allowedPairs, attendWithBias, contentOf } = await import(address);
  const { Q, S, Kmax, content } = contentOf(MODEL(traits));
  return cases.map(([curve, K, causal, counts]) => {
    const allowed = allowedPairs(Q, S, causal);
    return curve.map((row, head) => {
      const part = content[head].map((x) => counts * x);
      const bias = row.map((x) => x ?? -Infinity);
      const out = attendWithBias(part, bias, { Q, S, K, Kmax, allowed });
      return [out.score, out.weights].map((values) => [...values]);
    });
  });
}""".replace("MODEL", MODEL)


def explorer(q_len=9, k_len=9, **options):
    torch.manual_seed(0)
    query, key = torch.randn(H, q_len, D), torch.randn(H, k_len, D)
    return BiasCurveExplorer(query, key, **options)


def curves_of(figure):
    """Curves at the ends of their range and between, some of them with holes."""
    torch.manual_seed(1)
    shape = (H, 2 * figure.table_distance + 1)
    some = torch.randn(shape).clamp(-figure.limit, figure.limit)
    holes = some.masked_fill(torch.rand(shape) < 0.4, -math.inf)
    ends = figure.limit * torch.randn(shape).sign()
    hidden = torch.full(shape, -math.inf)
    return [some, holes, ends, hidden]


# Arithmetic


@pytest.mark.parametrize("sizes", [(9, 9), (7, 11), (11, 7), (1, 1)])
def test_scores_and_weights(module, sizes):
    figure = explorer(*sizes)
    distances, bools = range(figure.table_distance + 1), (False, True)
    cases, expected = [], []
    for curve in curves_of(figure):
        figure.curve = curve
        sent = figure.get_state()["curve"]
        for case in product(distances, bools, bools):
            figure.max_distance, figure.causal, figure.content = case
            cases.append([sent, *case])
            maps = figure.maps()
            expected.append(torch.stack([maps["score"], maps["weights"]], dim=1))
    found = np.array(module("core.js", CURVE, content_of(figure), cases), dtype=float)
    wanted = torch.stack(expected).flatten(3).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("limit", [4.0, 5.0, 15.0, 40.0, 0.5])
def test_heights_of_the_chart_become_numbers_that_python_takes(module, limit):
    script = """async ([address, limit, heights]) => {
      const { curveFloor, curveHeight, curveStep, settleBias } = await import(address);
      const biases = heights.map((height) => settleBias(height, limit));
      const again = biases.map((b) => settleBias(curveHeight(b, limit), limit));
      const same = biases.every((b, k) => Object.is(b, again[k]));
      const step = curveStep(limit);
      const below = settleBias(-limit - step, limit);
      const above = settleBias(curveFloor(limit) + step, limit);
      return [biases.map((b) => (b === -Infinity ? null : b)), same, below, above];
    }"""
    heights = np.linspace(-1.2 * limit, 1.2 * limit, 2001)
    biases, same, below, above = module(
        "bias_curve_math.js", script, limit, heights.tolist()
    )
    assert same
    assert below == -math.inf  # one step down from the lowest number hides
    assert above == -limit  # and one step up shows again
    for height, bias in zip(heights, biases, strict=True):
        if height < -1.01 * limit - 1e-9:
            assert bias is None
        elif height > -1.01 * limit + 1e-9:
            assert abs(bias) <= limit
            assert abs(bias - np.clip(height, -limit, limit)) <= limit / 1000 + 1e-9


def test_heads_shown_by_both(module):
    script = """async ([address, cases]) => {
      const { headsShown } = await import(address);
      return cases.map(([count, head]) => headsShown(count, head));
    }"""
    cases = [[count, head] for count in range(1, H + 1) for head in range(H)]
    figure = explorer()
    for (count, head), found in zip(
        cases, module("bias_curve_math.js", script, cases), strict=True
    ):
        figure.heads_shown, figure.head = count, head + 1
        assert [h + 1 for h in found] == figure.shown_heads()


@pytest.mark.parametrize("sizes", [(7, 7), (5, 9), (9, 5), (1, 8), (8, 1)])
def test_pairs_of_an_offset(module, sizes):
    script = """async ([address, Q, S, K, i]) => {
      const { pairAt, pairsReading } = await import(address);
      const offsets = Array.from({ length: 2 * K + 1 }, (_, k) => k - K);
      return offsets.map((d) => [pairsReading(d, { Q, S, K }), pairAt(d, i, { Q, S })]);
    }"""
    offsets = relative_offsets(*sizes)
    for distance in range(farthest_offset(*sizes) + 1):
        rows = table_rows(*sizes, distance)
        query = distance % sizes[0]
        found = module("bias_curve_math.js", script, *sizes, distance, query)
        for row, (pairs, pair) in enumerate(found):
            assert pairs == int((rows == row).sum())
            there = (offsets == row - distance).nonzero().tolist()
            assert (pair is None) == (not there)
            by_distance = sorted((abs(i - query), [i, j]) for i, j in there)
            nearest = by_distance[0][1] if there else None
            assert pair == nearest


# Drawing


def assert_drawn(figure, expected):
    """The matrices show what Python says, and all of a kind share one scale."""
    groups = figure.locator(".rp-group")
    for group, (name, values) in enumerate(expected.values().items()):
        top = round_up(values.nan_to_num(0).abs().max().item())
        panels = groups.nth(group).locator(".rp-panel:visible")
        assert panels.count() == len(values)
        for panel, matrix in zip(panels.all(), values.numpy(), strict=True):
            assert_colours(panel, matrix, -top if name == "score" else 0, top)


def set_curve(expected, curve):
    expected.curve = [[-math.inf if x is None else x for x in row] for row in curve]
    return expected


@pytest.mark.parametrize(
    ("sizes", "distance", "heads", "head", "causal", "content", "preset"),
    [
        ((9, 9), 8, 3, 1, False, True, "ALiBi"),
        ((9, 9), 0, 1, 3, True, True, "local window"),
        ((7, 11), 3, 2, 3, False, False, "T5 buckets"),
        ((11, 7), 10, 3, 2, True, False, "local window"),
        ((33, 34), 5, 2, 1, True, True, "learned"),
    ],
)
def test_controls_draw(
    open_figures, sizes, distance, heads, head, causal, content, preset
):
    learned = SimpleBiasRPE(H, 4)
    page = open_figures(explorer(*sizes, learned=learned, curve=None))
    figure = page.locator(".rp-figure")
    move_slider(figure, "Head to draw", head)
    move_slider(figure, "Heads shown", heads)
    figure.get_by_label("Causal mask").set_checked(causal)
    figure.get_by_label("Content scores").set_checked(content)
    figure.get_by_role("button", name=preset).click()
    move_slider(figure, "Maximum distance", distance)
    expected = explorer(
        *sizes,
        learned=learned,
        max_distance=distance,
        head=head,
        heads_shown=heads,
        causal=causal,
        content=content,
    )
    expected.fill(preset)
    assert_drawn(figure, expected)
    pressed = figure.get_by_role("button", pressed=True).all_text_contents()
    assert pressed == [preset]


def place(figure, offset, bias, expected):
    """Where a point of the curve lies on the page."""
    box = figure.locator(".rp-chart-handle").bounding_box()
    reach, limit = expected.max_distance, expected.limit
    share = (offset + reach) / (2 * reach) if reach else 0.5
    floor = -1.02 * limit
    x = box["x"] + box["width"] * (FREE + (1 - 2 * FREE) * share)
    y = box["y"] + box["height"] * (1 - (bias - floor) / (limit - floor))
    return x, y


def points_of(figure, expected):
    """The curve of the head that is drawn, by its points on the chart."""
    path = figure.locator(".rp-chart-line").first.locator(".rp-chart-dots")
    text = path.get_attribute("d")
    heights = [float(part.split()[1].split("h")[0]) for part in text.split("M")[1:]]
    floor, limit = -1.02 * expected.limit, expected.limit
    return [limit - y / 1000 * (limit - floor) for y in heights]


def test_the_mouse_draws_a_curve(open_figures):
    expected = explorer()
    page = open_figures(expected)
    figure = page.locator(".rp-figure")
    figure.locator(".rp-chart-handle").scroll_into_view_if_needed()
    page.mouse.move(*place(figure, -6, 2.0, expected))
    page.mouse.down()
    page.mouse.move(*place(figure, -2, -2.0, expected))  # over three others at once
    page.mouse.up()
    page.mouse.move(*place(figure, 5, 4.0, expected))  # only looks
    found = points_of(figure, expected)
    wanted = [0, 0, 2, 1, 0, -1, -2, 0, 0, *[0] * 8]
    np.testing.assert_allclose(found, wanted, atol=0.06)
    told = readout(figure)
    assert number(told["offset"]) == 5
    assert number(told["bias"]) == 0


def test_drawing_past_the_bottom_hides(open_figures):
    expected = explorer(heads_shown=1)
    page = open_figures(expected)
    figure = page.locator(".rp-figure")
    figure.locator(".rp-chart-handle").scroll_into_view_if_needed()
    page.mouse.move(*place(figure, 3, 0.0, expected))
    page.mouse.down()
    x, y = place(figure, 3, -1.02 * expected.limit, expected)
    page.mouse.move(x, y + 30, steps=4)
    page.mouse.up()
    assert readout(figure)["bias"] == "hidden"
    assert number(readout(figure)["factor"]) == 0
    curve = [[0.0] * 17 for _ in range(H)]
    curve[0][11] = None
    assert_drawn(figure, set_curve(expected, curve))


def test_touch_draws(open_figures):
    expected = explorer(heads_shown=1)
    page = open_figures(expected, has_touch=True)
    figure = page.locator(".rp-figure")
    figure.locator(".rp-chart-handle").scroll_into_view_if_needed()
    page.touchscreen.tap(*place(figure, -1, 3.0, expected))
    np.testing.assert_allclose(points_of(figure, expected)[7], 3, atol=0.06)
    assert number(readout(figure)["offset"]) == -1


def test_the_keyboard_draws(open_figure):
    expected = explorer(heads_shown=1)
    figure = open_figure(expected)
    handle = figure.locator(".rp-chart-handle")
    handle.focus()
    for _ in range(3):
        handle.press("ArrowRight")
    assert number(readout(figure)["offset"]) == 2  # it began at -1
    handle.press("PageUp")
    handle.press("ArrowUp")
    handle.press("ArrowDown")
    step = expected.limit / 50
    assert float(readout(figure)["bias"]) == pytest.approx(10 * step)
    assert "offset j" in handle.get_attribute("aria-valuetext")
    assert handle.get_attribute("aria-valuetext").endswith(" 2: 1.000")
    curve = [[0.0] * 17 for _ in range(H)]
    curve[0][10] = 10 * step
    assert_drawn(figure, set_curve(expected, curve))
    for _ in range(7):
        handle.press("PageDown")
    assert handle.get_attribute("aria-valuetext").endswith("hidden")
    assert readout(figure)["bias"] == "hidden"
    handle.press("ArrowUp")
    assert float(readout(figure)["bias"]) == -expected.limit
    handle.press("Home")
    assert number(readout(figure)["offset"]) == -8
    handle.press("End")
    assert number(readout(figure)["offset"]) == 8


def test_a_clipped_curve_keeps_what_lies_beyond(open_figure):
    """A smaller K shows and changes the middle rows only."""
    expected = explorer(heads_shown=1)
    expected.fill("ALiBi")
    figure = open_figure(expected)
    move_slider(figure, "Maximum distance", 2)
    assert len(points_of(figure, expected)) == 5
    handle = figure.locator(".rp-chart-handle")
    handle.press("End")
    assert readout(figure)["offset"] == "+2 and beyond"
    assert number(readout(figure)["pairs"]) == 28
    handle.press("PageUp")
    move_slider(figure, "Maximum distance", 8)
    curve = list(map(list, expected.curve))
    curve[0][10] = float(readout(figure)["bias"])
    assert curve[0][10] > expected.curve[0][10]
    assert_drawn(figure, set_curve(expected, curve))


def test_at_distance_zero_one_number_is_left_and_says_nothing(open_figures):
    expected = explorer(heads_shown=1, max_distance=0)
    page = open_figures(expected)
    figure = page.locator(".rp-figure")
    before = expected.maps()["weights"]
    figure.locator(".rp-chart-handle").scroll_into_view_if_needed()
    page.mouse.move(*place(figure, 0, 0.0, expected))
    page.mouse.down()
    page.mouse.move(*place(figure, 0, 3.0, expected))
    page.mouse.up()
    np.testing.assert_allclose(points_of(figure, expected), [3], atol=0.06)
    curve = [[0.0] * 17 for _ in range(H)]
    curve[0][8] = float(readout(figure)["bias"])
    assert_drawn(figure, set_curve(expected, curve))
    torch.testing.assert_close(expected.maps()["weights"], before)


def test_cells_and_chart_point_at_each_other(open_figure):
    torch.manual_seed(4)
    expected = explorer(heads_shown=2, causal=True, max_distance=3)
    expected.curve = curves_of(expected)[0]
    figure = open_figure(expected)
    maps = expected.maps()
    for head, i, j in ((0, 7, 2), (1, 8, 8), (1, 2, 5)):
        hover_cell(figure, i, j, 9, 9, panel=head)
        told = readout(figure)
        assert told["head"] == str(head + 1)
        assert (number(told["i"]), number(told["j"])) == (i, j)
        offset = max(-3, min(3, j - i))
        assert number(told["offset"].replace("+", "")) == offset
        for name in ("content", "position", "score"):
            expected_number = maps[name][head, i, j].item()
            assert float(told[name]) == pytest.approx(expected_number, abs=6e-4)
        if j > i:
            assert told["weight"] == "0, masked"
        else:
            weight = maps["weights"][head, i, j].item()
            assert number(told["weight"]) == pytest.approx(weight, abs=6e-4)
    figure.locator(".rp-chart-handle").press("Home")
    told = readout(figure)
    assert told["offset"] == "-3 and beyond"
    assert told["head"] == "1"
    assert number(told["j"]) - number(told["i"]) == -3


def test_the_head_to_draw_is_always_shown(open_figure):
    figure = open_figure(explorer(heads_shown=1))
    move_slider(figure, "Head to draw", 3)
    titles = figure.locator(".rp-panel:visible .rp-title").all_text_contents()
    assert titles == ["head 3", "head 3"]
    figure.get_by_role("button", name="ALiBi").click()
    expected = explorer(heads_shown=1, head=3)
    expected.fill("ALiBi")
    assert_drawn(figure, expected)


# For everybody


def test_text_alternatives_follow_the_state(open_figure):
    expected = explorer(heads_shown=1)
    figure = open_figure(expected)
    chart = figure.locator("svg[role=img]").first
    assert chart.get_attribute("aria-label").endswith("to 8: 0.000 everywhere.")
    figure.get_by_role("button", name="local window").click()
    label = chart.get_attribute("aria-label").replace("\N{MINUS SIGN}", "-")
    assert label == (
        "Bias of head 1 over the offsets -8 to 8: highest, 0.000, at -2, "
        "12 of 17 offsets hidden."
    )
    expected.fill("local window")
    weights = expected.maps()["weights"][0]
    i, j = divmod(int(weights.argmax()), 9)
    alt = figure.locator(".rp-cells:visible").last.get_attribute("aria-label")
    assert alt == (
        "attention weights of head 1: 9 queries by 9 keys, maximum distance 8. "
        f"Largest, {weights.max():.3f}, at query {i}, key {j}."
    )


def test_every_stop_of_the_keyboard_is_seen(open_figures):
    page = open_figures(explorer(heads_shown=1))
    controls = ["range"] * 3 + ["checkbox"] * 2 + ["button"] * 4
    assert tab_stops(page, 12) == [*controls, "slider", "grid", "grid"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    single = BiasCurveExplorer(num_heads=1, length=40)
    page = open_figures(explorer(learned=SimpleBiasRPE(H, 4)), single, theme=theme)
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    page = open_figures(
        explorer(7, 11, learned=SimpleBiasRPE(H, 4), heads_shown=3),
        explorer(40, 3, heads_shown=1),
        explorer(),
    )
    assert_nothing_overflows(page, [280, 320, 480, 1100])


@pytest.mark.parametrize("length", [7, 16, 20, 64])
def test_numbers_of_the_offsets_stand_apart_on_a_phone(open_figure, length):
    one = BiasCurveExplorer(num_heads=1, length=length)
    figure = open_figure(one, viewport={"width": 280, "height": 700})
    assert_numbers_stand_apart(figure)


def test_nothing_moves_by_itself(open_figures):
    page = open_figures(explorer(), reduced_motion="reduce")
    page.get_by_role("button", name="ALiBi").click()
    assert page.evaluate("document.getAnimations().length") == 0


# Lasting


def test_two_figures_do_not_disturb_each_other(open_figures):
    page = open_figures(explorer(), explorer(heads_shown=1))
    first, second = page.locator(".rp-figure").all()
    first.get_by_role("button", name="ALiBi").click()
    move_slider(first, "Maximum distance", 2)
    assert_drawn(second, explorer(heads_shown=1))
    assert_unique_ids(page)


def test_copies_of_one_model_draw_together(open_figures):
    page = open_figures(explorer(), copies=2)
    first, second = page.locator(".rp-figure").all()
    first.get_by_role("button", name="T5 buckets").click()
    expected = explorer()
    expected.fill("T5 buckets")
    assert_drawn(second, expected)


def test_nothing_grows(open_figures):
    page = open_figures(explorer(learned=SimpleBiasRPE(H, 4)))
    figure = page.locator(".rp-figure")

    def play(rounds):
        figure.evaluate(
            """(figure, rounds) => {
              const [distance, , heads] = figure.querySelectorAll("input[type=range]");
              const handle = figure.querySelector(".rp-chart-handle");
              const buttons = figure.querySelectorAll("button");
              const set = (node, value) => {
                node.value = value;
                node.dispatchEvent(new Event("input"));
              };
              for (let k = 0; k < rounds; k++) {
                set(distance, k % 9);
                set(heads, 1 + (k % 3));
                buttons[k % buttons.length].click();
                for (const key of ["ArrowUp", "ArrowRight", "PageDown", "ArrowLeft"])
                  handle.dispatchEvent(new KeyboardEvent("keydown", { key }));
              }
              set(distance, 8);
              set(heads, 2);
              buttons[0].click();
            }""",
            rounds,
        )

    assert_nothing_grows(page, play, 15, 145)
