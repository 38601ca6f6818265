"""Which (query, key) pairs are far and which are near, as a few large rectangles.

Beyond the maximum distance K all keys of one side read the same row of a table. So a
range of queries is far from every key that is at least K away from *all* of them. Halve
the range, and each half has some more far keys; go on down to tiles of a few hundred
queries. What is left to a tile is a band of keys around the diagonal.

Everything here is integer arithmetic of lengths. Equal rectangles that follow one
another at equal steps are listed once, so that one call can serve them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple


class Lengths(NamedTuple):
    """What a division depends on.

    Attributes:
        queries: Q.
        keys: S.
        query_start: position of the first query.
        max_distance: K, at least 1.
        is_causal: whether keys to the right of a query are hidden.
        tile: number of queries that are not divided further.
    """

    queries: int
    keys: int
    query_start: int
    max_distance: int
    is_causal: bool
    tile: int

    @property
    def near(self) -> int:
        """How many offsets are near: those above -K and below K, or up to 0."""
        return self.max_distance if self.is_causal else 2 * self.max_distance - 1

    @property
    def has_past(self) -> bool:
        """Whether any key is far to the left of any query."""
        return self.query_start + self.queries > self.max_distance


class Rectangles(NamedTuple):
    """``number`` equal rectangles of pairs; each starts ``step`` further both ways.

    Attributes:
        is_past: whether the keys are to the left of the queries.
        is_first: whether no larger rectangle of that side has these queries.
        first_query: of the first rectangle.
        queries: how many queries a rectangle has.
        first_key: of the first rectangle.
        keys: how many keys a rectangle has.
        number: number of rectangles.
        step: from one rectangle to the next.
    """

    is_past: bool
    is_first: bool
    first_query: int
    queries: int
    first_key: int
    keys: int
    number: int = 1
    step: int = 0


class Tiles(NamedTuple):
    """``number`` tiles of queries that follow one another, with the band of each.

    Attributes:
        first_query: of the first tile.
        queries: how many queries a tile has.
        first_key: of the band of the first tile; may lie outside the keys.
        start: the part of the band, in columns, …
        stop: … that is inside the keys.
        number: number of tiles.
    """

    first_query: int
    queries: int
    first_key: int
    start: int
    stop: int
    number: int = 1


@lru_cache(maxsize=256)
def far_rectangles(lengths: Lengths) -> tuple[Rectangles, ...]:
    """Every far pair once, largest rectangles first.

    >>> for one in far_rectangles(Lengths(8, 8, 0, 1, True, 2)):
    ...     print(one.first_query, one.queries, one.first_key, one.keys, one.number)
    4 4 0 4 1
    6 2 4 2 1
    2 2 0 2 1
    """
    found = sorted(
        _divide(lengths, 0, lengths.queries, 0, lengths.keys),
        key=lambda one: (-one.queries, -one.keys, _kind(one), one.first_query),
    )
    runs = groupby(found, lambda one: (one.queries, one.keys, _kind(one)))
    return tuple(_joined(list(run)) for _, run in runs)


@lru_cache(maxsize=256)
def near_tiles(lengths: Lengths) -> tuple[Tiles, ...]:
    """Every query once, with the band of keys that may be near it.

    The band of a tile begins K - 1 left of its first query and ends K - 1 right of its
    last one (at it, if causal).

    >>> near_tiles(Lengths(4, 4, 0, 1, True, 2))
    (Tiles(first_query=0, queries=2, first_key=0, start=0, stop=2, number=2),)
    """
    tiles = []
    for first in range(0, lengths.queries, lengths.tile):
        queries = min(lengths.tile, lengths.queries - first)
        width = queries + lengths.near - 1
        first_key = lengths.query_start + first - lengths.max_distance + 1
        start = min(max(-first_key, 0), width)
        stop = max(min(lengths.keys - first_key, width), start)
        tiles.append(Tiles(first, queries, first_key, start, stop))
    runs = groupby(tiles, lambda one: (one.queries, one.start, one.stop))
    grouped = [list(run) for _, run in runs]
    return tuple(run[0]._replace(number=len(run)) for run in grouped)


def _divide(
    lengths: Lengths, first: int, last: int, past: int, future: int
) -> Iterator[Rectangles]:
    """Far pairs of the queries from ``first`` to before ``last``.

    Keys before ``past`` and from ``future`` on are already done.
    """
    leftmost, rightmost = first + lengths.query_start, last - 1 + lengths.query_start
    far = _clamped(leftmost - lengths.max_distance + 1, past, future)
    if far > past:
        yield Rectangles(True, past == 0, first, last - first, past, far - past)
    past = far
    if not lengths.is_causal:
        far = _clamped(rightmost + lengths.max_distance, past, future)
        if far < future:
            is_first = future == lengths.keys
            yield Rectangles(False, is_first, first, last - first, far, future - far)
        future = far
    if last - first > lengths.tile and past < future:
        half = lengths.tile
        while 2 * half < last - first:
            half *= 2
        yield from _divide(lengths, first, first + half, past, future)
        yield from _divide(lengths, first + half, last, past, future)


def _clamped(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def _kind(one: Rectangles) -> tuple[bool, bool, int]:
    """What equal rectangles have in common if they can follow one another."""
    return one.is_past, one.is_first, one.first_key - one.first_query


def _joined(run: list[Rectangles]) -> Rectangles:
    """Equal rectangles as one entry; the division leaves them at equal steps."""
    step = run[1].first_query - run[0].first_query if len(run) > 1 else 0
    return run[0]._replace(number=len(run), step=step)
