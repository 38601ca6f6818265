"""The execution that the site shows is the stored one, and the solutions are right."""

from __future__ import annotations

import ast
import contextlib
import difflib
import io
import logging
from pathlib import Path

import nbformat
import pytest
from myst_nb.core.config import NbParserConfig
from myst_nb.core.execute import direct
from myst_nb.core.utils import coalesce_streams
from nbformat import NotebookNode

from book._ext import execution
from book.tools.exercises import exercises
from book.tools.notebooks import executed, normalised, prepared, read, text
from book.tools.repository import ROOT

EXECUTED = ROOT / "_build" / "jupyter_execute"
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def built(path: Path) -> NotebookNode:
    """The chapter as it was executed when the site was built."""
    result = EXECUTED / path.relative_to(ROOT)
    if not result.is_file():
        pytest.fail("the site is not built: run `make book` first")
    return normalised(read(result))


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
    new = built(path)
    assert_same_text(without_pictures(new), without_pictures(read(path)))
    if text(new) != path.read_text(encoding="utf-8"):
        # Another machine may round a pixel elsewhere; one machine must not differ
        # from itself.
        again = normalised(executed(prepared(read(path), path.stem)))
        assert text(new) == text(again)


def test_a_line_printed_in_pieces_stays_one_line_on_the_site(tmp_path):
    source = 'print("one", end="", flush=True)\nprint(" line")'
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    execution.setup(app=None)
    client = direct.NotebookClientDirect(
        notebook, tmp_path / "one.ipynb", NbParserConfig(), logging.getLogger()
    )
    with client:
        _, outputs = client.code_cell_outputs(0)
    assert [out["text"] for out in coalesce_streams(outputs)] == ["one line\n"]


def names_of(notebook: NotebookNode) -> dict[str, object]:
    """What the cells of a chapter import and define, without what they compute."""
    names: dict[str, object] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            tree = ast.parse(cell.source)
            tree.body = [node for node in tree.body if isinstance(node, DEFINITIONS)]
            # A default argument may need what only an execution has.
            with contextlib.suppress(NameError):
                exec(compile(tree, "cell", "exec"), names)
    return names


def test_solutions_pass_their_checks(path):
    """Each solution in place of its stub, in order, as a step may need those before."""
    notebook = read(path)
    tasks, names = exercises(notebook), names_of(notebook)
    assert tasks, "the chapter has no exercise"
    for task in tasks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(task.solution, "solution", "exec"), names)
            exec(compile(task.check, "check", "exec"), names)
        verdicts = said.getvalue().splitlines()
        assert verdicts, f"{task.kind} {task.number}: its check says nothing"
        assert all(": correct" in line for line in verdicts), said.getvalue()
