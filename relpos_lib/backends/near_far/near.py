"""Attention to the near keys, dense in tiles, merged with the far keys.

A tile's scores are a small dense matrix. With the log-sum-exp of the far keys known,
the weights of all keys of its queries are known, and no part of them is kept: the
backward pass computes the tile again. Some tiles are done at a time, in the same
memory, so that their matrices stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from relpos_lib.backends.near_far.band import (
    add_rows,
    band_rows,
    sum_rows,
    upper_triangle,
)
from relpos_lib.backends.near_far.chunks import Chunk, chunks
from relpos_lib.backends.near_far.kernels import (
    Attended,
    Gradients,
    exp_of_any,
    numbers_for,
)
from relpos_lib.backends.near_far.problem import Problem
from relpos_lib.backends.scratch import Scratch

NUMBERS = 1 << 19  # how many scores are worked on at a time


class Work(NamedTuple):
    """A chunk, what it reads, and memory for its matrices.

    Attributes:
        problem: what is attended to.
        chunk: n tiles.
        query: (n, T, D).
        key: (n, W, D), 0 outside the keys.
        value: (n, W, D), 0 outside the keys.
        pairs: for the scores and weights.
        d_pairs: for their gradients.
    """

    problem: Problem
    chunk: Chunk
    query: Tensor
    key: Tensor
    value: Tensor
    pairs: Scratch
    d_pairs: Scratch


class TableGradients(NamedTuple):
    """Gradients of the tables, None for a table that there is not."""

    bias: Tensor | None
    key_table: Tensor | None
    value_table: Tensor | None


def near_attention(
    problem: Problem, past: Attended, future: Attended | None
) -> Attended:
    """Attention of every query to its near keys and to the far ones.

    Args:
        problem: what to attend to.
        past: attention to the past far keys alone, without tables.
        future: the same of the future ones; None if there are none.

    Returns:
        The result over all keys.
    """
    whole = Attended(torch.empty_like(past.out), torch.empty_like(past.logsumexp))
    for work in _work(problem):
        _attend(work, past, future, whole)
    return whole


def add_near_gradients(
    problem: Problem,
    gradients: Gradients,
    tables: TableGradients,
    grad: Tensor,
    whole: Attended,
    future: Attended | None,
) -> None:
    """Add what the near keys and all rows of the tables contribute, in place.

    The gradient of the query is set, not added to.

    Args:
        problem: what was attended to.
        gradients: of query, key and value; changed.
        tables: of the tables; changed.
        grad: gradient of the output, (N, Q, D).
        whole: the result over all keys.
        future: attention to the future far keys alone; None if there are none.
    """
    for work in _work(problem):
        _differentiate(work, gradients, tables, grad, whole, future)


def _work(problem: Problem) -> Iterator[Work]:
    """All tiles of all heads, chunk by chunk."""
    key, value, pairs, d_pairs = (Scratch(problem.query) for _ in range(4))
    numbers = numbers_for(NUMBERS, problem.query.device.type)
    for chunk in chunks(problem.lengths, problem.query.shape[0], numbers):
        yield Work(
            problem,
            chunk,
            chunk.queries(problem.query),
            chunk.keys(problem.key, key),
            chunk.keys(problem.value, value),
            pairs,
            d_pairs,
        )


def _attend(
    work: Work, past: Attended, future: Attended | None, whole: Attended
) -> None:
    """Fill in the result for the queries of a chunk."""
    problem, chunk = work.problem, work.chunk
    rows = _score_rows(work)
    pairs = _scores(work, rows)
    sides = [past] if future is None else [past, future]
    far = [
        _with_row(chunk.queries(side.logsumexp), rows, row)
        for side, row in zip(sides, (0, -1), strict=False)
    ]
    top = torch.stack([pairs.amax(-1), *far]).amax(0)
    top = top.masked_fill(top == -torch.inf, 0)
    weights = _weights(work, pairs, top)
    far = [(score - top).exp_() for score in far]
    total = weights.sum(-1) + torch.stack(far).sum(0)

    out = weights @ work.value
    for side, weight in zip(sides, far, strict=True):
        out.addcmul_(chunk.queries(side.out), weight[..., None])
    if problem.value_table is not None:
        table = chunk.of_heads(problem.value_table)
        sums = _sums(problem, weights, total, None if future is None else far[1])
        out.baddbmm_(sums, table.expand(len(sums), -1, -1))
    out /= total.masked_fill(total == 0, 1)[..., None]
    chunk.set_queries(whole.out, out)
    chunk.set_queries(whole.logsumexp, top + total.log())


def _differentiate(
    work: Work,
    gradients: Gradients,
    tables: TableGradients,
    grad: Tensor,
    whole: Attended,
    future: Attended | None,
) -> None:
    """Add the gradients of the pairs of a chunk, and of all rows of the tables."""
    problem, chunk, scale = work.problem, work.chunk, work.problem.scale
    grad = chunk.queries(grad)
    logsumexp = chunk.queries(whole.logsumexp)
    seen = logsumexp > -torch.inf
    logsumexp = logsumexp.masked_fill(~seen, torch.inf)
    rows = _score_rows(work)
    weights = _weights(work, _scores(work, rows), logsumexp)

    mean = (grad * chunk.queries(whole.out)).sum(-1, keepdim=True)
    d_pairs = _products(work.d_pairs, grad, work.value, 1)
    if problem.value_table is None:
        d_rows = -mean
        d_pairs.add_(d_rows)
    else:
        d_rows = grad @ chunk.of_heads(problem.value_table).mT - mean
        add_rows(d_pairs, d_rows, problem.lengths.near)
    d_pairs.mul_(weights)

    d_future = future_weight = None
    if future is not None:
        score = _with_row(chunk.queries(future.logsumexp), rows, -1)
        future_weight = (score - logsumexp).exp_()
        d_future = (grad * chunk.queries(future.out)).sum(-1)
        d_future = future_weight * (d_future + d_rows[..., -1])

    d_query = d_pairs @ work.key
    chunk.add_to_keys(gradients.key, (d_pairs.mT @ work.query).mul_(scale))
    chunk.add_to_keys(gradients.value, weights.mT @ grad)
    if rows is not None:
        # The gradients of a softmax's scores add up to nothing.
        sums = _sums(problem, d_pairs, torch.zeros_like(logsumexp), d_future)
        if tables.bias is not None:
            ones = sums.new_ones(1, 1, 1).expand(*sums.shape[:2], 1)
            chunk.add_to_heads(tables.bias[..., None], sums, ones, 1)
        if tables.key_table is not None and problem.key_table is not None:
            table = chunk.of_heads(problem.key_table)
            d_query.baddbmm_(sums, table.expand(len(sums), -1, -1))
            chunk.add_to_heads(tables.key_table, sums, work.query, scale)
    chunk.set_queries(gradients.query, d_query.mul_(scale))
    if tables.value_table is not None:
        sums = _sums(problem, weights, seen.to(grad.dtype), future_weight)
        chunk.add_to_heads(tables.value_table, sums, grad, 1)


def _score_rows(work: Work) -> Tensor | None:
    """What the tables add to the scores of a query, by row: (n, T, R), or None."""
    problem, chunk, query = work.problem, work.chunk, work.query
    rows = None
    if problem.key_table is not None:
        rows = query @ chunk.of_heads(problem.scale * problem.key_table).mT
    if problem.bias is not None:
        bias = chunk.of_heads(problem.bias)[:, None]
        rows = bias.expand(*query.shape[:2], -1) if rows is None else rows + bias
    return rows


def _scores(work: Work, rows: Tensor | None) -> Tensor:
    """Scores of the pairs, (n, T, W); hidden ones are -inf, those without a key 0."""
    problem, chunk, near = work.problem, work.chunk, work.problem.lengths.near
    pairs = _products(work.pairs, work.query, work.key, problem.scale)
    if rows is not None:
        add_rows(pairs, rows, near)
    if problem.hidden is not None:
        pairs.add_(chunk.keys(problem.hidden, Scratch(pairs))[:, None])
    if problem.lengths.is_causal:
        future = pairs[..., near:]
        future.masked_fill_(upper_triangle(future) == 1, -torch.inf)
    if problem.gaps is not None:
        gaps = chunk.of_heads(problem.gaps)
        pairs.masked_fill_(gaps[:, band_rows(pairs, near, gaps.shape[1])], -torch.inf)
    chunk.fill_outside(pairs, -torch.inf)
    return pairs


def _weights(work: Work, scores: Tensor, logsumexp: Tensor) -> Tensor:
    """``exp(score - logsumexp)`` of the pairs, in place of the scores."""
    scores.sub_(logsumexp[..., None])
    if work.problem.hides_keys():
        return exp_of_any(scores)
    work.chunk.fill_outside(scores, 0)  # exp_ would be slow there
    scores.exp_()
    work.chunk.fill_outside(scores, 0)
    return scores


def _products(memory: Scratch, x: Tensor, y: Tensor, factor: float) -> Tensor:
    """``factor x_t · y_w`` in the memory, (n, T, W)."""
    pairs = memory.numbers(*x.shape[:2], y.shape[1])
    return torch.baddbmm(pairs, x, y.mT, beta=0, alpha=factor, out=pairs)


def _with_row(far: Tensor, rows: Tensor | None, row: int) -> Tensor:
    """Numbers of the far keys of a side plus the number of their row."""
    return far if rows is None else far + rows[..., row]


def _sums(
    problem: Problem, pairs: Tensor, total: Tensor, future: Tensor | None
) -> Tensor:
    """Numbers of all keys summed by row, (n, T, R), from their total."""
    near = problem.lengths.near
    num_rows = near + (1 if problem.lengths.is_causal else 2)
    sums = sum_rows(pairs, near, num_rows)
    if future is not None:
        sums[..., -1] += future
    # Not the rounding of what is left, if that row has no pairs.
    sums[..., 0] = total - sums[..., 1:].sum(-1) if problem.lengths.has_past else 0
    return sums
