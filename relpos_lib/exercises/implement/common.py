"""What the checks of several steps share."""

from __future__ import annotations

import torch
from torch import Tensor

from relpos_lib.exercises.pairs import pair_rows

LEFT = (
    "the first query stands on the first key; the last one must stand on the last, "
    "so query i is at position S - Q + i"
)
FLIPPED = "left and right have changed places: an offset is key minus query"
LOST = (
    "add K after clipping: a negative row is read from the end of the table, without "
    "an error"
)
DISTANCES = (2, 0, 1, 9)


def shapes(
    batch: int, heads: int, q_len: int, k_len: int, width: int
) -> list[tuple[int, ...]]:
    """Of queries, keys and values."""
    return [(batch, heads, n, width) for n in (q_len, k_len, k_len)]


def visible_pairs(batch: int, q_len: int, k_len: int) -> Tensor:
    """Causal, with the first key of the first sequence hidden, (B, 1, Q, S)."""
    far = q_len + k_len
    causal = pair_rows(q_len, k_len, far, far) <= far
    real = torch.ones(batch, 1, 1, k_len, dtype=torch.bool)
    real[0, ..., 0] = False
    return causal & real


def softmax_of_visible(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the keys that are seen, row by row, zeros elsewhere."""
    visible = visible.expand_as(scores)
    weights = torch.zeros_like(scores)
    for place in torch.cartesian_prod(*map(torch.arange, scores.shape[:3])):
        row = tuple(place.tolist())
        if visible[row].any():
            weights[row][visible[row]] = scores[row][visible[row]].softmax(-1)
    return weights
