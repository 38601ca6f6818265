"""What is stored: the text as it was written, small pictures that look the same."""

import base64
import io

import nbformat.v4 as v4
import numpy as np
import pytest
from PIL import Image

from book.tools.notebooks import MOST_OFF, prepared, small_png
from relpos_lib.plots import matrices


def encode(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def pixels(encoded: str):
    picture = Image.open(io.BytesIO(base64.b64decode(encoded)))
    return np.asarray(picture.convert("RGB"), dtype=float)


@pytest.fixture(scope="module")
def drawn():
    buffer = io.BytesIO()
    matrices({"a": np.arange(400).reshape(20, 20)}).savefig(buffer)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def test_a_figure_shrinks_and_looks_the_same(drawn):
    small = small_png(drawn)
    assert len(small) < len(drawn) / 2
    assert np.abs(pixels(small) - pixels(drawn)).mean() < 2


def test_rare_colours_stay_what_they_are():
    """Blues, greens and reds everywhere, and yellow in one corner."""
    shades = np.arange(256, dtype=np.uint8)[None].repeat(300, 0)
    bands = np.zeros((3, 300, 256, 3), np.uint8)
    for channel, band in enumerate(bands):
        band[..., channel] = shades
    bands[0, :2, :2] = (255, 220, 40)
    whole = encode(Image.fromarray(bands.reshape(900, 256, 3)))
    off = np.abs(pixels(small_png(whole)).astype(int) - pixels(whole).astype(int))
    assert off.max() <= MOST_OFF


def test_shrinking_twice_changes_nothing(drawn):
    small = small_png(drawn)
    assert small_png(drawn) == small
    assert small_png(small) == small


def test_a_transparent_picture_is_left_alone():
    encoded = encode(Image.new("RGBA", (4, 4), (200, 10, 10, 100)))
    assert small_png(encoded) == encoded


def test_only_the_end_of_a_cell_is_trimmed():
    code = 'text = """a  \n\u2028b\n"""'
    cells = [v4.new_markdown_cell("One,  \ntwo.\n\n"), v4.new_code_cell(code + " \n")]
    first, _, last = prepared(v4.new_notebook(cells=cells), "01-one").cells
    assert first.source == "One,  \ntwo."
    assert last.source == code
