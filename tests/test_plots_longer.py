"""Pictures of lengths beyond those of training."""

import matplotlib as mpl
import pytest

from relpos_lib import plots

mpl.use("Agg")


def test_places_are_drawn_in_the_middle_of_their_blocks():
    places = {"a": {"accuracy": {"0": {"each": [1.0, 0.9]}, "8": {"each": [0.5, 0.4]}}}}
    (ax,) = plots.by_place(places, trained=8).axes
    line = ax.lines[0]
    assert line.get_xdata().tolist() == [4.0, 12.0]
    assert line.get_ydata().tolist() == pytest.approx([0.95, 0.45])
    assert ax.get_xlabel() == "position i in an input of length 16"


def test_a_model_that_never_reached_is_no_point():
    groups = {"a": {"gap": {"each": [1.0, 2.0]}, "reach": [None, 100.0]}}
    (ax,) = plots.reach_by_gap(groups, {"a": "table"}).axes
    assert ax.collections[0].get_offsets().tolist() == [[2.0, 100.0]]
    assert [tick.get_text() for tick in ax.get_legend().get_texts()] == ["table"]
    assert ax.get_yticks().tolist() == [64, 128]


def test_groups_of_one_name_share_a_colour():
    one = {"gap": {"each": [1.0]}, "reach": [100.0]}
    groups = {"slow": one, "fast": one, "other": one}
    labels = {"slow": "bias", "fast": "bias", "other": "Shaw"}
    (ax,) = plots.reach_by_gap(groups, labels).axes
    assert [len(points.get_offsets()) for points in ax.collections] == [2, 1]
