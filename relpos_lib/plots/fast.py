"""Pictures of fast attention: how pairs are divided, and what it costs.

The costs come from the benchmark's files of results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from relpos_lib.backends.near_far.quadtree import (
    Lengths,
    far_rectangles,
    near_tiles,
)
from relpos_lib.palette import EMPTY, PAPER, colour_map
from relpos_lib.plots.common import COLOURS, MARKERS, STYLE, STYLES, new_figure

PLAIN = "plain"
NEAR = "#e69f00"  # colour of near tiles
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


class Region(NamedTuple):
    """A rectangle of pairs.

    Attributes:
        is_far: whether it is attention without a table, or else a near tile.
        first_query: its first query.
        queries: number of queries.
        first_key: its first key.
        keys: number of keys.
    """

    is_far: bool
    first_query: int
    queries: int
    first_key: int
    keys: int


def quadtree_regions(lengths: Lengths) -> Iterator[Region]:
    """Every rectangle and every tile of a division, one by one."""
    for one in far_rectangles(lengths):
        for step in range(0, one.number * one.step or 1, one.step or 1):
            yield Region(
                True,
                one.first_query + step,
                one.queries,
                one.first_key + step,
                one.keys,
            )
    for tiles in near_tiles(lengths):
        for n in range(tiles.number):
            step = n * tiles.queries
            yield Region(
                False,
                tiles.first_query + step,
                tiles.queries,
                tiles.first_key + tiles.start + step,
                tiles.stop - tiles.start,
            )


def quadtree_picture(*divisions: Lengths) -> Figure:
    """Far rectangles and near tiles of all pairs, a panel a division.

    Args:
        divisions: what to divide; the first names the sizes of all.

    Returns:
        The figure. Far rectangles of the same number of queries have one colour.
    """
    regions = [list(quadtree_regions(lengths)) for lengths in divisions]
    sizes = sorted(
        {one.queries for found in regions for one in found if one.is_far}, reverse=True
    )
    colours = colour_map(signed=False)
    shades = {n: colours(0.15 + 0.75 * i / len(sizes)) for i, n in enumerate(sizes)}
    with mpl.rc_context(STYLE):
        fig, axes = new_figure(len(divisions), width=4.1 * len(divisions), height=4.2)
        for ax, lengths, found in zip(axes, divisions, regions, strict=True):
            for one in found:
                colour = shades[one.queries] if one.is_far else NEAR
                ax.add_patch(
                    Rectangle(
                        (one.first_key, one.first_query),
                        one.keys,
                        one.queries,
                        facecolor=colour,
                        edgecolor=PAPER,
                        linewidth=1,
                    )
                )
            ax.set(
                title="causal" if lengths.is_causal else "no mask",
                xlabel="key position j",
                xlim=(0, lengths.keys),
                ylim=(lengths.queries, 0),
                aspect="equal",
                facecolor=EMPTY,
            )
        axes[0].set_ylabel("query position i")
        names: dict[str, Any] = {f"far, {n} queries": shades[n] for n in sizes}
        names |= {"near tile": NEAR}
        if any(lengths.is_causal for lengths in divisions):
            names |= {"hidden": EMPTY}
        handles = [Patch(color=colour, label=name) for name, colour in names.items()]
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return fig


def cost_by_length(
    results: Mapping[str, Any],
    *,
    workload: str = "shaw",
    max_distance: int | None = 16,
    causal: bool = False,
    direction: str = "forward+backward",
    dtype: str = "float32",
    only: Collection[str] | None = None,
) -> Figure:
    """Time over plain attention beside peak memory, by length, a line a contender.

    Args:
        results: a file of results of ``relpos_lib.bench``, loaded.
        workload: which scheme.
        max_distance: which K; None for a scheme without one.
        causal: which mask.
        direction: "forward" or "forward+backward".
        dtype: which precision.
        only: names of the contenders to be drawn; everyone if not given.

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
            if only is not None and name not in only:
                continue
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
