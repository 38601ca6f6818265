"""The questions of the book's quizzes: one module a chapter, named as its exercises."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from relpos_lib.quizzes.question import Choice, Question

__all__ = ["Choice", "Question", "questions", "quizzes"]


def quizzes() -> tuple[str, ...]:
    """Names of all quizzes, in alphabetical order."""
    found = {module.name for module in iter_modules(__path__)}
    return tuple(sorted(found - {"question"}))


def questions(name: str) -> tuple[Question, ...]:
    """The questions of one quiz.

    Args:
        name: "bias", "shaw" and so on, one of :func:`quizzes`.

    Returns:
        The questions, in their order.

    Raises:
        ValueError: if there is no such quiz.
    """
    known = quizzes()
    if name not in known:
        raise ValueError(f"name must be one of {', '.join(known)}, got {name!r}")
    module = import_module(f"{__name__}.{name}")
    found: tuple[Question, ...] = module.QUESTIONS
    return found
