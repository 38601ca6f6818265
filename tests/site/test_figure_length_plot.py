"""The length plot in a browser: numbers, drawing, controls, reading, lasting."""

import numpy as np
import pytest
from figure_pages import (
    assert_nothing_grows,
    assert_nothing_overflows,
    assert_numbers_stand_apart,
    axe_findings,
    readout,
)

from relpos_lib.experiments.spread import spread
from relpos_lib.explorers import LengthPlotExplorer

LENGTHS = (16, 32, 48, 64, 128, 256, 512, 1024)
SETTINGS = 15
RANKING = """async ([address, lines, points]) => {
  const { rankingAt, withGaps } = await import(address);
  const kept = lines.map((line) => ({ values: withGaps(line) }));
  return points.map((point) => rankingAt(kept, point));
}"""


def summary(metric="accuracy", settings=SETTINGS, seed=0):
    """Made-up results; every fourth setting lacks the greatest length."""
    rng = np.random.default_rng(seed)
    groups = {}
    for k in range(settings):
        lengths = LENGTHS[: -1 if k % 4 == 3 else None]
        means = [(k + 1) / settings * (16 / n) ** (0.5 - k / 40) for n in lengths]
        each = np.clip(np.array(means)[:, None] + rng.normal(0, 0.02, (1, 5)), 0, 1)
        groups[f"setting-{k}"] = {
            "label": f"setting {k} <b>",
            metric: {
                str(n): spread(row.tolist())
                for n, row in zip(lengths, each, strict=True)
            },
        }
    return {"common": {"longest": 32}, "groups": groups}


def explorer(**options):
    return LengthPlotExplorer.from_results(summary(), **options)


def points_of(figure, part):
    """Lengths and values that the shown lines, or their bands, are drawn at."""
    found = figure.locator(".rp-chart-box").evaluate(
        """(box, part) => [...box.querySelectorAll(".rp-chart-line")]
          .map((line) => line.getAttribute("display") === "none" ? null :
            [...line.querySelector(`.rp-chart-${part}`).getAttribute("d")
              .matchAll(/(-?[\\d.]+) (-?[\\d.]+)/g)]
              .map(([, x, y]) => [Number(x), Number(y)]))""",
        part,
    )

    def numbers(x, y):
        share = (x / 1000 - 0.025) / 0.95
        return 16 * (1024 / 16) ** share, 1 - y / 1000

    return [line and [numbers(*point) for point in line] for line in found]


def row(figure, k):
    return figure.locator(".rp-length-row").nth(k)


def handle_of(figure):
    return figure.locator(".rp-chart-handle")


def test_ranking(module):
    one = explorer()
    lines = [line["mean"] for line in one.get_state()["_data"]["lines"]]
    found = module("length_plot_math.js", RANKING, lines, list(range(len(LENGTHS))))
    for length, ranking in zip(LENGTHS, found, strict=True):
        values = {k: of[length] for k, of in enumerate(one.values().values())
                  if length in of}  # fmt: skip
        assert ranking == sorted(values, key=lambda k: -values[k])


# Drawing


@pytest.mark.parametrize("shown", [None, [], ["setting-0", "setting-3", "setting-14"]])
def test_drawing(open_figure, shown):
    one = explorer(shown=shown)
    figure = open_figure(one)
    lines, bands = points_of(figure, "stroke"), points_of(figure, "band")
    for name, line, band in zip(one.names, lines, bands, strict=True):
        if name not in one.shown:
            assert line is None
            continue
        expected = one.values()[name]
        assert len(line) == len(expected)
        for (x, y), (length, mean) in zip(line, expected.items(), strict=True):
            assert x == pytest.approx(length, rel=2e-3)
            assert y == pytest.approx(mean, abs=2e-3)
        numbers = one._lines[name]
        highs = [of["high"] for of in numbers.values()]
        lows = [of["low"] for of in numbers.values()]
        edge = [y for _, y in band]
        assert edge == pytest.approx([*highs, *reversed(lows)], abs=2e-3)


def test_lines_differ_in_colour_or_dashes(open_figure):
    figure = open_figure(explorer())
    looks = figure.locator(".rp-chart-line .rp-chart-stroke").evaluate_all("""(ns) =>
      ns.map((n) => getComputedStyle(n))
        .map(({ stroke, strokeDasharray }) => stroke + strokeDasharray)""")
    lines = looks[:SETTINGS]
    assert len(set(lines)) == SETTINGS
    assert sorted(looks[SETTINGS:]) == sorted(lines)  # pieces of them in the legend


def test_the_training_length_is_marked(open_figure):
    figure = open_figure(explorer())
    mark = figure.locator(".rp-chart-marks span")
    assert mark.inner_text() == "trained up to here"
    share = 0.025 + 0.95 / 6
    left = mark.evaluate("(n) => parseFloat(n.style.left)")
    assert left == pytest.approx(100 * share, abs=1e-3)


# Controls


def test_lines_are_toggled_by_mouse_and_by_keyboard(open_figure):
    figure = open_figure(explorer(shown=["setting-1"]))

    def shown():
        return [k for k, line in enumerate(points_of(figure, "stroke")) if line]

    boxes = figure.locator(".rp-length-row input")
    assert shown() == [1]
    boxes.nth(5).click()
    boxes.nth(1).press("Space")
    assert shown() == [5]
    figure.get_by_role("button", name="Show all").click()
    assert shown() == list(range(SETTINGS))
    assert boxes.nth(14).is_checked()
    figure.get_by_role("button", name="Hide all").press("Enter")
    assert shown() == []
    assert figure.get_by_role("checkbox", checked=True).count() == 1  # the spread's
    assert row(figure, 2).locator("b").inner_text() == ""


def test_the_spread_is_toggled(open_figure):
    figure = open_figure(explorer())
    figure.get_by_label("Spread over seeds").uncheck()
    assert not any(points_of(figure, "band"))
    figure.get_by_label("Spread over seeds").check()
    assert all(points_of(figure, "band"))


# Reading


def assert_numbers(figure, one, length):
    """Every row says its line's numbers at the length."""
    assert f"at length {length}" in figure.locator("legend").inner_text()
    for k, name in enumerate(one.names):
        numbers = one._lines[name].get(length)
        found = row(figure, k).locator("b").text_content()
        ends = row(figure, k).locator(":scope > span").text_content()
        if numbers is None or name not in one.shown:
            assert (found, ends) == ("", "")
        else:
            assert float(found) == pytest.approx(numbers["mean"], abs=6e-4)
            low, high = map(float, ends.split("\N{EN DASH}"))
            assert low == pytest.approx(numbers["low"], abs=6e-4)
            assert high == pytest.approx(numbers["high"], abs=6e-4)


def point_at(one, figure, k, length):
    """Where the point of a line lies inside the chart, in pixels."""
    box = handle_of(figure).bounding_box()
    share = np.log2(length / 16) / 6
    value = one._lines[one.names[k]][length]["mean"]
    x = box["width"] * (0.025 + 0.95 * share)
    return {"x": x, "y": box["height"] * (1 - value)}


def test_hover_reads_a_length_and_the_nearest_line(open_figure):
    one = explorer()
    figure = open_figure(one)
    assert_numbers(figure, one, 32)
    for k, length in ((14, 128), (2, 64), (0, 1024), (3, 512)):
        handle_of(figure).hover(position=point_at(one, figure, k, length))
        assert_numbers(figure, one, length)
        found = readout(figure)
        assert found["length"] == str(length)
        assert found["line"] == f"setting {k} <b>"
        mean = one._lines[one.names[k]][length]["mean"]
        assert float(found["mean"]) == pytest.approx(mean, abs=6e-4)
        assert figure.locator(".rp-length-on").inner_text().startswith(f"setting {k} ")


def test_touch_reads_a_length(open_figures):
    one = explorer()
    page = open_figures(one, has_touch=True, viewport={"width": 320, "height": 700})
    figure = page.locator(".rp-figure")
    box, at = handle_of(figure).bounding_box(), point_at(one, figure, 7, 256)
    page.touchscreen.tap(box["x"] + at["x"], box["y"] + at["y"])
    assert_numbers(figure, one, 256)


def test_keyboard_reads_lengths_and_lines(open_figure):
    one = explorer()
    figure = open_figure(one)
    handle = handle_of(figure)
    handle.focus()
    for key, length in (("Home", 16), ("ArrowRight", 32), ("End", 1024),
                        ("ArrowLeft", 512), ("ArrowRight", 1024)):  # fmt: skip
        handle.press(key)
        assert_numbers(figure, one, length)
    ends = {k: of[1024]["mean"] for k, of in enumerate(one._lines.values())
            if 1024 in of}  # fmt: skip
    order = sorted(ends, key=ends.get)
    at = order.index(int(readout(figure)["line"].split()[1]))
    for key, step in (("ArrowUp", 1), ("ArrowUp", 1), ("PageUp", 5), ("ArrowDown", -1)):
        handle.press(key)
        at = max(0, min(len(order) - 1, at + step))
        assert readout(figure)["line"] == f"setting {order[at]} <b>"
        text = handle.get_attribute("aria-valuetext")
        assert text == (
            f"length L 1024, setting {order[at]} <b>: {ends[order[at]]:.3f}"
        )


def test_pointing_at_a_row_marks_its_line(open_figure):
    figure = open_figure(explorer())
    row(figure, 9).hover()
    assert readout(figure)["line"] == "setting 9 <b>"
    marked = figure.locator(".rp-chart-line").evaluate_all(
        "ns => ns.map((n) => n.classList.contains('rp-chart-on')).indexOf(true)"
    )
    assert marked == 9


def test_markup_in_a_label_is_text(open_figure):
    figure = open_figure(explorer())
    assert "setting 4 <b>" in row(figure, 4).inner_text()
    assert figure.locator("label b").count() == 0


# For everybody


def test_the_text_alternative_follows_the_lines(open_figure):
    figure = open_figure(explorer())
    figure.get_by_role("button", name="Hide all").click()
    for k in (0, 3, 14):
        row(figure, k).locator("input").check()
    alt = figure.locator(".rp-chart-area > svg").get_attribute("aria-label")
    ends = {k: explorer()._lines[f"setting-{k}"][1024]["mean"] for k in (0, 14)}
    assert alt == (
        "share of right answers by length from 16 to 1024 for 3 settings, trained up "
        "to length 32. At length 1024, from high to low: "
        f"setting 14 <b> {ends[14]:.2f}, setting 0 <b> {ends[0]:.2f}."
    )
    assert figure.locator("output.rp-readout[aria-live=polite]").count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    perplexity = LengthPlotExplorer.from_results(summary("sliding"), "sliding")
    page = open_figures(explorer(), perplexity, explorer(shown=[]), theme=theme)
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    page = open_figures(explorer())
    assert_nothing_overflows(page, [280, 320, 480, 760, 1100])


def test_numbers_of_the_lengths_stand_apart_on_a_phone(open_figure):
    figure = open_figure(explorer(), viewport={"width": 280, "height": 700})
    assert_numbers_stand_apart(figure)


# Lasting


def test_copies_move_together_and_others_stay(open_figures):
    page = open_figures(explorer(), explorer(), copies=2)
    first, second, third, _ = page.locator(".rp-figure").all()
    row(first, 6).locator("input").uncheck()
    assert points_of(second, "stroke")[6] is None
    assert all(points_of(third, "stroke"))


def test_nothing_grows(open_figures):
    page = open_figures(explorer())
    figure = page.locator(".rp-figure")

    def play(steps):
        figure.evaluate(
            """(figure, steps) => {
              const boxes = [...figure.querySelectorAll(".rp-length-row input")];
              for (let k = 0; k < steps; k++) {
                boxes[k % boxes.length].click();
                figure.getBoundingClientRect();
              }
            }""",
            steps,
        )

    few, many = 4 * SETTINGS, 68 * SETTINGS
    assert_nothing_grows(page, play, few, many)
