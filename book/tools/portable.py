"""Write each chapter as one file that carries its library inside itself.

``python -m book.tools.portable [FOLDER]``, or ``make portable``. Such a notebook
needs no repository and cannot drift from its library: both are of one commit. Its
setup cell holds ``relpos_lib`` as text, checks it and unpacks it. The outputs stay.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import tomllib
from nbformat import NotebookNode

from book.tools import setup_cell
from book.tools.notebooks import chapters, read, text
from book.tools.repository import PASSING, ROOT, library_commit

PACKAGE = "relpos_lib"
PORTABLE = "portable"  # name of their folder, in what is built and on the site
NAME = re.compile(r"[\w-]+")
# Folded in Jupyter, Colab and Kaggle alike: it is long, and nothing to read.
METADATA = {
    "tags": ["hide-input", "setup"],
    "cellView": "form",
    "jupyter": {"source_hidden": True},
    "_kg_hide-input": True,
}
NOTE = """\
**This notebook carries its library inside itself:** `{name}` {version}, {commit}: \
{files} files, {size} kB packed, SHA-256 `{digest}`. The next cell checks it and \
unpacks it into a temporary folder. It installs only what is missing of {needs}; \
torch stays as it is."""
# The long line stands far from whatever may raise: errors show the lines around them.
SETUP = '''\
# @title Setup: unpack the library that this notebook carries
LIBRARY = "{library}"
SHA256 = "{digest}"
NEEDS = {needs}

import base64
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
import zlib
from importlib.metadata import version
from importlib.util import find_spec


def unpack():
    """Put the library on Python's path, if not one byte of it was changed."""
    if hashlib.sha256(LIBRARY.encode()).hexdigest() != SHA256:
        raise ImportError(
            "The library in this notebook was changed or cut off: its SHA-256 is "
            "not the one written beside it. Download the notebook again."
        )
    loaded = sys.modules.get("{name}")
    if loaded is None:
        folder = tempfile.mkdtemp(prefix=f"{name}-{{SHA256[:12]}}-")
        packed = zlib.decompress(base64.b64decode(LIBRARY))
        zipfile.ZipFile(io.BytesIO(packed)).extractall(folder)
        sys.path.insert(0, folder)
    elif SHA256[:12] not in str(loaded.__file__):
        raise ImportError(
            "Another {name} is loaded already. Restart the kernel and run "
            "this cell first."
        )


def install_absent():
    """Install what is missing; torch and numpy keep their versions."""
    absent = [name for name in NEEDS if not find_spec(name.replace("-", "_"))]
    if absent:
        present = [name for name in ("torch", "numpy") if find_spec(name)]
        kept = [f"{{name}}=={{version(name)}}" for name in present]
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *absent, *kept], check=True)


unpack()
install_absent()
if "google.colab" in sys.modules:
    sys.modules["google.colab"].output.enable_custom_widget_manager()
print("{name} {version}, {commit}: unpacked and checked")\
'''


@dataclass(frozen=True)
class Library:
    """The library as text, and what the notebook says of it."""

    text: str
    files: int
    version: str
    commit: str | None
    needs: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def about(self) -> dict[str, Any]:
        """What the notebook's metadata say."""
        return {
            "version": self.version,
            "commit": self.commit,
            "files": self.files,
            "bytes": len(self.text),
            "sha256": self.digest,
        }

    @property
    def told_commit(self) -> str:
        """The commit in words."""
        return f"commit {self.commit}" if self.commit else "of no commit"


def library_files(root: Path = ROOT) -> list[Path]:
    """Every file of the library, in a fixed order."""
    found = (root / PACKAGE).rglob("*")
    return sorted(
        path
        for path in found
        if path.is_file() and not PASSING & {*path.relative_to(root).parts}
    )


def packed(root: Path = ROOT) -> bytes:
    """The library as a compressed zip; the same files give the same bytes.

    The zip is compressed as a whole: many small files share what they have in common.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in library_files(root):
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix())
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return zlib.compress(buffer.getvalue(), level=9)


def library(root: Path = ROOT) -> Library:
    """The library as it lies on disk."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = ["numpy", *project["optional-dependencies"]["book"]]
    return Library(
        text=base64.b64encode(packed(root)).decode("ascii"),
        files=len(library_files(root)),
        version=project["version"],
        commit=library_commit(root),
        needs=tuple(name[0] for each in wanted if (name := NAME.match(each))),
    )


def setup_source(carried: Library) -> str:
    """The setup cell that holds the library."""
    return SETUP.format(
        name=PACKAGE,
        library=carried.text,
        digest=carried.digest,
        needs=carried.needs,
        version=carried.version,
        commit=carried.told_commit,
    )


def note(carried: Library) -> str:
    """What the reader is told of the library."""
    return NOTE.format(
        name=PACKAGE,
        version=carried.version,
        commit=carried.told_commit,
        files=carried.files,
        size=len(carried.text) // 1000,
        digest=carried.digest,
        needs=", ".join(carried.needs),
    )


def portable(path: Path, carried: Library) -> NotebookNode:
    """A chapter with the library in its setup cell; everything else as committed."""
    notebook = read(path)
    places = [i for i, cell in enumerate(notebook.cells) if setup_cell.is_setup(cell)]
    if len(places) != 1:
        raise ValueError(f"{path.name} must have one setup cell, not {len(places)}")
    cell = notebook.cells[places[0]]
    cell.source, cell.metadata = setup_source(carried), NotebookNode(METADATA)
    told = nbformat.v4.new_markdown_cell(note(carried), id=f"{path.stem}-library")
    notebook.cells.insert(places[0], told)
    notebook.metadata[PACKAGE] = NotebookNode(carried.about)
    return notebook


def write_portable(folder: Path) -> list[Path]:
    """Write every chapter into a folder; a file that would not change is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    carried, written = library(), []
    for path in chapters():
        content = text(portable(path, carried))
        target = folder / path.name
        if not target.is_file() or target.read_text(encoding="utf-8") != content:
            target.write_text(content, encoding="utf-8")
        written.append(target)
    return written


def main() -> int:
    """Write the notebooks and say what they carry."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "_build" / PORTABLE
    for path in write_portable(folder):
        print(f"{path.name:24} {path.stat().st_size // 1000:4} kB")
    carried = library()
    print(f"Each carries {PACKAGE} {carried.version}, {carried.told_commit}:")
    print(f"{carried.files} files, {len(carried.text) // 1000} kB, {carried.digest}")
    print(f"They are here: {folder.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
