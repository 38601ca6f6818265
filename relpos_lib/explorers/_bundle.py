"""Join a figure's JavaScript and the files it imports into one ES module.

anywidget sends one module per widget, and on a page without a kernel there is nobody to
ask for a second file. The sources follow three rules that make joining them simple:
imports are named and come from ``"./file.js"``, exported names are unique across files,
and a comment has its lines to itself.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
_IMPORT = re.compile(r'^import\s*\{[^}]*\}\s*from\s*"\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const|function|class|let)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*\*.*?\*/|//[^\n]*)\n", re.MULTILINE | re.DOTALL)


@cache
def bundle(entry: str) -> str:
    """One ES module from a file of this folder and everything it imports.

    Args:
        entry: name of a file in this folder whose default export is the figure.

    Returns:
        The module's text, without imports and without the comments.

    Raises:
        FileNotFoundError: if the file, or one that it imports, does not exist.
    """
    parts: dict[str, str] = {}
    _collect(entry, parts)
    return "\n".join(parts.values())


@cache
def styles() -> str:
    """The style sheet that all figures share."""
    return (FOLDER / "figures.css").read_text(encoding="utf-8")


def _collect(name: str, parts: dict[str, str]) -> None:
    """Add a file to ``parts``, after the files it imports and each only once."""
    source = (FOLDER / name).read_text(encoding="utf-8")
    for imported in _IMPORT.findall(source):
        if imported not in parts:
            _collect(imported, parts)
    source = _EXPORT.sub("", _IMPORT.sub("", source))
    parts[name] = _COMMENT.sub("", source).strip() + "\n"
