"""The directive ``solutions``: every exercise of every chapter with its solution.

The chapters stay the one home of both; the page is put together when it is built.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from nbformat import NotebookNode
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from book.tools.exercises import Exercise, exercises
from book.tools.notebooks import chapters, read


class Solutions(SphinxDirective):
    """Put one section for each chapter that has exercises."""

    def run(self) -> list[nodes.Node]:
        """The sections, in the order of the chapters."""
        sections: list[nodes.Node] = []
        for path in chapters():
            self.env.note_dependency(str(path))
            notebook = read(path)
            if found := exercises(notebook):
                section = nodes.section(ids=[f"solutions-{path.stem}"])
                section += nodes.title("", "", self.link_to(path.stem, notebook))
                for exercise in found:
                    section += solution(exercise)
                sections.append(section)
        return sections

    def link_to(self, stem: str, notebook: NotebookNode) -> nodes.Node:
        """A link to a chapter, under the chapter's own title."""
        title = notebook.cells[0].source.splitlines()[0].removeprefix("# ")
        return addnodes.pending_xref(
            "",
            nodes.inline("", title),
            refdomain="std",
            reftype="doc",
            reftarget=f"/book/{stem}",
            refdoc=self.env.docname,
            refexplicit=True,
            refwarn=True,
        )


def solution(exercise: Exercise) -> list[nodes.Node]:
    """The exercise's name and the code that solves it."""
    name = nodes.strong("", f"{exercise.kind} {exercise.number}: {exercise.title}")
    code = nodes.literal_block(exercise.solution, exercise.solution, language="python")
    return [nodes.paragraph("", "", name), code]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("solutions", Solutions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
