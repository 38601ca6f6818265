"""Keep pages light: only what they use, and nothing that a figure would wait for."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform

from book._ext.figures import CLASS
from book.tools.notebooks import small_png

# The parts of MathJax that draw formulas: its usual single file has a menu too, which
# weighs two thirds as much as all of these together.
MATHJAX_LOADED = ["input/tex", "output/chtml", "a11y/assistive-mml"]
MATHJAX_PARTS = (
    "startup.js",
    "core.js",
    "output/chtml/fonts",
    "input/tex/extensions",  # rarer commands, fetched when a formula has one
    *(f"{part}.js" for part in MATHJAX_LOADED),
)

STATE = "ipywidgets_state"  # myst-nb's name for all widgets of a page, as a script
SHOWN = re.compile(r'"model_id": *"(\w+)"')
NEEDED = re.compile(r"IPY_MODEL_(\w+)")


def use_own_mathjax(app: Sphinx, config: Config) -> None:
    """Serve MathJax from the site itself, and let nothing wait for it."""
    config.mathjax_path = "mathjax/startup.js"
    config.mathjax_options = {"async": "async"}
    config.mathjax3_config = {"loader": {"load": MATHJAX_LOADED}}


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Copy the needed parts of MathJax out of the package that ships it."""
    spec = importlib.util.find_spec("sphinx-mathjax-offline")
    if error or app.builder.format != "html" or spec is None or spec.origin is None:
        return
    source = Path(spec.origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    for part in MATHJAX_PARTS:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy
        copy(source / part, target / part)


def shrink_pictures(app: Sphinx, error: Exception | None) -> None:
    """Store the pictures as the committed notebooks do: a third of the bytes."""
    if error or app.builder.format != "html":
        return
    for picture in Path(app.outdir, app.builder.imagedir).glob("*.png"):
        full = base64.b64encode(picture.read_bytes()).decode("ascii")
        picture.write_bytes(base64.b64decode(small_png(full)))


def send_what_is_shown(app: Sphinx, doctree: nodes.document) -> None:
    """Leave out figures that a chapter made to compute with and never showed."""
    chapters = getattr(app.env, "nb_metadata", {})
    files = chapters.get(app.env.docname, {}).get("js_files", {})
    if STATE not in files:
        return
    path, options = files[STATE]
    views = "".join(raw.astext() for raw in doctree.findall(nodes.raw))
    kept = only_needed(json.loads(options["body"]), set(SHOWN.findall(views)))
    body = json.dumps(kept).replace("</", r"<\/")  # nothing in it ends the script
    files[STATE] = path, {**options, "body": body}


def only_needed(saved: dict[str, Any], shown: set[str]) -> dict[str, Any]:
    """The state of these widgets and of all that they refer to."""
    models, needed, asked = saved["state"], set(), set(shown)
    while asked:
        needed |= asked
        texts = (json.dumps(models[name]) for name in asked if name in models)
        asked = {name for text in texts for name in NEEDED.findall(text)} - needed
    kept = {name: model for name, model in models.items() if name in needed}
    return {**saved, "state": kept}


class FetchPicturesLate(SphinxPostTransform):
    """Leave the picture of a live figure for when it is seen: it seldom is.

    Browsers without JavaScript fetch it at once all the same.
    """

    # After the pictures were put beside their figures.
    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Mark every picture of a live figure."""
        for figure in self.document.findall(nodes.container):
            if CLASS in figure["classes"]:
                for image in figure.findall(nodes.image):
                    image["loading"] = "lazy"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_post_transform(FetchPicturesLate)
    app.connect("config-inited", use_own_mathjax)
    app.connect("doctree-read", send_what_is_shown)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", shrink_pictures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
