"""The harness itself: a guard that never barks guards nothing."""

import pytest

THROW_LATER = """new Promise((done) => {
  addEventListener("error", () => done(), { once: true });
  setTimeout(() => { throw new Error("late"); });
})"""


def test_blank_page_has_no_problems(page, blank_url, page_problems):
    page.goto(blank_url)
    assert page.title() == "Blank"
    assert page_problems == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("fetch('https://example.org/x').catch(() => 0)", "request to another host"),
        ("fetch('/nothing.js')", "status 404"),
        ("console.error('boom')", "console error: boom"),
        (THROW_LATER, "uncaught: "),
    ],
)
def test_guard_reports(page, blank_url, page_problems, script, expected):
    page.goto(blank_url)
    page.evaluate(f"async () => {{ await ({script}) }}")
    page.title()  # one more round trip: the events have arrived before its answer
    found, page_problems[:] = "\n".join(page_problems), []
    assert expected in found


def test_sources_are_served_as_modules(page, blank_url, source_url):
    response = page.request.get(source_url + "pyproject.toml")
    assert response.ok
    page.goto(blank_url)
    assert page.request.get(source_url + "../nothing").status == 404
