"""Pages around the chapters: what is printed, and what is put together."""

from __future__ import annotations

import re

from book.tools.exercises import exercises
from book.tools.notebooks import chapters, read


def test_the_cheat_sheet_prints_on_one_page(page, site_url):
    page.goto(site_url + "book/cheat-sheet.html")
    page.evaluate("() => window.MathJax?.startup?.promise")
    # A little larger than life, because fonts differ between machines.
    printed = page.pdf(format="A4", prefer_css_page_size=True, scale=1.05)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1


def test_all_solutions_stand_on_the_page_for_teachers(page, site_url):
    page.goto(site_url + "book/teaching.html")
    blocks = page.locator("#all-solutions pre").all_inner_texts()
    found = {block.strip() for block in blocks}
    wanted = {
        exercise.solution.strip()
        for path in chapters()
        for exercise in exercises(read(path))
    }
    assert wanted
    assert found == wanted
