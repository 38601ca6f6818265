"""What every check of an exercise has in common: it reports and never raises."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

# How Python and torch name the type of a gap that is used as if it were a value;
# messages about the `...` of an index or of an einsum do not count.
GAP = re.compile(r"'ellipsis'|EllipsisType|\b(?:type|not|got|of|assign an?) ellipsis\b")


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
        NotAttempted: if ``got`` is a gap or holds one.
        NotYet: if it differs.
    """
    right = numbers(what, wanted)
    found = numbers(what, got, tuple(right.shape))
    if not right.numel():
        return
    scale = max(1.0, float(right.abs().max()))
    wrong = ~((found - right).abs() <= tolerance * scale)  # true where it is NaN
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        at = f" at {place}" if place else ""
        raise NotYet(f"{what}{at} is {found[place]:.6g}, expected {right[place]:.6g}")


def numbers(what: str, got: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Whatever holds the reader's numbers, as a tensor of float64 on the CPU.

    An answer may be of any precision, and a list or an array too.

    Args:
        what: what the numbers are, for the message.
        got: the reader's number, sequence, array or tensor.
        shape: the shape that it must have, if it matters.

    Raises:
        NotAttempted: if ``got`` is a gap or holds one.
        NotYet: if it does not hold real numbers, or has another shape.
    """
    expect_given(got)
    if isinstance(got, (list, tuple)):
        parts = [numbers(what, part) for part in got]
        shapes = {part.shape for part in parts}
        expect(len(shapes) < 2, f"{what} has parts of different shapes")
        found = torch.stack(parts) if parts else torch.empty(0, dtype=torch.double)
    elif isinstance(got, Tensor):
        expect(not got.is_complex(), f"{what} must hold real numbers")
        found = got.detach().cpu().double()
    else:
        array = np.array(got)
        expect(array.dtype.kind in "biuf", f"{what} must hold real numbers")
        found = torch.from_numpy(array.astype(np.float64, order="C"))
    if shape is not None:
        has = tuple(found.shape)
        expect(has == shape, f"{what} has shape {has}, expected {shape}")
    return found


def copies(*tensors: Tensor) -> list[Tensor]:
    """What a check hands to the reader, who may change it in place.

    The check keeps float64, so that this is a copy and the check's numbers are exact.
    """
    return [tensor.to(torch.float32, copy=True) for tensor in tensors]


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
    except (Exception, SystemExit) as error:  # the reader's code may raise anything
        message = _message(error)
        if GAP.search(message):
            return "not attempted yet"
        return f"not yet: your code raised {type(error).__name__}: {message}"
    return "correct"


def _message(error: BaseException) -> str:
    """The text of an error, which may itself fail to be written."""
    try:
        return str(error)
    except Exception:
        return "(it cannot say why)"
