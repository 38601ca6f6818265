"""What the checks of every chapter are tested for, given right and wrong answers."""

from __future__ import annotations

import pytest

GAPS = [
    ...,
    None,
    lambda *_: ...,
    lambda *_: None,
    lambda *_: ... @ 1,
    lambda *_: ....sin(),
]


def accepts(right):
    """A test that each pair of check and answer is correct."""

    @pytest.mark.parametrize(("check", "answer"), right)
    def test(check, answer, capsys):
        check(answer)
        assert capsys.readouterr().out == f"{check.__name__}: correct\n"

    return test


def refuses(wrong):
    """A test that each pair of check and answer is refused, with a reason."""

    @pytest.mark.parametrize(("check", "answer"), wrong)
    def test(check, answer, capsys):
        check(answer)
        assert capsys.readouterr().out.startswith(f"{check.__name__}: not yet: ")

    return test


def sees_gaps(right):
    """A test that the checks tell an answer with a gap from a wrong one."""

    @pytest.mark.parametrize("check", list(dict.fromkeys(check for check, _ in right)))
    @pytest.mark.parametrize("answer", GAPS)
    def test(check, answer, capsys):
        check(answer)
        assert capsys.readouterr().out == f"{check.__name__}: not attempted yet\n"

    return test


def names(mistakes):
    """A test that each check says what is wrong with the answer: a part of its text."""

    @pytest.mark.parametrize(("check", "answer", "hint"), mistakes)
    def test(check, answer, hint, capsys):
        check(answer)
        assert hint in capsys.readouterr().out

    return test
