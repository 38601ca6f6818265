"""What the built site consists of, read from disk."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from book.tools.repository import ROOT

SITE = ROOT / "_build" / "html"
MAIN = "article"
# Tags that point somewhere, and the attribute that does.
POINTERS = {"a": "href", "link": "href", "img": "src", "script": "src"}

# Chapter: the figures that it must have.
FIGURES = {
    "01-sinusoidal": (".rp-sinusoid",),
    "02-bias": (".rp-index", ".rp-maps", ".rp-curve"),
    "03-gated-bias": (".rp-maps", ".rp-gate"),
    "04-shaw": (".rp-maps",),
    "05-fast": (".rp-nearfar",),
    "06-longer": (".rp-model", ".rp-length"),
    "09-implement": (".rp-maps",),
}


def page_names() -> list[str]:
    """Addresses of all pages, relative to the site; the front address leads on."""
    pages = {str(page.relative_to(SITE)) for page in SITE.rglob("*.html")}
    return sorted(page for page in pages - {"index.html"} if "_static/" not in page)


class Reader(HTMLParser):
    """Collects the ids of a page and everything that it points to."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []

    def handle_starttag(self, tag, attrs):
        """Note the id and the pointer of a tag."""
        given = dict(attrs)
        self.ids |= {given[key] for key in ("id", "name") if given.get(key)}
        target = given.get(POINTERS.get(tag, ""))
        if target is not None:
            self.targets.append(target)


@cache
def read_page(path: Path) -> Reader:
    """Parse a page once."""
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader
