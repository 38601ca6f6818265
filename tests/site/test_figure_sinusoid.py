"""The sinusoid figure in a browser: arithmetic, drawing, controls, reading, lasting."""

import math
from functools import cache, partial
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
    number,
    play_slider,
    readout,
    slider_of,
    tab_stops,
)

from relpos_lib.explorers import SinusoidExplorer
from relpos_lib.sinusoidal import sinusoidal_encoding

L, E = 64, 32
BASES = (2, 10, 100, 1000, 10_000, 100_000, 1_000_000)
PRODUCTS = """async ([address, cases, [reach, E]]) => {
  const { productsAround } = await import(address);
  return cases.map(([p, base]) => productsAround(p, reach, E, base));
}"""
HANDS = """async ([address, cases, E]) => {
  const { handProducts } = await import(address);
  return cases.map(([p, offset, m, base]) => {
    const { sines, cosines, sum } = handProducts(p, offset, m, E, base);
    return [sines, cosines, sum];
  });
}"""
CODES = """async ([address, cases]) => {
  const { sinusoidalCodes } = await import(address);
  return cases.map((case_) => [...sinusoidalCodes(...case_)]);
}"""


@pytest.fixture
def arithmetic(module):
    return partial(module, "sinusoid_math.js")


# Arithmetic


@pytest.mark.parametrize(("length", "width"), [(2, 2), (64, 32), (128, 128)])
def test_codes(arithmetic, length, width):
    found = arithmetic(CODES, [[0, length, width, base] for base in BASES])
    for base, values in zip(BASES, found, strict=True):
        one = SinusoidExplorer(
            length=length, width=width, base=base, position=0, offset=0, dimension=0
        )
        np.testing.assert_allclose(values, one.codes().flatten(), atol=1e-5)


def test_products_at_every_position_and_base(arithmetic):
    cases = list(product(range(L), BASES))
    found = arithmetic(PRODUCTS, cases, [L - 1, E])
    for (position, base), values in zip(cases, found, strict=True):
        codes = library_codes(base)[position : position + 2 * L - 1]
        np.testing.assert_allclose(values, codes @ codes[L - 1], atol=1e-5)


@cache
def library_codes(base):
    """Codes of all positions that p + offset can be, from 1 - L to 2 L - 2."""
    codes = sinusoidal_encoding(
        3 * L - 2, E, start=1 - L, base=base, dtype=torch.float64
    )
    return codes.numpy()


def pairs_of_controls():
    """Every pair of two controls' full ranges, the others at corners and between."""
    ranges = [range(L), range(1 - L, L), range(E), BASES]
    few = [(0, 10, L - 1), (1 - L, 6, L - 1), (0, 9, E - 1), (2, 10_000, 1_000_000)]
    cases = set(product(*few))
    for a in range(4):
        for b in range(a):
            axes = [ranges[k] if k in (a, b) else few[k][1:2] for k in range(4)]
            cases |= set(product(*axes))
    return sorted(cases)


def test_hands_on_all_pairs_of_controls(arithmetic):
    cases = pairs_of_controls()
    asked = [(p, offset, d // 2, base) for p, offset, d, base in cases]
    found = np.array(arithmetic(HANDS, asked, E))
    for (p, offset, m, base), values in zip(asked, found, strict=True):
        codes = library_codes(base)[:, 2 * m : 2 * m + 2]
        expected = codes[p + L - 1] * codes[p + offset + L - 1]
        assert abs(values - [*expected, sum(expected)]).max() < 1e-5, (p, offset, m)


# Drawing


def curve_of(figure):
    """Points of both curves, as they are drawn: pixels on the page to numbers."""
    return figure.locator(".rp-chart-box").evaluate("""(box) => {
      const text = (node) => Number(node.textContent.replace("\\u2212", "-"));
      const place = (node, side) => parseFloat(node.style[side]) / 100;
      const scale = (axis, side) => {
        const ticks = [...box.querySelectorAll(`.rp-chart-${axis} span`)];
        const [a, b] = [ticks[0], ticks.at(-1)];
        const slope = (text(b) - text(a)) / (place(b, side) - place(a, side));
        return (at) => text(a) + (at - place(a, side)) * slope;
      };
      const [x, y] = [scale("x", "left"), scale("y", "bottom")];
      return [...box.querySelectorAll(".rp-chart-line .rp-chart-stroke")].map((path) =>
        [...path.getAttribute("d").matchAll(/(-?[\\d.]+) (-?[\\d.]+)/g)].map(
          ([, at, down]) => [x(at / 1000), y(1 - down / 1000)]));
    }""")


@pytest.mark.parametrize("along", ["offset", "position"])
@pytest.mark.parametrize(
    ("position", "offset", "dimension", "base"),
    [(0, 63, 0, 10_000), (63, -63, 31, 2), (20, -30, 13, 1000), (40, 0, 2, 1_000_000)],
)
def test_drawing(open_figure, position, offset, dimension, base, along):
    """Set through the controls, from another state; Python says what to see."""
    figure = open_figure(SinusoidExplorer())
    move_slider(figure, "Position", position)
    move_slider(figure, "Offset", offset)
    move_slider(figure, "Dimension", dimension)
    move_slider(figure, "Base", BASES.index(base))
    figure.get_by_role("radio", name=f"{along} {'δ' if along == 'offset' else 'q'}"
                       ).check()  # fmt: skip
    one = SinusoidExplorer(
        position=position, offset=offset, dimension=dimension, base=base
    )
    assert_colours(figure, one.codes(), -1, 1)
    inside, outside = curve_of(figure)
    products = one.products().numpy()
    start = position if along == "position" else 0
    first = start - position
    for x, y in inside + outside:
        assert y == pytest.approx(products[round(x) - start + L - 1], abs=0.03)
    assert [round(x) for x, _ in inside] == list(range(first, first + L))
    everything = {round(x) for x, _ in inside + outside}
    assert everything == set(range(start - L + 1, start + L))
    assert_told(figure, one)
    assert_clock(figure, one)


def assert_told(figure, one):
    found = readout(figure)
    here, there = one.hands()
    expected = {
        "p": one.position,
        "q": one.position + one.offset,
        "hand": one.dimension // 2,
        "sines": (here[0] * there[0]).item(),
        "cosines": (here[1] * there[1]).item(),
        "sum": (here @ there).item(),
        "product": one.products()[L - 1 + one.offset].item(),
    }
    for name, value in expected.items():
        assert number(found[name]) == pytest.approx(value, abs=6e-3), name


def assert_clock(figure, one):
    """The tips of the hands lie at (sine, cosine), with the cosine upwards."""
    paths = figure.locator(".rp-sinusoid-hand").evaluate_all(
        "ns => ns.map((n) => n.getAttribute('d').split('L')[1].split(' ').map(Number))"
    )
    for (x, y), (sine, cosine) in zip(paths, one.hands().tolist(), strict=True):
        assert (x, -y) == pytest.approx((100 * sine, 100 * cosine), abs=0.06)


def test_the_curve_stands_still_over_offsets_and_moves_over_positions(open_figure):
    figure = open_figure(SinusoidExplorer())

    def peak(path):
        return max(path, key=lambda point: point[1])

    for position in (0, 30, 63):
        move_slider(figure, "Position", position)
        assert peak(curve_of(figure)[0]) == pytest.approx((0, 16), abs=0.1)
    figure.get_by_role("radio", name="position q").check()
    for position in (0, 30, 63):
        move_slider(figure, "Position", position)
        assert peak(curve_of(figure)[0]) == pytest.approx((position, 16), abs=0.2)


# Controls


def test_a_press_on_the_heat_map_moves_position_and_dimension(open_figure):
    figure = open_figure(SinusoidExplorer())
    hover_cell(figure, 40, 21, L, E)
    assert slider_of(figure, "Position").input_value() == "10"
    figure.page.mouse.down()
    assert slider_of(figure, "Position").input_value() == "40"
    hover_cell(figure, 50, 3, L, E)
    figure.page.mouse.up()
    assert slider_of(figure, "Position").input_value() == "50"
    assert slider_of(figure, "Dimension").input_value() == "3"
    assert_told(figure, SinusoidExplorer(position=50, dimension=3))


@pytest.mark.parametrize("along", ["offset", "position"])
def test_a_press_on_the_curve_moves_the_offset(open_figure, along):
    figure = open_figure(SinusoidExplorer(along=along))
    handle = figure.locator(".rp-chart-handle")
    box = handle.bounding_box()
    span = 126 if along == "offset" else 189
    wanted = -21 if along == "offset" else -21 + 10
    x = box["width"] * (0.025 + 0.95 * (wanted + 63) / span)
    handle.click(position={"x": x, "y": 20})
    assert slider_of(figure, "Offset").input_value() == "-21"
    assert_told(figure, SinusoidExplorer(offset=-21))
    handle.press("ArrowRight")
    assert slider_of(figure, "Offset").input_value() == "-20"
    assert handle.get_attribute("aria-valuetext").startswith(
        "offset δ \N{MINUS SIGN}20" if along == "offset" else "position q = p + δ "
    )
    handle.press("End")
    assert slider_of(figure, "Offset").input_value() == "63"


def test_touch(open_figures):
    page = open_figures(SinusoidExplorer(), has_touch=True)
    box = page.get_by_role("grid").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    figure = page.locator(".rp-figure")
    assert_told(figure, SinusoidExplorer(position=32, dimension=16))


def test_keyboard_alone_reaches_and_moves_everything(open_figures):
    page = open_figures(SinusoidExplorer())
    figure = page.locator(".rp-figure")
    stops = tab_stops(page, 7, then="ArrowRight")
    assert stops == ["range"] * 4 + ["grid", "radio", "slider"]
    found = {name: slider_of(figure, name).input_value() for name in
             ("Position", "Offset", "Dimension", "Base")}  # fmt: skip
    assert found == {"Position": "11", "Offset": "8", "Dimension": "10", "Base": "5"}
    assert figure.get_by_role("radio", name="position q").is_checked()


# For everybody


def test_text_alternatives_state_the_finding(open_figure):
    figure = open_figure(SinusoidExplorer())
    move_slider(figure, "Position", 20)
    heat, clock, curve = (
        figure.locator(part).get_attribute("aria-label")
        for part in (".rp-cells", ".rp-sinusoid-clock", ".rp-chart-area > svg")
    )
    assert "64 positions with 32 dimensions" in heat
    assert "the last two every 35333" in heat
    assert "at position 20 it stands at 115°, at position 26 at 149°" in clock
    product_ = SinusoidExplorer().products()[L - 1 + 6].item()
    assert f"16 at distance 0, {product_:.2f} at distance 6" in curve
    assert math.isclose(product_, 11.89, abs_tol=0.01)
    assert "stands still" in curve
    assert figure.locator("output.rp-readout[aria-live=polite]").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    page = open_figures(
        SinusoidExplorer(),
        SinusoidExplorer(along="position", offset=-40, base=2),
        theme=theme,
    )
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    page = open_figures(
        SinusoidExplorer(offset=-63, base=1_000_000),
        SinusoidExplorer(length=128, width=2, along="position", dimension=0),
    )
    assert_nothing_overflows(page, [280, 320, 480, 1100])


# Lasting


def test_copies_move_together_and_others_stay(open_figures):
    page = open_figures(SinusoidExplorer(), SinusoidExplorer(position=3), copies=2)
    first, second, third, _ = page.locator(".rp-figure").all()
    move_slider(first, "Position", 33)
    assert_told(second, SinusoidExplorer(position=33))
    assert_told(third, SinusoidExplorer(position=3))


def test_nothing_grows(open_figures):
    page = open_figures(SinusoidExplorer())
    figure = page.locator(".rp-figure")

    def play(rounds):
        for label, count in (("Position", 64), ("Offset", 64), ("Base", 7)):
            play_slider(figure, label, [*(k % count for k in range(rounds)), 2])

    assert_nothing_grows(page, play, 70, 1000 // 3)
