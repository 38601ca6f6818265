"""The first page's plot shows the committed results."""

import pytest
from PIL import Image, ImageChops, ImageStat

from book.tools.first_plot import PICTURE, SCHEMES, figure, picture
from relpos_lib.records import result

MAX_BYTES = 40_000


def test_each_line_is_a_measured_scheme():
    groups = result("experiments-length")["groups"]
    lines = {line.get_label(): line for line in figure().axes[0].lines}
    for slug, name in SCHEMES.items():
        means = [cell["mean"] for cell in groups[slug]["accuracy"].values()]
        assert list(lines[name].get_ydata()) == pytest.approx(means, abs=1e-5)


def test_the_committed_picture_is_what_is_drawn():
    """``python -m book.tools.first_plot`` draws it again."""
    committed, drawn = Image.open(PICTURE).convert("RGB"), picture().convert("RGB")
    assert committed.size == drawn.size
    off = ImageStat.Stat(ImageChops.difference(committed, drawn))
    assert max(off.mean) < 1  # letters may differ a little between versions
    assert PICTURE.stat().st_size < MAX_BYTES
