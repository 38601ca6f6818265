"""Quiz in a browser: by mouse and keyboard, for everybody, and in the chapters."""

import re

import pytest
from figure_pages import (
    assert_nothing_grows,
    assert_nothing_overflows,
    axe_findings,
    html_of,
    show,
    tab_stops,
)

from book.tools.notebooks import chapters, read
from relpos_lib.explorers import Quiz
from relpos_lib.quizzes import quizzes
from relpos_lib.quizzes.question import ask, right, wrong

FEW = (
    ask("One?", wrong("first a", "Not a."), right("first b", "It is b.")),
    ask(
        "Two?",
        right("second c", "It is c."),
        wrong("second d", "Not d."),
        wrong("second e", "Not e."),
    ),
)
MARKUP = '<img src="x" onerror="document.title = 1"> & `a < b`'
LONG = "a_name_that_does_not_end_" * 6


def forms_of(page, copy=0):
    """The questions of one quiz."""
    return page.locator(".rp-quiz").nth(copy).locator("form").all()


def score(page, copy=0):
    return page.locator(".rp-quiz-score").nth(copy).inner_text()


def check(form, answer):
    form.get_by_label(answer).check()
    form.get_by_role("button", name="Check answer").click()


def told(form):
    return form.locator("output").inner_text()


# Answering


def test_every_answer_by_mouse_says_why(open_figures):
    page = open_figures(Quiz(FEW))
    forms = forms_of(page)
    assert score(page) == "0 of 2 right"
    for form, question in zip(forms, FEW, strict=True):
        for choice in question.choices:
            check(form, choice.text)
            verdict = "Right." if choice.is_right else "Not right."
            assert told(form) == f"{verdict} {choice.feedback}"
            marked = form.locator("output").get_attribute("data-right")
            assert marked == str(choice.is_right).lower()
    assert score(page) == "1 of 2 right"
    check(forms[1], "second c")
    assert score(page) == "2 of 2 right"


def test_by_keyboard_alone(open_figures):
    page = open_figures(Quiz(FEW))
    forms = forms_of(page)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert forms[0].get_by_label("first b").is_checked()
    assert told(forms[0]) == ""
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert told(forms[0]) == "Right. It is b."
    page.keyboard.press("Tab")
    for key in ("Space", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert told(forms[1]) == "Not right. Not e."
    page.keyboard.press("ArrowDown")
    assert told(forms[1]) == ""
    page.keyboard.press("Enter")
    assert told(forms[1]) == "Right. It is c."
    assert score(page) == "2 of 2 right"


def test_every_stop_of_the_keyboard_is_seen(open_figures):
    page = open_figures(Quiz(FEW))
    assert tab_stops(page, 4) == ["radio", "submit"] * 2


def test_nothing_is_told_without_an_answer(open_figures):
    page = open_figures(Quiz(FEW))
    forms = forms_of(page)
    forms[0].get_by_role("button").click()
    assert told(forms[0]) == ""
    assert forms[0].locator("input:invalid").count() == 2
    assert score(page) == "0 of 2 right"


def test_the_same_answer_may_be_checked_again(open_figures):
    page = open_figures(Quiz(FEW))
    forms = forms_of(page)
    check(forms[0], "first a")
    forms[0].get_by_label("first b").check()
    check(forms[0], "first a")
    assert told(forms[0]) == "Not right. Not a."
    assert score(page) == "0 of 2 right"


def test_a_half_made_choice_stays_when_another_question_is_answered(open_figures):
    page = open_figures(Quiz(FEW))
    forms = forms_of(page)
    forms[0].get_by_label("first b").check()
    check(forms[1], "second c")
    assert forms[0].get_by_label("first b").is_checked()
    assert told(forms[0]) == ""


def test_answers_set_before_are_shown(open_figures):
    page = open_figures(Quiz(FEW, answers=[1, 2]))
    forms = forms_of(page)
    assert forms[0].get_by_label("first b").is_checked()
    assert forms[1].get_by_label("second e").is_checked()
    assert told(forms[1]) == "Not right. Not e."
    assert score(page) == "1 of 2 right"


# For everybody


def test_questions_name_their_answers_and_feedback_is_announced(open_figures):
    page = open_figures(Quiz(FEW))
    quiz = page.locator(".rp-quiz")
    assert quiz.get_attribute("role") == "group"
    for number, question in enumerate(FEW, 1):
        group = quiz.get_by_role("group", name=f"{number}. {question.text}")
        assert group.get_by_role("radio").count() == len(question.choices)
    assert quiz.locator("output[aria-live=polite]").count() == 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    page = open_figures(Quiz.of("bias"), Quiz(FEW, answers=[1, 2]), theme=theme)
    assert axe_findings(page) == []


def test_nothing_overflows(open_figures):
    long = ask(LONG, right(f"`{LONG}`", LONG), wrong(LONG, f"`{LONG}`"))
    page = open_figures(
        *(Quiz.of(name) for name in quizzes()), Quiz([long], answers=[0])
    )
    assert_nothing_overflows(page, (280, 320, 480, 1100))


def test_targets_are_large_enough_for_fingers(open_figures):
    page = open_figures(Quiz(FEW), viewport={"width": 320, "height": 700})
    for node in page.locator(".rp-quiz :is(label, button)").all():
        assert node.bounding_box()["height"] >= 24


def test_nothing_moves_by_itself(open_figures):
    page = open_figures(Quiz(FEW), reduced_motion="reduce")
    check(forms_of(page)[0], "first b")
    assert page.evaluate("document.getAnimations().length") == 0


def test_markup_is_shown_as_characters(open_figures):
    question = ask(MARKUP, right(MARKUP, MARKUP), wrong("other", "no"))
    page = open_figures(Quiz([question], answers=[0]))
    quiz = page.locator(".rp-quiz")
    assert quiz.locator("img").count() == 0
    assert quiz.inner_text().count(MARKUP.replace("`", "")) == 3
    assert quiz.locator("code").all_text_contents() == ["a < b"] * 3


# Lasting


def test_two_quizzes_do_not_disturb_each_other(open_figures):
    page = open_figures(Quiz(FEW), Quiz(FEW))
    first, second = forms_of(page), forms_of(page, 1)
    check(first[0], "first b")
    check(second[0], "first a")
    assert first[0].get_by_label("first b").is_checked()
    assert (told(first[0]), told(second[0])) == ("Right. It is b.", "Not right. Not a.")
    assert (score(page), score(page, 1)) == ("1 of 2 right", "0 of 2 right")


def test_copies_of_one_model_move_together(open_figures):
    page = open_figures(Quiz(FEW), copies=2)
    first, second = forms_of(page), forms_of(page, 1)
    check(first[1], "second d")
    check(first[0], "first b")
    assert second[0].get_by_label("first b").is_checked()
    assert first[0].get_by_label("first b").is_checked()
    assert told(second[1]) == "Not right. Not d."
    assert score(page, 1) == "1 of 2 right"


def test_nothing_grows(open_figures):
    page = open_figures(Quiz(FEW))
    quiz = page.locator(".rp-quiz")

    def play(rounds):
        quiz.evaluate(
            """(quiz, rounds) => {
              for (let k = 0; k < rounds; k++)
                for (const form of quiz.querySelectorAll("form")) {
                  const inputs = form.querySelectorAll("input");
                  inputs[k % inputs.length].click();
                  form.querySelector("button").click();
                }
            }""",
            rounds,
        )

    assert_nothing_grows(page, play, 6, 306)


# Without and with the script of the site


def test_the_still_form_goes_when_the_quiz_stands(page, server_url):
    quiz = Quiz(FEW)
    still = quiz.still()["text/html"]
    html = re.sub(r'<img alt="static picture"[^>]*>', lambda _: still, html_of([quiz]))
    assert "rp-still" in html
    show(page, server_url, html, 1)
    assert page.locator(".rp-still").count() == 0


WITH_QUIZ = [
    path.stem
    for path in chapters()
    if any("Quiz.of(" in cell.source for cell in read(path).cells)
]


@pytest.mark.parametrize("chapter", WITH_QUIZ)
def test_a_chapters_quiz_answers_on_the_site(used_page, site_url, chapter):
    page = used_page()
    page.goto(f"{site_url}book/{chapter}.html")
    quiz = page.locator(".rp-quiz")
    quiz.wait_for()
    forms = quiz.locator("form").all()
    assert len(forms) >= 3
    for form in forms:
        for radio in form.get_by_role("radio").all():
            radio.check()
            form.get_by_role("button").click()
            if told(form).startswith("Right."):
                break
    assert score(page) == f"{len(forms)} of {len(forms)} right"
    assert page.locator(".rp-still").count() == 0


@pytest.mark.parametrize("chapter", WITH_QUIZ)
def test_without_javascript_answers_can_be_opened(used_page, site_url, chapter):
    page = used_page(java_script_enabled=False)
    page.goto(f"{site_url}book/{chapter}.html")
    still = page.locator(".live-figure .rp-still")
    assert still.locator("> li").count() >= 3
    for answer in still.locator("> li").first.locator("details").all():
        assert not answer.locator("p").is_visible()
        answer.locator("summary").click()
        assert "ight." in answer.locator("p").inner_text()
