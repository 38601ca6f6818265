"""Live figures: keep the still form beside the widget, and load the host script.

A figure's output holds a widget view, a picture or HTML, and a sentence. myst-nb would
write the first only; a reader without JavaScript, and everybody until the figure
stands, is better served by the second too. ``book/_static/figures.js`` takes it away
in time.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

VIEW = "application/vnd.jupyter.widget-view+json"
STILL = ("image/png", "text/html")
CLASS = "live-figure"


class KeepStill(SphinxPostTransform):
    """Put widget view and still form of an output into one container."""

    # Just before myst-nb chooses one of the output's forms and drops the others.
    default_priority = 3
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Change every output that has both."""
        for bundle in self.document.findall(nodes.container):
            if bundle.get("nb_element") != "mime_bundle":
                continue
            forms = {form["mime_type"]: form for form in bundle.children}
            still = next((forms[mime] for mime in STILL if mime in forms), None)
            if VIEW in forms and still is not None:
                _join(forms[VIEW], still, forms.get("text/plain"))


def _join(
    view: nodes.Element, still: nodes.Element, sentence: nodes.Element | None
) -> None:
    """Move the still form to the view; the sentence is a picture's text if need be."""
    for image in still.findall(nodes.image):
        if sentence is not None:
            image.setdefault("alt", sentence.astext())
    children = [*view.children, *still.children]
    view.children = []
    still.children = []
    view += nodes.container("", *children, classes=[CLASS])


def add_script(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Load the host script on pages that have a figure, and only there."""
    if doctree is None:
        return
    if any(CLASS in node["classes"] for node in doctree.findall(nodes.container)):
        # Not a module: browsers load none from disk, and the site must work there too.
        app.add_js_file("figures.js", defer="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_post_transform(KeepStill)
    app.connect("html-page-context", add_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
