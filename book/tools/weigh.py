"""Weigh the pages of the built site: what a first visit fetches, compressed.

``python -m book.tools.weigh``, after ``make book``: prints what each chapter's page
is made of and writes it to ``_build/page-weights.json``.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, Response, sync_playwright

from book.tools.browser import find_chromium
from book.tools.notebooks import chapters
from book.tools.repository import ROOT

SITE = ROOT / "_build" / "html"
WEIGHTS = ROOT / "_build" / "page-weights.json"
LEVEL = 6  # of gzip, as servers use it
# The first that an address contains says what a file is for.
KINDS = {
    "/mathjax/": "formulas",
    "/_images/": "pictures",
    "search": "search",
    "language_data.js": "search",
    "figures.js": "our scripts and styles",
    "site.js": "our scripts and styles",
    "tokens.css": "our scripts and styles",
    "book.css": "our scripts and styles",
    "icons.css": "our scripts and styles",
    "logo.svg": "our scripts and styles",
    "/_static/": "theme and extensions",
    ".html": "page, with the figures' scripts and data",
}
OWN_SCRIPTS = ("/figures.js", "/site.js")
STATE = re.compile(
    r'<script type="application/vnd\.jupyter\.widget-state\+json">(.*?)</script>', re.S
)
SCROLL = """async () => {
  const rest = () => new Promise((done) => setTimeout(done, 20));
  for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await rest();
  }
}"""


@dataclass(frozen=True)
class Weight:
    """Bytes of one page, compressed."""

    kinds: dict[str, int]
    our_javascript: int

    @property
    def total(self) -> int:
        """All bytes of a first visit."""
        return sum(self.kinds.values())

    def told(self, name: str) -> str:
        """A few lines: the whole, and what it is made of."""
        kinds = sorted(self.kinds.items(), key=lambda kind: -kind[1])
        lines = [f"{name}: {self.total / 1000:.0f} kB"]
        lines += [f"  {size / 1000:5.0f} kB  {kind}" for kind, size in kinds]
        own = f"  {self.our_javascript / 1000:5.0f} kB  of it our JavaScript"
        return "\n".join([*lines, own])


def compressed(content: bytes) -> int:
    """Size as it is sent; what is compressed already does not shrink."""
    return min(len(content), len(gzip.compress(content, LEVEL)))


def kind_of(address: str) -> str:
    """What a file is for."""
    return next((kind for part, kind in KINDS.items() if part in address), "other")


def modules(html: str) -> list[str]:
    """The modules inside a page, one for each figure, as often as they are sent."""
    states = [json.loads(found)["state"] for found in STATE.findall(html)]
    models = [model["state"] for state in states for model in state.values()]
    return [model["_esm"] for model in models if "_esm" in model]


def weigh(page: Page, address: str) -> Weight:
    """Open an address in a new page, read it to its end, weigh what came."""
    responses: list[Response] = []
    page.on("response", lambda response: responses.append(response))
    page.goto(address)
    page.evaluate(SCROLL)
    page.wait_for_load_state("networkidle")
    page.evaluate("() => document.fonts.ready.then(() => true)")
    kinds: Counter[str] = Counter()
    scripts = [module.encode() for module in modules(page.request.get(address).text())]
    for response in responses:
        if response.url.startswith(("data:", "blob:")):
            continue
        content = response.body()
        kinds[kind_of(response.url)] += compressed(content)
        if any(script in response.url for script in OWN_SCRIPTS):
            scripts.append(content)
    return Weight(dict(kinds), sum(map(compressed, scripts)))


def save(weights: dict[str, Weight]) -> None:
    """Write the weights of all pages, in bytes."""
    pages = {
        name: {"total": weight.total, "our_javascript": weight.our_javascript}
        | {"kinds": weight.kinds}
        for name, weight in weights.items()
    }
    WEIGHTS.write_text(json.dumps(pages, indent=1) + "\n", encoding="utf-8")


class Quiet(SimpleHTTPRequestHandler):
    """Serves without a word."""

    def log_message(self, *args: object) -> None:
        """Stay silent."""


def main() -> int:
    """Weigh every chapter's page."""
    if not (SITE / "index.html").is_file():
        print("The site is not built: run `make book` first.")
        return 1
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    weights = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox"]
        )
        for name in (path.stem for path in chapters()):
            address = f"http://127.0.0.1:{server.server_port}/book/{name}.html"
            weights[name] = weigh(browser.new_context().new_page(), address)
            print(weights[name].told(name), flush=True)
        browser.close()
    server.shutdown()
    save(weights)
    print(f"In bytes: {Path(WEIGHTS).relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
