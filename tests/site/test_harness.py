"""The harness itself: a guard that never barks guards nothing."""

import pytest

THROW_LATER = """new Promise((done) => {
  addEventListener("error", () => done(), { once: true });
  setTimeout(() => { throw new Error("late"); });
})"""


PROVOKED = [
    ("fetch('https://example.org/x').catch(() => 0)", "request to another host"),
    ("fetch('/nothing.js')", "status 404"),
    ("console.error('boom')", "console error: boom"),
    (THROW_LATER, "uncaught: "),
]
# A box under the pointer, and what a page knows of those before it.
REMEMBERED = """async () => {
  const box = document.querySelector("main");
  box.style.cssText = "position: fixed; inset: 50px auto auto 50px; padding: 50px";
  for (let frame = 0; frame < 2; frame++)
    await new Promise((done) => requestAnimationFrame(done));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return [innerWidth, dark, box.matches(":hover"), box.textContent, window.before];
}"""


def test_blank_page_has_no_problems(page, blank_url, page_problems):
    page.goto(blank_url)
    assert page.title() == "Blank"
    assert page_problems == []


def provoke(page, page_problems, script):
    """Do something wrong; returns what was noted, and forgets it."""
    page.evaluate(f"async () => {{ await ({script}) }}")
    page.title()  # one more round trip: the events have arrived before its answer
    found, page_problems[:] = "\n".join(page_problems), []
    return found


@pytest.mark.parametrize(("script", "expected"), PROVOKED)
def test_guard_reports(blank_page, page_problems, script, expected):
    assert expected in provoke(blank_page, page_problems, script)


def test_guard_reports_on_a_new_page_too(page, blank_url, page_problems):
    page.goto(blank_url)
    for script, expected in PROVOKED:
        assert expected in provoke(page, page_problems, script)


def test_a_shared_page_begins_anew(used_page, blank_url):
    page = used_page(viewport={"width": 320, "height": 700}, color_scheme="dark")
    page.goto(blank_url)
    page.evaluate("window.before = document.querySelector('main').append('text') ?? 1")
    page.mouse.move(100, 100)
    assert page.evaluate(REMEMBERED) == [320, True, True, "text", 1]
    page = used_page()
    page.goto(blank_url)
    assert page.evaluate(REMEMBERED) == [1280, False, False, "", None]


def test_sources_are_served_as_modules(blank_page, source_url):
    response = blank_page.request.get(source_url + "pyproject.toml")
    assert response.ok
    assert blank_page.request.get(source_url + "../nothing").status == 404
