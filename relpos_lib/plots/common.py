"""The two pictures that the book is made of: matrices side by side, and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from relpos_lib.palette import PAPER, colour_map, ink_on

STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#555555", "#e69f00")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MOST_LABELLED_CELLS = 12


def matrices(
    panels: Mapping[str, Any],
    *,
    signed: bool = False,
    write_values: bool = False,
    label: str = "",
    x_label: str = "key position j",
    y_label: str = "query position i",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Matrices side by side on one colour scale with one colour bar.

    Args:
        panels: title → (rows, columns) array or tensor.
        signed: whether the scale diverges and is centred at 0; else it is sequential.
        write_values: whether each cell shows its number.
        label: what the colours mean, beside the colour bar.
        x_label: what the columns are.
        y_label: what the rows are.
        limits: ends of the colour scale; those of the data if not given.

    Returns:
        The figure, one axes a panel and one for the colour bar.
    """
    arrays = {title: to_numpy(panel) for title, panel in panels.items()}
    low, high = limits or _limits(list(arrays.values()), signed)
    with mpl.rc_context(STYLE):
        fig, axes = new_figure(len(arrays), width=min(2.9 * len(arrays) + 0.9, 9.5))
        for ax, (title, array) in zip(axes, arrays.items(), strict=True):
            image = ax.imshow(array, cmap=colour_map(signed), vmin=low, vmax=high)
            ax.set(title=title, xlabel=x_label)
            _integer_ticks(ax, array.shape)
            if write_values:
                _write_values(ax, array)
        axes[0].set_ylabel(y_label)
        fig.colorbar(image, ax=axes, label=label, shrink=0.8)
    return fig


def curves(
    lines: Mapping[str, Any],
    *,
    x: Sequence[float] | None = None,
    x_label: str,
    y_label: str,
    x_log2: bool = False,
    y_limits: tuple[float, float] | None = None,
    mark_x: float | None = None,
    mark_label: str = "",
) -> Figure:
    """Curves on one pair of axes, told apart by colour and by marker.

    Args:
        lines: label → (points,), or (repeats, points) for a mean with its range.
        x: the points; 0, 1, 2 … if not given.
        x_label: what x is.
        y_label: what y is.
        x_log2: whether x is on a logarithmic scale, with its points as ticks.
        y_limits: ends of the y axis.
        mark_x: where to draw a dashed vertical line.
        mark_label: what that line means.

    Returns:
        The figure, with one line a curve.
    """
    with mpl.rc_context(STYLE):
        fig, (ax,) = new_figure(1, width=6.2, height=3.4)
        for n, (name, values) in enumerate(lines.items()):
            _curve(ax, n, name, np.atleast_2d(to_numpy(values)), x)
        if mark_x is not None:
            mark(ax, mark_x, mark_label)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if x_log2 and x is not None:
            ax.set_xscale("log", base=2)
            ax.set_xticks(list(x), [str(point) for point in x])
        ax.set(xlabel=x_label, ylabel=y_label, ylim=y_limits)
        if len(lines) > 1:
            ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def new_figure(
    panels: int, *, width: float, height: float = 3.2
) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels in a row that a notebook shows once, when it is returned."""
    fig, axes = plt.subplots(
        1, panels, figsize=(width, height), layout="constrained", squeeze=False
    )
    plt.close(fig)  # or the notebook would show it a second time
    return fig, list(axes[0])


def mark(ax: Axes, x: float, text: str) -> None:
    """A dashed vertical line with a few words beside it; drawn first, it lies below."""
    ax.axvline(x, color="#888888", linestyle="--", linewidth=1)
    ax.annotate(
        text,
        (x, 0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 4),
        textcoords="offset points",
        va="bottom",
        color="#555555",
    )


def to_numpy(values: Any) -> np.ndarray[Any, Any]:
    """Numbers of a tensor, array or sequence, without their gradient."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=float)


def _limits(arrays: list[np.ndarray[Any, Any]], signed: bool) -> tuple[float, float]:
    low = min(float(array.min()) for array in arrays)
    high = max(float(array.max()) for array in arrays)
    if signed:
        high = max(abs(low), abs(high))
        low = -high
    return low, high


def _integer_ticks(ax: Axes, shape: tuple[int, ...]) -> None:
    for axis, size in ((ax.xaxis, shape[1]), (ax.yaxis, shape[0])):
        step = max(1, -(-size // MOST_LABELLED_CELLS))
        axis.set_ticks(range(0, size, step))


def _write_values(ax: Axes, array: np.ndarray[Any, Any]) -> None:
    digits = 0 if (array == array.round()).all() else 2
    for (i, j), value in np.ndenumerate(array):
        ink = ink_on(ax.images[0].to_rgba(np.array([value]))[0])
        text = f"{value:.{digits}f}"
        ax.text(j, i, text, ha="center", va="center", fontsize=8, color=ink)


def _curve(
    ax: Axes,
    n: int,
    name: str,
    repeats: np.ndarray[Any, Any],
    x: Sequence[float] | None,
) -> None:
    points = np.arange(repeats.shape[1]) if x is None else np.asarray(x)
    colour = COLOURS[n % len(COLOURS)]
    marker = MARKERS[n % len(MARKERS)] if len(points) <= 16 else None
    # Dashes tell apart curves that lie on one another; markers do it if there are any.
    style = "-" if marker else STYLES[n % len(STYLES)]
    ax.plot(points, repeats.mean(0), style, label=name, color=colour, marker=marker)
    if len(repeats) > 1:
        ax.fill_between(
            points, repeats.min(0), repeats.max(0), color=colour, alpha=0.2, linewidth=0
        )
