"""Static pictures of the figures: same numbers, same colours, drawn by matplotlib."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relpos_lib.palette import EMPTY, PAPER, colour_map, ink_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

Panel = NDArray[np.float64]
NUMBERS_UP_TO = 12
TICK_STEPS = (1, 2, 5, 10, 20, 50, 100)
STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)


def draw_panels(
    panels: list[Panel],
    titles: list[str],
    low: float,
    high: float,
    unit: str,
    *,
    numbers: bool = False,
) -> bytes:
    """Matrices side by side on one colour scale, as a PNG.

    Args:
        panels: matrices, (Q, S), NaN where masked.
        titles: one title a matrix.
        low: value at the lower end of the colour scale; signed scales end at -high.
        high: value at the upper end.
        unit: what the colour means.
        numbers: whether to print the values in the cells, if these are few.

    Returns:
        The picture, the same bytes for the same input.
    """
    columns = min(4, len(panels))
    rows = math.ceil(len(panels) / columns)
    side = 4.0 if len(panels) == 1 else 2.2
    figure = blank_picture(columns * side + 1.0, rows * side + 0.5)
    panel_group(figure, panels, titles, low, high, unit, numbers=numbers)
    return png_of(figure)


def draw_steps(
    steps: dict[str, NDArray[np.float64]], score_end: float, weight_end: float
) -> bytes:
    """Scores and weights side by side, one head below the other, as a PNG.

    Args:
        steps: name → (heads, Q, S), NaN where masked; the last one is the weights.
        score_end: upper end of the scale of the scores; the lower one is below zero.
        weight_end: upper end of the scale of the weights.

    Returns:
        The picture, the same bytes for the same input.
    """
    *scores, weights = steps
    heads = len(steps[weights])
    figure = blank_picture(9.6, 2.4 * heads)
    axes = figure.subplots(heads, len(steps), squeeze=False)
    for head, row in enumerate(axes):
        for ax, name in zip(row, steps, strict=True):
            scale = (0.0, weight_end) if name == weights else (-score_end, score_end)
            _draw_panel(ax, steps[name][head], *scale)
            ax.set_title(name, fontsize=9)
        row[0].set_title(f"head {head + 1}: {scores[0]}", fontsize=9)
    _label(figure, list(axes[:, : len(scores)].flat), "score", len(scores))
    _label(figure, list(axes[:, len(scores) :].flat), "attention weight", 1)
    return png_of(figure)


def panel_group(
    parent: FigureBase,
    panels: list[Panel],
    titles: list[str],
    low: float,
    high: float,
    unit: str,
    *,
    numbers: bool = False,
) -> None:
    """Draw matrices, up to four in a row, and their colour bar into a figure.

    Arguments as of :func:`draw_panels`; ``parent`` is a figure or a part of one.
    """
    columns = min(4, len(panels))
    rows = math.ceil(len(panels) / columns)
    axes = parent.subplots(rows, columns, squeeze=False).ravel()
    for panel, title, ax in zip(panels, titles, axes, strict=False):
        _draw_panel(ax, panel, low, high)
        ax.set_title(title, fontsize=9)
        if numbers and max(panel.shape) <= NUMBERS_UP_TO:
            _write_numbers(ax, panel)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    _label(parent, list(axes[: len(panels)]), unit, columns)


def blank_picture(width: float, height: float) -> Figure:
    """A figure to draw on, in inches, that no notebook shows by itself."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def png_of(figure: Figure) -> bytes:
    """The picture, the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()


def round_up(x: float) -> float:
    """A round number at or just above a positive x; 1 for anything else.

    Numbers at the very ends of what a float can hold count as anything else: a power of
    ten beside them is zero or infinite.
    """
    if not 1e-300 < x < 1e300:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(x))
    step = next(s for s in STEPS if s * unit >= x * (1 - 1e-9))
    return float(f"{step * unit:.2g}")


def _draw_panel(ax: Axes, panel: Panel, low: float, high: float) -> None:
    ax.set_facecolor(EMPTY)
    cmap = colour_map(signed=low < 0)
    ax.imshow(panel, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    ax.tick_params(labelsize=8, length=0, labeltop=True, labelbottom=False)
    ax.xaxis.set_label_position("top")
    for axis, count in ((ax.xaxis, panel.shape[1]), (ax.yaxis, panel.shape[0])):
        step = next(s for s in TICK_STEPS if count / s <= 8)
        axis.set_ticks(list(range(0, count, step)))
    ax.spines[:].set_visible(False)


def _write_numbers(ax: Axes, panel: Panel) -> None:
    image = ax.images[0]
    for (i, j), value in np.ndenumerate(panel):
        if np.isnan(value):
            continue
        ink = ink_on(image.to_rgba(np.array([value]))[0])
        text = f"{value:.0f}".replace("-", "\N{MINUS SIGN}")
        ax.text(j, i, text, ha="center", va="center", color=ink)


def _label(figure: FigureBase, axes: list[Axes], unit: str, columns: int) -> None:
    for index, ax in enumerate(axes):
        if index < columns:
            ax.set_xlabel("key position j", fontsize=8)
        if index % columns == 0:
            ax.set_ylabel("query position i", fontsize=8)
    bar = figure.colorbar(axes[0].images[0], ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(unit, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
