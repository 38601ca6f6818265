"""The near and the far part as one operator, with its gradient and its shapes.

To autograd it is one step whose backward pass is exact and stores nothing of size
Q x S; to a compiler it is one node of a graph, whatever the length.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from relpos_lib.backends.near_far.far import add_far_gradients, far_attention
from relpos_lib.backends.near_far.kernels import Attended, Gradients
from relpos_lib.backends.near_far.near import (
    TableGradients,
    add_near_gradients,
    near_attention,
)
from relpos_lib.backends.near_far.problem import Problem
from relpos_lib.backends.near_far.quadtree import Lengths
from relpos_lib.offsets import farthest_offset

TILE = 128  # queries of a tile


@torch.library.custom_op("relpos_lib::near_far", mutates_args=())
def near_far(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    key_table: Tensor | None,
    value_table: Tensor | None,
    hidden: Tensor | None,
    max_distance: int,
    is_causal: bool,
    query_start: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Relative attention of N heads, and what its backward pass needs.

    Args:
        query: (N, Q, D); half precision is widened to float32 here.
        key: (N, S, D).
        value: (N, S, D).
        bias: (1 or H, R), -inf where a row hides its keys; or None. R is 2K+1, or K+1
            if causal: rows of the future are left out.
        key_table: (1 or H, R, D) or None.
        value_table: (1 or H, R, D) or None.
        hidden: 0 for a visible and -inf for a hidden key, (N, S); or None.
        max_distance: K, at least 1.
        is_causal: whether a query sees only keys at or before its own position.
        query_start: position of the first query.
        scale: factor of the content and position scores.

    Returns:
        The output, (N, Q, D), and log-sum-exp, (N, Q); the same of the future far keys
        alone, empty if causal. All of them in float32 or wider, as the tables.
    """
    problem = _problem(
        (query, key, value, bias, key_table, value_table, hidden),
        max_distance,
        is_causal,
        query_start,
        scale,
    )
    past = far_attention(problem, True)
    future = None if is_causal else far_attention(problem, False)
    whole = near_attention(problem, past, future)
    if future is None:
        empty = problem.query.new_empty(0)
        future = Attended(empty, empty.clone())
    return (*whole, *future)


@near_far.register_fake
def _(query: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    is_causal = others[7]
    query = query.to(_wide(query))
    whole = query.new_empty(query.shape), query.new_empty(query.shape[:2])
    if is_causal:
        return (*whole, query.new_empty(0), query.new_empty(0))
    future = query.new_empty(query.shape), query.new_empty(query.shape[:2])
    return (*whole, *future)


@torch.library.custom_op("relpos_lib::near_far_backward", mutates_args=())
def near_far_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    key_table: Tensor | None,
    value_table: Tensor | None,
    hidden: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    future_out: Tensor,
    future: Tensor,
    max_distance: int,
    is_causal: bool,
    query_start: int,
    scale: float,
) -> list[Tensor]:
    """Gradients of query, key, value and of the tables that are not None."""
    problem = _problem(
        (query, key, value, bias, key_table, value_table, hidden),
        max_distance,
        is_causal,
        query_start,
        scale,
    )
    whole, grad = Attended(out, logsumexp), grad.contiguous()
    gradients = Gradients(
        query.new_empty(query.shape, dtype=problem.query.dtype),
        _zeros(problem.key),
        _zeros(problem.value),
    )
    tables = [None if x is None else _zeros(x) for x in (bias, key_table, value_table)]
    read = (_rows_read(x, problem.lengths, max_distance) for x in tables)
    far_future = None if is_causal else Attended(future_out, future)
    add_near_gradients(
        problem, gradients, TableGradients(*read), grad, whole, far_future
    )
    add_far_gradients(problem, gradients, grad, whole)
    narrow = [x.to(query.dtype) for x in gradients]
    return [x for x in (*narrow, *tables) if x is not None]


@near_far_backward.register_fake
def _(grad: Tensor, *others: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in others[:6] if x is not None]


def _problem(
    tensors: tuple[Any, ...],
    max_distance: int,
    is_causal: bool,
    query_start: int,
    scale: float,
) -> Problem:
    query, key, value, *tables, hidden = tensors
    queries, keys = query.shape[1], key.shape[1]
    reach = max(1, min(max_distance, farthest_offset(queries, keys, query_start)))
    tile = min(TILE, queries)
    lengths = Lengths(queries, keys, query_start, reach, is_causal, tile)
    bias, key_table, value_table = (
        _rows_read(x, lengths, max_distance) for x in tables
    )
    gaps = None
    if bias is not None and (bias == -torch.inf).any():
        gaps = bias == -torch.inf
        bias = bias.masked_fill(gaps, 0)
    given = (_rows_together(query), _rows_together(key), _rows_together(value))
    wide = _wide(query)
    return Problem(
        given[0].to(wide),
        given[1].to(wide),
        given[2].to(wide),
        given,
        bias,
        gaps,
        key_table,
        value_table,
        hidden,
        lengths,
        scale,
    )


def _rows_read(
    table: Tensor | None, lengths: Lengths, max_distance: int
) -> Tensor | None:
    """The rows that lengths can read of a table for K, a view."""
    if table is None:
        return None
    first = max_distance - lengths.max_distance
    return table.narrow(
        1, first, table.shape[1] - (1 if lengths.is_causal else 2) * first
    )


def _rows_together(x: Tensor) -> Tensor:
    """The tensor with each row in one piece, as the kernels need it."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _zeros(x: Tensor) -> Tensor:
    return x.new_zeros(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:7], *output)
    ctx.options = inputs[7:]


def _differentiate(ctx: Any, grad: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    found = iter(near_far_backward(grad, *saved, *ctx.options))
    wanted = [None if x is None else next(found) for x in saved[:6]]
    return (*wanted, None, None, None, None, None)


def _refuse(ctx: Any, *unused: Any) -> NoReturn:
    raise NotImplementedError(
        'the "near_far" backend has no second derivatives; '
        'use backend="gather" for them'
    )


near_far.register_autograd(_differentiate, setup_context=_save)
near_far_backward.register_autograd(_refuse)
