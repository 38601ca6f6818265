"""What relative attention is compared with, as it is usually written.

Each takes a problem and gives the output, (B, H, L, D). All of them compute the same
numbers as :func:`relpos_lib.relative_attention`; only plain attention ignores tables.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.bench.cases import Problem
from relpos_lib.offsets import table_rows


def plain(problem: Problem) -> Tensor:
    """Attention without positions, by PyTorch's fused kernel: what nobody beats."""
    return F.scaled_dot_product_attention(*problem.inputs, is_causal=problem.causal)


def usual_shaw(problem: Problem) -> Tensor:
    """Shaw's attention through an (L, L, D) tensor of vectors a side."""
    query, key, value = problem.inputs
    scores = query @ key.mT  # (B, H, L, L)
    if "key_table" in problem.tables:
        vectors = _of_every_pair(problem, "key_table")  # (L, L, D)
        scores = scores + torch.einsum("bhid,ijd->bhij", query, vectors)
    scores = scores / math.sqrt(query.shape[-1])
    if problem.causal:
        scores = scores.masked_fill(_future(problem), -torch.inf)
    weights = scores.softmax(-1)
    out = weights @ value
    if "value_table" in problem.tables:
        vectors = _of_every_pair(problem, "value_table")
        out = out + torch.einsum("bhij,ijd->bhid", weights, vectors)
    return out


def bias_as_mask(problem: Problem) -> Tensor:
    """A bias as T5 adds it: a number for every pair, (1, H, L, L), as attn_mask."""
    table = problem.tables["bias_table"]
    bias = table[:, _rows(problem, table.shape[1])][None]
    if problem.causal:
        bias = bias.masked_fill(_future(problem), -torch.inf)
    return F.scaled_dot_product_attention(*problem.inputs, attn_mask=bias)


def flex_captured(problem: Problem) -> Callable[[], Tensor]:
    """FlexAttention whose score function reads a captured table, ready to be called.

    Shaw's keys become a captured (B, H, L, 2K+1) tensor of the products of queries and
    table. The block mask is made here, as one would keep it from call to call.

    Raises:
        NotImplementedError: if it cannot train or be compiled on this machine.
    """
    if problem.query.device.type == "cpu":
        if problem.query.requires_grad:
            # Left to FlexAttention, the refusal would keep it from being compiled ever
            # after, and its uncompiled form would be timed.
            raise NotImplementedError("FlexAttention has no backward pass on a CPU")
        if not _has_compiler():
            raise NotImplementedError("compiling it for a CPU needs a C++ compiler")
    from torch.nn.attention.flex_attention import create_block_mask

    length, device = problem.query.shape[2], problem.query.device.type
    blocks = (
        create_block_mask(_past, None, None, length, length, device=device)
        if problem.causal
        else None
    )
    attend = _compiled_flex(device)

    def run() -> Tensor:
        score_mod = _score_function(problem)
        out: Tensor = attend(*problem.inputs, score_mod=score_mod, block_mask=blocks)
        return out

    return run


def _score_function(problem: Problem) -> Callable[..., Tensor]:
    bias, keys = (problem.tables.get(n) for n in ("bias_table", "key_table"))
    if bias is not None:
        last = bias.shape[1] - 1

        def add_bias(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
            return score + bias[h, (j - i + last // 2).clamp(0, last)]

        return add_bias
    assert keys is not None
    by_row = problem.query @ keys.mT / math.sqrt(problem.query.shape[-1])
    last = keys.shape[0] - 1

    def add_key(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Any:
        return score + by_row[b, h, i, (j - i + last // 2).clamp(0, last)]

    return add_key


@cache
def _compiled_flex(device: str) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    # Both, or its uncompiled form might be timed, and silently.
    torch._dynamo.config.recompile_limit = 256
    # For a CPU it cannot be compiled once for all lengths and distances.
    dynamic = False if device == "cpu" else None
    return torch.compile(flex_attention, fullgraph=True, dynamic=dynamic)


def _has_compiler() -> bool:
    return any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl"))


def _past(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return j <= i


def _of_every_pair(problem: Problem, name: str) -> Tensor:
    """The table's vector of every pair, (L, L, D)."""
    table = problem.tables[name]
    return table[_rows(problem, table.shape[0])]


def _rows(problem: Problem, num_rows: int) -> Tensor:
    """Table row of every pair, (L, L)."""
    length, device = problem.query.shape[2], problem.query.device
    return table_rows(length, length, num_rows // 2, device=device)


def _future(problem: Problem) -> Tensor:
    """True where a key comes after its query, (L, L)."""
    length, device = problem.query.shape[2], problem.query.device
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
