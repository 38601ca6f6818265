"""The book's colours for matplotlib: those of its style sheet and of the live figures.

Magnitudes are viridis; signed values run from blue over white to orange, which readers
with any colour vision can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

SEQUENTIAL = "440154,472d7b,3b528b,2c728e,21918c,28ae80,5ec962,addc30,fde725"
DIVERGING = "053061,2a71b2,6bacd1,c2ddec,f7f6f6,fdcf9b,e99e4a,b9610a,7f3b08"
PAPER, EMPTY = "#fdfcf9", "#e4e1d8"


def colour_map(signed: bool) -> Colormap:
    """The map for signed values, to be centred at 0, or the one for magnitudes."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = (DIVERGING if signed else SEQUENTIAL).split(",")
    return LinearSegmentedColormap.from_list("book", [f"#{stop}" for stop in stops])


def ink_on(rgb: Sequence[float]) -> str:
    """Black or white, whichever is easier to read on a colour."""
    red, green, blue = rgb[:3]
    light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18
    return "black" if light else "white"
