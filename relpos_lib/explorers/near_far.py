"""Near and far explorer: how all pairs are divided, and what each form costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from relpos_lib.backends.near_far.chunks import chunks
from relpos_lib.backends.near_far.near import NUMBERS
from relpos_lib.backends.near_far.operator import TILE
from relpos_lib.backends.near_far.quadtree import (
    Lengths,
    Rectangles,
    Tiles,
    far_rectangles,
    near_tiles,
)
from relpos_lib.explorers._base import Explorer, WholeNumber, YesNo, fixed
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._picture import png_of
from relpos_lib.offsets import farthest_offset
from relpos_lib.palette import EMPTY, PAPER, colour_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHORTEST, LONGEST = 8, 8192
FARTHEST, LARGEST_TILE = 1024, 512
FLOAT = 4  # bytes of a number in float32
NAMES = {
    "plain": "no positions",
    "usual": "usual, (L, L, D)",
    "gather": "gather",
    "near_far": "near and far",
}


class Cost(NamedTuple):
    """What a form of attention costs, forward.

    Attributes:
        multiplications: each with its addition, so two floating-point operations.
        bytes: of what is written out beside the output.
    """

    multiplications: int
    bytes: int


class NearFarExplorer(Explorer):
    """Far rectangles and near tiles of L tokens, and the price beside other forms.

    Costs are those of Shaw's keys and values, forward, in float32.

    Args:
        length: L, from 8 to 8192. Sliders go in round steps; Python takes any.
        max_distance: K, from 1 to 1024; offsets beyond L - 1 do not occur.
        leaf: T, the queries of a near tile, from 1 to 512; the library takes 128.
        causal: whether keys later than the query are hidden.
        num_heads: H, from 1 to 64.
        head_width: D, from 1 to 256.

    Raises:
        traitlets.TraitError: if a value is out of its range, now or when it is set.

    >>> explorer = NearFarExplorer(length=2048, max_distance=16)
    >>> usual = explorer.costs()["usual"]
    >>> usual.multiplications / explorer.costs()["plain"].multiplications
    2.0
    """

    _esm = bundle("near_far.js")

    num_heads = fixed(WholeNumber, 1, 64)
    head_width = fixed(WholeNumber, 1, 256)
    _longest = fixed(WholeNumber, SHORTEST, LONGEST)
    _at_once = fixed(WholeNumber, 1, 1 << 30)
    length = WholeNumber(SHORTEST, LONGEST)
    max_distance = WholeNumber(1, FARTHEST)
    leaf = WholeNumber(1, LARGEST_TILE)
    causal = YesNo()

    def __init__(
        self,
        *,
        length: int = 2048,
        max_distance: int = 16,
        leaf: int = TILE,
        causal: bool = False,
        num_heads: int = 8,
        head_width: int = 64,
    ) -> None:
        self._fix(
            num_heads=num_heads,
            head_width=head_width,
            _longest=LONGEST,
            _at_once=NUMBERS,
        )
        super().__init__(
            length=length, max_distance=max_distance, leaf=leaf, causal=causal
        )

    def lengths(self) -> Lengths:
        """What a division depends on.

        The library makes K up to seven larger first, for rows in whole pieces.
        """
        reach = min(self.max_distance, farthest_offset(self.length, self.length))
        tile = min(self.leaf, self.length)
        return Lengths(self.length, self.length, 0, reach, self.causal, tile)

    def rectangles(self) -> tuple[Rectangles, ...]:
        """The far pairs: one entry for each call of the kernel."""
        return far_rectangles(self.lengths())

    def tiles(self) -> tuple[Tiles, ...]:
        """The near pairs: equal tiles that follow one another are one entry."""
        return near_tiles(self.lengths())

    def near_share(self) -> float:
        """Pairs in near tiles, of all L · L."""
        return self._near_pairs() / self.length**2

    def costs(self) -> dict[str, Cost]:
        """What each form costs: plain attention, usual, gather, near_far.

        A dense form computes all L · L pairs, whatever the mask; plain attention is a
        fused kernel, which computes those that are visible and writes nothing else.
        """
        length, heads, width = self.length, self.num_heads, self.head_width
        every = 2 * heads * length**2 * width  # scores and values
        scores = heads * length**2
        by_row = heads * length * (2 * self.lengths().max_distance + 1)
        plain = heads * length * (length + 1) * width if self.causal else every
        return {
            "plain": Cost(plain, 0),
            "usual": Cost(2 * every, FLOAT * (2 * length**2 * width + scores)),
            "gather": Cost(every + 2 * by_row * width, FLOAT * (by_row + scores)),
            "near_far": self._near_far_cost(),
        }

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        rectangles = self.rectangles()
        number = sum(one.number for one in rectangles)
        share = self.near_share()
        return (
            f"Near and far explorer: {self.length} tokens, maximum distance "
            f"{self.max_distance}, tiles of {self.lengths().tile} queries"
            f"{', causal' if self.causal else ''}: {counted(number, 'far rectangle')} "
            f"in {counted(len(rectangles), 'call')}, "
            f"{share:.{2 if share < 0.01 else 1}%} of all pairs in near tiles."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure((8.6, 4.4), layout="constrained", facecolor=PAPER)
        FigureCanvasAgg(figure)
        axes = figure.subplot_mosaic("ab\nac", width_ratios=(1.1, 1))
        self._draw_division(axes["a"])
        costs = self.costs()
        for ax, field in ((axes["b"], "multiplications"), (axes["c"], "bytes")):
            _draw_bars(ax, {n: getattr(one, field) for n, one in costs.items()}, field)
        return png_of(figure)

    def _near_pairs(self) -> int:
        return sum(t.queries * (t.stop - t.start) * t.number for t in self.tiles())

    def _near_far_cost(self) -> Cost:
        """Far and near pairs, rows of the tables, and one merge for each rectangle.

        The library also multiplies with zeros where a band reaches beyond the keys.

        Written out are an average and a log-sum-exp for every query and side, and of
        the tiles that are worked on at a time the scores, by key and by row, and the
        keys and values of their bands.
        """
        lengths, far = self.lengths(), self.rectangles()
        heads, width = self.num_heads, self.head_width
        pairs = self._near_pairs()
        pairs += sum(one.queries * one.keys * one.number for one in far)
        merged = sum(one.queries * one.number for one in far)
        sides = 1 if self.causal else 2
        rows = lengths.near + sides
        band = lengths.tile + lengths.near - 1
        largest = chunks(lengths, heads, NUMBERS)[0]
        at_once = largest.heads * largest.number
        return Cost(
            heads * width * (2 * pairs + 2 * self.length * rows + merged),
            FLOAT
            * (
                sides * heads * self.length * (width + 1)
                + at_once * (lengths.tile * (band + rows) + 2 * band * width)
            ),
        )

    def _draw_division(self, ax: Axes) -> None:
        from matplotlib.collections import PolyCollection

        from relpos_lib.plots.fast import quadtree_regions

        regions = list(quadtree_regions(self.lengths()))
        shades = shades_of(self.rectangles())
        corners = [
            [(x, y), (x + w, y), (x + w, y + h), (x, y + h)]
            for _, y, h, x, w in regions
        ]
        colours = [shades[one.queries if one.is_far else 0] for one in regions]
        border = 0.8 if len(regions) < 500 else 0
        ax.add_collection(
            PolyCollection(corners, facecolors=colours, edgecolors=PAPER, lw=border)
        )
        ax.set(
            xlim=(0, self.length),
            ylim=(self.length, 0),
            aspect="equal",
            facecolor=EMPTY,
            xlabel="key position j",
            ylabel="query position i",
            title=f"{self.near_share():.1%} of all pairs in near tiles (orange)",
        )
        _small(ax)


def shades_of(rectangles: tuple[Rectangles, ...]) -> dict[int, tuple[float, ...]]:
    """Colour of far rectangles by their queries, dark for large; of near tiles by 0."""
    sizes = sorted({one.queries for one in rectangles}, reverse=True)
    far, near = colour_map(signed=False), colour_map(signed=True)
    last = max(1, len(sizes) - 1)
    shades = {n: tuple(far(0.1 + 0.65 * k / last)) for k, n in enumerate(sizes)}
    return shades | {0: tuple(near(0.75))}


def counted(number: int, what: str) -> str:
    """A number and a word, which has an s if it needs one."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def with_prefix(x: float) -> str:
    """Three digits and a prefix, with a space for a unit to follow.

    >>> with_prefix(17179869184), with_prefix(999.6), with_prefix(0)
    ('17.2 G', '1.00 k', '0 ')
    """
    prefixes = iter(("", "k", "M", "G", "T"))
    prefix = next(prefixes)
    while x >= 999.5:
        x /= 1000
        prefix = next(prefixes)
    digits = 2 if x < 9.995 else 1 if x < 99.95 else 0
    return f"{x:.{digits if prefix else 0}f} {prefix}"


def _draw_bars(ax: Axes, numbers: dict[str, int], field: str) -> None:
    """One bar a form, on a logarithmic scale."""
    bars = ax.barh(
        [NAMES[name] for name in numbers],
        [max(1, number) for number in numbers.values()],
        color=["#6b7280", "#1c5a8a", "#1c5a8a", "#b4540a"],
    )
    unit = "B" if field == "bytes" else ""
    texts = [with_prefix(number) + unit for number in numbers.values()]
    ax.bar_label(bars, texts, padding=3, fontsize=8)
    ax.set(xscale="log", xlim=(1e3, 10 ** (math.log10(max(numbers.values())) + 2)))
    ax.set_xlabel("bytes written out" if field == "bytes" else field)
    ax.set_facecolor(PAPER)
    ax.minorticks_off()
    ax.invert_yaxis()
    _small(ax)


def _small(ax: Axes) -> None:
    """Small numbers and letters, no frame."""
    ax.tick_params(labelsize=8, length=0)
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_fontsize(9)
    ax.spines[:].set_visible(False)
