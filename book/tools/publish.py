"""Chapters to download from a published site: with the address of their library.

What Colab opens carries the library itself instead: see ``portable.py``.
"""

from __future__ import annotations

from pathlib import Path

from book.tools import setup_cell
from book.tools.notebooks import read, text


def stamped(path: Path, repository: str, commit: str) -> str:
    """A chapter whose first cell installs the library from one commit."""
    notebook = read(path)
    setups = [cell for cell in notebook.cells if setup_cell.is_setup(cell)]
    if len(setups) != 1:
        raise ValueError(f"{path.name} must have one setup cell, not {len(setups)}")
    setups[0].source = setup_cell.stamped(repository, commit)
    return text(notebook)
