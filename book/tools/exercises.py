"""Exercises of a chapter, found by their tags.

An exercise is, in this order: Markdown with a heading ``Exercise N``, or ``Step N``
where each builds on those before it, and a folded hint; a code cell tagged
``exercise-stub``, where ``...`` stands for what the reader writes; a code cell tagged
``exercise-check``; Markdown with the folded solution in a ``python`` fence.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from nbformat import NotebookNode

STUB, CHECK = "exercise-stub", "exercise-check"
HEADING = re.compile(
    r"^#{2,4} +(?P<kind>Exercise|Step) (?P<number>\d+)(?:: *(?P<title>.+))?$",
    re.MULTILINE,
)
HINT = re.compile(r"<details>\s*<summary>Hint</summary>.+?</details>", re.DOTALL)
SOLUTION = re.compile(
    r"<details>\s*<summary>Solution</summary>\s*\n\n"
    r"```python\n(?P<code>.+?)\n```\s*\n</details>",
    re.DOTALL,
)
GAP = "..."


@dataclass(frozen=True)
class Exercise:
    """One exercise: its name and the source of its three pieces of code."""

    kind: str  # "Exercise" or "Step"
    number: int
    title: str
    stub: str
    check: str
    solution: str


class ExerciseError(ValueError):
    """An exercise without one of its parts."""


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """All exercises of a chapter; an incomplete one raises."""
    cells = notebook.cells
    stubs = [place for place, cell in enumerate(cells) if tagged(cell, STUB)]
    found = [exercise_at(cells, place) for place in stubs]
    headings = [
        int(heading["number"])
        for cell in cells
        if cell.cell_type == "markdown"
        for heading in HEADING.finditer(cell.source)
    ]
    if headings != [exercise.number for exercise in found]:
        raise ExerciseError(f"headings {headings} do not match the stubs")
    return found


def exercise_at(cells: list[NotebookNode], place: int) -> Exercise:
    """The exercise whose stub is the cell at ``place``."""
    before = text_before(cells, place)
    heading, after = HEADING.search(before), cells[place + 1 : place + 3]
    if heading is None:
        source = cells[place].source
        raise ExerciseError(f"no heading 'Exercise N' or 'Step N' before {source!r}")
    kind, number, title = heading["kind"], int(heading["number"]), heading["title"]
    name = f"{kind.lower()} {number}"
    if not HINT.search(before):
        raise ExerciseError(f"{name}: no folded hint before the stub")
    if len(after) < 2 or not tagged(after[0], CHECK):
        raise ExerciseError(f"{name}: no cell tagged {CHECK!r} after the stub")
    solution = SOLUTION.search(after[1].source)
    if solution is None:
        raise ExerciseError(f"{name}: no folded solution after the check")
    stub, check = cells[place].source, after[0].source
    return Exercise(kind, number, title or "", stub, check, solution["code"])


def text_before(cells: list[NotebookNode], place: int) -> str:
    """The Markdown between a cell and the code cell before it."""
    start = place
    while start and cells[start - 1].cell_type == "markdown":
        start -= 1
    return "\n\n".join(cell.source for cell in cells[start:place])


def tagged(cell: NotebookNode, tag: str) -> bool:
    """Whether a cell is code with this tag."""
    return cell.cell_type == "code" and tag in cell.metadata.get("tags", [])


def has_gaps(stub: str) -> bool:
    """Whether something is left for the reader to write."""
    return GAP in ast.unparse(ast.parse(stub))


def is_stub_of(stub: str, solution: str) -> bool:
    """Whether the solution is the stub with its gaps filled in.

    Comments and layout do not count: both are compared as Python writes them.
    """
    holes = re.escape(ast.unparse(ast.parse(stub)))
    pattern = holes.replace(re.escape(GAP), r"(?:.|\n)+?")
    filled = ast.unparse(ast.parse(solution))
    return re.fullmatch(pattern, filled) is not None
