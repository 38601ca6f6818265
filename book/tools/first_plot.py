"""Draw the plot of the book's first page from the measured results.

``python -m book.tools.first_plot``, after new results of the sweep "length".
"""

from __future__ import annotations

import io

from matplotlib.figure import Figure
from PIL import Image

from book.tools.notebooks import with_palette
from book.tools.repository import ROOT
from relpos_lib.plots import by_length
from relpos_lib.records import result

PICTURE = ROOT / "book" / "_static" / "lengths.png"
SIZE = (4.2, 4.6)  # inches: high and narrow, so that a phone shows all of it
LEGEND = {"ncols": 2, "frameon": False, "fontsize": 9, "columnspacing": 1}
DENSITY = 150  # dots an inch: sharp on the page, and still small
SCHEMES = {
    "shaw-K4": "Shaw's vectors, K = 4",
    "rotary": "rotary code",
    "bias-K4": "bias, clipped at K = 4",
    "bias-unclipped": "bias, not clipped",
    "sinusoidal": "sinusoidal code",
    "none": "no position",
}


def figure() -> Figure:
    """Accuracy by length of a few schemes, one line a scheme."""
    drawn = by_length(result("experiments-length"), only=SCHEMES, title=SCHEMES)
    axes = drawn.axes[0]
    lines, names = axes.get_legend_handles_labels()
    if inside := axes.get_legend():
        inside.remove()
    drawn.set_size_inches(*SIZE)
    drawn.legend(lines, names, loc="outside lower center", **LEGEND)
    return drawn


def picture() -> Image.Image:
    """The figure in few colours."""
    drawn = io.BytesIO()
    figure().savefig(drawn, format="png", dpi=DENSITY)
    return with_palette(Image.open(drawn).convert("RGB"))


def main() -> None:
    """Write the picture."""
    picture().save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
