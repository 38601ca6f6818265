"""Checks of the chapter on fast attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relpos_lib.exercises.pairs import draw
from relpos_lib.exercises.report import (
    copies,
    exercise,
    expect,
    expect_equal,
    expect_given,
    numbers,
)

PAIR = "return two things: the average, (Q, D), and the log-sum-exp, (Q,)"
# Q, S, D of the tests: all different.
SIZES = ((5, 7, 3), (1, 4, 2), (7, 3, 5))


@exercise
def check_merge_two(merge_two: Callable[..., Any]) -> None:
    """Whether ``merge_two(out1, lse1, out2, lse2)`` merges exactly."""
    for queries, keys, width in SIZES:
        for shift in (0.0, 1000.0):
            query, key, value = draw((queries, width), (keys, width), (keys, width))
            scores = query @ key.mT + shift
            for cut in (keys // 2, 0, keys):  # also with one group empty
                one = _attended(scores[:, :cut], value[:cut])
                two = _attended(scores[:, cut:], value[cut:])
                case = f"with {cut} and {keys - cut} keys"
                case += f" and scores around {shift:.0f}" if shift else ""
                got = _pair(merge_two(*copies(*one, *two)))
                _expect_merged(case, got, _attended(scores, value))
    nothing = torch.zeros(2, 3), torch.full((2,), -math.inf)
    got = _pair(merge_two(*copies(*nothing, *nothing)))
    _expect_merged("with two empty groups", got, nothing)


@exercise
def check_masked_attend(masked_attend: Callable[..., Any]) -> None:
    """Whether ``masked_attend(q, k, v, visible)`` tells what it could see."""
    for queries, keys, width in SIZES:
        query, key, value = draw((queries, width), (keys, width), (keys, width))
        generator = torch.Generator().manual_seed(3)
        visible = torch.rand(queries, keys, generator=generator) < 0.5
        for mask, case in (
            (torch.ones_like(visible), "with all keys visible"),
            (visible, "with some keys hidden"),
            (visible & (torch.arange(queries) > 0)[:, None], "with query 0 blind"),
            (torch.zeros_like(visible), "with nothing visible"),
        ):
            got = _pair(masked_attend(*copies(query, key, value), mask.clone()))
            scores = (query @ key.mT / width**0.5).masked_fill(~mask, -math.inf)
            wanted = _attended(scores, value)
            blind = ~mask.any(-1)
            lse = numbers("the log-sum-exp", got[1], (queries,))
            expect(
                bool((lse[blind] == -math.inf).all()),
                f"{case}, a query that sees nothing must have log-sum-exp -inf, "
                f"got {_first(lse, blind):.6g}",
            )
            _expect_merged(case, got, wanted)


@exercise
def check_near_pairs(near_pairs: Callable[..., Any]) -> None:
    """Whether ``near_pairs(length, tile, max_distance)`` counts the bands."""
    for length, tile, distance in (
        (16, 4, 1),
        (16, 4, 2),
        (17, 5, 3),
        (5, 8, 2),
        (30, 7, 11),
        (1, 1, 1),
    ):
        wanted = 0
        for query in range(length):
            first = query // tile * tile
            last = min(first + tile, length) - 1
            wanted += sum(
                first - distance < key < last + distance for key in range(length)
            )
        case = f"near_pairs({length}, {tile}, {distance})"
        expect_equal(case, near_pairs(length, tile, distance), wanted, 0)


@exercise
def check_bias_line(bias_line: Callable[..., Tensor]) -> None:
    """Whether ``bias_line(table, q_len, k_len)`` is read right by a strided view."""
    for q_len, k_len, distance in ((4, 4, 3), (2, 5, 2), (1, 6, 9), (5, 3, 1)):
        (table,) = draw((2 * distance + 1,))
        case = f"for Q={q_len}, S={k_len}, K={distance}"
        line = bias_line(*copies(table), q_len, k_len)
        line = numbers(f"the line {case}", line, (q_len + k_len - 1,))
        shown = line.as_strided((q_len, k_len), (1, 1)).flip(0)
        wanted = _biases(table, q_len, k_len, k_len - q_len)
        for mistake, message in (
            (
                _biases(table.flip(0), q_len, k_len, k_len - q_len),
                "left and right have changed places: the first number belongs to the "
                "leftmost offset",
            ),
            (
                _biases(table, q_len, k_len, 0),
                "the first query stands on the first key; the last one must stand on "
                "the last",
            ),
        ):
            differs = not torch.allclose(mistake, wanted)
            same = torch.allclose(mistake, shown, atol=1e-5)
            expect(not (differs and same), message)
        expect_equal(f"{case}, the bias (i, j)", shown, wanted, 1e-6)


@exercise
def check_constant_gradient(constant_gradient: Callable[..., Tensor]) -> None:
    """Whether ``constant_gradient(grad, out, lse, far_out, far_lse)`` is right."""
    for queries, keys, width in SIZES:
        query, key, value = draw((queries, width), (keys, width), (keys, width))
        constant, row, grad = draw((queries,), (width,), (queries, width))
        constant.requires_grad_()
        far = keys // 2
        scores = query @ key.mT / width**0.5
        scores = torch.cat([scores[:, :far] + constant[:, None], scores[:, far:]], 1)
        value = torch.cat([value[:far] + row, value[far:]])
        out, lse = _attended(scores, value)
        (wanted,) = torch.autograd.grad((out * grad).sum(), constant)
        far_out, far_lse = _attended(scores[:, :far], value[:far])
        given = [x.detach() for x in (grad, out, lse, far_out, far_lse)]
        got = numbers(
            "the gradient", constant_gradient(*copies(*given)), tuple(wanted.shape)
        )
        without_mean = (far_lse - lse).exp() * (grad * far_out).sum(-1)
        expect(
            not torch.allclose(got, without_mean.detach(), atol=1e-4),
            "the part G · O is missing: the softmax takes from the others what it "
            "gives to the group",
        )
        expect_equal("the gradient of query i", got, wanted, 1e-4)


def _attended(scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Average and log-sum-exp by the definition; 0 and -inf without keys."""
    out = scores.new_zeros(len(scores), value.shape[1])
    lse = scores.new_full((len(scores),), -math.inf)
    if scores.shape[1]:
        lse = scores.logsumexp(-1)
        out = scores.softmax(-1).nan_to_num(0) @ value
    return out, lse


def _pair(answer: Any) -> tuple[Any, Any]:
    """Average and log-sum-exp of an answer; a gap in either is a gap."""
    expect_given(answer)
    expect(isinstance(answer, (tuple, list)) and len(answer) == 2, PAIR)
    for part in answer:
        expect_given(part)
    return answer[0], answer[1]


def _expect_merged(
    case: str, got: tuple[Any, Any], wanted: tuple[Tensor, Tensor]
) -> None:
    """Refuse an average or a log-sum-exp that is not the wanted one."""
    out = numbers("the average", got[0], tuple(wanted[0].shape))
    lse = numbers("the log-sum-exp", got[1], tuple(wanted[1].shape))
    for name, found in (("average", out), ("log-sum-exp", lse)):
        expect(
            not found.isnan().any(),
            f"{case}, the {name} is NaN: look for inf minus inf, or for an "
            "exponential that is too large",
        )
    empty = wanted[1] == -math.inf
    expect(
        bool((lse[empty] == -math.inf).all()),
        f"{case}, the log-sum-exp without any key must be -inf, "
        f"got {_first(lse, empty):.6g}",
    )
    seen, right = lse.masked_fill(empty, 0), wanted[1].masked_fill(empty, 0)
    expect_equal(f"{case}, the log-sum-exp of query i", seen, right, 1e-5)
    # Scores around 1000 leave float32 four digits after the point.
    tolerance = 1e-5 if not bool((wanted[1] > 100).any()) else 1e-3
    expect_equal(f"{case}, the average (i, d)", out, wanted[0], tolerance)


def _first(x: Tensor, where: Tensor) -> float:
    """The first number of those that are meant; NaN if there is none."""
    found = x[where]
    return float(found[0]) if len(found) else math.nan


def _biases(table: Tensor, q_len: int, k_len: int, start: int) -> Tensor:
    """The bias of every pair by the definition, (Q, S)."""
    distance = len(table) // 2
    found = table.new_empty(q_len, k_len)
    for i in range(q_len):
        for j in range(k_len):
            offset = min(max(j - (start + i), -distance), distance)
            found[i, j] = table[offset + distance]
    return found
