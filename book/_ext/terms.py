"""Let Markdown link to a term of the glossary, as in ``[clip](glossary.md#term-clip)``.

MyST knows the headings of a page only. In Colab the same address is an ordinary link.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SLUGS = "myst_slugs"  # MyST's name for the places of a page: anchor → line, id, text


def add_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Let the terms defined on a page be places of it, like headings."""
    slugs = app.env.metadata[app.env.docname].setdefault(SLUGS, {})
    for term in doctree.findall(nodes.term):
        for anchor in term["ids"]:
            slugs.setdefault(anchor, (term.line, anchor, term.astext()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-read", add_terms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
