"""Rows of a table on the band of near keys, along its diagonals.

A tile has T queries and a band of W keys, of which query t is near to those in the
columns t … t + near - 1, one row of the table for each. Keys left of them are past and
share the first row; keys right of them are future and share the last, or are hidden. So
what a table says to a query is compact, (…, T, R), with R = 1 + near + 1, or 1 + near
if causal.

:func:`add_rows` puts such numbers on the pairs, :func:`sum_rows` sums numbers of pairs
by row; each is the adjoint of the other. Both walk along the diagonals, which are a
view of the pairs.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def add_rows(pairs: Tensor, rows: Tensor, near: int) -> None:
    """Add to every pair the number of its row, in place.

    Args:
        pairs: (n, T, W), contiguous.
        rows: (n, T, R).
        near: number of near offsets.

    >>> pairs = torch.zeros(1, 3, 4)
    >>> add_rows(pairs, torch.tensor([5.0, 6.0, 7.0, 9.0]).expand(1, 3, 4), 2)
    >>> pairs
    tensor([[[6., 7., 9., 9.],
             [5., 6., 7., 9.],
             [5., 5., 6., 7.]]])
    """
    diagonals(pairs, near).add_(rows[..., 1 : near + 1])
    past = pairs[..., : pairs.shape[-2] - 1]
    past.addcmul_(lower_triangle(past), rows[..., :1])
    if rows.shape[-1] > near + 1:
        future = pairs[..., near:]
        future.addcmul_(upper_triangle(future), rows[..., -1:])


def sum_rows(pairs: Tensor, near: int, num_rows: int) -> Tensor:
    """Sum the pairs by row; the first row, what is left of the total, is the caller's.

    Args:
        pairs: (n, T, W), contiguous; if the last row is one of future keys, what is
            right of the first near key is overwritten.
        near: number of near offsets.
        num_rows: R.

    Returns:
        (n, T, R), the first row not yet set.

    >>> sum_rows(torch.ones(1, 3, 4), 2, 4)[..., 1:]
    tensor([[[1., 1., 2.],
             [1., 1., 1.],
             [1., 1., 0.]]])
    """
    rows = pairs.new_empty(*pairs.shape[:2], num_rows)
    rows[..., 1 : near + 1] = diagonals(pairs, near)
    if num_rows > near + 1:
        future = pairs[..., near:]
        rows[..., -1] = future.mul_(upper_triangle(future)).sum(-1)
    return rows


def band_rows(pairs: Tensor, near: int, num_rows: int) -> Tensor:
    """Which row every pair reads, (T, W): the index that is not needed otherwise.

    >>> band_rows(torch.empty(1, 3, 4), 2, 4)
    tensor([[1, 2, 3, 3],
            [0, 1, 2, 3],
            [0, 0, 1, 2]])
    """
    queries = torch.arange(pairs.shape[-2], device=pairs.device)
    columns = torch.arange(pairs.shape[-1], device=pairs.device)
    return (columns - queries[:, None] + 1).clamp(0, num_rows - 1)


def diagonals(pairs: Tensor, near: int) -> Tensor:
    """The near pairs of every query, a view, (n, T, near)."""
    step, pitch, one = pairs.stride()
    return pairs.as_strided(
        (*pairs.shape[:2], near), (step, pitch + one, one), pairs.storage_offset()
    )


def upper_triangle(pairs: Tensor) -> Tensor:
    """1 on and above the diagonal of the last two axes, 0 below."""
    return _triangles(*pairs.shape[-2:], pairs.dtype, pairs.device)[0]


def lower_triangle(pairs: Tensor) -> Tensor:
    """1 below the diagonal of the last two axes, 0 on and above it."""
    return _triangles(*pairs.shape[-2:], pairs.dtype, pairs.device)[1]


@lru_cache(maxsize=16)
def _triangles(
    rows: int, columns: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    upper = torch.ones(rows, columns, dtype=dtype, device=device).triu()
    return upper, 1 - upper
