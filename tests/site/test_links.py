"""Every address inside the site leads to something; buttons to the right thing."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from book._ext import site as extension
from book.tools import setup_cell
from book.tools.notebooks import chapters
from book.tools.repository import colab_address, repository_address
from tests.site.built import SITE, page_names, read_page

CHAPTERS = [path.stem for path in chapters()]
BUTTONS = ("Open in Colab", "Self-contained notebook", "Download notebook")


def target_file(page: Path, path: str) -> Path:
    """The file that an address on a page means."""
    file = (page.parent / unquote(path)) if path else page
    return Path(os.path.normpath(file / "index.html" if file.is_dir() else file))


def has_anchor(file: Path, fragment: str) -> bool:
    """Whether a file exists and has the place that a fragment names."""
    return file.is_file() and (not fragment or fragment in read_page(file).ids)


@pytest.mark.parametrize("name", page_names())
def test_internal_addresses_lead_somewhere(name):
    page = SITE / name
    dead = []
    for target in read_page(page).targets:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        file = target_file(page, parts.path)
        # An address from the root would break under a sub-path.
        inside = file.is_relative_to(SITE) and not parts.path.startswith("/")
        if not (inside and has_anchor(file, unquote(parts.fragment))):
            dead.append(target)
    assert dead == []


@pytest.fixture
def addresses(used_page, site_url):
    """Open a page; returns what its links with a name lead to."""

    def addresses(page_name):
        page = used_page()
        page.goto(f"{site_url}book/{page_name}.html", wait_until="domcontentloaded")
        return {
            name: page.get_by_role("link", name=name).evaluate_all(
                "links => links.map(link => link.href)"
            )
            for name in BUTTONS
        }

    return addresses


def served(address, site_url):
    """The notebook that an address of the site gives."""
    path = SITE / unquote(address.removeprefix(site_url))
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_buttons_give_the_notebook(addresses, site_url, chapter):
    """As it is, with its library inside, and in Colab where that can be."""
    found = addresses(chapter)
    kept = nbformat.read(f"book/{chapter}.ipynb", as_version=4)

    [download] = found["Download notebook"]
    plain = served(download, site_url)
    assert [cell.id for cell in plain.cells] == [cell.id for cell in kept.cells]
    first = next(cell for cell in plain.cells if cell.cell_type == "code")
    assert setup_cell.is_setup(first)

    [portable] = found["Self-contained notebook"]
    whole = served(portable, site_url)
    [setup] = [cell for cell in whole.cells if setup_cell.is_setup(cell)]
    assert whole.metadata.relpos_lib.sha256 in setup.source
    assert len(whole.cells) == len(kept.cells) + 1

    colab = colab_address(repository_address(), f"{chapter}.ipynb")
    assert found["Open in Colab"] == ([colab] if colab else [])


def test_pages_that_are_no_notebooks_have_no_buttons(addresses):
    assert not any(addresses("index").values())


@pytest.fixture
def buttons(monkeypatch):
    """The buttons that the extension gives to a page, for a known address."""

    def buttons(address, suffix=".ipynb"):
        monkeypatch.setattr(extension, "repository_address", lambda: address)
        context = {
            "page_source_suffix": suffix,
            "header_buttons": [],
            "pathto": lambda path, _: f"../{path}",
        }
        extension.add_buttons(None, "book/04-shaw", "page.html", context, None)
        return {b["text"]: b["url"] for b in context["header_buttons"]}

    return buttons


def test_buttons_where_the_address_is_known(buttons):
    assert buttons("https://github.com/owner/name") == {
        "Open in Colab": "https://colab.research.google.com"
        "/github/owner/name/blob/colab/04-shaw.ipynb",
        "Self-contained notebook": "../portable/04-shaw.ipynb",
        "Download notebook": "../_sources/book/04-shaw.ipynb",
    }


def test_buttons_where_no_address_is_known(buttons):
    """The notebook that carries its library stands in the place of Colab's button."""
    assert list(buttons(None)) == ["Self-contained notebook", "Download notebook"]
    assert buttons("https://github.com/owner/name", ".md") == {}
