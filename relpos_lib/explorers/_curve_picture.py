"""Static pictures of the figures that show curves over offsets above matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpos_lib.explorers._picture import Panel, blank_picture, panel_group, png_of
from relpos_lib.palette import PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1c5a8a", "#b4540a", "#22693f", "#7a3e93")
STYLES = ("-", "--", ":", "-.")


class Group(NamedTuple):
    """Matrices that share a colour scale.

    Attributes:
        panels: matrices, (Q, S), NaN where nothing is to be seen.
        titles: one title a matrix.
        low: value at the lower end of the scale; signed scales end at -high.
        high: value at the upper end.
        unit: what the colour means.
    """

    panels: list[Panel]
    titles: list[str]
    low: float
    high: float
    unit: str


def draw_curves_over_panels(
    offsets: NDArray[np.int64],
    lines: Mapping[str, NDArray[np.float64]],
    limits: tuple[float, float],
    groups: list[Group],
) -> bytes:
    """Curves over offsets, and below them groups of matrices, as a PNG.

    Args:
        offsets: the x axis.
        lines: label → values, NaN where there is none.
        limits: ends of the y axis.
        groups: the matrices.

    Returns:
        The picture, the same bytes for the same input.
    """
    heights = [2.4, *(2.1 * math.ceil(len(group.panels) / 4) for group in groups)]
    figure = blank_picture(8.6, sum(heights))
    rows = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)
    parts = list(rows[:, 0])
    for part in parts:
        part.set_facecolor(PAPER)
    _draw_curves(parts[0].subplots(), offsets, lines, limits)
    for part, group in zip(parts[1:], groups, strict=True):
        panel_group(part, *group)
    return png_of(figure)


def _draw_curves(
    ax: Axes,
    offsets: NDArray[np.int64],
    lines: Mapping[str, NDArray[np.float64]],
    limits: tuple[float, float],
) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_facecolor(PAPER)
    ax.axhline(0, color="#d8d4c8", linewidth=1)
    for n, (label, values) in enumerate(lines.items()):
        colour, style = COLOURS[n % 4], STYLES[n // 4 % 4]
        marker = "o" if len(offsets) < 16 else None
        ax.plot(offsets, values, style, color=colour, label=label, marker=marker, ms=3)
    ax.set_ylim(*limits)
    ax.set_xlabel("offset j − i", fontsize=8)
    ax.set_ylabel("bias b", fontsize=8)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
