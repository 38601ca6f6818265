"""Checks of the steps to Shaw's vectors on keys and values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from relpos_lib.attention import relative_attention
from relpos_lib.exercises.implement.common import (
    DISTANCES,
    FLIPPED,
    LEFT,
    LOST,
    shapes,
    visible_pairs,
)
from relpos_lib.exercises.implement.dropout import expect_dropout
from relpos_lib.exercises.pairs import (
    SIZES,
    draw,
    expect_other_than,
    loop_scores,
    loop_values,
    pair_rows,
    pair_vectors,
)
from relpos_lib.exercises.report import (
    NotYet,
    copies,
    exercise,
    expect,
    expect_equal,
    numbers,
)

MOST_CALLS = 100  # of torch, by a function without a loop


@exercise
def check_step_6(shaw_scores_loop: Callable[..., Tensor]) -> None:
    """Whether ``shaw_scores_loop(q, k, key_table)`` is the definition."""
    _expect_shaw_scores(shaw_scores_loop)


@exercise
def check_step_7(shaw_scores: Callable[..., Tensor]) -> None:
    """Whether ``shaw_scores(q, k, key_table)`` is step 6 without its large tensor."""
    _expect_shaw_scores(shaw_scores)
    q, k, table = copies(*draw((1, 1, 32, 16), (1, 1, 32, 16), (33, 16)))
    _expect_small(lambda: shaw_scores(q, k, table))


@exercise
def check_step_8(value_term: Callable[..., Tensor]) -> None:
    """Whether ``value_term(weights, value_table)`` is the part of the vectors."""
    for distance in DISTANCES:
        for batch, heads, q_len, k_len, width in SIZES:
            scores, table = draw(
                (batch, heads, q_len, k_len), (2 * distance + 1, width)
            )
            weights = scores.relu()  # not one in sum, and some are dropped
            case = f"for Q={q_len}, S={k_len}, K={distance}"
            got = numbers(
                f"the result {case}",
                value_term(*copies(weights, table)),
                (batch, heads, q_len, width),
            )
            _expect_value_term(case, got, weights, table)
    weights, table = copies(*draw((1, 1, 32, 32), (33, 16)))
    _expect_small(lambda: value_term(weights, table))
    try:
        value_term(weights.double(), table.double())
    except RuntimeError as error:
        raise NotYet(
            "with weights in float64 your code raised an error: make the bins with "
            "weights.new_zeros, which keeps dtype and device"
        ) from error


@exercise
def check_step_8_attention(shaw_attention: Callable[..., Tensor]) -> None:
    """Whether ``shaw_attention`` joins both terms, hides keys and drops weights."""
    for distance in DISTANCES:
        for sizes in SIZES:
            _expect_shaw_attention(shaw_attention, *sizes, distance)
    expect_dropout(shaw_attention)


@exercise
def check_whole(shaw_attention: Callable[..., Tensor]) -> None:
    """Whether outputs and gradients are the library's on shapes that nobody chose."""
    for _ in range(20):
        batch, heads, q_len, k_len, width, rows = torch.randint(1, 9, (6,)).tolist()
        sizes = (batch, heads, q_len, k_len, width, rows - 1)
        _expect_shaw_attention(shaw_attention, *sizes)
        _expect_same_gradients(shaw_attention, *sizes)


def _expect_shaw_scores(scores_of: Callable[..., Tensor]) -> None:
    for distance in DISTANCES:
        for batch, heads, q_len, k_len, width in SIZES:
            q, k, _, table = draw(
                *shapes(batch, heads, q_len, k_len, width), (2 * distance + 1, width)
            )
            case = f"for Q={q_len}, S={k_len}, K={distance}"
            got = numbers(
                f"the result {case}",
                scores_of(*copies(q, k, table)),
                (batch, heads, q_len, k_len),
            )
            content, root = q @ k.mT, math.sqrt(width)
            pairs = pair_vectors(table, q_len, k_len, distance)
            position = loop_scores(q, pairs)
            from_left, flipped, lost = (
                loop_scores(q, wrong)
                for wrong in (
                    pair_vectors(table, q_len, k_len, distance, start=0),
                    pair_vectors(table.flip(0), q_len, k_len, distance),
                    pair_vectors(table.roll(distance, 0), q_len, k_len, distance),
                )
            )
            of_keys = torch.einsum("bhjd,ijd->bhij", k, pairs)
            wanted = (content + position) / root
            for wrong, hint in (
                (content / root + position, "divide both terms by sqrt(D)"),
                (content + position / root, "divide both terms by sqrt(D)"),
                (content + position, "divide by sqrt(D)"),
                (wanted / root, "divide by the root of D, not by D"),
                (content / root, "the vectors of the keys are missing"),
                (position / root, "the content q_i · k_j is missing"),
                ((content + from_left) / root, LEFT),
                ((content + flipped) / root, FLIPPED),
                ((content + lost) / root, LOST),
                (
                    (content + of_keys) / root,
                    "the vectors meet the query, q_i · a_ij, not the key",
                ),
            ):
                expect_other_than(got, wanted, wrong, hint)
            expect_equal(f"{case}, the score (b, h, i, j)", got, wanted, 1e-5)


def _expect_value_term(case: str, got: Tensor, weights: Tensor, table: Tensor) -> None:
    q_len, k_len = weights.shape[2:]
    distance = len(table) // 2
    wanted = loop_values(weights, pair_vectors(table, q_len, k_len, distance))
    rows = pair_rows(q_len, k_len, distance, distance).expand_as(weights)
    bins = weights.new_zeros(*weights.shape[:3], len(table))
    counts = bins.scatter_add(-1, rows, torch.ones_like(weights))
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
    for wrong, hint in (
        (
            bins.scatter(-1, rows, weights) @ table,
            "keys that read one row must add up in its bin, here the last one "
            "overwrites the others: use scatter_add, not scatter",
        ),
        (counts @ table, "add up the weights in the bins, do not count keys"),
        (
            bins @ table,
            "the bins are empty: scatter_add returns new bins and leaves the old "
            "ones as they are",
        ),
        (
            bins.scatter_add(-1, rows, shares) @ table,
            "some weights may have been dropped: do not make the bins add up to one",
        ),
        (
            loop_values(weights, pair_vectors(table, q_len, k_len, distance, 0)),
            LEFT,
        ),
        (
            loop_values(weights, pair_vectors(table.flip(0), q_len, k_len, distance)),
            FLIPPED,
        ),
    ):
        expect_other_than(got, wanted, wrong, hint)
    expect_equal(f"{case}, the value (b, h, i, d)", got, wanted, 1e-5)


class _Problem(NamedTuple):
    """What an attention with vectors on keys and values is tried on."""

    tensors: list[Tensor]  # q, k, v and both tables
    visible: Tensor
    case: str  # its sizes, for messages


def _problem(
    batch: int, heads: int, q_len: int, k_len: int, width: int, distance: int
) -> _Problem:
    return _Problem(
        draw(
            *shapes(batch, heads, q_len, k_len, width),
            *[(2 * distance + 1, width)] * 2,
        ),
        visible_pairs(batch, q_len, k_len),
        f"for Q={q_len}, S={k_len}, K={distance}",
    )


def _expect_shaw_attention(attention: Callable[..., Tensor], *sizes: int) -> None:
    (q, k, v, key_table, value_table), visible, case = _problem(*sizes)
    answer = attention(*copies(q, k, v, key_table, value_table), visible.clone())
    got = numbers(f"the output {case}", answer, tuple(q.shape))

    def attend(
        key_table: Tensor | None,
        value_table: Tensor | None,
        mask: Tensor | None = visible,
    ) -> Tensor:
        return relative_attention(
            q,
            k,
            v,
            key_table=key_table,
            value_table=value_table,
            mask=mask,
            backend="loop",
        )

    wanted = attend(key_table, value_table)
    for wrong, hint in (
        (attend(key_table, None), "the vectors of the values are missing"),
        (attend(None, value_table), "the vectors of the keys are missing"),
        (wanted - attend(key_table, None), "the values themselves are missing"),
        (attend(value_table, key_table), "the two tables have changed places"),
        (attend(key_table, key_table), "the values have a table of their own"),
        (attend(key_table, value_table, None), "hidden keys are still visible"),
    ):
        expect_other_than(got, wanted, wrong, hint)
    expect_equal(f"{case}, the output (b, h, i, d)", got, wanted, 1e-4)


def _expect_same_gradients(attention: Callable[..., Tensor], *sizes: int) -> None:
    """Refuse an attention that learns otherwise than the library's."""
    tensors, visible, case = _problem(*sizes)
    q, k, v, key_table, value_table = exact = [t.requires_grad_() for t in tensors]
    right = relative_attention(
        q, k, v, key_table=key_table, value_table=value_table, mask=visible
    )
    wanted = _gradients(right, exact)
    mine = [t.detach().requires_grad_() for t in copies(*exact)]
    out = attention(*mine, visible)
    expect(
        getattr(out, "requires_grad", False),
        "right, but the output has no gradient: nothing can learn",
    )
    names = ("q", "k", "v", "key_table", "value_table")
    for name, found, one in zip(names, _gradients(out, mine), wanted, strict=True):
        expect_equal(f"{case}, the gradient of {name}", found, one, 1e-3)


def _gradients(out: Tensor, of: list[Tensor]) -> list[Tensor]:
    """The gradients of a sum in which every number counts differently."""
    [probe] = draw(tuple(out.shape))
    loss = (out * probe).sum()
    return list(
        torch.autograd.grad(loss, of, allow_unused=True, materialize_grads=True)
    )


class _Work(TorchFunctionMode):
    """Counts what torch is asked to do, and the largest tensor that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.largest = 0, 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls += 1
        if isinstance(out, Tensor):
            self.largest = max(self.largest, out.numel())
        return out


def _expect_small(run: Callable[[], object]) -> None:
    """Refuse loops, and a vector for every pair of 32 queries and 32 keys."""
    with _Work() as work:
        run()
    expect(
        work.calls <= MOST_CALLS,
        f"right, but 32 tokens took {work.calls} calls of torch: do it without a loop",
    )
    expect(
        work.largest < 32 * 32 * 16,
        "right, but you made a tensor with a vector for every pair, (Q, S, D) or "
        "(Q, S, 2K+1): there are only 2K+1 different vectors",
    )
