"""Pictures of the chapter on lengths beyond those of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from relpos_lib.plots.common import COLOURS, MARKERS, STYLE, curves, new_figure


def by_place(places: Mapping[str, Any], *, trained: int) -> Figure:
    """Accuracy by position within one input, a line a setting, with its range.

    Args:
        places: name → "accuracy": first position of a block → its spread.
        trained: longest training length, to be marked.

    Returns:
        The figure.
    """
    first = next(iter(places.values()))["accuracy"]
    starts = [int(start) for start in first]
    return curves(
        {
            name: list(
                zip(*(cell["each"] for cell in own["accuracy"].values()), strict=True)
            )
            for name, own in places.items()
        },
        x=[start + (starts[1] - starts[0]) / 2 for start in starts],
        x_label="position i in an input of length "
        f"{starts[-1] + starts[1] - starts[0]}",
        y_label="share of right answers",
        y_limits=(0, 1.03),
        mark_x=trained,  # without a label, which would lie on the lines
    )


def reach_by_gap(groups: Mapping[str, Any], labels: Mapping[str, str]) -> Figure:
    """The length that a trained model reaches against the gap in its tables.

    Args:
        groups: name → "gap" and "reach" of each seed.
        labels: names of the groups to be drawn → what to call them; groups of one
            name share a colour.

    Returns:
        The figure, one point a trained model that reaches any length.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for name, label in labels.items():
        group = groups[name]
        for gap, length in zip(group["gap"]["each"], group["reach"], strict=True):
            if length is not None:
                points.setdefault(label, []).append((gap, length))
    with mpl.rc_context(STYLE):
        fig, (ax,) = new_figure(1, width=6.2, height=3.6)
        for n, (label, own) in enumerate(points.items()):
            gaps, lengths = zip(*own, strict=True)
            ax.scatter(
                gaps,
                lengths,
                label=label,
                color=COLOURS[n % len(COLOURS)],
                marker=MARKERS[n % len(MARKERS)],
                s=28,
            )
        ax.set_yscale("log", base=2)
        ends = [length for own in points.values() for _, length in own]
        ticks = _doublings(min(ends), max(ends))
        ax.set_yticks(ticks, [str(tick) for tick in ticks])
        ax.minorticks_off()
        ax.set(xlabel="gap of a favoured key over far ones", ylabel="length reached")
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def _doublings(low: float, high: float) -> Sequence[int]:
    """Powers of two from at most ``low`` to at least ``high``."""
    ticks = [1]
    while ticks[-1] < high:
        ticks.append(2 * ticks[-1])
    return [tick for tick in ticks if 2 * tick > low]
