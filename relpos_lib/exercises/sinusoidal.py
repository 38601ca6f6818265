"""Checks of the chapter on sinusoidal codes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from relpos_lib.exercises.report import (
    copies,
    exercise,
    expect,
    expect_equal,
    expect_given,
    numbers,
)


@exercise
def check_encoding(encoding_from: Callable[..., Tensor]) -> None:
    """Whether ``encoding_from(length, width, start, base)`` is the sinusoidal code."""
    for length, width, start, base in ((3, 4, 0, 10_000.0), (5, 6, 7, 100.0)):
        wanted = [_code(start + p, width, base) for p in range(length)]
        got = encoding_from(length, width, start, base)
        what = f"the code for length={length}, width={width}, start={start}"
        expect_equal(what, got, wanted, tolerance=1e-5)


@exercise
def check_dot_product(dot_product: Callable[..., Tensor]) -> None:
    """Whether ``dot_product(offset, width)`` is that of two codes so far apart."""
    for offset, width in ((0, 6), (1, 4), (-5, 8), (20, 2)):
        codes = zip(_code(30, width), _code(30 + offset, width), strict=True)
        wanted = sum(a * b for a, b in codes)
        what = f"the dot product at offset {offset}, width {width},"
        expect_equal(what, dot_product(offset, width), wanted, tolerance=1e-5)


@exercise
def check_look_ahead(look_ahead: Callable[..., Tensor]) -> None:
    """Whether ``look_ahead(ahead, width)`` makes scores peak that far ahead."""
    width = 32
    code = numbers("the code", [_code(p, width) for p in range(20)])
    for ahead in (0, 1, 3, -2):
        between = numbers("the matrix", look_ahead(ahead, width), (width, width))
        expect(bool(between.isfinite().all()), "the matrix holds infinity or NaN")
        best = (code @ between @ code.T).argmax(-1)
        for i in range(max(0, -ahead), min(20, 20 - ahead)):
            expect(
                int(best[i]) == i + ahead,
                f"for ahead={ahead}, query {i} looks at key {int(best[i])}, "
                f"expected {i + ahead}",
            )


@exercise
def check_four_terms(four_terms: Callable[..., list[Tensor]]) -> None:
    """Whether ``four_terms(x_i, c_i, x_j, c_j, w)`` splits the score."""
    generator = torch.Generator().manual_seed(0)
    x_i, c_i, x_j, c_j = torch.randn(4, 5, generator=generator).double().unbind()
    w = torch.randn(5, 5, generator=generator).double()
    terms = four_terms(*copies(x_i, c_i, x_j, c_j, w))
    expect_given(terms)
    expect(len(terms) == 4, f"there are {len(terms)} terms, expected 4")
    names = (
        "content-content",
        "content-position",
        "position-content",
        "position-position",
    )
    pairs = ((x_i, x_j), (x_i, c_j), (c_i, x_j), (c_i, c_j))
    for name, got, (left, right) in zip(names, terms, pairs, strict=True):
        wanted = sum(left[a] * w[a, b] * right[b] for a in range(5) for b in range(5))
        expect_equal(f"the {name} term", got, wanted, tolerance=1e-5)


def _code(position: int, width: int, base: float = 10_000.0) -> list[float]:
    """Code of one position, column by column."""
    waves = (math.sin, math.cos)
    return [
        waves[column % 2](position * base ** (-2 * (column // 2) / width))
        for column in range(width)
    ]
