"""Quiz: answers, score, still form, and the module that pages get."""

import gzip
from html.parser import HTMLParser

import ipywidgets
import numpy as np
import pytest
from traitlets import TraitError

from relpos_lib.explorers import Quiz
from relpos_lib.explorers._bundle import bundle
from relpos_lib.quizzes import questions, quizzes
from relpos_lib.quizzes.question import ask, right, wrong

MARKUP = "<b>1</b> & `a < b` \"2\" '3'"
FEW = (
    ask("One?", wrong("a", "Not a."), right("b", "It is b.")),
    ask("Two?", right("c", "It is c."), wrong("d", "Not d."), wrong("e", "Not e.")),
)


def test_answers_are_read_set_and_scored():
    quiz = Quiz(FEW)
    assert (quiz.answers, quiz.score) == ((None, None), 0)
    quiz.answers = [1, 2]
    assert (quiz.answers, quiz.score) == ((1, 2), 1)
    quiz.answers = (1, np.int64(0))
    assert (quiz.answers, quiz.score) == ((1, 0), 2)
    assert all(type(answer) is int for answer in quiz.answers)
    quiz.answers = [None, 0]
    assert quiz.score == 1


def test_answers_of_the_page_are_observed():
    quiz, seen = Quiz(FEW), []
    quiz.observe(lambda change: seen.append(change["new"]), "answers")
    quiz.set_state({"answers": [0, None]})
    assert seen == [(0, None)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0], r"answers of Quiz must be a list of 2 answers, .* got \[0\]"),
        ([0, 0, 0], "list of 2 answers"),
        ("01", "list of 2 answers, one a question, got '01'"),
        (None, "list of 2 answers, one a question, got None"),
        ([2, 0], r"answers\[0\] of Quiz .* None or a whole number from 0 to 1, got 2"),
        ([0, 3], r"answers\[1\] of Quiz .* from 0 to 2, got 3"),
        ([0, -1], "from 0 to 2, got -1"),
        ([True, 0], "got True"),
        ([0, 1.0], "got 1.0"),
        ([0, "1"], "got '1'"),
    ],
)
def test_wrong_answers_are_refused_and_the_old_ones_stay(value, message):
    quiz = Quiz(FEW, answers=[1, None])
    with pytest.raises(TraitError, match=message):
        quiz.answers = value
    assert quiz.answers == (1, None)


def test_construction_refuses_before_anything_is_sent():
    before = set(ipywidgets.Widget.get_manager_state()["state"])
    with pytest.raises(ValueError, match="at least one question, got none"):
        Quiz([])
    with pytest.raises(TypeError, match="of the class Question, got str"):
        Quiz(["One?"])
    with pytest.raises(TraitError, match="from 0 to 1, got 7"):
        Quiz(FEW, answers=[7, None])
    assert set(ipywidgets.Widget.get_manager_state()["state"]) == before


@pytest.mark.parametrize("name", quizzes())
def test_a_chapters_quiz_by_its_name(name):
    quiz = Quiz.of(name)
    assert quiz.questions == questions(name)
    assert quiz.score == 0


def test_an_unknown_name_tells_which_there_are():
    with pytest.raises(ValueError, match=r"one of bias, .*shaw, .* got 'shaws'"):
        Quiz.of("shaws")


def test_the_sentence_says_how_many_are_right():
    assert repr(Quiz(FEW, answers=[1, 1])) == (
        "Quiz: 1 of 2 right. Every answer has its feedback."
    )


# Where no widget can live


class Reader(HTMLParser):
    """Collects the texts of some tags, and all tags."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def still_form(quiz):
    data, _ = quiz._repr_mimebundle_()
    assert "image/png" not in data
    assert data["text/plain"] == repr(quiz)
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"]
    reader = Reader()
    reader.feed(data["text/html"])
    assert reader.open == []
    return reader


@pytest.mark.parametrize("name", quizzes())
def test_the_still_form_has_every_question_answer_and_feedback(name):
    quiz = Quiz.of(name)
    reader = still_form(quiz)
    text = "".join(reader.texts)
    for question in quiz.questions:
        assert question.text.replace("`", "") in text
        for choice in question.choices:
            assert choice.text.replace("`", "") in text
            assert choice.feedback.replace("`", "") in text
    choices = sum(len(question.choices) for question in quiz.questions)
    assert reader.tags.count("details") == reader.tags.count("summary") == choices
    assert text.count("Not right.") == choices - len(quiz.questions)


def test_the_still_form_is_the_same_every_time():
    first, second = (Quiz(FEW)._repr_mimebundle_()[0]["text/html"] for _ in range(2))
    assert first == second


def test_markup_in_the_still_form_is_text():
    quiz = Quiz([ask(MARKUP, right(MARKUP + "a", MARKUP), wrong(MARKUP, MARKUP))])
    reader = still_form(quiz)
    assert "b" not in reader.tags
    assert reader.tags.count("code") == 5
    assert "".join(reader.texts).count("<b>1</b> & a < b \"2\" '3'") == 5


# The module that the browser gets


def test_the_module_brings_nothing_that_it_does_not_need():
    text = bundle("quiz.js")
    assert "innerHTML" not in text
    assert "Float64Array" not in text
    assert len(gzip.compress(text.encode())) < 2_000
