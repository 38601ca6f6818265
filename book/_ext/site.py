"""What this book's site adds to the theme: buttons, downloads, small repairs."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from book.tools.portable import PORTABLE, write_portable
from book.tools.publish import stamped
from book.tools.repository import (
    colab_address,
    published_commit,
    repository_address,
)

# What stands at the site's own address, where no page of the book does.
FRONT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="icon" href="{icon}">
<meta http-equiv="refresh" content="0; url={first}">
</head>
<body><main><a href="{first}">{title}</a></main></body>
</html>
"""


def add_buttons(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Offer a chapter as a notebook: open it in Colab, download it.

    The one that carries its library runs in Colab too, from no address.
    """
    if context.get("page_source_suffix") != ".ipynb":
        return
    name = Path(pagename).name + ".ipynb"
    buttons = context["header_buttons"]
    if address := colab_address(repository_address(), name):
        buttons.append(link_button("Open in Colab", address, "colab", "play"))
    whole = context["pathto"](f"{PORTABLE}/{name}", 1)
    buttons.append(
        link_button("Self-contained notebook", whole, "portable", "box-archive")
    )
    source = context["pathto"](f"_sources/{pagename}.ipynb", 1)
    buttons.append(link_button("Download notebook", source, "download", "download"))


def stamp_downloads(app: Sphinx, error: Exception | None) -> None:
    """Tell the notebooks to download, where published, where their library is."""
    repository, commit = repository_address(), published_commit()
    if error or app.builder.format != "html" or not (repository and commit):
        return
    for copy in (Path(app.outdir) / "_sources").rglob("*.ipynb"):
        copy.write_text(stamped(copy, repository, commit), encoding="utf-8")


def add_portable(app: Sphinx, error: Exception | None) -> None:
    """Put the notebooks that carry their library beside the pages."""
    if not error and app.builder.format == "html":
        write_portable(Path(app.outdir) / PORTABLE)


def lead_to_first_page(app: Sphinx, error: Exception | None) -> None:
    """Write the front address; with no icon named, browsers ask for /favicon.ico."""
    if error or app.builder.format != "html":
        return
    icon = f"_static/{Path(app.config.html_favicon).name}"
    text = FRONT.format(
        title=escape(app.config.html_title),
        icon=icon,
        first=f"{app.config.root_doc}.html",
    )
    (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def mend_citations(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Give citations the one role that is allowed inside their list."""
    if "body" in context:
        old, new = 'role="doc-biblioentry"', 'role="listitem"'
        context["body"] = context["body"].replace(old, new)


def link_button(text: str, address: str, kind: str, icon: str) -> dict[str, str]:
    """A button of the theme; its text is its name, its icon comes with the theme."""
    return {
        "type": "link",
        "text": text,
        "url": address,
        "label": f"book-{kind}",
        "icon": f"fa-solid fa-{icon}",
    }


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    # After the theme's own handlers, which start the list of buttons.
    app.connect("html-page-context", add_buttons, priority=900)
    app.connect("html-page-context", mend_citations)
    app.connect("build-finished", stamp_downloads)
    app.connect("build-finished", add_portable)
    app.connect("build-finished", lead_to_first_page)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
