"""The committed chapters: executed, small, portable, described."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from book.tools import setup_cell
from book.tools.exercises import exercises, has_gaps, is_stub_of
from book.tools.notebooks import (
    WIDGET_PREFIX,
    chapters,
    pages,
    prepared,
    read,
    refreshed,
    text,
)
from book.tools.repository import ROOT

MAX_BYTES = 300_000
MAX_COLUMNS = 79
MAX_LINES = 15
KNOWN_TAGS = {
    "setup",
    "hide-input",
    "hide-output",
    "exercise-stub",
    "exercise-check",
    "raises-exception",
    "nbval-ignore-output",
}
ABSOLUTE = re.compile(
    r"/(?:home|root|Users|work|tmp|content|kaggle)/|site-packages|[A-Z]:\\\\"
)
RANDOM = re.compile(
    r"\bat 0x[0-9a-f]+|\b[0-9a-f]{32}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}"
)
PLAIN = ("text/plain", "text/html", "text/markdown", "text/latex")


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def written(output) -> str:
    """Everything readable in an output."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return "\n".join(output.data.get(mime, "") for mime in PLAIN)


def shows_picture(cell) -> bool:
    return any(
        mime.startswith("image/")
        for output in cell.outputs
        for mime in output.get("data", {})
    )


def test_every_code_cell_was_executed_in_order(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_no_cell_failed_or_warned(notebook):
    for cell in code_cells(notebook):
        kinds = {output.output_type for output in cell.outputs}
        expected = "raises-exception" in cell.metadata.get("tags", [])
        assert expected or "error" not in kinds, cell.id
        assert all(output.get("name") != "stderr" for output in cell.outputs)


def test_file_is_small(path):
    assert path.stat().st_size < MAX_BYTES


def test_nothing_in_it_belongs_to_one_machine_or_one_run(notebook):
    for cell in notebook.cells:
        outputs = "\n".join(map(written, cell.get("outputs", [])))
        for found in (ABSOLUTE.search(cell.source + outputs), RANDOM.search(outputs)):
            assert not found, f"{cell.id}: {found}"
        assert str(ROOT) not in cell.source + outputs


def test_no_widget_state_is_stored(notebook):
    assert "widgets" not in notebook.metadata
    for cell in code_cells(notebook):
        mimes = [mime for output in cell.outputs for mime in output.get("data", {})]
        assert not [mime for mime in mimes if mime.startswith(WIDGET_PREFIX)]


def test_every_picture_has_alt_text_and_a_caption(notebook):
    for cell in filter(shows_picture, code_cells(notebook)):
        shown = cell.metadata.get("mystnb", {})
        alt = shown.get("image", {}).get("alt", "")
        figure = shown.get("figure", {})
        assert len(alt.split()) >= 6, f"{cell.id}: alt text must state the finding"
        assert figure.get("caption"), f"{cell.id}: no caption"
        assert figure.get("name"), f"{cell.id}: no name to refer to"


def test_names_of_figures_are_unique_in_the_book():
    names = Counter(
        cell.metadata["mystnb"]["figure"]["name"]
        for path in chapters()
        for cell in code_cells(read(path))
        if "figure" in cell.metadata.get("mystnb", {})
    )
    assert not [name for name, count in names.items() if count > 1]


def test_the_file_is_what_make_notebooks_prepares(path, notebook):
    """Ids, metadata, setup cell and numbers in the prose are up to date."""
    expected = prepared(notebook, path.stem)
    for cell, old in zip(expected.cells, notebook.cells, strict=True):
        for key in ("outputs", "execution_count"):
            if key in old:
                cell[key] = old[key]
    assert text(expected) == path.read_text(encoding="utf-8")


def test_first_code_cell_is_the_setup_cell(notebook):
    first = code_cells(notebook)[0]
    assert setup_cell.is_setup(first)
    assert first.source == setup_cell.SOURCE
    assert not first.outputs


def test_code_is_narrow_and_cells_are_short(notebook):
    for cell in code_cells(notebook):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert max(map(len, lines)) <= MAX_COLUMNS, cell.id
        assert len(lines) <= MAX_LINES, cell.id


def test_tags_are_known(notebook):
    used = {tag for cell in notebook.cells for tag in cell.metadata.get("tags", [])}
    assert used <= KNOWN_TAGS


def test_text_needs_no_directive(notebook):
    """Readers in Colab see the Markdown itself."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found = re.search(r"^:::|^```+\{(?!bibliography)|\{glue", cell.source, re.M)
            assert not found, f"{cell.id}: {found[0]}"


def test_exercises_are_complete(notebook):
    found = exercises(notebook)
    assert len(found) >= 3
    for exercise in found:
        assert has_gaps(exercise.stub), exercise
        assert not has_gaps(exercise.solution) or "[..." in exercise.solution, exercise
        assert is_stub_of(exercise.stub, exercise.solution), exercise
        lines = exercise.solution.splitlines()
        assert max(map(len, lines)) <= MAX_COLUMNS, exercise


def test_a_quiz_follows_the_summary(notebook):
    cells = notebook.cells
    asked = [i for i, cell in enumerate(cells) if "Quiz.of(" in cell.source]
    assert len(asked) == 1
    before = "\n".join(cell.source for cell in cells[: asked[0]])
    assert re.findall(r"^## .*", before, re.M)[-2:] == ["## Summary", "## Quiz"]
    (output,) = cells[asked[0]].outputs
    assert output.data["text/html"].count("<details>") >= 3 * 3


def test_stubs_say_that_nothing_was_attempted(notebook):
    for cell in code_cells(notebook):
        if "exercise-check" in cell.metadata.get("tags", []):
            verdicts = "".join(map(written, cell.outputs)).splitlines()
            assert verdicts, cell.id
            assert all(": not attempted yet" in line for line in verdicts), cell.id


def test_code_parses_without_magics(notebook):
    for cell in code_cells(notebook):
        ast.parse(cell.source)


def test_the_table_of_contents_lists_every_chapter():
    listed = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert chapters()
    for path in chapters():
        assert f"book/{path.stem}" in listed


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_pages_hold_the_measured_numbers(page):
    assert refreshed(page) == page.read_text(encoding="utf-8")
