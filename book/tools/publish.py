"""Write the chapters as they are published: with the address of their library.

Usage: ``python -m book.tools.publish FOLDER COMMIT``. The folder becomes the content
of the branch that the Colab buttons open.
"""

from __future__ import annotations

import sys
from pathlib import Path

from book.tools import setup_cell
from book.tools.notebooks import chapters, read, text
from book.tools.repository import repository_address


def stamped(path: Path, repository: str, commit: str) -> str:
    """A chapter whose first cell installs the library from one commit."""
    notebook = read(path)
    setups = [cell for cell in notebook.cells if setup_cell.is_setup(cell)]
    if len(setups) != 1:
        raise ValueError(f"{path.name} must have one setup cell, not {len(setups)}")
    setups[0].source = setup_cell.stamped(repository, commit)
    return text(notebook)


def main() -> int:
    """Stamp every chapter into a folder."""
    folder, commit = Path(sys.argv[1]), sys.argv[2]
    repository = repository_address()
    if repository is None:
        print("The address of the repository is not known: see _config.yml")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for path in chapters():
        content = stamped(path, repository, commit)
        (folder / path.name).write_text(content, encoding="utf-8")
        print(f"stamped {path.name} with {repository}@{commit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
