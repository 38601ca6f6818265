"""What checks compare with: every pair of query and key, by the definition."""

from __future__ import annotations

import torch
from torch import Tensor

from relpos_lib.exercises.report import expect

# B, H, Q, S, D of the tests: all different, the last two for decoding and for Q > S.
SIZES = ((2, 3, 5, 7, 11), (1, 2, 3, 3, 5), (2, 3, 1, 7, 5), (1, 2, 5, 3, 4))


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Random tensors, the same every time, in float64."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(shape, generator=generator).double() for shape in shapes]


def pair_rows(
    q_len: int, k_len: int, past: int, future: int, start: int | None = None
) -> Tensor:
    """Rows of a table from ``-past`` to ``future``, pair by pair, (Q, S)."""
    first = k_len - q_len if start is None else start
    return torch.tensor(
        [
            [min(max(j - (first + i), -past), future) + past for j in range(k_len)]
            for i in range(q_len)
        ]
    )


def pair_vectors(
    table: Tensor, q_len: int, k_len: int, past: int, start: int | None = None
) -> Tensor:
    """The vector of every pair, (Q, S, D)."""
    future = len(table) - past - 1
    return table[pair_rows(q_len, k_len, past, future, start)]


def loop_scores(query: Tensor, pairs: Tensor) -> Tensor:
    """``q_i · pairs_ij``, pair by pair, (B, H, Q, S)."""
    scores = query.new_empty(*query.shape[:3], pairs.shape[1])
    for i in range(pairs.shape[0]):
        for j in range(pairs.shape[1]):
            scores[:, :, i, j] = query[:, :, i] @ pairs[i, j]
    return scores


def loop_values(weights: Tensor, pairs: Tensor) -> Tensor:
    """``sum_j weight_ij * pairs_ij``, pair by pair, (B, H, Q, D)."""
    values = weights.new_zeros(*weights.shape[:3], pairs.shape[2])
    for i in range(pairs.shape[0]):
        for j in range(pairs.shape[1]):
            values[:, :, i] += weights[:, :, i, j, None] * pairs[i, j]
    return values


def expect_other_than(
    got: Tensor, wanted: Tensor, mistake: Tensor, message: str
) -> None:
    """Name a common mistake, where it makes a difference."""
    differs = not torch.allclose(mistake, wanted, atol=1e-4)
    expect(not (differs and torch.allclose(got, mistake, atol=1e-4)), message)
