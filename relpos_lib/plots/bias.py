"""Pictures of the chapter on additive bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from relpos_lib.plots.common import COLOURS, STYLE, matrices, new_figure, to_numpy


def tables_of_schemes(tables: Mapping[str, Any]) -> Figure:
    """Tables of several schemes against the offsets that their rows stand for.

    Args:
        tables: title → (H, 2K+1), all of one K.

    Returns:
        The figure, one panel a scheme with its own y axis, one line a head.
    """
    with mpl.rc_context(STYLE):
        fig, axes = new_figure(len(tables), width=7.6, height=2.6)
        for ax, (title, table) in zip(axes, tables.items(), strict=True):
            heads = to_numpy(table)  # (H, 2K+1)
            reach = heads.shape[1] // 2
            for h, (biases, style) in enumerate(zip(heads, ("-", "--"), strict=False)):
                ax.plot(
                    range(-reach, reach + 1),
                    biases,
                    style,
                    color=COLOURS[h],
                    label=f"head {h + 1}",
                    linewidth=1.4,
                )
            ax.set(title=title, xlabel="offset j − i")
        axes[0].set_ylabel("bias")
        axes[-1].legend()
    return fig


def returned_offsets(
    shares: Any, lengths: Sequence[int], offsets: Sequence[int]
) -> Figure:
    """How often a model returns the symbol at each offset, at several lengths.

    Args:
        shares: (lengths, offsets), from 0 to 1.
        lengths: what the rows are.
        offsets: what the columns are.

    Returns:
        The figure, one matrix with its numbers.
    """
    figure = matrices(
        {"": shares},
        write_values=True,
        label="share of answers",
        x_label="offset of the symbol returned",
        y_label="length of the input",
        limits=(0, 1),
    )
    figure.set_figwidth(4.6)
    ax = figure.axes[0]
    signed = [f"{offset:+d}".replace("-", "−") if offset else "0" for offset in offsets]
    ax.set_xticks(range(len(offsets)), signed)
    ax.set_yticks(range(len(lengths)), [str(length) for length in lengths])
    return figure
