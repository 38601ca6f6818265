"""Checks of the exercises in the chapter on lengths beyond those of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relpos_lib.attention import relative_attention
from relpos_lib.exercises.report import copies, exercise, expect, expect_equal, numbers

CASES = ((3.0, 0.5), (math.log(100), 0.5), (5.0, 0.9), (2.0, 0.05), (7.0, 0.25))


@exercise
def check_reach(answer: Callable[..., Any]) -> None:
    """Whether ``reach(gap, share)`` is right."""
    for gap, share in CASES:
        wanted = math.exp(gap) * (1 - share) / share
        got = numbers("the reach", answer(gap, share), ())
        for wrong, why in (
            (1 / wanted, "that is the inverse: the larger the gap, the more others"),
            (
                math.exp(gap) / share,
                "do not forget that the favourite itself takes part of the sum",
            ),
            (gap + math.log((1 - share) / share), "that is the logarithm of the reach"),
        ):
            same = math.isclose(float(got), wrong, rel_tol=1e-3)
            other = math.isclose(wanted, wrong, rel_tol=1e-3)
            expect(other or not same, why)
        expect_equal(f"the reach of gap {gap:.3g}, share {share}", got, wanted, 1e-4)


@exercise
def check_window_table(answer: Callable[..., Any]) -> None:
    """Whether ``window_table(table, window)`` is right."""
    generator = torch.Generator().manual_seed(7)
    for heads, distance, window in ((2, 2, 4), (1, 4, 2), (3, 1, 1), (2, 3, 3)):
        table = torch.randn(heads, 2 * distance + 1, generator=generator).double()
        got = numbers(
            "the table", answer(*copies(table), window), (heads, 2 * window + 3)
        )
        edges = got[:, [0, -1]]
        expect(
            bool((edges == -math.inf).all()),
            "both edge rows must be -inf: they stand for all that is farther than "
            "the window",
        )
        inside = got[:, 1:-1]
        expect(
            bool(inside.isfinite().all()),
            f"what is at most {window} away must stay visible, but a row inside is "
            "not finite",
        )
        wanted = _windowed(table, window)
        expect(
            not torch.allclose(inside.flip(-1), wanted)
            or torch.allclose(inside, wanted),
            "left and right are swapped: row 0 stands for the keys to the left",
        )
        expect_equal(
            f"K = {distance}, window {window}, the row (head, row)", inside, wanted
        )
        _expect_local(got, table, window, generator)


@exercise
def check_perplexity(answer: Callable[..., Any]) -> None:
    """Whether ``perplexity(losses, length, stride)`` is right."""
    generator = torch.Generator().manual_seed(7)
    for count, length, stride in ((12, 4, 4), (12, 4, 2), (12, 6, 1), (8, 4, 1)):
        losses = 3 * torch.rand(count, 6, generator=generator).double()
        wanted = _perplexity(losses, length, stride)
        got = numbers("the perplexity", answer(*copies(losses), length, stride), ())
        other = _perplexity(losses, length, length)
        expect(
            stride == length or abs(float(got) - other) > 1e-4,
            f"with stride {stride} your windows still do not overlap",
        )
        for wrong, why in (
            (math.log(wanted), "that is the mean loss; perplexity is its exponential"),
            (
                float(losses[:, :length].exp().mean()),
                "take the mean of the losses first, then the exponential",
            ),
            (
                math.exp(float(losses[:, length - 1].mean())),
                "only the last character of a window sees all of it",
            ),
        ):
            if stride > 1:
                expect(not math.isclose(float(got), wrong, rel_tol=1e-5), why)
        expect_equal(f"length {length}, stride {stride}", got, wanted, 1e-5)


@exercise
def check_fewest_seeds(answer: Callable[..., Any]) -> None:
    """Whether ``best_p(seeds)`` is right."""
    for seeds in (2, 3, 4, 5, 8):
        got = numbers("the smallest p", answer(seeds), ())
        wanted = 2 / math.comb(2 * seeds, seeds)
        expect(
            not math.isclose(float(got), wanted / 2, rel_tol=1e-6),
            "count both sides: the split with all values swapped is as extreme",
        )
        expect_equal(f"with {seeds} seeds each", got, wanted)


def _windowed(table: Tensor, window: int) -> Tensor:
    """The rows of the offsets -window … window, by the definition."""
    distance = table.shape[1] // 2
    rows = [
        min(max(offset, -distance), distance) + distance
        for offset in range(-window, window + 1)
    ]
    return table[:, rows]


def _expect_local(
    got: Tensor, table: Tensor, window: int, generator: torch.Generator
) -> None:
    """Refuse a table with which attention is not the one with a mask."""
    shape = (1, len(table), 9, 4)
    query, key, value = (
        torch.randn(shape, generator=generator).double() for _ in range(3)
    )
    places = torch.arange(9)
    near = (places[None, :] - places[:, None]).abs() <= window
    wanted = relative_attention(
        query, key, value, bias_table=table, mask=near, backend="loop"
    )
    found = relative_attention(query, key, value, bias_table=got, backend="gather")
    expect_equal("attention with your table", found, wanted)


def _perplexity(losses: Tensor, length: int, stride: int) -> float:
    """By the definition: each character, how much it sees, its loss."""
    total = 0.0
    for t in range(len(losses)):
        seen = length - stride + t % stride + 1
        total += float(losses[t, seen - 1])
    return math.exp(total / len(losses))
