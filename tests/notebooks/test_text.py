"""The prose of a chapter: where its numbers come from, and how long it takes."""

from __future__ import annotations

import re

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from book.tools.repository import ROOT
from book.tools.results import MARK

WORDS_A_MINUTE = 200
CELLS_A_MINUTE = 3
MINUTES_OFF = 10
# Figures of other people's papers, and what the reader works out on paper.
SAID = re.compile(r"<!-- numbers: (?:published|by hand) -->")
CITED = re.compile(r"(?:et al\.|and [A-Z]\w+) \(?(?:19|20)\d\d")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]*\$", re.DOTALL)
SOLUTION = re.compile(r"<details>.*?</details>", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?!\w|\.\d)|\d+(?:\.\d+)?(?= ?%)")


def prose(cell) -> str:
    """A cell's text without measured numbers, code and formulas."""
    text = MARK.sub(" ", cell.source)
    return FORMULA.sub(" ", CODE.sub(" ", text))


def texts(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def code_and_outputs(notebook) -> str:
    """What the reader sees in the notebook besides the prose."""
    shown = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shown.append(cell.source)
            for output in cell.outputs:
                shown.append(output.get("text", ""))
                shown.append(output.get("data", {}).get("text/plain", ""))
    return "\n".join(shown)


def numbers_typed_by_hand(notebook) -> list[str]:
    """Decimals and percents that are no measured result, on no cell, and not cited."""
    shown = code_and_outputs(notebook)
    found = []
    for cell in texts(notebook):
        for paragraph in re.split(r"\n\s*\n", prose(cell)):
            if SAID.search(cell.source) or CITED.search(paragraph):
                continue
            found += [
                f"{cell.id}: {number}"
                for number in NUMBER.findall(paragraph)
                if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", shown)
            ]
    return found


def test_numbers_in_prose_have_a_source(notebook):
    assert numbers_typed_by_hand(notebook) == []


def minutes_for(notebook) -> float:
    """How long reading takes, by words and cells, without the solutions."""
    words = sum(
        len(re.findall(r"[A-Za-z']+", SOLUTION.sub(" ", prose(cell))))
        for cell in texts(notebook)
    )
    cells = len(notebook.cells) - len(texts(notebook))
    return words / WORDS_A_MINUTE + cells / CELLS_A_MINUTE


def is_chapter(path) -> bool:
    """Whether a notebook is numbered in the book; others are for practice."""
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    return f"book/{path.stem}" in toc.split("caption: Practice")[0]


def stated_minutes(notebook) -> int | None:
    """What a chapter says of its reading time; pages to work on say nothing."""
    opening = notebook.cells[0].source
    said = re.search(r"Reading time: about (\d+) minutes", opening)
    return int(said[1]) if said else None


def test_reading_time_is_what_it_says(path, notebook):
    stated = stated_minutes(notebook)
    if is_chapter(path):
        assert stated is not None, "the opening says: Reading time: about N minutes"
        assert 20 <= stated <= 40
        assert abs(stated - minutes_for(notebook)) <= MINUTES_OFF
    else:
        assert stated is None


def test_a_number_without_a_source_is_found():
    texts_of = {
        "It reaches 0.97.": ["0.97"],
        "It loses 15 % there.": ["15"],
        "It reaches <!-- result: a.b .2f -->0.97<!-- /result -->.": [],
        "Shaw et al. (2018) reach 0.97.": [],
        "The rate is 0.01, as in the cell.": [],
        "So 3/4 = 0.75.\n\n<!-- numbers: by hand -->": [],
    }
    for source, found in texts_of.items():
        cells = [new_markdown_cell(source), new_code_cell("rate = 0.01")]
        numbers = numbers_typed_by_hand(new_notebook(cells=cells))
        assert [number.split(": ")[1] for number in numbers] == found, source
