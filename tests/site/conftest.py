"""A real browser, a local server under a sub-path, and no other host.

Fixtures for every test of the site and of the figures' JavaScript:

``site_url``   address of the built site, ending in a slash, under a sub-path
``blank_url``  an empty page of the same server, to load modules into
``source_url`` the repository's own files, for modules before they are built in
``open_page``  ``open_page(**context_options)`` returns a new guarded page
``page``       ``open_page()`` with default options
``used_page``  ``used_page(**options)`` returns a guarded page that tests share
``standing``   a page of the site that is loaded once for tests that only look at it
``blank_page`` the blank page, on a page that tests share
``open_figures`` shows live figures, on a page that tests share; returns the page
``open_figure`` shows one and returns it
``module``     calls a script with the address of a JavaScript module of the figures

The browser finds no other host. To ask for one, a request that failed, a console
error or an uncaught exception on a guarded page fails the test when it ends;
``page_problems`` is the list of what went wrong so far, and a test that provokes a
problem on purpose empties it.

A new page loads everything anew, which takes seconds for a chapter; a page that is
shared has most of it. It begins every test with another document, in its first size
and theme. Only what browsers store for a site is not forgotten, so that tests of what
is stored, or loaded, take a new page.
"""

from __future__ import annotations

import sys
import threading
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from figure_pages import PAGES, evaluate, html_of, show
from playwright.sync_api import sync_playwright

from book.tools.browser import find_chromium
from book.tools.repository import ROOT
from tests.site.sound import settle

SITE = ROOT / "_build" / "html"
SITE_PREFIX = "/some/sub-path/"
SOURCE_PREFIX = "/source/"
BLANK = (
    b'<!doctype html><html lang="en"><head><meta charset="utf-8">'
    b'<title>Blank</title><link rel="icon" href="data:,"></head>'
    b"<body><main></main></body></html>"
)
VIEWPORT = {"width": 1280, "height": 720}
MEDIA = {"color_scheme": "light", "reduced_motion": "no-preference"}
# Works as root, with no display, and asks nothing of the network by itself.
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


class Handler(SimpleHTTPRequestHandler):
    """Serves the site, the sources and pages from memory, and nothing else."""

    extensions_map = {  # noqa: RUF012 (the base class declares it so)
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".ipynb": "application/x-ipynb+json",
    }

    def translate_path(self, path: str) -> str:
        """Map an address to a file; unknown prefixes map to no file."""
        clean = urlsplit(path).path
        for prefix, folder in ((SITE_PREFIX, SITE), (SOURCE_PREFIX, ROOT)):
            if clean.startswith(prefix):
                self.directory = str(folder)
                return super().translate_path("/" + clean.removeprefix(prefix))
        return str(ROOT / "no such file")

    def do_GET(self) -> None:
        """Answer pages from memory, everything else from disk."""
        path = urlsplit(self.path).path
        page = BLANK if path == "/blank.html" else PAGES.pop(path, None)
        if page is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
        return None

    def log_message(self, *args: object) -> None:
        """Stay silent."""


class Server(ThreadingHTTPServer):
    """Says nothing of a page that left before its answer came."""

    def handle_error(self, request, client_address) -> None:
        """Print an error, unless the other side is gone."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@pytest.fixture(scope="session")
def server_url():
    """Address of the local server, without a trailing slash."""
    server = Server(("127.0.0.1", 0), partial(Handler))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def site_dir() -> Path:
    """Folder of the built site."""
    if not (SITE / "book" / "index.html").is_file():
        pytest.fail("the site is not built: run `make book` first")
    return SITE


@pytest.fixture(scope="session")
def site_url(server_url: str, site_dir: Path) -> str:
    """Address of the built site, ending in a slash."""
    return server_url + SITE_PREFIX


@pytest.fixture(scope="session")
def source_url(server_url: str) -> str:
    """Address of the repository's files, ending in a slash."""
    return server_url + SOURCE_PREFIX


@pytest.fixture(scope="session")
def blank_url(server_url: str) -> str:
    """Address of an empty page of the same origin."""
    return server_url + "/blank.html"


@pytest.fixture(scope="session")
def browser():
    """One Chromium for the whole session."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=CHROMIUM_FLAGS
        )
        yield browser
        browser.close()


def guard(context, server_url: str, problems: list[str]) -> None:
    """Record requests to other hosts and everything else that goes wrong."""
    known = (server_url + "/", SITE.as_uri(), "data:", "blob:")

    def request(request) -> None:
        if not request.url.startswith(known):
            problems.append(f"request to another host: {request.url}")

    def response(response) -> None:
        if response.status >= 400:
            problems.append(f"status {response.status}: {response.url}")

    def console(message) -> None:
        if message.type == "error":
            problems.append(f"console error: {message.text}")

    context.on("request", request)
    context.on("response", response)
    context.on("console", console)
    context.on("weberror", lambda error: problems.append(f"uncaught: {error.error}"))


@pytest.fixture(scope="session")
def problems() -> list[str]:
    """What went wrong on any page since the last test ended."""
    return []


@pytest.fixture
def page_problems(problems: list[str]):
    """What went wrong on the pages of this test, so far."""
    yield problems
    found, problems[:] = "\n".join(problems), []
    assert not found, found


@pytest.fixture
def open_page(browser, server_url: str, page_problems: list[str]):
    """Open guarded pages; any problem on them fails the test at its end."""
    contexts = []

    def open_page(**context_options):
        context = browser.new_context(**context_options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        guard(context, server_url, page_problems)
        return context.new_page()

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page):
    """One guarded page with default options."""
    return open_page()


@pytest.fixture(scope="session")
def kept_page(browser, server_url: str, problems: list[str]):
    """The page that tests share, one for each purpose and each set of options."""

    @cache
    def kept_page(purpose: str, **options: bool):
        context = browser.new_context(viewport=VIEWPORT, **MEDIA, **options)
        context.set_default_timeout(15_000)
        guard(context, server_url, problems)
        return context.new_page()

    return kept_page


@pytest.fixture(scope="session")
def stand(kept_page, site_url: str):
    """Load a page of the site, for all tests of a file that only look at it."""

    def stand(name, viewport):
        page = kept_page("look")
        page.set_viewport_size(viewport)
        # Without motion the colours of another theme are there at once.
        page.emulate_media(**MEDIA | {"reduced_motion": "reduce"})
        page.goto(site_url + name)
        settle(page)
        return page

    return stand


@pytest.fixture
def standing(loaded, page_problems: list[str]):
    """The page that the file's ``loaded`` gives, guarded."""
    yield loaded
    loaded.title()  # as below


@pytest.fixture
def used_page(kept_page, page_problems: list[str]):
    """Return a guarded page, as if new once it is sent to its next address."""
    pages = []

    def used_page(
        has_touch=False, java_script_enabled=True, viewport=VIEWPORT, **media
    ):
        page = kept_page(
            "any", has_touch=has_touch, java_script_enabled=java_script_enabled
        )
        pages.append(page)
        page.set_viewport_size(viewport)
        page.emulate_media(**MEDIA | media)
        return page

    yield used_page
    for page in pages:
        page.title()  # one more round trip: its problems have arrived before the answer


@pytest.fixture
def blank_page(used_page, blank_url: str):
    """Return an empty page of the server."""
    page = used_page()
    page.goto(blank_url)
    return page


@pytest.fixture
def open_figures(used_page, server_url: str):
    """Open a page with these figures; returns the page."""

    def open_figures(*widgets, copies=1, theme="light", **options):
        page = used_page(**options)
        html = html_of(widgets, copies, theme)
        show(page, server_url, html, copies * len(widgets))
        return page

    return open_figures


@pytest.fixture
def open_figure(open_figures):
    """Open a page with this figure; returns the figure, which knows its ``page``."""

    def open_figure(widget, **options):
        return open_figures(widget, **options).locator(".rp-figure")

    return open_figure


@pytest.fixture
def module(used_page, blank_url: str, source_url: str):
    """Call a script with a list: a module's address, then the arguments given here."""
    page = used_page()
    if page.url != blank_url:
        page.goto(blank_url)

    def module(name: str, script: str, *arguments):
        address = f"{source_url}relpos_lib/explorers/{name}"
        return evaluate(page, script, [address, *arguments])

    return module
