"""Photograph a figure of the built site for the README.

``python -m book.tools.picture``, after ``make book``.
"""

from __future__ import annotations

import io

from PIL import Image
from playwright.sync_api import sync_playwright

from book.tools.browser import find_chromium
from book.tools.build import OUTPUT
from book.tools.repository import ROOT

PAGE = OUTPUT / "html" / "book" / "04-shaw.html"
PICTURE = ROOT / "book" / "_static" / "readme.png"
FIGURE = ".rp-figure"
COLOURS = 128


def photograph() -> bytes:
    """The figure as a PNG, twice as dense as on the page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox"]
        )
        page = browser.new_page(device_scale_factor=2, color_scheme="light")
        page.goto(PAGE.as_uri())
        picture = page.locator(FIGURE).first.screenshot()
        browser.close()
    return picture


def main() -> None:
    """Write the picture with few colours, so that it stays small."""
    picture = Image.open(io.BytesIO(photograph())).convert("RGB")
    picture.quantize(COLOURS).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
