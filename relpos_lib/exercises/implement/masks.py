"""Check of the step to a softmax over visible keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from relpos_lib.exercises.implement.common import softmax_of_visible, visible_pairs
from relpos_lib.exercises.pairs import SIZES, draw, expect_other_than
from relpos_lib.exercises.report import (
    NotYet,
    copies,
    exercise,
    expect,
    expect_equal,
    numbers,
)


@exercise
def check_step_2(masked_softmax: Callable[..., Tensor]) -> None:
    """Whether ``masked_softmax(scores, visible)`` hides keys, and blind rows are 0."""
    for batch, heads, q_len, k_len, _ in SIZES:
        shape = (batch, heads, q_len, k_len)
        [scores] = draw(shape)
        for visible, case in _masks(batch, q_len, k_len):
            sizes = f"{case}, Q={q_len}, S={k_len}"
            answer = masked_softmax(*copies(scores), visible.clone())
            got = numbers(f"{sizes}: the result", answer, shape)
            _expect_weights(sizes, got, scores, visible)
    _expect_gradient(masked_softmax)
    _expect_hidden(masked_softmax)


def _masks(batch: int, q_len: int, k_len: int) -> Iterator[tuple[Tensor, str]]:
    """Who sees whom, in several ways, and their names."""
    everyone = torch.ones(1, 1, q_len, k_len, dtype=torch.bool)
    yield everyone, "with all keys visible"
    yield visible_pairs(batch, q_len, k_len), "with a causal mask and padding"
    real = everyone[:, :, :1].clone()
    real[..., 0] = False
    yield real, "with key 0 hidden from all"
    blind = everyone.clone()
    blind[:, :, 0] = False
    yield blind, "with query 0 blind"


def _expect_weights(case: str, got: Tensor, scores: Tensor, visible: Tensor) -> None:
    wanted = softmax_of_visible(scores, visible)
    seen = visible.expand_as(scores)
    blind = ~seen.any(-1, keepdim=True).expand_as(scores)
    expect(
        not got[blind].isnan().any(),
        "a query that sees nothing got NaN: its softmax divides 0 by 0; fill its "
        "weights with 0 afterwards",
    )
    expect(
        not got[blind].any(),
        "a query that sees nothing got weights all the same: its row must be zero",
    )
    for wrong, hint in (
        (
            softmax_of_visible(scores, ~visible),
            "hidden and visible have changed places: True means may attend",
        ),
        (
            scores.softmax(-1) * seen,
            "the weights of a query must add up to one: hide keys before the softmax, "
            "not after it",
        ),
        (
            (scores * seen).softmax(-1) * seen,
            "a score of 0 hides nothing, since exp(0) = 1: fill with -torch.inf",
        ),
        (
            (scores * seen).softmax(-1),
            "a score of 0 hides nothing, since exp(0) = 1: fill with -torch.inf",
        ),
        (
            softmax_of_visible(scores.mT, seen.mT).mT,
            "the softmax runs over the keys, the last axis of the scores",
        ),
    ):
        expect_other_than(got, wanted, wrong, hint)
    expect_equal(f"{case}: the weight (b, h, i, j)", got, wanted, 1e-5)


def _expect_gradient(masked_softmax: Callable[..., Tensor]) -> None:
    """Refuse NaN in the backward pass of a row with nothing to attend to."""
    scores = draw((1, 1, 2, 3))[0].float().requires_grad_()
    visible = torch.tensor([[False] * 3, [True] * 3])
    weights = masked_softmax(scores, visible[None, None])
    expect(
        getattr(weights, "requires_grad", False),
        "no gradient reaches the scores: nothing could be learned",
    )
    loss = (weights * torch.arange(3.0)).sum()
    [gradient] = torch.autograd.grad(loss, scores)
    expect(
        bool(gradient.isfinite().all()),
        "the weights are right, but the gradient of a row that sees nothing is NaN: "
        "use masked_fill for both fills, which passes no gradient where it filled",
    )


def _expect_hidden(masked_softmax: Callable[..., Tensor]) -> None:
    """Refuse large negative numbers, and hidden scores that still count."""
    only_self = torch.eye(3, dtype=torch.bool)[None, None]
    high = torch.full((1, 1, 3, 3), 1e10).masked_fill(only_self, 0)
    got = numbers("the weights", masked_softmax(high, only_self), (1, 1, 3, 3))
    expect(
        torch.allclose(got[0, 0], torch.eye(3, dtype=torch.double)),
        "a hidden score of 1e10 still changes the weights: put -torch.inf in its "
        "place before the softmax, and do not add to it",
    )
    low = torch.full((1, 1, 3, 3), -3e9)
    got = numbers("the weights", masked_softmax(low, only_self), (1, 1, 3, 3))
    large = "a large negative number is not hidden enough: fill with -torch.inf"
    expect(torch.allclose(got[0, 0], torch.eye(3, dtype=torch.double)), large)
    try:
        half = masked_softmax(draw((1, 1, 3, 3))[0].half(), only_self)
    except RuntimeError as error:
        raise NotYet(
            "with float16 your code raised an error: -1e9 does not fit, -torch.inf does"
        ) from error
    got = numbers("the weights in float16", half, (1, 1, 3, 3))
    expect(torch.allclose(got[0, 0], torch.eye(3, dtype=torch.double)), large)
