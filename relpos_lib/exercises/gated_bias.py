"""Checks of the exercises on gates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from relpos_lib.exercises.pairs import draw
from relpos_lib.exercises.report import (
    NotYet,
    copies,
    exercise,
    expect,
    expect_equal,
    expect_given,
    numbers,
)

SIZES = ((3, 2), (1, 0), (2, 5))  # heads and maximum distance


@exercise
def check_fold(fold: Callable[..., Any]) -> None:
    """Check ``fold(table, gate, logit_scale)``: the same bias with gates at zero.

    Args:
        fold: takes (2K+1, H), (H,) and (H,) and returns three of the same shapes.
    """
    for heads, distance in SIZES:
        table, gate, scale = _gated(heads, distance)
        new = _several(
            "the new", fold(*copies(table, gate, scale)), (table, gate, scale)
        )
        zero = bool((new["gate"] == 0).all())
        expect(zero, "the new gate must be zero in every head")
        wanted, got = _bias(table, gate, scale), _bias(*new.values())
        expect(
            not torch.allclose(2 * got, wanted, atol=1e-5),
            "the bias is half of what it was: a gate of zero still multiplies by "
            "sigmoid(0) = 0.5",
        )
        expect_equal("the bias (head, row) after folding", got, wanted, 1e-5)


@exercise
def check_gradients(gradients: Callable[..., Any]) -> None:
    """Check ``gradients(grad, table, gate, logit_scale)``: the product rule.

    Args:
        gradients: takes the gradient of the bias, (H, 2K+1), and the parameters,
            (2K+1, H), (H,) and (H,); returns the gradients of the three.
    """
    for heads, distance in SIZES:
        parameters = _gated(heads, distance)
        [grad] = draw((heads, 2 * distance + 1))
        answer = gradients(*copies(grad, *parameters))
        got = _several("the gradient of", answer, parameters)
        leaves = [p.clone().requires_grad_() for p in parameters]
        right = torch.autograd.grad((_bias(*leaves) * grad).sum(), leaves)
        for (name, found), wanted in zip(got.items(), right, strict=True):
            if name == "gate" and torch.allclose(found, right[2], atol=1e-6):
                raise NotYet(
                    "the gradient of gate equals that of logit_scale, but the "
                    "derivative of sigmoid(g) is sigmoid(g) * (1 - sigmoid(g))"
                )
            expect_equal(f"the gradient of {name}", found, wanted, 1e-5)


@exercise
def check_content_strength(content_strength: Callable[..., Any]) -> None:
    """Check ``content_strength(query, update, reset, scale)``: one number a query.

    Args:
        content_strength: takes (H, Q, D), (H, D), (H, D) and (H,); returns (H, Q).
    """
    for heads, length, width in ((2, 3, 5), (3, 1, 2)):
        query, update, reset, scale = draw(
            (heads, length, width), (heads, width), (heads, width), (heads,)
        )
        answer = content_strength(*copies(query, update, reset, scale))
        got = numbers("the strength", answer, (heads, length))
        wanted = _content_strength(query, update, reset, scale)
        swapped = _content_strength(query, reset, update, scale)
        expect(
            not torch.allclose(got, swapped, atol=1e-5),
            "update and reset have changed places",
        )
        expect(
            not torch.allclose(got, wanted - 1, atol=1e-5),
            "the table itself is missing: the strength begins with 1",
        )
        expect_equal("the strength (head, query)", got, wanted, 1e-5)


@exercise
def check_directional_table(directional_table: Callable[..., Any]) -> None:
    """Check ``directional_table(distance, direction)``: the table of the two parts.

    Args:
        directional_table: takes (K+1, H) and (2, H); returns (H, 2K+1).
    """
    for heads, distance in SIZES:
        far, side = draw((distance + 1, heads), (2, heads))
        answer = directional_table(*copies(far, side))
        got = numbers("the table", answer, (heads, 2 * distance + 1))
        wanted = _directional(far, side)
        expect(
            torch.allclose(got[:, distance], wanted[:, distance], atol=1e-6),
            "offset 0 has a distance, 0, but no direction",
        )
        expect(
            distance == 0 or not torch.allclose(got.flip(1), wanted, atol=1e-6),
            "left and right have changed places: row 0 is offset -K, and direction[0] "
            "belongs to the negative offsets, the keys before the query",
        )
        expect_equal("the table (head, row)", got, wanted, 1e-6)


def _gated(heads: int, distance: int) -> list[Tensor]:
    """A table, its gates and its scales."""
    return draw((2 * distance + 1, heads), (heads,), (heads,))


def _bias(table: Tensor, gate: Tensor, scale: Tensor) -> Tensor:
    """The bias by its definition, head by head, (H, 2K+1)."""
    heads = range(len(gate))
    return torch.stack([_strength(gate[h], scale[h]) * table[:, h] for h in heads])


def _strength(gate: Tensor, scale: Tensor) -> Tensor:
    return scale.exp() / (1 + (-gate).exp())


def _content_strength(
    query: Tensor, update: Tensor, reset: Tensor, scale: Tensor
) -> Tensor:
    """The strength by its definition, number by number, (H, Q)."""
    heads, length, _ = query.shape
    strength = torch.empty(heads, length, dtype=torch.double)
    for h in range(heads):
        for i in range(length):
            u, r = (
                1 / (1 + math.exp(-float(query[h, i] @ vector[h])))
                for vector in (update, reset)
            )
            strength[h, i] = 1 + u + (1 - u) * float(scale[h]) * r
    return strength


def _directional(distance: Tensor, direction: Tensor) -> Tensor:
    """The table by its definition, number by number, (H, 2K+1)."""
    far, heads = len(distance) - 1, distance.shape[1]
    table = torch.empty(heads, 2 * far + 1, dtype=torch.double)
    for h in range(heads):
        for offset in range(-far, far + 1):
            side = 0.0 if offset == 0 else float(direction[int(offset > 0), h])
            table[h, offset + far] = float(distance[abs(offset), h]) + side
    return table


def _several(what: str, answer: Any, like: Sequence[Tensor]) -> dict[str, Tensor]:
    """Table, gate and scale of an answer by name; a gap in any of them is a gap."""
    expect_given(answer)
    names = ("table", "gate", "logit_scale")
    right = isinstance(answer, (tuple, list)) and len(answer) == len(names)
    expect(right, f"return {len(names)} tensors: {', '.join(names)}")
    for part in answer:
        expect_given(part)
    return {
        name: numbers(f"{what} {name}", part, tuple(tensor.shape))
        for name, part, tensor in zip(names, answer, like, strict=True)
    }
