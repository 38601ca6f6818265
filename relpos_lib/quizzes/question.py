"""What a quiz is made of: questions with a few choices, each with its feedback."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One possible answer. Words between backticks are shown as code.

    Args:
        text: the answer itself.
        feedback: why it is right, or what is wrong with it.
        is_right: whether it is the right one.

    Raises:
        ValueError: if text or feedback is empty or has a backtick without its pair.
    """

    text: str
    feedback: str
    is_right: bool = False

    def __post_init__(self) -> None:
        """Check both texts."""
        check_text("text", self.text)
        check_text("feedback", self.feedback)


@dataclass(frozen=True)
class Question:
    """A question and the choices for its answer.

    Args:
        text: the question. Words between backticks are shown as code.
        choices: at least two, of which exactly one is right.

    Raises:
        ValueError: if the text is empty or has a backtick without its pair, or the
            choices are too few, alike, or have not exactly one right among them.
    """

    text: str
    choices: tuple[Choice, ...]

    def __post_init__(self) -> None:
        """Check the text, and that there is one right choice."""
        check_text("text", self.text)
        if len({choice.text for choice in self.choices}) != len(self.choices):
            raise ValueError(f"choices must differ, got two alike for {self.text!r}")
        rights = sum(choice.is_right for choice in self.choices)
        if len(self.choices) < 2 or rights != 1:
            raise ValueError(
                "choices must be at least 2, with exactly 1 right, got "
                f"{len(self.choices)} with {rights} right for {self.text!r}"
            )

    @property
    def right(self) -> int:
        """Number of the right choice, from 0."""
        return next(k for k, choice in enumerate(self.choices) if choice.is_right)


def ask(text: str, *choices: Choice) -> Question:
    """A question with its choices, as the quizzes write it down."""
    return Question(text, choices)


def right(text: str, feedback: str) -> Choice:
    """The right choice of a question."""
    return Choice(text, feedback, is_right=True)


def wrong(text: str, feedback: str) -> Choice:
    """A choice that is not right."""
    return Choice(text, feedback)


def check_text(name: str, text: str) -> None:
    """Refuse an empty text, and code that does not end."""
    if not text.strip() or text.count("`") % 2:
        raise ValueError(f"{name} must be words with paired backticks, got {text!r}")
