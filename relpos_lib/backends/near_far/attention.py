"""Relative attention in near and far parts, for any inputs.

What the parts cannot do is left to the gather backend: dropout, masks that differ from
query to query, forward-mode derivatives and the transforms of ``torch.func``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib._checks import is_transformed
from relpos_lib.backends import gather
from relpos_lib.backends.inputs import Inputs
from relpos_lib.backends.near_far.cuda_kernels import rounded_width
from relpos_lib.backends.near_far.operator import near_far
from relpos_lib.offsets import clip_table, own_distance

PIECE = 8  # numbers: a processor is quicker with rows of whole pieces


def attention(inputs: Inputs) -> Tensor:
    """Relative attention in near and far parts, (B, H, Q, Dv)."""
    if not serves(inputs):
        return gather.attention(inputs)
    wide = inputs.widened()
    max_distance, (bias, key_table, value_table) = _tables(wide)
    width = max(wide.query.shape[3], wide.value.shape[3])
    width = rounded_width(width, wide.query.device)
    query, key, value = (  # as given: kernels may take half precision
        padded(x.flatten(0, 1), width) for x in (inputs.query, inputs.key, inputs.value)
    )
    hidden = hidden_keys(wide)
    out: Tensor = near_far(
        query,
        key,
        value,
        None if bias is None else bias[..., 0],
        None if key_table is None else padded(key_table, width),
        None if value_table is None else padded(value_table, width),
        None if hidden is None else hidden.flatten(0, 2),
        max_distance,
        wide.is_causal,
        wide.query_start,
        wide.scale,
    )[0]
    out = out[..., : wide.value.shape[3]].to(inputs.query.dtype)
    return out.reshape(*inputs.query.shape[:3], -1)


def serves(inputs: Inputs) -> bool:
    """Whether the parts can do it: no dropout, and at most a mask of keys."""
    masks_keys = inputs.mask is None or inputs.mask.shape[2] == 1
    return inputs.dropout_p == 0 and masks_keys and not is_transformed()


def _tables(inputs: Inputs) -> tuple[int, list[Tensor | None]]:
    """K, and the three tables with the rows of that K, (1 or H, R, …).

    K may be larger than the tables' own: such that a band, which has K - 1 keys more on
    a side than a tile, is whole pieces wide.
    """
    bias = None if inputs.bias_table is None else inputs.bias_table[..., None]
    tables = [bias, inputs.key_table, inputs.value_table]
    distances = [own_distance("table", x.shape[-2]) for x in tables if x is not None]
    max_distance = 1 + PIECE * -(-(max([1, *distances]) - 1) // PIECE)
    rows = max_distance + 1 if inputs.is_causal else 2 * max_distance + 1
    cut = [
        None if x is None else clip_table(x, max_distance)[..., :rows, :]
        for x in tables
    ]
    return max_distance, [x[None] if x is not None and x.dim() == 2 else x for x in cut]


def padded(x: Tensor, width: int) -> Tensor:
    """The tensor with zeros up to a width: they change no product."""
    missing = width - x.shape[-1]
    return F.pad(x, (0, missing)) if missing else x


def hidden_keys(inputs: Inputs) -> Tensor | None:
    """0 for a visible and -inf for a hidden key, (B, H, 1, S), perhaps expanded."""
    if inputs.mask is None:
        return None
    batch, heads, keys, _ = inputs.key.shape
    hidden = inputs.query.new_zeros(inputs.mask.shape)
    hidden = hidden.masked_fill(~inputs.mask, -torch.inf)
    return hidden.expand(batch, heads, 1, keys)
