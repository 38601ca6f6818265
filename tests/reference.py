"""Relative attention as Shaw et al. 2018 and Raffel et al. 2020 write it, by hand.

One number, one pair of positions and one head at a time, in float64. Nothing here comes
from the library, so that it can be wrong and this right.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def entry(table: Tensor, offset: int) -> Tensor:
    """What a table with one row an offset, (2K+1, …), says about an offset."""
    farthest = len(table) // 2
    if offset <= -farthest:
        return table[0]
    if offset >= farthest:
        return table[-1]
    return table[farthest + offset]


def may_attend(mask: Tensor | None, place: tuple[int, int, int, int]) -> bool:
    """Whether the mask lets query i see key j, at place (b, h, i, j)."""
    if mask is None:
        return True
    place = place[4 - mask.dim() :]
    at = tuple(
        0 if size == 1 else index for size, index in zip(mask.shape, place, strict=True)
    )
    return bool(mask[at])


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias_table: Tensor | None = None,
    key_table: Tensor | None = None,
    value_table: Tensor | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    query_start: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention of (B, H, Q, D) to (B, H, S, D), pair by pair, (B, H, Q, Dv)."""
    batch, heads, num_queries, width = query.shape
    num_keys = key.shape[2]
    if query_start is None:
        query_start = num_keys - num_queries
    if scale is None:
        scale = 1 / math.sqrt(width)
    rows = []
    for b in range(batch):
        for h in range(heads):
            for i in range(num_queries):
                position = query_start + i
                seen = [
                    j
                    for j in range(num_keys)
                    if may_attend(mask, (b, h, i, j))
                    and not (is_causal and j > position)
                ]
                logits, values = [], []
                for j in seen:
                    k, v, offset = key[b, h, j], value[b, h, j], j - position
                    if key_table is not None:
                        k = k + entry(_of_head(key_table, h), offset)
                    if value_table is not None:
                        v = v + entry(_of_head(value_table, h), offset)
                    logit = scale * torch.dot(query[b, h, i], k)
                    if bias_table is not None:
                        logit = logit + entry(bias_table[h], offset)
                    logits.append(logit)
                    values.append(v)
                rows.append(_average(logits, values, value[b, h, 0]))
    return torch.stack(rows).reshape(batch, heads, num_queries, value.shape[3])


def _of_head(table: Tensor, head: int) -> Tensor:
    return table if table.dim() == 2 else table[head]


def _average(logits: list[Tensor], values: list[Tensor], like: Tensor) -> Tensor:
    """Values weighted by the exponentials of their logits; zero if there are none."""
    if not logits:
        return torch.zeros_like(like)
    largest = max(logit.item() for logit in logits)
    parts = [torch.exp(logit - largest) for logit in logits]
    total = sum(parts[1:], start=parts[0])
    terms = [part / total * v for part, v in zip(parts, values, strict=True)]
    return sum(terms[1:], start=terms[0])


def joined(x: Tensor) -> Tensor:
    """Heads side by side: (B, H, L, D) to (B, L, H·D), number by number."""
    batch, heads, length, width = x.shape
    out = x.new_zeros(batch, length, heads * width)
    for h in range(heads):
        out[:, :, h * width : (h + 1) * width] = x[:, h]
    return out


def parted(x: Tensor, heads: int) -> Tensor:
    """Head h takes columns h·D … (h+1)·D: (B, L, H·D) to (B, H, L, D)."""
    width = x.shape[2] // heads
    return torch.stack(
        [x[:, :, h * width : (h + 1) * width] for h in range(heads)], dim=1
    )
