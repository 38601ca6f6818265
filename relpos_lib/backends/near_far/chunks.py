"""Tiles of near keys, many at a time, as batches of small dense matrices.

A tile has T queries and a band of W keys around them. Where a band reaches beyond the
keys it is filled with zeros, so that all tiles are alike and one product serves them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from relpos_lib.backends.near_far.quadtree import Lengths, Tiles, near_tiles
from relpos_lib.backends.scratch import Scratch


class Chunk(NamedTuple):
    """Tiles of one size that follow one another, of some heads: n tiles in all.

    Attributes:
        runs: the tiles of a head, with what of their bands is inside the keys.
        first_head: of N.
        heads: number of heads.
        width: W, how many keys a band has.
    """

    runs: tuple[Tiles, ...]
    first_head: int
    heads: int
    width: int

    @property
    def number(self) -> int:
        """How many tiles of each head."""
        return sum(run.number for run in self.runs)

    def queries(self, x: Tensor) -> Tensor:
        """What (N, Q, …) holds for the tiles' queries, (n, T, …)."""
        return self._queries(x).flatten(0, 1)

    def set_queries(self, x: Tensor, numbers: Tensor) -> None:
        """Put (n, T, …) where the tiles' queries are in (N, Q, …)."""
        view = self._queries(x)
        view.copy_(numbers.view(view.shape))

    def keys(self, x: Tensor, memory: Scratch) -> Tensor:
        """What (N, S, …) holds for the keys of the bands, (n, W, …), else 0."""
        rest = x.shape[2:]
        bands = memory.numbers(self.heads, self.number, self.width, *rest)
        for run, tiles in self._each_run():
            bands[:, tiles, run.start : run.stop].copy_(self._keys(x, run))
            for columns in self._outside(run):
                bands[:, tiles, columns].zero_()
        return bands.view(-1, self.width, *rest)

    def add_to_keys(self, x: Tensor, bands: Tensor) -> None:
        """Add (n, W, …) where the bands are in (N, S, …); bands overlap."""
        bands = bands.view(self.heads, self.number, *bands.shape[1:])
        for run, tiles in self._each_run():
            keys, inside = self._keys(x, run), bands[:, tiles, run.start : run.stop]
            apart = -(-self.width // run.queries)
            for first in range(min(apart, run.number)):
                keys[:, first::apart].add_(inside[:, first::apart])

    def fill_outside(self, pairs: Tensor, number: float) -> None:
        """Put a number where (n, T, W) has a column without a key."""
        pairs = pairs.view(self.heads, self.number, *pairs.shape[1:])
        for run, tiles in self._each_run():
            for columns in self._outside(run):
                pairs[:, tiles, :, columns].fill_(number)

    def of_heads(self, table: Tensor) -> Tensor:
        """What a table of (1 or H, …) holds for each tile, (1 or n, …)."""
        return table if len(table) == 1 else table[self._heads(table)]

    def add_to_heads(self, table: Tensor, x: Tensor, y: Tensor, factor: float) -> None:
        """Add ``factor x^T y`` of each tile to (1 or H, R, D).

        x is (n, T, R) and y (n, T, D).
        """
        if len(table) == 1 or self.heads == 1:
            one = table[self.first_head % len(table)]
            one.addmm_(x.flatten(0, 1).mT, y.flatten(0, 1), alpha=factor)
        else:
            table.index_add_(0, self._heads(table), x.mT @ y, alpha=factor)

    def _each_run(self) -> Iterator[tuple[Tiles, slice]]:
        """The runs, and where the tiles of each are among those of a head."""
        first = 0
        for run in self.runs:
            yield run, slice(first, first + run.number)
            first += run.number

    def _outside(self, run: Tiles) -> Iterator[slice]:
        """The columns of a run's bands that have no key."""
        if run.start:
            yield slice(run.start)
        if run.stop < self.width:
            yield slice(run.stop, None)

    def _heads(self, table: Tensor) -> Tensor:
        """Which head of a table each tile has, (n,)."""
        heads = torch.arange(self.heads, device=table.device) + self.first_head
        return (heads % len(table)).repeat_interleave(self.number)

    def _queries(self, x: Tensor) -> Tensor:
        """A view, (heads, number, T, …)."""
        one = self.runs[0]
        return self._view(x, one.first_query, one.queries, self.number)

    def _keys(self, x: Tensor, run: Tiles) -> Tensor:
        """A view of the keys inside the bands of a run, (heads, number, columns, …)."""
        columns = run.stop - run.start
        first = run.first_key + run.start if columns else 0
        return self._view(x, first, columns, run.number)

    def _view(self, x: Tensor, first: int, rows: int, number: int) -> Tensor:
        head, row, *rest = x.stride()
        return x.as_strided(
            (self.heads, number, rows, *x.shape[2:]),
            (head, self.runs[0].queries * row, row, *rest),
            x.storage_offset() + self.first_head * head + first * row,
        )


@lru_cache(maxsize=64)
def chunks(lengths: Lengths, heads: int, numbers: int) -> tuple[Chunk, ...]:
    """All tiles of all heads, cut along the longer of the two axes.

    Args:
        lengths: which keys are near.
        heads: N.
        numbers: how many scores a chunk may have, unless one tile has more.

    >>> for one in chunks(Lengths(4, 4, 0, 1, True, 2), 2, 100):
    ...     print(one.number, one.heads)
    2 2
    """
    found = []
    for queries, runs in groupby(near_tiles(lengths), lambda one: one.queries):
        every, width = tuple(runs), queries + lengths.near - 1
        number = sum(run.number for run in every)
        at_once = max(1, numbers // (queries * width))
        for first_head, some in _parts(heads, max(1, at_once // number)):
            for first, tiles in _parts(number, at_once):
                cut = tuple(_cut(every, first, first + tiles))
                found.append(Chunk(cut, first_head, some, width))
    return tuple(found)


def _parts(whole: int, most: int) -> Iterator[tuple[int, int]]:
    """Where each of as few, as equal parts as can be begins, and its size."""
    size = -(-whole // -(-whole // most))
    for first in range(0, whole, size):
        yield first, min(size, whole - first)


def _cut(runs: tuple[Tiles, ...], first: int, last: int) -> Iterator[Tiles]:
    """The tiles from ``first`` to before ``last``, counted through all runs."""
    for run in runs:
        skip, end = max(first, 0), min(last, run.number)
        if skip < end:
            yield run._replace(
                first_query=run.first_query + skip * run.queries,
                first_key=run.first_key + skip * run.queries,
                number=end - skip,
            )
        first, last = first - run.number, last - run.number
