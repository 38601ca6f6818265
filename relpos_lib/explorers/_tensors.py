"""Tensors on their way into a figure: checked, copied, and written as bytes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relpos_lib._checks import check_floating, check_integer
from relpos_lib.attention import checked_inputs
from relpos_lib.backends import gather
from relpos_lib.offsets import table_rows


def checked_heads(name: str, tensor: Tensor) -> Tensor:
    """A query or a key as (H, length, D), without a batch axis of length 1."""
    check_floating(name, tensor)
    tensor = tensor[0] if tensor.dim() == 4 and len(tensor) == 1 else tensor
    if tensor.dim() != 3 or 0 in tensor.shape:
        raise ValueError(
            f"{name} must have shape (H, length, D) with no empty axis, "
            f"got {tuple(tensor.shape)}"
        )
    return tensor


def coloured(name: str, tensor: Tensor) -> Tensor:
    """A copy on the CPU in float32, in which every number must have a colour."""
    check_floating(name, tensor)
    # A copy: later changes in place would move the picture but not the page.
    copy = tensor.detach().to("cpu", torch.float32, copy=True)
    strange = tensor.detach().cpu()[~copy.isfinite()]
    if len(strange):
        aside = "; attention takes -inf there, but it has no colour here"
        raise ValueError(
            f"{name} must hold finite numbers within the range of float32, "
            f"got {strange[0].item()}{aside if name == 'bias_table' else ''}"
        )
    return copy


def to_bytes(tensor: Tensor) -> bytes:
    """The numbers as little-endian float32."""
    return tensor.contiguous().numpy().astype("<f4").tobytes()


def content_traits(query: Tensor, key: Tensor) -> dict[str, Any]:
    """Traits of a figure of these queries and keys, (H, length, D): sizes and bytes."""
    return {
        "num_heads": len(query),
        "query_length": query.shape[1],
        "key_length": key.shape[1],
        "head_width": query.shape[2],
        "_query": to_bytes(query),
        "_key": to_bytes(key),
    }


def content_heads(
    query: Tensor | None, key: Tensor | None, num_heads: int, length: int
) -> tuple[Tensor, Tensor]:
    """Queries and keys of a figure as (H, length, D); zeros if none are given."""
    if (query is None) != (key is None):
        raise ValueError("query and key must be given together, or neither of them")
    if query is None or key is None:
        check_integer("num_heads", num_heads, 1)
        check_integer("length", length, 1)
        zeros = torch.zeros(num_heads, length, 1)
        return zeros, zeros
    query = coloured("query", checked_heads("query", query))
    key = coloured("key", checked_heads("key", key))
    checked_inputs(query[None], key[None], key[None])
    return query, key


def bias_maps(
    query: Tensor, key: Tensor, table: Tensor, is_causal: bool
) -> dict[str, Tensor]:
    """Attention with an additive table, step by step, in float64.

    Args:
        query: (H, Q, D).
        key: (H, S, D).
        table: (H, 2K+1); -inf hides its keys.
        is_causal: whether keys later than the query are masked.

    Returns:
        "content", "position", "score" and "weights", each (H, Q, S); the first two add
        up to the third.
    """
    query, key, table = query.double()[None], key.double()[None], table.double()
    # These are scores and weights only, so the keys can stand in for the values.
    inputs = checked_inputs(query, key, key, bias_table=table, is_causal=is_causal)
    content = inputs.scale * gather.content_scores(inputs)
    q_len, k_len = query.shape[2], key.shape[2]
    position = table[:, table_rows(q_len, k_len, table.shape[1] // 2)]
    return {
        "content": content[0],
        "position": position,
        "score": content[0] + position,
        "weights": gather.attention_weights(inputs, content)[0],
    }
