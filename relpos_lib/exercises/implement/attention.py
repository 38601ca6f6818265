"""Checks of the steps to plain attention and to an additive bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from relpos_lib.attention import relative_attention
from relpos_lib.exercises.implement.common import (
    DISTANCES,
    FLIPPED,
    LEFT,
    shapes,
    softmax_of_visible,
    visible_pairs,
)
from relpos_lib.exercises.pairs import SIZES, draw, expect_other_than, pair_rows
from relpos_lib.exercises.report import copies, exercise, expect, expect_equal, numbers


@exercise
def check_step_1(plain_attention: Callable[..., Tensor]) -> None:
    """Whether ``plain_attention(q, k, v)`` is attention without positions."""
    for batch, heads, q_len, k_len, width in SIZES:
        q, k, v = draw(*shapes(batch, heads, q_len, k_len, width))
        case = f"Q={q_len}, S={k_len}, D={width}"
        got = numbers(
            f"the output for {case}",
            plain_attention(*copies(q, k, v)),
            (batch, heads, q_len, width),
        )
        wanted = relative_attention(q, k, v, backend="loop")
        for weights, hint in _wrong_weights(q, k):
            expect_other_than(got, wanted, weights @ v, hint)
        expect_equal(f"for {case}, the output (b, h, i, d)", got, wanted, 1e-5)


def _wrong_weights(query: Tensor, key: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Weights that come from common mistakes, each with its hint."""
    _, heads, q_len, width = query.shape
    products, root = query @ key.mT, math.sqrt(width)
    axis = "the softmax runs over the keys, the last axis of the scores"
    yield products.softmax(-1), "divide the scores by sqrt(D) before the softmax"
    yield (products / width).softmax(-1), "divide by the root of D, not by D"
    yield (products * root).softmax(-1), "divide by sqrt(D), do not multiply"
    yield products.softmax(-1) / root, "divide the scores by sqrt(D), not the weights"
    yield products / root, "the softmax is missing"
    for wrong in (0, 1, 2):
        yield (products / root).softmax(wrong), axis
    yield (
        (products / math.sqrt(heads * width)).softmax(-1),
        "D is the width of one head, not of the model",
    )
    for size, name in ((heads, "heads"), (q_len, "queries"), (key.shape[2], "keys")):
        yield (
            (products / math.sqrt(size)).softmax(-1),
            f"this is the root of the number of {name}; D is the last axis of q",
        )


@exercise
def check_step_5(bias_attention: Callable[..., Tensor]) -> None:
    """Whether ``bias_attention(q, k, v, bias_table, visible)`` adds a bias."""
    for distance in DISTANCES:
        for batch, heads, q_len, k_len, width in SIZES:
            q, k, v, table = draw(
                *shapes(batch, heads, q_len, k_len, width),
                (heads, 2 * distance + 1),
            )
            visible = visible_pairs(batch, q_len, k_len)
            answer = bias_attention(*copies(q, k, v, table), visible.clone())
            case = f"for Q={q_len}, S={k_len}, K={distance}"
            got = numbers(f"the output {case}", answer, tuple(q.shape))
            wanted = relative_attention(
                q, k, v, bias_table=table, mask=visible, backend="loop"
            )
            for weights, hint in _wrong_bias(q, k, table, visible):
                expect_other_than(got, wanted, weights @ v, hint)
            expect_equal(f"{case}, the output (b, h, i, d)", got, wanted, 1e-5)
    _expect_bias_hidden(bias_attention)


def _wrong_bias(
    query: Tensor, key: Tensor, table: Tensor, visible: Tensor
) -> list[tuple[Tensor, str]]:
    """Weights that come from common mistakes, each with its hint."""
    (q_len, k_len), root = (query.shape[2], key.shape[2]), math.sqrt(query.shape[3])
    distance = table.shape[1] // 2
    rows = pair_rows(q_len, k_len, distance, distance)
    bias, products = table[:, rows], query @ key.mT
    from_left = table[:, pair_rows(q_len, k_len, distance, distance, start=0)]

    def soft(scores: Tensor) -> Tensor:
        return softmax_of_visible(scores, visible)

    plain = soft(products / root)
    heads_as_rows = min(len(table) // 2, distance)
    of_heads = table[:, pair_rows(q_len, k_len, heads_as_rows, heads_as_rows)]
    return [
        (soft((products + bias) / root), "add the bias after the division by sqrt(D)"),
        (plain + bias, "add the bias to the scores, before the softmax"),
        (plain + bias * visible, "add the bias to the scores, before the softmax"),
        (soft(products / root * bias), "a bias is added, not multiplied"),
        (soft(products / root - bias), "a bias is added, not taken away"),
        (plain, "the bias is missing"),
        (soft(bias.expand_as(products)), "the content scores are missing"),
        (
            soft(products / root + bias[:1]),
            "every head has biases of its own: bias_table[:, rows]",
        ),
        (
            soft(products / root + of_heads),
            "K comes from the second axis of bias_table: bias_table.shape[1] // 2",
        ),
        (soft(products / root + from_left), LEFT),
        (soft(products / root + table.flip(1)[:, rows]), FLIPPED),
        (soft(products + bias), "the content scores are not divided by sqrt(D)"),
        (
            (products / root + bias).softmax(-1),
            "hidden keys are still visible: use masked_softmax, after adding",
        ),
    ]


def _expect_bias_hidden(bias_attention: Callable[..., Tensor]) -> None:
    """Refuse a bias that brings hidden keys back."""
    q, k, v = copies(*draw(*shapes(1, 1, 4, 4, 3)))
    visible = torch.ones(4, 4, dtype=torch.bool).tril()[None, None]
    future = torch.tensor([[0.0, 0.0, 1e10]])
    got = numbers("the output", bias_attention(q, k, v, future, visible), (1, 1, 4, 3))
    wanted = relative_attention(q, k, v, is_causal=True).double()
    expect(
        torch.allclose(got, wanted, atol=1e-4),
        "a large bias brings hidden keys back: first add, then mask",
    )
