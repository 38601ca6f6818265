"""The division into far rectangles and near tiles: every pair once, in few entries."""

from __future__ import annotations

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from relpos_lib.backends.near_far.quadtree import (
    Lengths,
    Rectangles,
    Tiles,
    far_rectangles,
    near_tiles,
)

ENORMOUS = 10**15


@st.composite
def lengths(draw: st.DrawFn) -> Lengths:
    queries, keys = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    start = st.one_of(
        st.just(keys - queries),
        st.integers(-2 * queries, 2 * keys),
        st.sampled_from([-ENORMOUS, ENORMOUS]),
    )
    return Lengths(
        queries,
        keys,
        draw(start),
        draw(st.one_of(st.integers(1, 12), st.integers(1, 200))),
        draw(st.booleans()),
        draw(st.integers(1, queries)),
    )


def split(run: Rectangles) -> list[Rectangles]:
    """The rectangles of a run, one by one."""
    return [
        run._replace(
            first_query=run.first_query + n * run.step,
            first_key=run.first_key + n * run.step,
            number=1,
        )
        for n in range(run.number)
    ]


def split_tiles(run: Tiles) -> list[Tiles]:
    return [
        run._replace(
            first_query=run.first_query + n * run.queries,
            first_key=run.first_key + n * run.queries,
            number=1,
        )
        for n in range(run.number)
    ]


def offset(one: Lengths, query: int, key: int) -> int:
    return key - (one.query_start + query)


def bands(one: Lengths) -> torch.Tensor:
    """How often a tile's band covers each pair, (Q, S)."""
    count = torch.zeros(one.queries, one.keys, dtype=torch.int64)
    for run in near_tiles(one):
        for tile in split_tiles(run):
            first = tile.first_key + tile.start
            assert tile.start == tile.stop or first >= 0
            assert tile.start == tile.stop or tile.first_key + tile.stop <= one.keys
            rows = slice(tile.first_query, tile.first_query + tile.queries)
            if tile.stop > tile.start:
                count[rows, first : tile.first_key + tile.stop] += 1
    return count


def rectangles(one: Lengths) -> torch.Tensor:
    """How often a rectangle covers each pair, (Q, S)."""
    count = torch.zeros(one.queries, one.keys, dtype=torch.int64)
    for run in far_rectangles(one):
        assert run.queries > 0
        assert run.keys > 0
        for part in split(run):
            assert 0 <= part.first_query <= one.queries - part.queries
            assert 0 <= part.first_key <= one.keys - part.keys
            rows = slice(part.first_query, part.first_query + part.queries)
            count[rows, part.first_key : part.first_key + part.keys] += 1
    return count


@given(lengths())
@example(Lengths(1, 1, 0, 1, False, 1))
@example(Lengths(64, 64, 0, 1, False, 1))
@example(Lengths(65, 63, -2, 3, False, 4))
def test_every_visible_pair_is_covered_exactly_once(one):
    count = rectangles(one) + bands(one)
    queries, keys = torch.arange(one.queries), torch.arange(one.keys)
    visible = torch.ones(one.queries, one.keys, dtype=torch.bool)
    if one.is_causal:
        visible = keys <= queries[:, None] + one.query_start
    assert (count[visible] == 1).all()
    # What a causal mask hides lies in a band, to be masked there, or nowhere.
    assert not rectangles(one)[~visible].any()


@given(lengths())
def test_rectangles_hold_far_pairs_of_their_side_only(one):
    for run in far_rectangles(one):
        for part in split(run):
            last_query = part.first_query + part.queries - 1
            last_key = part.first_key + part.keys - 1
            if part.is_past:
                nearest = offset(one, part.first_query, last_key)
                assert nearest <= -one.max_distance
            else:
                nearest = offset(one, last_query, part.first_key)
                assert nearest >= one.max_distance
                assert not one.is_causal


@given(lengths())
def test_tiles_follow_one_another_and_their_bands_begin_at_the_first_near_key(one):
    following = 0
    for run in near_tiles(one):
        for tile in split_tiles(run):
            assert tile.first_query == following
            following += tile.queries
            assert offset(one, tile.first_query, tile.first_key) == (
                1 - one.max_distance
            )
            assert 0 <= tile.start <= tile.stop <= tile.queries + one.near - 1
            assert tile.queries <= one.tile
    assert following == one.queries


@given(lengths())
def test_rectangles_of_a_run_share_no_query_and_no_key(one):
    # Their gradients are added in one go, which loses some where two meet.
    for run in far_rectangles(one):
        assert run.number == 1 or run.step >= max(run.queries, run.keys)


def test_a_long_sequence_is_a_few_calls_per_level():
    for causal, sides in ((True, 1), (False, 2)):
        one = Lengths(4096, 4096, 0, 16, causal, 128)
        runs = far_rectangles(one)
        assert len(runs) <= 4 * sides * 5  # 4096 / 128 is five levels
        largest = max(runs, key=lambda run: run.queries * run.keys)
        assert largest.queries == 2048
        assert len(near_tiles(one)) <= 3


def test_largest_rectangles_come_first():
    runs = far_rectangles(Lengths(777, 800, 5, 7, False, 16))
    heights = [run.queries for run in runs]
    assert heights == sorted(heights, reverse=True)


@given(lengths())
@example(Lengths(5, 9, 0, 4, False, 2))
@example(Lengths(5, 9, 0, 5, False, 2))
@example(Lengths(5, 9, -1, 3, True, 2))
def test_lengths_know_whether_any_pair_is_far_in_the_past(one):
    last_query = one.queries - 1
    assert one.has_past == (offset(one, last_query, 0) <= -one.max_distance)
