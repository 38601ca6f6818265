"""What every check of an exercise has in common: it reports and never raises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class NotYet(Exception):  # noqa: N818
    """The answer is wrong in the way that the message says."""


class NotAttempted(Exception):  # noqa: N818
    """The answer still has a gap where the stub has one."""


def exercise(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Turn a function that raises on a wrong answer into one that prints a verdict.

    Args:
        check: takes the reader's answer; raises :class:`NotYet` if it is wrong.

    Returns:
        A function of the answer that prints one line: "correct", "not attempted yet",
        or "not yet" with what is wrong.
    """

    @functools.wraps(check)
    def report(answer: Any) -> None:
        print(f"{check.__name__}: {_verdict(check, answer)}")

    return report


def expect_equal(what: str, got: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    """Refuse a value that differs from the wanted one, and say where.

    Args:
        what: what the value is, for the message.
        got: the reader's number, sequence, array or tensor.
        wanted: the right one.
        tolerance: largest difference allowed, relative to the largest wanted entry and
            at least to one.

    Raises:
        NotAttempted: if ``got`` is a gap.
        NotYet: if it differs.
    """
    expect_given(got)
    found, right = _array(got), _array(wanted)
    if found.shape != right.shape:
        raise NotYet(f"{what} has shape {found.shape}, expected {right.shape}")
    if found.size == 0:
        return
    scale = max(1.0, float(np.abs(right).max()))
    wrong = ~(np.abs(found - right) <= tolerance * scale)
    if wrong.any():
        place = tuple(int(n) for n in np.argwhere(wrong)[0])
        at = f" at {place}" if place else ""
        raise NotYet(f"{what}{at} is {found[place]:.6g}, expected {right[place]:.6g}")


def expect_given(got: Any) -> None:
    """Refuse a gap, ``...`` or None."""
    if got is None or got is ...:
        raise NotAttempted


def expect(condition: bool, message: str) -> None:
    """Refuse an answer for which the condition is false, with the message."""
    if not condition:
        raise NotYet(message)


def _verdict(check: Callable[[Any], None], answer: Any) -> str:
    try:
        expect_given(answer)
        check(answer)
    except NotAttempted:
        return "not attempted yet"
    except NotYet as error:
        return f"not yet: {error}"
    except Exception as error:  # the reader's code may raise anything
        if "ellipsis" in str(error).lower():  # a gap, used as if it were a value
            return "not attempted yet"
        return f"not yet: your code raised {type(error).__name__}: {error}"
    return "correct"


def _array(value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value, dtype=np.float64)
