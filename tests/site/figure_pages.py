"""Pages with live figures, and what is read from them."""

from __future__ import annotations

import io
import json
import re
from contextlib import contextmanager
from itertools import count, pairwise

import matplotlib.image as images
import numpy as np
from axe_playwright_python.sync_playwright import Axe
from ipywidgets.embed import dependency_state, escape_script

from relpos_lib.palette import DIVERGING, SEQUENTIAL

# Pages that the test server has in memory, by path.
PAGES: dict[str, bytes] = {}
page_numbers = count()
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
# Arguments and answer travel as JSON: many numbers do so in a tenth of the time.
AS_JSON = """async (...given) => {
  const argument = JSON.parse(given.pop());
  const strange = (x) => typeof x === "number" && !Number.isFinite(x);
  return JSON.stringify(
    (await (SCRIPT)(...given, argument)) ?? null,
    (_, x) => (strange(x) ? { number: String(x) } : x),
  );
}"""
# A model with these traits, for a script; lists of numbers stand for bytes.
MODEL = """((traits) => ({
  get: (name) => Array.isArray(traits[name])
    ? new DataView(Float32Array.from(traits[name]).buffer)
    : traits[name],
}))"""
# Colours of all cells, null where masked, of an SVG or of a canvas.
DRAWN = """(node) => {
  const cells = node.querySelector(".rp-cells");
  if (cells.tagName === "svg") {
    const found = Array(cells.querySelectorAll("rect").length);
    for (const rect of cells.querySelectorAll("rect")) {
      const fill = rect.getAttribute("fill");
      const at = rect.y.baseVal.value * cells.viewBox.baseVal.width;
      found[at + rect.x.baseVal.value] =
        fill === "none" ? null : fill.match(/\\d+/g).map(Number);
    }
    return found;
  }
  // Only the corner that the box leaves visible.
  const canvas = cells.querySelector("canvas");
  const [width, height] = ["width", "height"].map((side) =>
    Math.round((100 * canvas[side]) / parseFloat(canvas.style[side])));
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  return Array.from({ length: width * height }, (_, k) =>
    data[4 * k + 3] ? [...data.slice(4 * k, 4 * k + 3)] : null);
}"""


def evaluate(target, script, argument=None):
    """What page or node answer to a script; infinite numbers and NaN come back too."""

    def number_or_object(found):
        return float(found["number"]) if found.keys() == {"number"} else found

    sent = json.dumps(argument, allow_nan=False)
    answer = target.evaluate(AS_JSON.replace("SCRIPT", script), sent)
    return json.loads(answer, object_hook=number_or_object)


def content_of(figure):
    """Traits that the content scores of a figure are computed from, for MODEL."""
    sizes = ("num_heads", "query_length", "key_length", "head_width", "table_distance")
    return {name: getattr(figure, name) for name in sizes} | {
        name: np.frombuffer(getattr(figure, name), "<f4").tolist()
        for name in ("_query", "_key")
    }


def html_of(widgets, copies=1, theme="light"):
    """A page as the book's build makes it: views with pictures, state, host script."""
    saved = dependency_state(list(widgets), drop_defaults=False)
    state = json.dumps({"version_major": 2, "version_minor": 0, "state": saved})
    views = "".join(
        '<div class="live-figure"><script type="application/vnd.jupyter.widget-view'
        f'+json">{json.dumps({"model_id": widget.model_id})}</script>'
        f'<img alt="static picture" src="{PIXEL}"></div>'
        for widget in widgets
        for _ in range(copies)
    )
    return f"""<!doctype html><html lang="en" data-theme="{theme}"><head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Figures</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/source/book/_static/tokens.css">
<script type="module" src="/source/book/_static/figures.js"></script></head>
<body style="margin: 0"><main><h1>Figures</h1>{views}</main>
<script type="application/vnd.jupyter.widget-state+json">{escape_script(state)}</script>
</body></html>"""


def serve(server_url, html):
    """Let the test server answer with this page, once; returns its address."""
    path = f"/page-{next(page_numbers)}.html"
    PAGES[path] = html.encode()
    return server_url + path


def show(page, server_url, html, figures):
    """Open a page of this text and wait until so many figures stand on it."""
    page.goto(serve(server_url, html))
    page.wait_for_function(
        "n => document.querySelectorAll('.rp-figure').length === n", arg=figures
    )


def drawn(node):
    """Colours of the cells of one matrix: (cells, 3), NaN where masked."""
    colours = evaluate(node, DRAWN)
    return np.array([[np.nan] * 3 if c is None else c for c in colours], dtype=float)


def colours_of(values, low, high):
    """Colours of values on a scale; with a negative low end it is a signed one."""
    stops = (DIVERGING if low < 0 else SEQUENTIAL).split(",")
    rgb = np.array([[int(stop[k : k + 2], 16) for k in (0, 2, 4)] for stop in stops])
    at = (np.asarray(values, dtype=float).ravel() - low) / (high - low)
    at = at * (len(stops) - 1)
    known = np.arange(len(stops))
    return np.stack([np.interp(at, known, rgb[:, c]) for c in range(3)], axis=1)


def assert_colours(node, values, low, high):
    """The drawing shows the values (NaN: masked), to one step of 255."""
    expected = colours_of(values, low, high)
    expected[np.isnan(np.asarray(values, dtype=float).ravel())] = np.nan
    found = drawn(node)
    np.testing.assert_allclose(found, expected, atol=1.01, equal_nan=True)


def slider_of(figure, label):
    """The slider with this label."""
    return figure.get_by_role("slider", name=label)


def move_slider(figure, label, value):
    """Set a slider as a browser does when it is dragged there."""
    play_slider(figure, label, [value])


def readout(figure):
    """Named numbers of the readout, as text with plain minus signs."""
    fields = figure.locator(".rp-readout [data-field]").evaluate_all(
        "ns => ns.map((n) => [n.dataset.field, n.textContent])"
    )
    return {name: text.replace("\N{MINUS SIGN}", "-") for name, text in fields}


def number(text):
    """The first number in a text."""
    return float(re.search(r"-?\d+(\.\d+)?", text).group())


def pixels_of_cells(figure, queries, keys, columns=None):
    """What is seen in the middle of each cell: (queries * keys, 3).

    Columns to look at may lie beside the cells.
    """
    columns = np.arange(keys) if columns is None else np.asarray(columns)
    box = figure.get_by_role("grid").bounding_box()
    picture = images.imread(io.BytesIO(figure.page.screenshot(full_page=True)))
    y = box["y"] + (np.arange(queries) + 0.5) * box["height"] / queries
    x = box["x"] + (columns + 0.5) * box["width"] / keys
    seen = picture[y.astype(int)[:, None], x.astype(int)[None, :], :3]
    return 255 * seen.reshape(-1, 3)


def hover_cell(figure, i, j, queries, keys, panel=0):
    """Point at the middle of a cell."""
    grid = figure.get_by_role("grid").nth(panel)
    box = grid.bounding_box()
    x = (j + 0.5) * box["width"] / keys
    y = (i + 0.5) * box["height"] / queries
    grid.hover(position={"x": x, "y": y})


def sticking_out(figure):
    """Parts of a figure that reach out of it, or far into its padding.

    A number on an axis stands half beside its cell, so a little is allowed.
    """
    return figure.evaluate("""(figure) => {
      const { left, right } = figure.getBoundingClientRect();
      const most = right - parseFloat(getComputedStyle(figure).paddingRight) / 2;
      return [...figure.querySelectorAll("*")]
        .map((node) => [node.outerHTML.slice(0, 99), node.getBoundingClientRect()])
        .filter(([, box]) => box.width && (box.left < left || box.right > most))
        .map(([start]) => start);
    }""")


def assert_nothing_overflows(page, widths):
    """At every width the page fits its window, and nothing sticks out of a figure."""
    figures = page.locator(".rp-figure").all()
    assert figures
    for width in widths:
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        for figure in figures:
            assert sticking_out(figure) == [], f"at {width} pixels"


def assert_numbers_stand_apart(figure):
    """The numbers at the x axis of a chart can be told apart."""
    places = figure.locator(".rp-chart-x > *").evaluate_all(
        """numbers => numbers.map(number => {
             const { left, right } = number.getBoundingClientRect();
             return [left, right];
           })"""
    )
    assert len(places) > 1
    for (_, end), (start, _) in pairwise(sorted(places)):
        assert start - end >= 4  # pixels


def assert_unique_ids(page):
    """No id stands on the page twice."""
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((n) => n.id)")
    assert ids
    assert len(ids) == len(set(ids))


def tab_stops(page, count, then=None):
    """Role or type of each element that Tab leads to; all show that they have focus.

    Where the element itself is not seen, the next one may show it. A key ``then`` is
    pressed at every stop.
    """
    stops = []
    for _ in range(count):
        page.keyboard.press("Tab")
        if then:
            page.keyboard.press(then)
        stop, has_ring = page.evaluate("""() => {
          const { activeElement: node } = document;
          const ring = (n) => n && getComputedStyle(n).outlineStyle === "solid";
          const name = node.getAttribute("role") ?? node.type;
          return [name, ring(node) || ring(node.nextElementSibling)];
        }""")
        assert has_ring, f"no visible focus at stop {len(stops)}"
        stops.append(stop)
    return stops


def axe_findings(page):
    """What axe finds wrong with the page: rule and first node of each violation."""
    violations = Axe().run(page).response["violations"]
    return [(found["id"], found["nodes"][0]["html"]) for found in violations]


@contextmanager
def cdp_session(page):
    """Chromium's own protocol, for a while."""
    session = page.context.new_cdp_session(page)
    yield session
    session.detach()


def assert_nothing_grows(page, play, few, many):
    """After many rounds there are no more elements, nodes and listeners than after few.

    ``play(rounds)`` uses a figure for so many rounds and brings it back to one state.
    """

    def count(session):
        for _ in range(3):  # what a page before held goes in more than one step
            session.send("HeapProfiler.collectGarbage")
        found = session.send("Memory.getDOMCounters")
        elements = page.evaluate("document.getElementsByTagName('*').length")
        return elements, found["nodes"], found["jsEventListeners"]

    with cdp_session(page) as session:
        play(few)
        before = count(session)
        play(many)
        after = count(session)
    elements, nodes, listeners = (
        now - then for now, then in zip(after, before, strict=True)
    )
    assert elements == listeners == 0
    assert abs(nodes) <= 50, (before, after)


def play_slider(figure, label, values):
    """Move a slider to one value after the other, without a pause."""
    slider_of(figure, label).evaluate(
        """(node, values) => values.forEach((value) => {
          node.value = value;
          node.dispatchEvent(new Event("input"));
        })""",
        list(values),
    )
