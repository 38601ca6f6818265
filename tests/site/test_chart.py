"""Line charts: their arithmetic, gaps, and points that the reader moves."""

import math
from itertools import pairwise

import pytest

TICKS = "async ([address, ...of]) => (await import(address)).roundTicks(...of)"
CHART = """async ([address, chart, options]) => {
  const { lineChart } = await import(address);
  window.moved = [];
  const line = lineChart({
    name: "Test", xLabel: "offset", yLabel: "bias",
    onPoint: (...at) => window.moved.push(["point", ...at]),
    ...(options.draggable && {
      draggable: (...to) => {
        window.moved.push(["drag", ...to]);
        chart.lines[0].values[to[0]] = to[1];
        line.draw(chart);
      },
    }),
  });
  const values = (all) => all.map((value) => value ?? NaN);
  for (const one of chart.lines) one.values = values(one.values);
  const host = document.createElement("div");
  host.style.cssText = "width: 600px; font-size: 16px";
  host.append(line.node);
  const area = line.node.querySelector(".rp-chart-area");
  area.style.cssText = "position: relative; height: 200px; width: 400px";
  for (const part of area.querySelectorAll("svg, .rp-chart-handle"))
    part.style.cssText = "position: absolute; inset: 0; width: 100%; height: 100%";
  document.body.append(host);
  line.draw(chart);
}"""


@pytest.fixture
def chart(blank_page, module):
    """Show a chart and return its handle."""

    def chart(draggable=False, **of):
        module("chart.js", CHART, {"alt": "a chart"} | of, {"draggable": draggable})
        return blank_page.locator(".rp-chart-handle")

    return chart


@pytest.mark.parametrize(
    ("low", "high", "options", "expected"),
    [
        (0, 1, {}, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-2, 2, {}, [-2, -1, 0, 1, 2]),
        (-63, 63, {"whole": True}, [-60, -40, -20, 0, 20, 40, 60]),
        (0, 3, {"whole": True}, [0, 1, 2, 3]),
        (0, 0, {"whole": True}, [0]),
        (-0.003, 0.001, {}, [-0.003, -0.002, -0.001, 0, 0.001]),
        (0, 1e6, {}, [0, 2e5, 4e5, 6e5, 8e5, 1e6]),
    ],
)
def test_ticks(module, low, high, options, expected):
    found = module("chart.js", TICKS, low, high, options)
    assert [tick for tick, _ in found] == pytest.approx(expected)
    texts = [text.replace("\N{MINUS SIGN}", "-") for _, text in found]
    assert [float(text) for text in texts] == pytest.approx(expected)


def test_ticks_are_few_and_inside(module):
    script = """async ([address, cases]) => {
      const { roundTicks } = await import(address);
      return cases.map(([a, b]) => roundTicks(a, b).map(([tick]) => tick));
    }"""
    cases = [
        (low * 10**power, (low + span) * 10**power)
        for power in range(-6, 7)
        for low in (-7.3, -1, 0, 0.2, 12)
        for span in (0.31, 1, 2.7, 9.99)
    ]
    for (low, high), ticks in zip(
        cases, module("chart.js", script, cases), strict=True
    ):
        slack = 1e-6 * (high - low)
        assert 2 <= len(ticks) <= 7, (low, high)
        assert ticks[0] >= low - slack, (low, high)
        assert ticks[-1] <= high + slack, (low, high)
        steps = [b - a for a, b in pairwise(ticks)]
        assert max(steps) == pytest.approx(min(steps))


def paths(page, part):
    return page.locator(f".rp-chart-{part}").evaluate_all(
        "ns => ns.filter((n) => n.closest('.rp-chart-line'))"
        ".map((n) => n.getAttribute('d'))"
    )


def test_a_number_that_is_missing_leaves_a_gap(blank_page, chart):
    values = [0, None, 1, 1, None]
    lines = [{"label": "a", "values": values, "low": values, "high": values}]
    chart(x=[1, 2, 4, 8, 16], xLog=True, lines=lines, yRange=[0, 1])
    [stroke], [dots], [band] = (
        paths(blank_page, part) for part in ("stroke", "dots", "band")
    )
    assert stroke == "M25.0 1000.0M500.0 0.0L737.5 0.0"
    assert dots.count("M") == 3
    assert band.count("Z") == 2


def test_lines_come_and_go(blank_page, chart):
    line = {"label": "a", "values": [0, 1]}
    hidden = line | {"shown": False}
    chart(x=[0, 1], lines=[line, hidden, line], yRange=[0, 1])
    shown = blank_page.locator(".rp-chart-line").evaluate_all(
        "ns => ns.map((n) => n.getAttribute('display'))"
    )
    assert shown == ["inline", "none", "inline"]


def test_reading_by_keyboard_and_pointer(blank_page, chart):
    lines = [{"label": "a", "values": [0, 0.5, 1]}, {"label": "b", "values": [1, 1, 0]}]
    handle = chart(x=[-1, 0, 1], lines=lines, yRange=[0, 1])
    handle.focus()
    handle.press("ArrowRight")
    handle.press("ArrowUp")
    assert handle.get_attribute("aria-valuetext") == "offset 0, b: 1.000"
    assert handle.get_attribute("aria-valuenow") == "0"
    box = handle.bounding_box()
    blank_page.mouse.move(box["x"] + 10, box["y"] + box["height"] - 5)
    expected = "offset \N{MINUS SIGN}1, a: 0.000"
    assert handle.get_attribute("aria-valuetext") == expected
    moved = blank_page.evaluate("window.moved")
    assert moved == [["point", 0, 0], ["point", 1, 0], ["point", 1, 1], ["point", 0, 0]]


def test_points_moved_by_keyboard(blank_page, chart):
    lines = [{"label": "a", "values": [0.0, 0.0, 0.0]}]
    handle = chart(draggable=True, x=[-1, 0, 1], lines=lines, yRange=[-2, 2])
    handle.focus()
    handle.press("ArrowRight")
    handle.press("ArrowUp")
    step = float(handle.get_attribute("aria-valuenow"))
    assert step == pytest.approx(0.04)
    handle.press("PageUp")
    assert float(handle.get_attribute("aria-valuenow")) == pytest.approx(11 * step)
    handle.press("ArrowDown")
    assert float(handle.get_attribute("aria-valuenow")) == pytest.approx(10 * step)
    for _ in range(9):
        handle.press("PageDown")
    assert handle.get_attribute("aria-valuenow") == "-2"
    drags = [of for of in blank_page.evaluate("window.moved") if of[0] == "drag"]
    assert {of[1] for of in drags} == {1}


def test_points_moved_by_drawing_over_them(blank_page, chart):
    """None that lies between two places of the pointer is left out."""
    count = 21
    lines = [{"label": "a", "values": [0.0] * count}]
    handle = chart(draggable=True, x=list(range(count)), lines=lines, yRange=[-1, 1])
    box = handle.bounding_box()

    def place(index, value):
        share = 0.025 + 0.95 * index / (count - 1)
        return box["x"] + share * box["width"], box["y"] + (1 - value) / 2 * box[
            "height"
        ]

    blank_page.mouse.move(*place(2, 0.5))
    assert blank_page.evaluate("window.moved.filter(([kind]) => kind === 'drag')") == []
    blank_page.mouse.down()
    blank_page.mouse.move(*place(18, -0.5))
    blank_page.mouse.up()
    blank_page.mouse.move(*place(5, 1))
    drags = [of for of in blank_page.evaluate("window.moved") if of[0] == "drag"]
    assert [of[1] for of in drags] == [2, *range(3, 19)]
    assert drags[0][2] == pytest.approx(0.5, abs=0.02)
    assert drags[-1][2] == pytest.approx(-0.5, abs=0.02)
    assert all(math.isfinite(of[2]) for of in drags)
    assert [of[3] for of in drags[1:]] == [True] * 15 + [False]
