"""Pictures of the chapter on gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from relpos_lib.plots.common import curves, matrices, to_numpy

SMALL = (5.4, 2.7)


def by_setting(panels: Mapping[str, Any]) -> Figure:
    """Biases of one head under several settings, on one colour scale.

    Args:
        panels: title → (Q, S).

    Returns:
        The figure, one panel a setting, with its numbers written in.
    """
    figure = matrices(panels, signed=True, write_values=True, label="bias")
    figure.set_size_inches(1.7 * len(panels) + 1, 2.3)
    return figure


def by_offset(tables: Mapping[str, Any], y_label: str = "bias") -> Figure:
    """Rows of one head's table against the offsets that they stand for.

    Args:
        tables: label → (2K+1,), all of one K.
        y_label: what the rows hold.

    Returns:
        The figure, one line a table.
    """
    reach = len(to_numpy(next(iter(tables.values())))) // 2
    figure = curves(
        tables,
        x=range(-reach, reach + 1),
        x_label="offset j − i",
        y_label=y_label,
    )
    figure.set_size_inches(*SMALL)
    return figure


def by_factor(losses: Mapping[str, Any], factors: Sequence[float]) -> Figure:
    """Loss after training against what the learning rate of the table was times.

    Args:
        losses: label → (seeds, factors).
        factors: the factors, increasing.

    Returns:
        The figure; the loss is on a logarithmic scale, bands span the seeds.
    """
    figure = curves(
        losses,
        x=factors,
        x_label="learning rate of the table, × base rate",
        y_label="loss after training",
        x_log2=True,
    )
    figure.axes[0].set_yscale("log")
    figure.axes[0].autoscale(axis="y")
    figure.set_size_inches(*SMALL)
    return figure


def by_side(panels: Mapping[str, Any]) -> Figure:
    """Biases of one head with the two directions one below the other.

    Args:
        panels: title → (2, K): backward and forward, distances 1 … K.

    Returns:
        The figure, one panel each, on one colour scale.
    """
    figure = matrices(
        panels, write_values=True, label="bias", x_label="distance |j − i|", y_label=""
    )
    figure.set_figheight(2.2)
    for ax in figure.axes[: len(panels)]:
        distances = to_numpy(next(iter(panels.values()))).shape[1]
        ax.set_xticks(range(distances), [str(d + 1) for d in range(distances)])
        ax.set_yticks([0, 1], ["backward", "forward"])
    return figure
