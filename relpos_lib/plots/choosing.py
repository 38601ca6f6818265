"""Pictures of the chapter on choices: a metric by what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from relpos_lib.plots.common import COLOURS, MARKERS, STYLE, mark, new_figure
from relpos_lib.plots.experiments import Y_LABELS

WIDTH = 0.4  # share of the room between two choices that the lines are spread over


def by_choice(
    summary: Mapping[str, Any],
    lines: Mapping[str, Sequence[str]],
    choices: Sequence[Any],
    *,
    x_label: str,
    length: int,
    metric: str = "accuracy",
    is_ordered: bool = True,
    marks: Mapping[Any, str] | None = None,
) -> Figure:
    """A metric at one length for a few choices, each seed a dot.

    Choices stand at equal steps, so that 0 has its place among powers of two.

    Args:
        summary: a file of results of ``relpos_lib.experiments``, loaded.
        lines: what to call a line → the names of its settings, one a choice.
        choices: what was chosen, as it is written below the axis.
        x_label: what was chosen.
        length: at which length it was measured.
        metric: "accuracy", "non_overlapping" or "sliding".
        is_ordered: whether means are joined by a line.
        marks: choice → what to write beside a dashed line there.

    Returns:
        The figure: a large marker a mean, a small dot a seed.

    Raises:
        ValueError: if a setting is unknown.
    """
    with mpl.rc_context(STYLE):
        fig, (ax,) = new_figure(1, width=6.2, height=3.2)
        for choice, text in (marks or {}).items():
            mark(ax, list(choices).index(choice), text)
        for n, (label, names) in enumerate(lines.items()):
            shift = WIDTH * ((n + 0.5) / len(lines) - 0.5)
            places = np.arange(len(names)) + shift
            each = [_each(summary["groups"], name, metric, length) for name in names]
            colour = COLOURS[n % len(COLOURS)]
            ax.plot(
                places,
                [np.mean(values) for values in each],
                marker=MARKERS[n % len(MARKERS)],
                linestyle="-" if is_ordered else "",
                linewidth=1.2,
                color=colour,
                label=label,
            )
            for place, values in zip(places, each, strict=True):
                ax.plot([place] * len(values), values, ".", color=colour, alpha=0.6)
        ax.set_xticks(range(len(choices)), [str(choice) for choice in choices])
        ax.set_xlim(-0.5, len(choices) - 0.5)
        ax.set(xlabel=x_label, ylabel=f"{Y_LABELS[metric]}, L = {length}")
        if metric == "accuracy":
            ax.set_ylim(0, 1.05)
        else:
            ax.margins(y=0.12)  # room for the words of the marks
        if len(lines) > 1:
            ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def _each(
    groups: Mapping[str, Any], name: str, metric: str, length: int
) -> Sequence[float]:
    if name not in groups:
        raise ValueError(f"no setting {name!r} among {', '.join(groups)}")
    each: Sequence[float] = groups[name][metric][str(length)]["each"]
    return each
