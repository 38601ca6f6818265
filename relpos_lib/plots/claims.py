"""The picture of the chapter on claims: what they say, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from relpos_lib.plots.common import COLOURS, STYLE, new_figure

INSIDE, OUTSIDE = COLOURS[0], COLOURS[1]
CLAIMED = "#cfcfcf"
HALF_HEIGHT = 0.32  # of the band in a row, whose height is 1
MARGIN = 0.06  # of a row's width, left and right of its numbers


class Effect(NamedTuple):
    """One measured number of a claim, beside what the claim says of it.

    Args:
        label: what was measured, with its unit.
        each: a value a seed, or a round of timing.
        middle: their mean or median, whichever the text gives.
        claimed: from where to where the claim holds; an end may be infinite.
    """

    label: str
    each: Sequence[float]
    middle: float
    claimed: tuple[float, float]

    @property
    def is_claimed(self) -> bool:
        """Whether the middle lies where the claim says, its ends included."""
        low, high = self.claimed
        return low <= self.middle <= high


def claimed_and_measured(effects: Sequence[Effect]) -> Figure:
    """Every effect in a row with a scale of its own, beside what was claimed.

    Args:
        effects: the rows, from the top.

    Returns:
        The figure: a band for what was claimed, a dot a value, a diamond their middle.
    """
    with mpl.rc_context(STYLE):
        height = 0.32 * len(effects) + 0.7
        fig, (ax,) = new_figure(1, width=8.2, height=height)
        for row, effect in enumerate(effects):
            _draw(ax, row, effect)
        ax.set(xlim=(0, 1), ylim=(len(effects) - 0.5, -0.5), xticks=[])
        ax.set_yticks(range(len(effects)), [effect.label for effect in effects])
        ax.tick_params(axis="y", length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("each row has a scale of its own; its number is on the right")
        ax.legend(
            handles=_keys(), ncols=4, loc="lower center", bbox_to_anchor=(0.3, 1.0)
        )
    return fig


def _draw(ax: Axes, row: int, effect: Effect) -> None:
    low, high = _ends(effect)

    def place(value: float) -> float:
        return float(np.clip((value - low) / (high - low), 0, 1))

    start, stop = map(place, effect.claimed)
    up, down = row - HALF_HEIGHT, row + HALF_HEIGHT
    ax.axhline(row, color="#e4e4e4", linewidth=0.8, zorder=0)
    # An edge, so that a claim of one number is a line and not nothing.
    ax.fill_betweenx([up, down], start, stop, color=CLAIMED, linewidth=2, zorder=1)
    colour = INSIDE if effect.is_claimed else OUTSIDE
    places = [place(value) for value in effect.each]
    ax.plot(places, [row] * len(places), ".", color=colour, alpha=0.6)
    marker = "D" if effect.is_claimed else "s"
    ax.plot([place(effect.middle)], [row], marker, color=colour, markersize=6)
    ax.annotate(
        f"{effect.middle:.3g}".replace("-", "\N{MINUS SIGN}"),
        (1, row),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        annotation_clip=False,
    )


def _ends(effect: Effect) -> tuple[float, float]:
    """Of a row's scale: everything finite, with a margin, so that bands have ends."""
    known = [*effect.each, effect.middle, *filter(math.isfinite, effect.claimed)]
    low, high = min(known), max(known)
    margin = MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def _keys() -> list[Line2D | Patch]:
    return [
        Patch(color=CLAIMED, label="claimed"),
        Line2D([], [], ls="", marker=".", color="#555555", label="one seed or round"),
        Line2D([], [], ls="", marker="D", color=INSIDE, label="middle, as claimed"),
        Line2D([], [], ls="", marker="s", color=OUTSIDE, label="middle, elsewhere"),
    ]
