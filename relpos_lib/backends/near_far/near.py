"""Attention to the near keys, dense in tiles, merged with the far keys.

A tile's scores are a small dense matrix. With the log-sum-exp of the far keys known,
the weights of all keys of its queries are known, and no part of them is kept: the
backward pass computes the tile again. Some tiles are done at a time, so that their
matrices stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.backends.near_far.band import (
    add_rows,
    band_rows,
    sum_rows,
    upper_triangle,
)
from relpos_lib.backends.near_far.kernels import (
    Attended,
    Gradients,
    exp_of_any,
    numbers_for,
)
from relpos_lib.backends.near_far.problem import Problem
from relpos_lib.backends.near_far.quadtree import Tiles, near_tiles

NUMBERS = 1 << 18  # how many scores are worked on at a time


class Chunk(NamedTuple):
    """Some tiles of some heads, n of them in all.

    Attributes:
        tiles: which tiles they belong to.
        first_head: of N.
        heads: number of heads.
        first_tile: of ``tiles.number``.
        number: number of tiles of each head.
    """

    tiles: Tiles
    first_head: int
    heads: int
    first_tile: int
    number: int

    def queries(self, x: Tensor) -> Tensor:
        """What (N, Q, …) holds for the tiles' queries, (n, T, …)."""
        return self._queries(x).flatten(0, 1)

    def set_queries(self, x: Tensor, numbers: Tensor) -> None:
        """Put (n, T, …) where the tiles' queries are in (N, Q, …)."""
        view = self._queries(x)
        view.copy_(numbers.view(view.shape))

    def keys(self, x: Tensor) -> Tensor:
        """What (N, S, …) holds for the keys of the tiles' bands, (n, columns, …)."""
        return self._keys(x).flatten(0, 1)

    def add_to_keys(self, x: Tensor, numbers: Tensor) -> None:
        """Add (n, columns, …) where the bands are in (N, S, …); bands overlap."""
        bands = self._keys(x)
        numbers = numbers.view(bands.shape)
        apart = -(-bands.shape[2] // self.tiles.queries)
        for first in range(min(apart, self.number)):
            bands[:, first::apart].add_(numbers[:, first::apart])

    def of_heads(self, table: Tensor) -> Tensor:
        """What a table of (1 or H, …) holds for each tile, (1 or n, …)."""
        return table if len(table) == 1 else table[self._heads(table)]

    def add_to_heads(self, table: Tensor, x: Tensor, y: Tensor) -> None:
        """Add ``x^T y`` of each tile, (n, T, R) and (n, T, D), to (1 or H, R, D)."""
        if len(table) == 1 or self.heads == 1:
            one = table[self.first_head % len(table)]
            one.addmm_(x.flatten(0, 1).mT, y.flatten(0, 1))
        else:
            table.index_add_(0, self._heads(table), x.mT @ y)

    def _heads(self, table: Tensor) -> Tensor:
        """Which head of a table each tile has, (n,)."""
        heads = torch.arange(self.heads, device=table.device) + self.first_head
        return (heads % len(table)).repeat_interleave(self.number)

    def _queries(self, x: Tensor) -> Tensor:
        """A view, (heads, number, T, …)."""
        return self._view(x, self.tiles.first_query, self.tiles.queries)

    def _keys(self, x: Tensor) -> Tensor:
        """A view, (heads, number, columns, …)."""
        columns = self.tiles.stop - self.tiles.start
        first = self.tiles.first_key + self.tiles.start if columns else 0
        return self._view(x, first, columns)

    def _view(self, x: Tensor, first: int, rows: int) -> Tensor:
        head, row, *rest = x.stride()
        first += self.first_tile * self.tiles.queries
        return x.as_strided(
            (self.heads, self.number, rows, *x.shape[2:]),
            (head, self.tiles.queries * row, row, *rest),
            x.storage_offset() + self.first_head * head + first * row,
        )


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
    for chunk in _chunks(problem):
        _attend(problem, chunk, past, future, whole)
    return whole


def add_near_gradients(
    problem: Problem,
    gradients: Gradients,
    tables: TableGradients,
    grad: Tensor,
    whole: Attended,
    past: Tensor,
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
        past: log-sum-exp of the past far keys alone, (N, Q).
        future: attention to the future far keys alone; None if there are none.
    """
    for chunk in _chunks(problem):
        _differentiate(problem, chunk, gradients, tables, grad, whole, past, future)


def _chunks(problem: Problem) -> Iterator[Chunk]:
    """All tiles of all heads, some at a time: along the longer of the two axes."""
    heads = problem.query.shape[0]
    numbers = numbers_for(NUMBERS, problem.query.device.type)
    for tiles in near_tiles(problem.lengths):
        width = tiles.queries + problem.lengths.near - 1
        at_once = max(1, numbers // (tiles.queries * width))
        for head in range(0, heads, step := max(1, at_once // tiles.number)):
            for first in range(0, tiles.number, at_once):
                number = min(at_once, tiles.number - first)
                yield Chunk(tiles, head, min(step, heads - head), first, number)


def _attend(
    problem: Problem,
    chunk: Chunk,
    past: Attended,
    future: Attended | None,
    whole: Attended,
) -> None:
    """Fill in the result for the queries of a chunk."""
    rows = _score_rows(problem, chunk)
    pairs = _scores(problem, chunk, rows)
    sides = [past] if future is None else [past, future]
    far = [
        _with_row(chunk.queries(side.logsumexp), rows, row)
        for side, row in zip(sides, (0, -1), strict=False)
    ]
    top = torch.stack([pairs.amax(-1), *far]).amax(0)
    top = top.masked_fill(top == -torch.inf, 0)
    weights = _weights(problem, chunk, pairs, top)
    far = [(score - top).exp_() for score in far]
    total = weights.sum(-1) + torch.stack(far).sum(0)

    out = _inside(chunk, weights) @ chunk.keys(problem.value)
    for side, weight in zip(sides, far, strict=True):
        out.addcmul_(chunk.queries(side.out), weight[..., None])
    if problem.value_table is not None:
        table = chunk.of_heads(problem.value_table)
        sums = _sums(problem, weights, total, None if future is None else far[1])
        out += sums @ table
    out /= total.masked_fill(total == 0, 1)[..., None]
    chunk.set_queries(whole.out, out)
    chunk.set_queries(whole.logsumexp, top + total.log())


def _differentiate(
    problem: Problem,
    chunk: Chunk,
    gradients: Gradients,
    tables: TableGradients,
    grad: Tensor,
    whole: Attended,
    past: Tensor,
    future: Attended | None,
) -> None:
    """Add the gradients of the pairs of a chunk, and of all rows of the tables."""
    query, grad = chunk.queries(problem.query), chunk.queries(grad)
    key, value = chunk.keys(problem.key), chunk.keys(problem.value)
    logsumexp = chunk.queries(whole.logsumexp)
    seen = logsumexp > -torch.inf
    rows = _score_rows(problem, chunk)
    logsumexp = logsumexp.masked_fill(~seen, torch.inf)
    pairs = _scores(problem, chunk, rows)
    weights = _weights(problem, chunk, pairs, logsumexp)

    value_rows = None
    mean = (grad * chunk.queries(whole.out)).sum(-1)
    if problem.value_table is not None:
        value_rows = grad @ chunk.of_heads(problem.value_table).mT
    d_pairs = _products(chunk, problem.lengths.near, grad, value, value_rows, 0.0)
    d_pairs.sub_(mean[..., None]).mul_(weights)

    d_future = future_weight = None
    if future is not None:
        score = _with_row(chunk.queries(future.logsumexp), rows, -1)
        future_weight = (score - logsumexp).exp_()
        d_future = (grad * chunk.queries(future.out)).sum(-1)
        d_future = future_weight * (_with_row(d_future, value_rows, -1) - mean)

    d_inside = _inside(chunk, d_pairs)
    d_query = d_inside @ key
    chunk.add_to_keys(gradients.key, d_inside.mT @ query)
    chunk.add_to_keys(gradients.value, _inside(chunk, weights).mT @ grad)
    if rows is not None:
        # The gradients of a softmax's scores add up to nothing.
        sums = _sums(problem, d_pairs, torch.zeros_like(mean), d_future)
        if tables.bias is not None:
            ones = sums.new_ones(1, 1, 1).expand(*sums.shape[:2], 1)
            chunk.add_to_heads(tables.bias[..., None], sums, ones)
        if tables.key_table is not None and problem.key_table is not None:
            d_query += sums @ chunk.of_heads(problem.key_table)
            chunk.add_to_heads(tables.key_table, sums, query)
    chunk.set_queries(gradients.query, d_query.mul_(problem.scale))
    if tables.value_table is not None:
        sums = _sums(problem, weights, seen.to(grad.dtype), future_weight)
        chunk.add_to_heads(tables.value_table, sums, grad)


def _score_rows(problem: Problem, chunk: Chunk) -> Tensor | None:
    """What the tables add to the scores of a query, by row: (n, T, R), or None."""
    query = chunk.queries(problem.query)
    rows = None
    if problem.key_table is not None:
        table = chunk.of_heads(problem.key_table)
        rows = query @ table.mT
    if problem.bias is not None:
        bias = chunk.of_heads(problem.bias)[:, None]
        rows = bias.expand(*query.shape[:2], -1) if rows is None else rows + bias
    return rows


def _scores(problem: Problem, chunk: Chunk, rows: Tensor | None) -> Tensor:
    """Scores of the pairs, (n, T, W); hidden ones are -inf."""
    near = problem.lengths.near
    pairs = _products(
        chunk,
        near,
        chunk.queries(problem.query),
        chunk.keys(problem.key),
        rows,
        -torch.inf,
    )
    if problem.hidden is not None:
        _inside(chunk, pairs).add_(chunk.keys(problem.hidden)[:, None])
    if problem.lengths.is_causal:
        future = pairs[..., near:]
        future.masked_fill_(upper_triangle(future) == 1, -torch.inf)
    if problem.gaps is not None:
        gaps = chunk.of_heads(problem.gaps)
        pairs.masked_fill_(gaps[:, band_rows(pairs, near, gaps.shape[1])], -torch.inf)
    return pairs


def _weights(
    problem: Problem, chunk: Chunk, scores: Tensor, logsumexp: Tensor
) -> Tensor:
    """``exp(score - logsumexp)`` of the pairs, in place of the scores."""
    scores.sub_(logsumexp[..., None])
    all_inside = chunk.tiles.stop - chunk.tiles.start == scores.shape[-1]
    if all_inside and not problem.hides_keys():
        return scores.exp_()
    return exp_of_any(scores)


def _products(
    chunk: Chunk,
    near: int,
    x: Tensor,
    y: Tensor,
    rows: Tensor | None,
    outside: float,
) -> Tensor:
    """``x_t · y_w`` plus the number of its row, (n, T, W).

    Columns of the band where no key is are filled with ``outside``.
    """
    width = x.shape[1] + near - 1
    pairs = x @ y.mT
    if pairs.shape[-1] < width:
        right = width - chunk.tiles.stop
        pairs = F.pad(pairs, (chunk.tiles.start, right), value=outside)
    if rows is not None:
        add_rows(pairs, rows, near)
    return pairs


def _inside(chunk: Chunk, pairs: Tensor) -> Tensor:
    """The columns of a band where there are keys."""
    return pairs[..., chunk.tiles.start : chunk.tiles.stop]


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
