"""Keep pages light: only what they use, and nothing that a figure would wait for."""

from __future__ import annotations

import base64
import importlib.util
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
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", shrink_pictures)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
