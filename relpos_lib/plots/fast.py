"""Pictures of what relative attention costs, from the benchmark's files of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from relpos_lib.plots.common import COLOURS, MARKERS, STYLE, STYLES, new_figure

PLAIN = "plain"
# A name keeps its colour in all pictures; what is not named here follows.
NAMES = (
    "auto",
    "near_far",
    "gather",
    "usual-shaw",
    "bias-as-mask",
    "checkpoint",
    "strided",
    "flex",
    "flex-captured",
    "transformers-t5",
    "transformers-relative-key",
    "x-transformers-t5",
)


def cost_by_length(
    results: Mapping[str, Any],
    *,
    workload: str = "shaw",
    max_distance: int | None = 16,
    causal: bool = False,
    direction: str = "forward+backward",
    dtype: str = "float32",
) -> Figure:
    """Time over plain attention beside peak memory, by length, a line a contender.

    Args:
        results: a file of results of ``relpos_lib.bench``, loaded.
        workload: which scheme.
        max_distance: which K; None for a scheme without one.
        causal: which mask.
        direction: "forward" or "forward+backward".
        dtype: which precision.

    Returns:
        The figure: two panels, lengths and memory on logarithmic scales. Plain
        attention is the dashed line. Lines end where a contender was skipped.

    Raises:
        ValueError: if the results hold no such case.
    """
    wanted = {
        "workload": workload,
        "max_distance": max_distance,
        "causal": causal,
        "direction": direction,
        "dtype": dtype,
    }
    records = [
        record
        for record in results["cases"].values()
        if record["peer"] and all(record[name] == is_ for name, is_ in wanted.items())
    ]
    if not records:
        raise ValueError(f"the results hold no case with {wanted}")
    records.sort(key=lambda record: record["length"])
    lengths = [record["length"] for record in records]
    with mpl.rc_context(STYLE):
        fig, (time, memory) = new_figure(2, width=9.0, height=3.8)
        for name in _names(records):
            _line(time, name, records, "ratio", 1.0)
            _line(memory, name, records, "peak_bytes", 1e-6)
        time.axhline(1, color="#555555", linestyle="--", linewidth=1)
        peaks = [max(1, record["peer"]["peak_bytes"]) / 1e6 for record in records]
        memory.plot(
            lengths, peaks, "--", color="#555555", linewidth=1, label="no positions"
        )
        time.set(ylabel="time over attention without positions")
        memory.set(ylabel="peak memory, MB", yscale="log")
        time.set_yscale("log", base=2)
        time.yaxis.set_major_formatter("{x:g}×")
        for ax in (time, memory):
            ax.set_xscale("log", base=2)
            ax.set_xticks(lengths, [str(length) for length in lengths])
            ax.set_xlabel("length L")
        memory.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def _names(records: list[Mapping[str, Any]]) -> list[str]:
    """Who was measured, in the order of their colours."""
    found = dict.fromkeys(name for record in records for name in record["cells"])
    known = [name for name in NAMES if name in found]
    return known + [name for name in found if name not in NAMES]


def _line(
    ax: Axes, name: str, records: list[Mapping[str, Any]], what: str, unit: float
) -> None:
    """One contender's line; a length at which it was not measured is left out."""
    cells = [(r["length"], r["cells"][name]) for r in records if name in r["cells"]]
    n = NAMES.index(name) if name in NAMES else len(NAMES)
    lengths = [length for length, _ in cells]
    numbers = [cell[what] * unit for _, cell in cells]
    ax.plot(
        lengths,
        numbers,
        # Two names that share a colour differ in their dashes.
        STYLES[n // len(COLOURS) % len(STYLES)],
        color=COLOURS[n % len(COLOURS)],
        marker=MARKERS[n % len(MARKERS)],
        label=name,
    )
    if what == "ratio":
        low, high = ([cell[end] for _, cell in cells] for end in ("low", "high"))
        colour = COLOURS[n % len(COLOURS)]
        ax.fill_between(lengths, low, high, color=colour, alpha=0.15, linewidth=0)
