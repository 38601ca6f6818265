"""Execute the chapters and write them back, so that they can be committed.

Doing it twice changes no byte: cell ids are counted, times and widget views are
dropped, the setup cell and the numbers in the prose come from their own homes.
"""

from __future__ import annotations

import base64
import copy
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from book.tools import setup_cell
from book.tools.repository import ROOT
from book.tools.results import fill_results

if TYPE_CHECKING:
    from PIL import Image

BOOK = ROOT / "book"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# Views of widgets are rebuilt by whoever runs the notebook; their picture stays.
WIDGET_PREFIX = "application/vnd.jupyter.widget"
KEPT_CELL_METADATA = ("mystnb", "tags")
CELL_TIMEOUT = 600
MOST_OFF = 48  # of 255, by which a colour of a stored picture may differ


def chapters() -> list[Path]:
    """The notebooks of the book, in order."""
    return sorted(BOOK.glob("*.ipynb"))


def pages() -> list[Path]:
    """The pages of the book that are plain Markdown."""
    return sorted(BOOK.glob("*.md"))


def read(path: Path) -> NotebookNode:
    """Read a notebook in the format that is written here."""
    return nbformat.read(path, as_version=4)


def text(notebook: NotebookNode) -> str:
    """The notebook as it is stored."""
    return nbformat.writes(notebook, indent=1, ensure_ascii=False) + "\n"


def prepared(notebook: NotebookNode, slug: str) -> NotebookNode:
    """A copy with the setup cell and the measured numbers written in."""
    notebook = copy.deepcopy(notebook)
    put_setup_cell(notebook)
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(KERNEL), language_info=NotebookNode(name="python")
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{slug}-{number:03d}"
        # Only the end: spaces may be a line break of Markdown, or inside a string.
        cell.source = cell.source.rstrip()
        kept = {k: cell.metadata[k] for k in KEPT_CELL_METADATA if k in cell.metadata}
        cell.metadata = NotebookNode(kept)
        if cell.cell_type == "markdown":
            cell.source = fill_results(cell.source)
            cell.pop("attachments", None)
    return notebook


def put_setup_cell(notebook: NotebookNode) -> None:
    """Make the first code cell the setup cell, after the opening text."""
    cells = notebook.cells
    cells[:] = [cell for cell in cells if not setup_cell.is_setup(cell)]
    places = (i for i, cell in enumerate(cells) if cell.cell_type == "code")
    cell = nbformat.v4.new_code_cell(
        setup_cell.SOURCE, metadata=copy.deepcopy(setup_cell.METADATA)
    )
    cells.insert(next(places, len(cells)), cell)


def executed(notebook: NotebookNode, folder: Path = BOOK) -> NotebookNode:
    """A copy whose code cells were run, in order, in one new kernel."""
    notebook = copy.deepcopy(notebook)
    NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name=KERNEL["name"],
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    ).execute()
    return notebook


def normalised(notebook: NotebookNode) -> NotebookNode:
    """A copy without what differs from one execution to the next."""
    notebook = copy.deepcopy(notebook)
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = NotebookNode(name="python")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata.pop("execution", None)
            cell.outputs = [out for out in map(kept_output, cell.outputs) if out]
    return notebook


def kept_output(output: NotebookNode) -> NotebookNode | None:
    """The output without its widget view; None if nothing is left of it."""
    if "data" not in output:
        return output
    for mime in [m for m in output.data if m.startswith(WIDGET_PREFIX)]:
        del output.data[mime]
    if "image/png" in output.data:
        output.data["image/png"] = small_png(output.data["image/png"])
    output.metadata = NotebookNode()
    return output if output.data else None


def small_png(encoded: str) -> str:
    """A picture in Base64 with a palette of 256 colours: a third of the bytes.

    It is what is stored; whoever executes the chapter sees the full picture.
    """
    from PIL import Image  # here, because publishing does without it

    picture = Image.open(io.BytesIO(base64.b64decode(encoded)))
    opaque = picture.convert("RGBA").getchannel("A").getextrema() == (255, 255)
    if picture.mode == "P" or not opaque:
        return encoded  # done before, or transparent, which a palette does badly
    shrunk = io.BytesIO()
    with_palette(picture.convert("RGB")).save(shrunk, "PNG", optimize=True)
    return base64.b64encode(shrunk.getvalue()).decode("ascii")


def with_palette(picture: Image.Image) -> Image.Image:
    """The picture in 256 colours, none of them far from what it was.

    Cutting at the median is best for common colours. Rare ones, such as those at the
    end of a scale, it may take for others; then all are chosen to be near.
    """
    from PIL import Image, ImageChops

    def reduced(method: Image.Quantize) -> Image.Image:
        return picture.quantize(256, method, dither=Image.Dither.NONE)

    common = reduced(Image.Quantize.MEDIANCUT)
    off = ImageChops.difference(picture, common.convert("RGB"))
    far = max(off.tobytes()) > MOST_OFF
    return reduced(Image.Quantize.MAXCOVERAGE) if far else common


def refreshed(path: Path) -> str:
    """What a page's file should hold: its numbers filled in, its cells executed."""
    if path.suffix == ".md":
        return fill_results(path.read_text(encoding="utf-8"))
    return text(normalised(executed(prepared(read(path), path.stem))))


def main() -> int:
    """Refresh every page, or those named on the command line."""
    paths = [Path(name) for name in sys.argv[1:]] or chapters() + pages()
    for path in paths:
        before, after = path.read_text(encoding="utf-8"), refreshed(path)
        print("unchanged" if before == after else "written  ", path.name, flush=True)
        path.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
