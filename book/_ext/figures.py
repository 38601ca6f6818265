"""Live figures: keep the static picture beside the widget, and load the host script.

A figure's output holds a widget view, a picture and a sentence. myst-nb would write
the first only; a reader without JavaScript, and everybody until the figure stands, is
better served by the picture too. ``book/_static/figures.js`` takes it away in time.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

VIEW = "application/vnd.jupyter.widget-view+json"
CLASS = "live-figure"


class KeepPicture(SphinxPostTransform):
    """Put picture and widget view of an output into one container."""

    # Just before myst-nb chooses one of the output's forms and drops the others.
    default_priority = 3
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Change every output that has both."""
        for bundle in self.document.findall(nodes.container):
            if bundle.get("nb_element") != "mime_bundle":
                continue
            forms = {form["mime_type"]: form for form in bundle.children}
            if VIEW in forms and "image/png" in forms:
                _join(forms[VIEW], forms["image/png"], forms.get("text/plain"))


def _join(
    view: nodes.Element, picture: nodes.Element, sentence: nodes.Element | None
) -> None:
    """Move the picture to the view; the sentence is its text if it has none."""
    for image in picture.findall(nodes.image):
        if sentence is not None:
            image.setdefault("alt", sentence.astext())
    children = [*view.children, *picture.children]
    view.children = []
    picture.children = []
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
    app.add_post_transform(KeepPicture)
    app.connect("html-page-context", add_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
