"""Measured numbers in the prose, filled in from ``relpos_lib/results``.

A number in a Markdown cell is written between two comments that no reader sees::

    <!-- result: switch.shaw.256 .2f -->1.00<!-- /result -->

``switch`` names the file ``switch.json``, ``shaw.256`` the way to the value in it
(keys, or indices of lists), ``.2f`` a format as in Python's f-strings; without one
the value is written as it is. Both comments stay, so filling in again is harmless.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from book.tools.repository import ROOT

RESULTS = ROOT / "relpos_lib" / "results"
MARK = re.compile(
    r"(?P<open><!-- result: (?P<file>[\w-]+)\.(?P<keys>\S+)(?: (?P<format>\S+))? -->)"
    r"(?P<value>.*?)(?P<close><!-- /result -->)",
    re.DOTALL,
)
# A line that starts with a comment is raw HTML as a whole: its Markdown is dead.
AT_LINE_START = re.compile(r"^ {0,3}<!-- /?result", re.MULTILINE)


class ResultError(ValueError):
    """A mark that cannot be filled in."""


def fill_results(text: str, folder: Path = RESULTS) -> str:
    """Return Markdown text with every marked number replaced by the measured one."""
    if AT_LINE_START.search(text):
        raise ResultError(f"a result must not start a line: {text[:60]!r}")
    if text.count("<!-- result") != len(MARK.findall(text)):
        raise ResultError(f"a result mark is not well formed: {text[:60]!r}")
    return MARK.sub(lambda match: filled(match, folder), text)


def filled(match: re.Match[str], folder: Path) -> str:
    """One marked number, with its marks."""
    file, keys, wanted = f"{match['file']}.json", match["keys"], match["format"] or ""
    value = look_up(folder / file, keys)
    try:
        return f"{match['open']}{format(value, wanted)}{match['close']}"
    except (TypeError, ValueError) as error:
        raise ResultError(f"{file}: {keys!r} as {wanted!r}: {error}") from error


def look_up(path: Path, keys: str) -> Any:
    """The value that ``keys`` leads to, like ``shaw.0.mean``."""
    value = load(path)
    for key in keys.split("."):
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ResultError(f"{path.name} has no {keys!r} (at {key!r})") from error
    return value


@cache
def load(path: Path) -> Any:
    """The content of a file of results."""
    if not path.is_file():
        raise ResultError(f"no such file of results: {path.name}")
    return json.loads(path.read_text(encoding="utf-8"))
