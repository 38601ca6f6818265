"""One execution of each chapter checks its reproducibility and its solutions."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from book.tools.exercises import exercises
from book.tools.notebooks import executed, normalised, prepared, read, text


@cache
def execute(path: Path) -> tuple[NotebookNode, list[str]]:
    """The chapter as a new kernel leaves it, and what its checks then say.

    After the last cell, each solution is run in place of its stub and checked.
    """
    notebook = prepared(read(path), path.stem)
    length = len(notebook.cells)
    for exercise in exercises(notebook):
        for source in (exercise.solution, exercise.check):
            notebook.cells.append(nbformat.v4.new_code_cell(source))
    done = normalised(executed(notebook))
    checks = done.cells[length + 1 :: 2]
    done.cells = done.cells[:length]
    return done, ["".join(out.get("text", "") for out in c.outputs) for c in checks]


def without_pictures(notebook: NotebookNode) -> str:
    """The stored text with every picture replaced by one word."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for mime in output.get("data", {}):
                if mime.startswith("image/"):
                    output.data[mime] = "picture"
    return text(notebook)


def assert_same_text(new: str, old: str) -> None:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "stored", "new")
    shown = [line[:300] for line in list(lines)[:60]]
    assert new == old, "\n".join(["run `make notebooks`, or mend the chapter", *shown])


def test_executing_again_changes_nothing(path):
    new = execute(path)[0]
    assert_same_text(without_pictures(new), without_pictures(read(path)))
    if text(new) != path.read_text(encoding="utf-8"):
        # Another machine may round a pixel elsewhere; one machine must not differ
        # from itself.
        again = normalised(executed(prepared(read(path), path.stem)))
        assert text(new) == text(again)


def test_solutions_pass_their_checks(path):
    said = execute(path)[1]
    if not said:
        pytest.fail("the chapter has no exercise")
    for number, answer in enumerate(said, 1):
        verdicts = answer.splitlines()
        assert verdicts, f"exercise {number}: its check says nothing"
        assert all(": correct" in line for line in verdicts), f"{number}: {answer}"
