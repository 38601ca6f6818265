"""Sinusoid explorer: clocks that name positions, and what their dot products keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import traitlets
from torch import Tensor

from relpos_lib.explorers._base import Explorer, WholeNumber, Word, fixed
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._picture import blank_picture, png_of
from relpos_lib.palette import colour_map
from relpos_lib.sinusoidal import sinusoidal_encoding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X_NAMES = {"offset": "offset δ", "position": "position q"}


class SinusoidExplorer(Explorer):
    """The sinusoidal code as a heat map, as clock hands and as dot products.

    The reader moves a position p and an offset δ: all hands turn, the two products of
    every hand change, and the dot product of the two codes stays what it was.

    Args:
        length: L, positions of the heat map, from 2 to 128.
        width: E, dimensions of a code, even, from 2 to 128.
        position: p, from 0 to ``length - 1``.
        offset: δ, from ``-(length - 1)`` to ``length - 1``.
        dimension: the dimension that is looked at, from 0 to ``width - 1``; with the
            other one of its hand.
        base: ratio of the slowest to the fastest wavelength, a whole number from 2 to
            1,000,000.
        along: whether the dot products are drawn over the "offset" δ or over the
            "position" q = p + δ.

    Raises:
        traitlets.TraitError: if a value is out of its range, now or when it is set.

    >>> explorer = SinusoidExplorer(position=3, offset=2)
    >>> before = explorer.products()
    >>> explorer.position = 40
    >>> torch.allclose(explorer.products(), before)
    True
    """

    _esm = bundle("sinusoid.js")

    length = fixed(WholeNumber, 2, 128)
    width = fixed(WholeNumber, 2, 128)
    position = WholeNumber(0, "_last_position")
    offset = WholeNumber("_first_offset", "_last_position")
    dimension = WholeNumber(0, "_last_dimension")
    base = WholeNumber(2, 1_000_000)
    along = Word("offset", "position")

    def __init__(
        self,
        *,
        length: int = 64,
        width: int = 32,
        position: int = 10,
        offset: int = 6,
        dimension: int = 8,
        base: int = 10_000,
        along: str = "offset",
    ) -> None:
        self._fix(length=length, width=width)
        if self.width % 2:
            raise traitlets.TraitError(
                f"width of {type(self).__name__} must be even, got {width!r}"
            )
        super().__init__(
            position=position,
            offset=offset,
            dimension=dimension,
            base=base,
            along=along,
        )

    @property
    def _last_position(self) -> int:
        return int(self.length) - 1

    @property
    def _first_offset(self) -> int:
        return 1 - int(self.length)

    @property
    def _last_dimension(self) -> int:
        return int(self.width) - 1

    def codes(self) -> Tensor:
        """The heat map: codes of all positions, (L, E), float64."""
        return self._codes(0, self.length)

    def products(self) -> Tensor:
        """The curve: dot products of the codes at p and p + δ, (2L - 1,), float64.

        Offsets run from -(L - 1) to L - 1, also to positions outside of the sequence.
        """
        reach = self._last_position
        around = self._codes(self.position - reach, 2 * reach + 1)
        return around @ around[reach]

    def hands(self) -> Tensor:
        """The clock: sine and cosine at p and at p + δ, (2, 2), float64."""
        first = self.dimension - self.dimension % 2
        places = (self.position, self.position + self.offset)
        return torch.cat([self._codes(p, 1)[:, first : first + 2] for p in places])

    def _codes(self, start: int, length: int) -> Tensor:
        return sinusoidal_encoding(
            length,
            self.width,
            start=start,
            base=float(self.base),
            dtype=torch.float64,
        )

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        product = self.products()[self._last_position + self.offset].item()
        return (
            f"Sinusoid explorer: code of {self.length} positions with {self.width} "
            f"dimensions, base {self.base}; the codes of positions {self.position} and "
            f"{self.position + self.offset} have the dot product {product:.2f}, as any "
            f"two that are {abs(self.offset)} apart."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        figure = blank_picture(8.0, 3.4)
        heat, curve = figure.subplots(1, 2, width_ratios=(1, 1.3))
        self._draw_codes(heat)
        self._draw_products(curve)
        figure.colorbar(heat.images[0], ax=heat, shrink=0.8, label="value")
        return png_of(figure)

    def _draw_codes(self, ax: Axes) -> None:
        codes = self.codes().numpy()
        ax.imshow(codes, cmap=colour_map(True), vmin=-1, vmax=1, aspect="auto")
        for place, style in ((self.position, "-"), (self.position + self.offset, "--")):
            if 0 <= place < self.length:
                ax.axhline(place, color="black", linestyle=style, linewidth=1.2)
        ax.set(xlabel="dimension", ylabel="position p")

    def _draw_products(self, ax: Axes) -> None:
        products, reach = self.products().numpy(), self._last_position
        shift = self.position if self.along == "position" else 0
        x = torch.arange(-reach, reach + 1).numpy() + shift
        inside = slice(reach - self.position, 2 * reach + 1 - self.position)
        style: dict[str, Any] = {"color": "#1c5a8a"}
        ax.plot(x, products, linestyle=":", linewidth=1, **style)
        ax.plot(x[inside], products[inside], linewidth=1.8, **style)
        ax.plot(x[reach + self.offset], products[reach + self.offset], "o", **style)
        ax.set(xlabel=X_NAMES[self.along], ylabel="code(p) · code(p + δ)")
        ax.set_title(f"p = {self.position}", fontsize=9)
