"""Relative attention by FlexAttention, PyTorch's compiler of attention kernels.

A table becomes a term that the kernel adds to each score: the bias of its row, and of
the scores of a query with all 2K+1 rows of the key table the one of its row. Nothing of
shape (Q, S) is made where the kernel is compiled, which is on CUDA. On a CPU
FlexAttention computes all scores, and cannot train.

What FlexAttention cannot express is refused: a value table, because a kernel weighs
values that are the same for every query, and dropout.

Source: Dong et al. 2024, Flex Attention: A Programming Model for Generating Optimized
Attention Kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.backends import gather
from relpos_lib.backends.inputs import Inputs

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128  # queries and keys that a block mask decides on at once
LEAST_WIDTH = 16  # of a product of matrices in a compiled kernel
INSTEAD = 'use backend="near_far" or backend="gather"'
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def attention(inputs: Inputs) -> Tensor:
    """Relative attention by FlexAttention, (B, H, Q, Dv).

    Args:
        inputs: without value table and dropout; on a CPU without gradients.

    Returns:
        The output in the dtype of the query.

    Raises:
        ValueError: if FlexAttention cannot do it.
    """
    check_served(inputs)
    wide = gather.prepared(inputs)
    is_compiled = compiles_for(inputs.query.device)
    # Kernels sum in float32 whatever they are given; the form for CPUs does not.
    query, key, value = (inputs if is_compiled else wide)[:3]
    if not is_compiled:
        # It refuses tensors that could be trained even where nothing is recorded.
        query, key, value = (x.detach() for x in (query, key, value))
    multiple, least = padding(inputs)
    q_len, k_len = (-(-x.shape[2] // multiple) * multiple for x in (query, key))
    out: Tensor = _function(is_compiled)(
        padded(query, q_len, least),
        padded(key, k_len, least),
        padded(value, k_len, least),
        score_mod=score_mod(wide, q_len),
        block_mask=block_mask(inputs, q_len, k_len),
        scale=inputs.scale,
    )
    out = out[:, :, : inputs.query.shape[2], : inputs.value.shape[3]]
    return out.to(inputs.query.dtype)


def check_served(inputs: Inputs) -> None:
    """Refuse what FlexAttention cannot do."""
    device, dtype = inputs.query.device, inputs.query.dtype
    if inputs.value_table is not None:
        raise ValueError(
            f'value_table must be None for backend="flex", got one of shape '
            f"{tuple(inputs.value_table.shape)}: FlexAttention cannot express what is "
            f"added to values; {INSTEAD}"
        )
    if inputs.dropout_p > 0:
        raise ValueError(
            f'dropout_p must be 0 for backend="flex", got {inputs.dropout_p}: '
            f"FlexAttention drops no weights; {INSTEAD}"
        )
    if device.type != "cpu" and not compiles_for(device):
        raise ValueError(
            'query must be on a CPU or a CUDA device for backend="flex", '
            f"got {device}; {INSTEAD}"
        )
    if not compiles_for(device) and inputs.needs_gradient():
        raise ValueError(
            'no argument may require gradients on a CPU for backend="flex": '
            f"FlexAttention trains on CUDA devices only; {INSTEAD}, or torch.no_grad()"
        )
    if device.type != "cpu" and dtype == torch.float64:
        raise ValueError(
            'query must be float32 or half precision on CUDA for backend="flex", '
            f"got {dtype}; {INSTEAD}"
        )


def compiles_for(device: torch.device) -> bool:
    """Whether FlexAttention is compiled for a device, and trains there."""
    return device.type == "cuda"


def padding(inputs: Inputs) -> tuple[int, int]:
    """What lengths must be a multiple of, and the least width of a head.

    Wrong gradients were reported for a block mask at lengths that no block divides.
    """
    if not compiles_for(inputs.query.device):
        return 1, 1
    return BLOCK if inputs.needs_gradient() else 1, LEAST_WIDTH


def padded(x: Tensor, length: int, width: int) -> Tensor:
    """The tensor with zeros up to a length and to at least a width."""
    missing = max(0, width - x.shape[3]), length - x.shape[2]
    return F.pad(x, (0, missing[0], 0, missing[1])) if any(missing) else x


def score_mod(inputs: Inputs, q_len: int) -> ScoreMod | None:
    """What adds the tables to a score; None if there are none.

    The kernel may read a tensor that is trained at one place only, so each table is
    one term of its own.

    Args:
        inputs: widened.
        q_len: length that the queries are padded to.
    """
    terms = []
    if inputs.bias_table is not None:
        terms.append(_bias_term(inputs, inputs.bias_table))
    if inputs.key_table is not None:
        terms.append(_key_term(inputs, inputs.key_table, q_len))
    if not terms:
        return None
    if len(terms) == 1:
        return terms[0]
    first, second = terms

    def both(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return second(first(score, b, h, q, k), b, h, q, k)

    return both


def block_mask(inputs: Inputs, q_len: int, k_len: int) -> BlockMask | None:
    """Which blocks of pairs are hidden, visible or mixed; None if all are visible.

    It is computed from positions and from the mask itself, never from all pairs.

    Args:
        inputs: with the mask.
        q_len: length that the queries are padded to.
        k_len: length that the keys are padded to.
    """
    from torch.nn.attention.flex_attention import BlockMask

    keys = inputs.key.shape[2]
    if inputs.mask is None and not inputs.is_causal and k_len == keys:
        return None
    some, every = _blocks(inputs, q_len, k_len)
    return BlockMask.from_kv_blocks(
        *_ordered(some & ~every),
        *_ordered(some & every),
        BLOCK_SIZE=BLOCK,
        mask_mod=_mask_mod(inputs, q_len, k_len),
        seq_lengths=(q_len, k_len),
    )


def _function(is_compiled: bool) -> Callable[..., Any]:
    """FlexAttention; compiled, unless a compiler is at work on all of this already."""
    from torch.nn.attention.flex_attention import flex_attention

    if is_compiled and not torch.compiler.is_compiling():
        return _compiled()
    return flex_attention


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    # One kernel for the first length and, once a second one comes, one for all.
    return torch.compile(flex_attention)


def _bias_term(inputs: Inputs, table: Tensor) -> ScoreMod:
    farthest = (table.shape[1] - 1) // 2
    start = _number(inputs, inputs.query_start)

    def add(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        row = (k - q - start).clamp(-farthest, farthest) + farthest
        return score + table[h, row]

    return add


def _key_term(inputs: Inputs, table: Tensor, q_len: int) -> ScoreMod:
    farthest = (table.shape[-2] - 1) // 2
    start = _number(inputs, inputs.query_start)
    by_row = inputs.scale * (inputs.query @ table.mT)  # (B, H, Q, 2K+1)
    by_row = padded(by_row, q_len, 1)

    def add(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        row = (k - q - start).clamp(-farthest, farthest) + farthest
        return score + by_row[b, h, q, row]

    return add


def _mask_mod(inputs: Inputs, q_len: int, k_len: int) -> MaskMod:
    keys = _number(inputs, inputs.key.shape[2])
    start = _number(inputs, inputs.query_start)
    is_causal, mask = inputs.is_causal, inputs.mask
    axes: list[int] = []
    if mask is not None:
        axes = [axis for axis, size in enumerate(mask.shape) if size > 1]
        rows = (q_len - mask.shape[2]) if 2 in axes else 0
        columns = (k_len - mask.shape[3]) if 3 in axes else 0
        mask = F.pad(mask, (0, columns, 0, rows)).squeeze()  # hidden beyond the end

    def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        seen = k < keys
        if is_causal:
            seen = seen & (k <= q + start)
        if mask is not None:
            at = tuple((b, h, q, k)[axis] for axis in axes)
            seen = seen & (mask[at] if at else mask)
        return seen

    return sees


def _number(inputs: Inputs, value: int) -> Tensor:
    """An integer as a tensor: kernels are not compiled anew for another value."""
    return torch.full((), value, dtype=torch.int32, device=inputs.query.device)


def _blocks(inputs: Inputs, q_len: int, k_len: int) -> tuple[Tensor, Tensor]:
    """Whether some pairs of a block may be visible, and whether every pair is.

    Two tensors of shape (1 or B, 1 or H, blocks of queries, blocks of keys).
    """
    first_query, last_query = _ends(q_len, inputs)
    first_key, last_key = _ends(k_len, inputs)
    keys = inputs.key.shape[2]
    rows = torch.ones_like(first_query, dtype=torch.bool)[:, None]
    some, every = rows & (first_key < keys), rows & (last_key < keys)
    if inputs.is_causal:
        start = inputs.query_start
        some = some & (first_key <= last_query[:, None] + start)
        every = every & (last_key <= first_query[:, None] + start)
    some, every = some[None, None], every[None, None]
    if inputs.mask is not None:
        some = some & _pooled(inputs.mask, q_len, k_len)
        every = every & ~_pooled(~inputs.mask, q_len, k_len)
    return some, every


def _ends(length: int, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """First and last place of every block."""
    first = torch.arange(0, length, BLOCK, device=inputs.query.device)
    return first, (first + BLOCK).clamp(max=length) - 1


def _pooled(mask: Tensor, q_len: int, k_len: int) -> Tensor:
    """Whether a block has any True; axes of size 1 stay."""
    for axis, length in ((2, q_len), (3, k_len)):
        if mask.shape[axis] > 1:
            missing = -(-length // BLOCK) * BLOCK - mask.shape[axis]
            after = (0, missing) if axis == 3 else (0, 0, 0, missing)
            front, back = mask.shape[:axis], mask.shape[axis + 1 :]
            blocks = F.pad(mask, after).reshape(*front, -1, BLOCK, *back)
            mask = blocks.any(axis + 1)
    return mask


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys there are for one of queries, and those first of all."""
    order = blocks.int().argsort(stable=True, dim=-1, descending=True)
    return blocks.sum(-1, dtype=torch.int32), order.int()
