"""Near and far explorer in a browser: its arithmetic, drawing and handling."""

from itertools import product

import numpy as np
import pytest
from figure_pages import (
    assert_nothing_grows,
    assert_nothing_overflows,
    assert_unique_ids,
    axe_findings,
    colours_of,
    evaluate,
    hover_cell,
    move_slider,
    play_slider,
    readout,
    slider_of,
    tab_stops,
)

from relpos_lib.explorers import NearFarExplorer
from relpos_lib.explorers.near_far import with_prefix
from relpos_lib.plots.fast import quadtree_regions

CANVAS = 768
# What the sliders step through.
POWERS = [2**n for n in range(14)]
STEPS = sorted({int(k * p) for k, p in product((1, 1.5), POWERS) if k * p % 1 == 0})
LENGTHS = [step for step in STEPS if 8 <= step <= 8192]
DISTANCES = [step for step in STEPS if step <= 1024]
TILES = [step for step in STEPS if step <= 512]
SLIDERS = {
    "length": ("Length", LENGTHS),
    "max_distance": ("Maximum distance", DISTANCES),
    "leaf": ("Smallest tile", TILES),
}
WIDTHS = (280, 320, 480, 700, 1100)
WIDTHS = (280, 320, 480, 700, 1100)
SMALL = {"length": 64, "max_distance": 4, "leaf": 8}

NUMBERS = """async ([address, H, D, atOnce, cases, weights]) => {
  const { costsOf, countsOf, divisionOf } = await import(address);
  const of = ([length, maxDistance, leaf, causal]) => {
    const division = divisionOf({ length, maxDistance, leaf, causal });
    const { rectangles, tiles } = division;
    const { nearPairs } = countsOf(division);
    const found = [nearPairs];
    for (const one of rectangles)
      found.push(+one.isPast, +one.isFirst, one.firstQuery, one.queries,
        one.firstKey, one.keys, one.number, one.step);
    for (const one of tiles)
      found.push(one.firstQuery, one.queries, one.firstKey, one.start, one.stop,
        one.number);
    for (const cost of Object.values(costsOf(division, { H, D, atOnce })))
      found.push(cost.multiplications, cost.bytes);
    return found;
  };
  const sum = (found) =>
    found.reduce((so, x, k) => so + weights[k % weights.length] * x, 0);
  return cases.map((one) => weights.length ? sum(of(one)) : of(one));
}"""
# Of many cases a sum is compared, exact in 53 bits, with a weight for each number.
WEIGHTS = [7919 * k % 10007 + 1 for k in range(512)]


def explorer_for(case, explorer):
    """The explorer with its four controls at a case."""
    names = ("length", "max_distance", "leaf", "causal")
    for name, value in zip(names, case, strict=True):
        setattr(explorer, name, value)
    return explorer


def numbers_of(explorer):
    """Every number of a division and its costs, in one list."""
    rectangles, tiles = explorer.rectangles(), explorer.tiles()
    lengths = explorer.length
    near = round(explorer.near_share() * lengths**2)
    found = [near]
    for one in (*rectangles, *tiles):
        found.extend(int(number) for number in one)
    for cost in explorer.costs().values():
        found.extend(cost)
    return found


def compare(module, cases, weights=()):
    """Browser and library, case by case."""
    explorer = NearFarExplorer(num_heads=3, head_width=5)
    about = [explorer.num_heads, explorer.head_width, explorer._at_once]
    answers = module("near_far_math.js", NUMBERS, *about, cases, list(weights))
    for case, found in zip(cases, answers, strict=True):
        expected = numbers_of(explorer_for(case, explorer))
        if weights:
            expected = sum(
                weights[k % len(weights)] * x for k, x in enumerate(expected)
            )
        assert found == expected, case


# Arithmetic


def test_divisions_at_all_steps_of_two_sliders(module):
    pairs = set(product(LENGTHS, DISTANCES, (128,)))
    pairs |= set(product(LENGTHS, (16,), TILES))
    pairs |= set(product((1024,), DISTANCES, TILES))
    pairs |= set(product((8, 8192), (1, 1024), (1, 512)))
    compare(module, [(*pair, causal) for pair in pairs for causal in (False, True)])


@pytest.mark.parametrize(
    "cases",
    [
        [(n, 16, 128, n % 2 == 0) for n in range(8, 8193)],
        [(n, 5, 9, n % 3 == 0) for n in range(8, 400)],
        [(777, n, 32, causal) for n in range(1, 1025) for causal in (False, True)],
        [(777, 5, n, causal) for n in range(1, 513) for causal in (False, True)],
    ],
    ids=["length", "odd tiles", "distance", "tile"],
)
def test_divisions_over_the_full_range_of_a_control(module, cases):
    compare(module, cases, WEIGHTS)


def test_steps_of_the_sliders(module):
    script = "async ([address, a, b]) => (await import(address)).roundSteps(a, b)"
    for low, high, steps in ((8, 8192, LENGTHS), (1, 1024, DISTANCES), (1, 512, TILES)):
        assert module("near_far_math.js", script, low, high) == steps


def test_every_pair_belongs_to_the_part_that_covers_it(module):
    script = """async ([address, length, maxDistance, leaf, causal]) => {
      const { divisionOf, partAt } = await import(address);
      const division = divisionOf({ length, maxDistance, leaf, causal });
      const all = [];
      for (let i = 0; i < length; i++)
        for (let j = 0; j < length; j++) {
          const found = partAt(division, i, j);
          all.push(found && [found.area.isFar, found.firstQuery, found.area.queries,
            found.firstKey, found.area.keys]);
        }
      return all;
    }"""
    for case in ((53, 3, 5, False), (53, 3, 5, True), (40, 1, 1, False), (9, 99, 2, 1)):
        *sizes, causal = case
        answers = module("near_far_math.js", script, *sizes, bool(causal))
        explorer = explorer_for((*sizes, bool(causal)), NearFarExplorer())
        for at, found in enumerate(answers):
            part = part_of(explorer, *divmod(at, explorer.length))
            assert found == (None if part is None else list(part)), (case, at)


def test_numbers_with_prefixes(module):
    numbers = [0, 7, 999, 999.4, 1000, 9994, 9996, 99_949, 999_499, 999_500, 4.4e12]
    script = "async ([address, at]) => at.map((await import(address)).withPrefix)"
    found = module("near_far_math.js", script, numbers)
    assert found == [with_prefix(number) for number in numbers]


# Drawing


def part_of(explorer, i, j):
    """The rectangle or tile that a pair belongs to; None if it is never computed."""
    for one in quadtree_regions(explorer.lengths()):
        rows = range(one.first_query, one.first_query + one.queries)
        columns = range(one.first_key, one.first_key + one.keys)
        if i in rows and j in columns:
            return one
    return None


def shades_in(explorer):
    """Colour of far rectangles by their queries, of near pairs, and of their tiles."""
    sizes = sorted({one.queries for one in explorer.rectangles()}, reverse=True)
    last = max(1, len(sizes) - 1)
    far = colours_of([0.1 + 0.65 * k / last for k in range(len(sizes))], 0, 1)
    return dict(zip(sizes, far, strict=True)), *colours_of([0.5, 0.25], -1, 1)


def colours_of_pairs(explorer):
    """What is to be seen at every pair, (L, L, 3); NaN where nothing is computed."""
    length, reach = explorer.length, explorer.lengths().max_distance
    far_shades, near_shade, tile_shade = shades_in(explorer)
    seen = np.full((length, length, 3), np.nan)
    for one in quadtree_regions(explorer.lengths()):
        rows = slice(one.first_query, one.first_query + one.queries)
        columns = slice(one.first_key, one.first_key + one.keys)
        seen[rows, columns] = far_shades[one.queries] if one.is_far else tile_shade
    offsets = np.arange(length) - np.arange(length)[:, None]
    near = (abs(offsets) < reach) & ((offsets <= 0) | (not explorer.causal))
    seen[near] = near_shade
    return seen


def painted(figure, length, cells):
    """Colours of the canvas in the middles of cells; NaN where nothing is drawn."""
    points = (np.array(cells)[:, ::-1] + 0.5) * CANVAS / length
    found = evaluate(
        figure.locator("canvas"),
        """(canvas, points) => {
          const { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          return points.map(([x, y]) => {
            const at = 4 * (Math.floor(y) * width + Math.floor(x));
            return data[at + 3] ? [...data.slice(at, at + 3)] : [null, null, null];
          });
        }""",
        points.tolist(),
    )
    return np.array(found, dtype=float)


def set_controls(figure, **wanted):
    for name, value in wanted.items():
        if name == "causal":
            figure.get_by_label("Causal mask").set_checked(value)
        else:
            label, steps = SLIDERS[name]
            move_slider(figure, label, steps.index(value))


@pytest.mark.parametrize(
    ("length", "distance", "leaf", "causal"),
    [
        (64, 4, 8, False),
        (64, 4, 8, True),
        (8, 1, 1, False),
        (96, 12, 6, True),
        (48, 1024, 512, False),
        (128, 1, 1, True),
    ],
)
def test_every_pair_has_the_colour_of_its_part(
    open_figure, length, distance, leaf, causal
):
    """Set through the controls, from another state; Python says what to see."""
    figure = open_figure(NearFarExplorer())
    wanted = {"length": length, "max_distance": distance, "leaf": leaf}
    set_controls(figure, **wanted, causal=causal)
    explorer = NearFarExplorer(**wanted, causal=causal)
    found = painted(figure, length, list(product(range(length), repeat=2)))
    expected = colours_of_pairs(explorer).reshape(-1, 3)
    np.testing.assert_allclose(found, expected, atol=1.01, equal_nan=True)
    assert_table(figure, explorer)
    assert_counts(figure, explorer)


def test_a_long_sequence_is_drawn_whole(open_figure):
    explorer = NearFarExplorer(length=8192, max_distance=128, leaf=256)
    figure = open_figure(explorer)
    far_shades, near_shade, tile_shade = shades_in(explorer)
    cells, expected = [], []
    for one in quadtree_regions(explorer.lengths()):
        rows = [one.first_query + one.queries * k // 4 for k in (1, 2, 3)]
        columns = [one.first_key + one.keys * k // 4 for k in (1, 2, 3)]
        for i, j in product(rows, columns):
            past_edge = abs(j - i) - explorer.max_distance
            if not one.is_far and abs(past_edge) < 20:
                continue  # a pixel shows more than ten pairs
            in_tile = near_shade if past_edge < 0 else tile_shade
            cells.append((i, j))
            expected.append(far_shades[one.queries] if one.is_far else in_tile)
    assert len(cells) > 700
    found = painted(figure, explorer.length, cells)
    np.testing.assert_allclose(found, np.array(expected), atol=1.01)


def assert_table(figure, explorer):
    costs = explorer.costs()
    plain = costs["plain"].multiplications
    rows = figure.locator("tbody tr").evaluate_all("""(rows) => rows.map((row) => [
      [...row.querySelectorAll("td > span")].map((node) => node.textContent),
      [...row.querySelectorAll(".rp-nearfar-bar")]
        .map((bar) => parseFloat(bar.style.width)),
    ])""")
    high = np.ceil(np.log10(4 * explorer.num_heads * explorer.head_width * 8192**2))
    for ((work, memory), bars), cost in zip(rows, costs.values(), strict=True):
        ratio = cost.multiplications / plain
        assert work.startswith(f"{with_prefix(cost.multiplications)} \N{MIDDLE DOT} ")
        assert float(work.split()[-1].rstrip("×")) == pytest.approx(ratio, abs=0.006)
        assert memory == f"{with_prefix(cost.bytes)}B"
        for share, number in zip(bars, cost, strict=True):
            power = max(0, np.log10(max(1, number)) - 3)
            assert share == pytest.approx(100 * power / (high - 3), abs=0.01)


def assert_counts(figure, explorer):
    found = readout(figure)
    assert float(found["near_pairs"].rstrip("%")) == pytest.approx(
        100 * explorer.near_share(), abs=0.051
    )
    assert int(found["tiles"]) == sum(one.number for one in explorer.tiles())
    rectangles = explorer.rectangles()
    assert int(found["calls"]) == len(rectangles)
    assert int(found["rectangles"]) == sum(one.number for one in rectangles)


def test_costs_follow_the_heads_and_their_width(open_figure):
    explorer = NearFarExplorer(length=100, leaf=10, num_heads=3, head_width=40)
    figure = open_figure(explorer)
    assert_table(figure, explorer)
    assert_counts(figure, explorer)
    assert "H = 3, D = 40" in figure.locator(".rp-note").inner_text()


# Controls


def test_slider_dragged_by_mouse(open_figure):
    figure = open_figure(NearFarExplorer(**SMALL))
    slider = slider_of(figure, "Length")
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    mouse = figure.page.mouse
    place = LENGTHS.index(64) / (len(LENGTHS) - 1)
    mouse.move(box["x"] + 8 + place * (box["width"] - 16), middle)
    mouse.down()
    mouse.move(box["x"] + box["width"] - 9, middle, steps=6)
    mouse.up()
    assert figure.locator(".rp-control output").first.inner_text() == "8192"
    assert_table(figure, NearFarExplorer(**SMALL | {"length": 8192}))


def test_slider_moved_by_keyboard(open_figure):
    figure = open_figure(NearFarExplorer(**SMALL))
    slider = slider_of(figure, "Length")
    slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "96"
    assert_table(figure, NearFarExplorer(**SMALL | {"length": 96}))
    slider.press("Home")
    assert_table(figure, NearFarExplorer(**SMALL | {"length": 8}))
    slider.press("End")
    assert_table(figure, NearFarExplorer(**SMALL | {"length": 8192}))


def test_a_length_from_python_stands_between_the_steps(open_figure):
    figure = open_figure(NearFarExplorer(length=1000))
    slider = slider_of(figure, "Length")
    assert slider.get_attribute("aria-valuetext") == "1000"
    assert int(slider.input_value()) == LENGTHS.index(1024)
    slider.press("ArrowLeft")
    assert slider.get_attribute("aria-valuetext") == "768"


def test_whole_figure_by_keyboard(open_figures):
    """Tab reaches each control once and the matrix once, all with a visible ring."""
    page = open_figures(NearFarExplorer(**SMALL))
    assert tab_stops(page, 5) == ["range"] * 3 + ["checkbox", "grid"]
    before = readout(page)
    page.keyboard.press("ArrowUp")
    assert int(readout(page)["i"]) == int(before["i"]) - 1


# Reading pairs


def assert_told(figure, explorer, i, j):
    """The readout, and the outline over the drawing."""
    found, one = readout(figure), part_of(explorer, i, j)
    offset, reach = j - i, explorer.lengths().max_distance
    assert [int(found[name]) for name in ("i", "j", "offset")] == [i, j, offset]
    outline = figure.locator(".rp-nearfar-one").get_attribute("d")
    if one is None:
        assert found["part"] == "hidden by the mask, never computed"
        assert outline == ""
        return
    last_query = one.first_query + one.queries - 1
    last_key = one.first_key + one.keys - 1
    assert found["queries"] == f"{one.first_query}–{last_query}"
    assert found["keys"] == f"{one.first_key}–{last_key}"
    start = f"M{one.first_key} {one.first_query}"
    assert outline == f"{start}h{one.keys}v{one.queries}h-{one.keys}z"
    row = max(-reach, min(reach, offset)) + reach
    hidden = explorer.causal and offset > 0
    assert found["row"] == ("none" if hidden else str(row))
    side = "far, in the past" if offset < 0 else "far, in the future"
    near = "near" if abs(offset) < reach else "far, but in a tile"
    inside = "computed, then hidden" if hidden else near
    assert found["part"] == (side if one.is_far else inside)
    runs = explorer.rectangles() if one.is_far else explorer.tiles()
    alike = int(found["alike"].split()[0])
    assert alike in {run.number for run in runs if run.queries == one.queries}
    assert figure.locator(".rp-nearfar-alike").get_attribute("d").count("M") == alike


@pytest.mark.parametrize("causal", [False, True])
def test_hover_tells_the_part_of_a_pair(open_figure, causal):
    explorer = NearFarExplorer(**SMALL, causal=causal)
    figure = open_figure(explorer)
    for i, j in ((0, 0), (63, 0), (0, 63), (20, 21), (23, 25), (16, 14), (40, 46)):
        hover_cell(figure, i, j, 64, 64)
        assert_told(figure, explorer, i, j)


def test_an_arrow_key_moves_a_visible_way(open_figure):
    explorer = NearFarExplorer(length=8192)
    figure = open_figure(explorer)
    grid = figure.get_by_role("grid")
    hover_cell(figure, 4096, 4096, 8192, 8192)
    before = readout(figure)
    i, j = int(before["i"]), int(before["j"])
    for key, down, right in (("ArrowUp", -1, 0), ("ArrowLeft", 0, -1)):
        grid.press(key)
        i, j = i + 128 * down, j + 128 * right
        assert_told(figure, explorer, i, j)
    grid.press("End")
    assert_told(figure, explorer, i, 8191)
    grid.press("Home")
    assert_told(figure, explorer, i, 0)


def test_the_pair_keeps_its_place_when_the_length_changes(open_figure):
    figure = open_figure(NearFarExplorer(**SMALL))
    hover_cell(figure, 63, 0, 64, 64)
    for length in (8192, 8, 64):
        set_controls(figure, length=length)
        explorer = NearFarExplorer(**SMALL | {"length": length})
        assert_told(figure, explorer, int(63.5 / 64 * length), int(0.5 / 64 * length))


def test_touch_tells_the_part_of_a_pair(open_figures):
    explorer = NearFarExplorer(**SMALL)
    page = open_figures(explorer, has_touch=True)
    box = page.get_by_role("grid").bounding_box()
    x, y = box["x"] + box["width"] * 0.1, box["y"] + box["height"] * 0.9
    page.touchscreen.tap(x, y)
    found = readout(page)
    assert_told(page.locator(".rp-figure"), explorer, int(found["i"]), int(found["j"]))
    assert found["part"] == "far, in the past"


# For everybody


def test_text_alternative_states_the_finding(open_figure):
    figure = open_figure(NearFarExplorer(**SMALL))
    picture = figure.locator(".rp-cells")
    assert picture.get_attribute("aria-label") == (
        "64 queries by 64 keys, divided for maximum distance 4. 14 far rectangles, "
        "the largest of 32 queries by 29 keys, in 10 calls of the kernel. "
        "8 near tiles of 8 queries along the diagonal: 20.7% of all pairs."
    )
    set_controls(figure, max_distance=64, leaf=1, causal=True)
    label = picture.get_attribute("aria-label")
    assert "1 far rectangle, the largest of 1 query by 1 key, in 1 call" in label
    assert "64 near tiles of 1 query along" in label
    set_controls(figure, leaf=64)
    label = picture.get_attribute("aria-label")
    assert "maximum distance 63, causal. No far rectangle" in label
    assert figure.locator("output.rp-readout[aria-live=polite]").count() == 2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    page = open_figures(
        NearFarExplorer(),
        NearFarExplorer(**SMALL, causal=True),
        NearFarExplorer(length=8, max_distance=9),
        theme=theme,
    )
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    page = open_figures(
        NearFarExplorer(length=8192, causal=True),
        NearFarExplorer(length=8, max_distance=9),
    )
    assert_nothing_overflows(page, WIDTHS)


def test_the_numbers_of_an_axis_stand_beside_its_name(open_figures):
    page = open_figures(
        NearFarExplorer(length=8192, causal=True),
        NearFarExplorer(length=8, max_distance=9),
    )
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 700})
        places = page.locator(".rp-figure").evaluate_all("""(figures) =>
          figures.map((figure) => [
            figure.querySelector(".rp-y-name").getBoundingClientRect().right,
            ...[...figure.querySelectorAll(".rp-y span")]
              .filter((tick) => tick.checkVisibility())
              .map((tick) => tick.getBoundingClientRect().left),
          ])""")
        assert all(len(ticks) > 1 for _, *ticks in places)
        assert all(min(ticks) >= end - 1 for end, *ticks in places)


def test_dark_by_the_theme_of_the_page(open_figure):
    figure = open_figure(NearFarExplorer(), theme="dark")
    background = figure.evaluate("(n) => getComputedStyle(n).backgroundColor")
    assert background == "rgb(20, 24, 32)"


def test_nothing_moves_by_itself(open_figures):
    page = open_figures(NearFarExplorer(), reduced_motion="reduce")
    set_controls(page.locator(".rp-figure"), length=64)
    assert page.evaluate("document.getAnimations().length") == 0


# Lasting


def test_nothing_grows(open_figures):
    page = open_figures(NearFarExplorer(**SMALL))

    def play(rounds):
        for label, steps in SLIDERS.values():
            last = len(steps) if label != "Length" else LENGTHS.index(256) + 1
            play_slider(page, label, [*(k % last for k in range(rounds)), 4])
        page.get_by_role("grid").evaluate(
            """(node, rounds) => {
              const box = node.getBoundingClientRect();
              for (let k = 0; k < rounds; k++)
                node.dispatchEvent(new PointerEvent("pointermove", {
                  clientX: box.left + (box.width * (k % 37)) / 37,
                  clientY: box.top + (box.height * (k % 41)) / 41,
                }));
              node.dispatchEvent(new PointerEvent("pointermove", {
                clientX: box.left + 3, clientY: box.bottom - 3,
              }));
            }""",
            rounds,
        )

    assert_nothing_grows(page, play, 20, 250)


def test_copies_move_together_and_others_stay(open_figures):
    page = open_figures(NearFarExplorer(**SMALL), NearFarExplorer(), copies=2)
    first, second, other, _ = page.locator(".rp-nearfar").all()
    set_controls(first, length=128, causal=True)
    explorer = NearFarExplorer(**SMALL | {"length": 128}, causal=True)
    assert_table(second, explorer)
    assert_table(other, NearFarExplorer())
    hover_cell(first, 127, 0, 128, 128)
    assert readout(first)["i"] == "127"
    assert readout(second)["i"] != "127"
    assert_unique_ids(page)
