"""Quiz: questions with one right answer, and feedback on every answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from numbers import Integral
from typing import Any

import traitlets

from relpos_lib.explorers._base import Explorer, fixed
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._traits import TraitType
from relpos_lib.quizzes import Choice, Question, questions

Answer = int | None


class Answers(TraitType[tuple[Answer, ...], Any]):
    """Synchronised numbers of the chosen answers, None where there is none yet."""

    def __init__(self, **options: Any) -> None:
        super().__init__((), **options)
        self.tag(sync=True)

    def validate(self, obj: Any, value: object) -> tuple[Answer, ...]:
        """Refuse another count, or a choice that there is not, naming the trait."""
        counts = [len(question.choices) for question in obj.questions]
        if not isinstance(value, (list, tuple)) or len(value) != len(counts):
            raise traitlets.TraitError(
                f"{self.name} of {type(obj).__name__} must be a list of {len(counts)} "
                f"answers, one a question, got {value!r}"
            )
        for number, (answer, count) in enumerate(zip(value, counts, strict=True)):
            if answer is None:
                continue
            whole = isinstance(answer, Integral) and not isinstance(answer, bool)
            if not whole or not 0 <= answer < count:
                raise traitlets.TraitError(
                    f"{self.name}[{number}] of {type(obj).__name__} must be None or a "
                    f"whole number from 0 to {count - 1}, got {answer!r}"
                )
        return tuple(None if answer is None else int(answer) for answer in value)


class Quiz(Explorer):
    """Questions to choose answers for; each answer is told why it is right or not.

    Mostly made by :meth:`of`. Where no widget can be shown, the questions are: each
    answer can be opened, and its feedback read.

    Args:
        questions: at least one.
        answers: number of the chosen answer of each question, from 0, or None where
            none is chosen yet; none at all if not given.

    Raises:
        ValueError: if there is no question.
        TypeError: if one of the questions is no ``Question``.
        traitlets.TraitError: if an answer is not one of those allowed, now or when it
            is set.

    >>> quiz = Quiz.of("bias")
    >>> quiz.score
    0
    >>> quiz.answers = [question.right for question in quiz.questions]
    >>> quiz.score == len(quiz.questions)
    True
    """

    _esm = bundle("quiz.js")

    _questions = fixed(traitlets.List)
    answers = Answers()

    def __init__(
        self,
        questions: Iterable[Question],
        *,
        answers: Sequence[int | None] | None = None,
    ) -> None:
        self.questions = _checked(questions)
        self._fix(_questions=[_for_the_page(each) for each in self.questions])
        super().__init__(
            answers=[None] * len(self.questions) if answers is None else answers
        )

    @classmethod
    def of(cls, name: str) -> Quiz:
        """The quiz of a chapter.

        Args:
            name: "bias", "shaw" and so on, one of ``relpos_lib.quizzes.quizzes()``.

        Returns:
            The quiz, with nothing answered.

        Raises:
            ValueError: if there is no such quiz.
        """
        return cls(questions(name))

    @property
    def score(self) -> int:
        """How many questions are answered right."""
        pairs = zip(self.answers, self.questions, strict=True)
        return sum(answer == question.right for answer, question in pairs)

    def describe(self) -> str:
        """What the quiz shows now, in one sentence."""
        count = len(self.questions)
        return f"Quiz: {self.score} of {count} right. Every answer has its feedback."

    def still(self) -> dict[str, str]:
        """The questions as HTML that needs no script: open an answer, read on."""
        items = "".join(map(_question_html, self.questions))
        return {"text/html": f'<ol class="rp-still">{items}</ol>'}


def _checked(questions: Iterable[Question]) -> tuple[Question, ...]:
    """The questions, after all checks."""
    kept = tuple(questions)
    for question in kept:
        if not isinstance(question, Question):
            kind = type(question).__name__
            raise TypeError(f"questions must be of the class Question, got {kind}")
    if not kept:
        raise ValueError("questions must hold at least one question, got none")
    return kept


def _for_the_page(question: Question) -> dict[str, Any]:
    choices = [
        {"text": choice.text, "feedback": choice.feedback, "right": choice.is_right}
        for choice in question.choices
    ]
    return {"text": question.text, "choices": choices}


def _question_html(question: Question) -> str:
    choices = "".join(map(_choice_html, question.choices))
    return f"<li><p>{_text_html(question.text)}</p>{choices}</li>"


def _choice_html(choice: Choice) -> str:
    verdict = "Right." if choice.is_right else "Not right."
    return (
        f"<details><summary>{_text_html(choice.text)}</summary>"
        f"<p><strong>{verdict}</strong> {_text_html(choice.feedback)}</p></details>"
    )


def _text_html(text: str) -> str:
    """Text with its markup as characters, and what stands in backticks as code."""
    parts = escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if index % 2 else part
        for index, part in enumerate(parts)
    )
