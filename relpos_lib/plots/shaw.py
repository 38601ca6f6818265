"""Pictures of the chapter on Shaw's vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from relpos_lib.palette import colour_map
from relpos_lib.plots.common import (
    COLOURS,
    STYLE,
    curves,
    matrices,
    new_figure,
    to_numpy,
)

MINUS = "\N{MINUS SIGN}"


def weights_and_bins(weights: Any, bins: Any) -> Figure:
    """Attention weights by key beside the same weights summed by offset.

    Args:
        weights: (Q, S), each row sums to 1.
        bins: (Q, 2K+1), each row sums to 1.

    Returns:
        The figure: two panels on one colour scale.
    """
    weights, bins = to_numpy(weights), to_numpy(bins)
    with mpl.rc_context(STYLE):
        fig, axes = new_figure(2, width=7.2, height=3.4)
        for ax, array in zip(axes, (weights, bins), strict=True):
            image = ax.imshow(array, cmap=colour_map(signed=False), vmin=0, vmax=1)
            ax.set_yticks(range(len(array)))
            _write(ax, array)
        axes[0].set(title="weights, one a key", xlabel="key position j")
        axes[0].set_xticks(range(weights.shape[1]))
        axes[0].set_ylabel("query position i")
        axes[1].set(title="bins, one a row of the table", xlabel="clipped offset")
        _offset_ticks(axes[1], bins.shape[1])
        fig.colorbar(image, ax=axes, label="weight", shrink=0.8)
    return fig


def score_parts(content: Any, position: Any) -> Figure:
    """Content scores, position scores and their sum, on one signed scale.

    Args:
        content: (Q, S).
        position: (Q, S).

    Returns:
        The figure: three panels.
    """
    content, position = to_numpy(content), to_numpy(position)
    panels = {
        "content": content,
        "position": position,
        "content + position": content + position,
    }
    return matrices(panels, signed=True, label="score before division")


def scores_by_symbol(scores: Any) -> Figure:
    """Position score of every symbol at every offset, one panel a head.

    Args:
        scores: (H, symbols, 2K+1).

    Returns:
        The figure: H panels on one signed scale.
    """
    heads = to_numpy(scores)
    most = float(np.abs(heads).max())
    with mpl.rc_context(STYLE):
        fig, axes = new_figure(len(heads), width=3.2 * len(heads) + 0.9)
        for head, (ax, array) in enumerate(zip(axes, heads, strict=True)):
            image = ax.imshow(
                array,
                cmap=colour_map(signed=True),
                vmin=-most,
                vmax=most,
                aspect="auto",
            )
            ax.set(title=f"head {head + 1}", xlabel="offset")
            ax.set_yticks(range(len(array)))
            _offset_ticks(ax, array.shape[1])
        axes[0].set_ylabel("symbol of the query")
        fig.colorbar(image, ax=axes, label="position score", shrink=0.8)
    return fig


def accuracy_by_length(
    lengths: Sequence[int],
    measured: Mapping[str, Any],
    ceilings: Mapping[str, Any] | None = None,
    *,
    trained_to: int,
) -> Figure:
    """Accuracy against length, with the most that is possible as dotted lines.

    Args:
        lengths: the lengths.
        measured: label → (seeds, lengths); the line is the mean, the band the range.
        ceilings: label → (lengths,), for some of the labels.
        trained_to: longest training length, marked.

    Returns:
        The figure, one line a label and one a ceiling.
    """
    fig = curves(
        measured,
        x=lengths,
        x_label="length",
        y_label="accuracy",
        x_log2=True,
        y_limits=(0, 1.05),
        mark_x=trained_to,
        mark_label="trained up to here",
    )
    ax = fig.axes[0]
    for n, name in enumerate(measured):
        if ceilings is not None and name in ceilings:
            colour = COLOURS[n % len(COLOURS)]
            ax.plot(lengths, to_numpy(ceilings[name]), ":", color=colour)
    if ceilings:
        ax.plot([], [], ":", color="#555555", label="most possible")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return fig


def _offset_ticks(ax: Axes, rows: int) -> None:
    """Name the columns by the offsets that they stand for."""
    distance = rows // 2
    offsets = range(-distance, distance + 1)
    names = [f"{o:+d}".replace("-", MINUS) if o else "0" for o in offsets]
    ax.set_xticks(range(rows), names)


def _write(ax: Axes, array: np.ndarray[Any, Any]) -> None:
    """Write a share between 0 and 1 into every cell that holds one."""
    for (i, j), value in np.ndenumerate(array):
        if value:
            colour = "white" if value < 0.5 else "black"
            text = f"{value:.2f}"
            ax.text(j, i, text, ha="center", va="center", color=colour, fontsize=8)
