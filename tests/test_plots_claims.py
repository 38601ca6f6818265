"""The picture of claims shows what was measured where the claim says it should be."""

import math

import matplotlib as mpl
import pytest

from relpos_lib import plots

mpl.use("Agg")
INF = math.inf


def effect(each, claimed, label="a"):
    return plots.Effect(label, each, sum(each) / len(each), claimed)


def drawn(*effects):
    (ax,) = plots.claimed_and_measured(effects).axes
    return ax


def bands(ax):
    """Where the claimed band of each row begins and ends, as shares of its width."""
    boxes = (band.get_paths()[0].get_extents() for band in ax.collections)
    return [(box.x0, box.x1) for box in boxes]


def points(ax, marker):
    return [line.get_xdata() for line in ax.lines if line.get_marker() == marker]


def test_values_lie_in_the_band_just_if_they_are_claimed():
    ax = drawn(effect([1.0, 3.0], (1.5, 2.5)), effect([8.0, 9.0], (1.5, 2.5)))
    (inside, outside), (first, second) = bands(ax), points(ax, ".")
    assert not any(inside[0] <= x <= inside[1] for x in first)
    assert all(x > outside[1] for x in second)
    ((middle,),) = points(ax, "D")  # of the first row
    assert inside[0] < middle < inside[1]
    ((middle,),) = points(ax, "s")  # of the second
    assert middle > outside[1]
    assert all(0 < x < 1 for row in (first, second) for x in row)


def test_an_open_band_goes_to_the_edge():
    ax = drawn(effect([2.0], (0.0, INF)), effect([2.0], (-INF, 0.0)))
    (above, below) = bands(ax)
    assert (below[0], above[1]) == (0, 1)
    assert 0 < above[0] < below[1] + 1e-9 < 1
    assert [len(points(ax, marker)) for marker in ("D", "s")] == [1, 1]


def test_equal_values_at_the_end_of_a_band_are_drawn():
    ax = drawn(effect([0.0, 0.0], (0.0, INF)))
    assert points(ax, ".")[0] == pytest.approx([0.5, 0.5])
    assert bands(ax) == [(0.5, 1)]


def test_rows_are_named_from_the_top_with_their_number():
    ax = drawn(effect([1.0, 2.0], (0, 1), "one"), effect([-16.2], (0, 1), "two"))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["one", "two"]
    assert ax.yaxis_inverted()
    assert [text.get_text() for text in ax.texts] == ["1.5", "\N{MINUS SIGN}16.2"]


@pytest.mark.parametrize(
    ("middle", "told"), [(0.9, False), (1.0, True), (2.0, True), (2.1, False)]
)
def test_the_ends_of_a_claim_belong_to_it(middle, told):
    assert plots.Effect("a", [middle], middle, (1.0, 2.0)).is_claimed is told
