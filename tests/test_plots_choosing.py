"""The picture of choices shows every seed where its choice stands."""

import numpy as np
import pytest

from relpos_lib.plots import by_choice


def summary(**each):
    return {
        "groups": {
            name: {"accuracy": {"32": {"each": values}}}
            for name, values in each.items()
        }
    }


OPTIONS = {"x_label": "K", "length": 32}


def test_each_choice_has_its_mean_and_its_seeds():
    found = summary(a=[0.2, 0.4], b=[0.5, 0.7], c=[0.9, 0.9], d=[1.0, 0.8])
    lines = {"one": ["a", "b"], "two": ["c", "d"]}
    fig = by_choice(found, lines, (0, 8), **OPTIONS, marks={8: "L/4"})
    (ax,) = fig.axes
    means = [line for line in ax.lines if line.get_label() in lines]
    assert [list(line.get_ydata()) for line in means] == [
        pytest.approx([0.3, 0.6]),
        pytest.approx([0.9, 0.9]),
    ]
    # Beside one another, and each nearest to its own choice.
    assert [list(np.round(line.get_xdata())) for line in means] == [[0, 1], [0, 1]]
    seeds = [
        v for line in ax.lines if line.get_marker() == "." for v in line.get_ydata()
    ]
    assert sorted(seeds) == [0.2, 0.4, 0.5, 0.7, 0.8, 0.9, 0.9, 1.0]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "8"]
    assert [text.get_text() for text in ax.texts] == ["L/4"]


def test_choices_without_an_order_are_not_joined():
    found = summary(a=[0.2, 0.4], b=[0.5, 0.7])
    lines = {"one": ["a", "b"]}
    fig = by_choice(found, lines, ("x", "y"), **OPTIONS, is_ordered=False)
    assert fig.axes[0].lines[0].get_linestyle() == "None"


def test_an_unknown_setting_is_named():
    with pytest.raises(ValueError, match="no setting 'z' among a"):
        by_choice(summary(a=[1.0]), {"one": ["z"]}, (0,), **OPTIONS)
