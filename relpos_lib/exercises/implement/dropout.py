"""What the step to Shaw's attention asks of dropout."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relpos_lib.attention import relative_attention
from relpos_lib.exercises.implement.common import shapes
from relpos_lib.exercises.pairs import draw, expect_other_than
from relpos_lib.exercises.report import copies, expect, numbers

SHAPE = (4, 4, 16, 16, 4)  # B, H, Q, S, D


def expect_dropout(attention: Callable[..., Tensor]) -> None:
    """Refuse dropout that is not that of the weights, on both sides.

    Args:
        attention: takes queries, keys, values, two tables, a mask and a probability.

    Raises:
        NotYet: if it drops nothing, one side only, something else than weights, or
            does not make up for what it dropped.
    """
    tensors = draw(*shapes(*SHAPE), (3, 4), (3, 4))
    _expect_all_gone(attention, tensors)
    _expect_one_draw(attention, tensors)
    _expect_weights_dropped(attention, tensors)


def _run(
    attention: Callable[..., Tensor], tensors: list[Tensor], rate: float
) -> Tensor:
    visible = torch.ones(1, 1, 16, 16, dtype=torch.bool)
    answer = attention(*copies(*tensors), visible, rate)
    return numbers(f"the output with dropout={rate}", answer, SHAPE[:3] + SHAPE[4:])


def _expect_all_gone(attention: Callable[..., Tensor], tensors: list[Tensor]) -> None:
    """Refuse an output that is not zero where all weights are dropped."""
    q, k, v, key_table, value_table = tensors
    values = relative_attention(q, k, v, key_table=key_table)
    every = relative_attention(q, k, v, key_table=key_table, value_table=value_table)
    got, nothing = _run(attention, tensors, 1.0), torch.zeros_like(v)
    expect(
        not got.isnan().any(),
        "with dropout=1 the output is NaN: nothing is kept, so do not divide by 1 - p",
    )
    for wrong, hint in (
        (every, "with dropout=1 nothing is dropped"),
        (values, "the values get weights that were not dropped"),
        (every - values, "the bins get weights that were not dropped"),
    ):
        expect_other_than(got, nothing, wrong, hint)
    expect(not got.any(), "with dropout=1 every weight is dropped, the output is zero")


def _expect_one_draw(attention: Callable[..., Tensor], tensors: list[Tensor]) -> None:
    """Refuse weights that are dropped for the values, and others for the bins."""
    q, k, v, key_table, value_table = tensors
    opposed = [q, k, torch.ones_like(v), key_table, -torch.ones_like(value_table)]
    got = _run(attention, opposed, 0.5)
    expect(
        float(got.abs().max()) < 1e-5,
        "a weight that is dropped must be gone from the values and from the bins: "
        "drop once, before both",
    )


def _expect_weights_dropped(
    attention: Callable[..., Tensor], tensors: list[Tensor]
) -> None:
    """Refuse dropout of the output, and weights that do not grow by 1 / (1 - p).

    With values of 1 and no vectors, every number of a row is the sum of its weights.
    """
    q, k, v, key_table, value_table = tensors
    ones = [q, k, torch.ones_like(v), key_table, torch.zeros_like(value_table)]
    sums = _run(attention, ones, 0.5)  # (B, H, Q, D)
    expect(
        torch.allclose(sums, sums[..., :1].expand_as(sums), atol=1e-5),
        "drop weights, not numbers of the output",
    )
    expect(
        float((sums - 1).abs().max()) > 1e-3,
        "the weights add up to one again after some were dropped: leave them so",
    )
    expect(
        0.75 < float(sums.mean()) < 1.25,
        "the weights that are kept must grow by 1 / (1 - p), as with "
        "nn.functional.dropout",
    )
