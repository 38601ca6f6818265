"""Chunks of tiles: each query once, each band with its keys and zeros elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpos_lib.backends.near_far.chunks import Chunk, chunks
from relpos_lib.backends.near_far.quadtree import Lengths
from relpos_lib.backends.scratch import Scratch


@st.composite
def divisions(draw: st.DrawFn) -> tuple[Lengths, int, tuple[Chunk, ...]]:
    """Lengths, a number of heads, and the chunks of both."""
    queries, keys = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    start = draw(st.integers(-2 * queries, 2 * keys))
    distance, tile = draw(st.integers(1, 60)), draw(st.integers(1, queries))
    lengths = Lengths(queries, keys, start, distance, draw(st.booleans()), tile)
    heads = draw(st.integers(1, 4))
    return lengths, heads, chunks(lengths, heads, draw(st.integers(1, 10_000)))


def counted(rows: int, heads: int) -> torch.Tensor:
    """Numbers from 1 on, (heads, rows, 1): no two alike, and none 0."""
    numbers = torch.arange(1, rows * heads + 1, dtype=torch.float64)
    return numbers.view(heads, rows, 1)


@given(divisions())
def test_every_query_is_in_one_chunk(division):
    lengths, heads, found = division
    count = torch.zeros(heads, lengths.queries, 1)
    for chunk in found:
        before = chunk.queries(count)
        assert len(before) == chunk.heads * chunk.number
        chunk.set_queries(count, before + 1)
    assert torch.equal(count, torch.ones_like(count))


@given(divisions())
def test_bands_hold_the_keys_around_their_queries(division):
    lengths, heads, found = division
    key, places = counted(lengths.keys, heads), counted(lengths.queries, heads)
    memory = Scratch(key)
    for chunk in found:
        memory.numbers(chunk.heads * chunk.number * chunk.width).fill_(torch.nan)
        bands = chunk.keys(key, memory)[..., 0]
        for band, place in zip(bands, chunk.queries(places)[:, 0, 0], strict=True):
            head, query = divmod(int(place) - 1, lengths.queries)
            first = lengths.query_start + query - lengths.max_distance + 1
            for column, number in enumerate(band.tolist(), first):
                inside = 0 <= column < lengths.keys
                assert number == (key[head, column] if inside else 0)


@given(divisions())
def test_adding_to_keys_is_the_adjoint_of_reading_them(division):
    lengths, heads, found = division
    key = counted(lengths.keys, heads)
    total = torch.zeros_like(key)
    for chunk in found:
        bands = chunk.keys(key, Scratch(key))
        numbers = torch.arange(1.0, bands.numel() + 1).view_as(bands).double()
        before = (total * key).sum()
        chunk.add_to_keys(total, numbers)
        assert (total * key).sum() - before == (numbers * bands).sum()


@given(divisions())
def test_outside_are_the_columns_without_a_key(division):
    lengths, heads, found = division
    key = counted(lengths.keys, heads)
    for chunk in found:
        bands = chunk.keys(key, Scratch(key))
        pairs = torch.ones(len(bands), chunk.runs[0].queries, chunk.width)
        chunk.fill_outside(pairs, 7)
        outside = (bands == 0).mT.expand_as(pairs)
        assert torch.equal(pairs, torch.where(outside, 7.0, 1.0))


@pytest.mark.parametrize("table_heads", [1, 2, 4])
def test_tables_are_those_of_the_heads(table_heads):
    lengths = Lengths(12, 12, 0, 2, False, 3)
    table = counted(1, table_heads)[:, 0].float()
    for chunk in chunks(lengths, 4, 100):
        heads = chunk.queries(torch.arange(4.0).view(4, 1).expand(4, 12))[:, 0]
        read = chunk.of_heads(table)[:, 0].expand(len(heads))
        assert torch.equal(read, 1 + heads % table_heads)
        gradient = torch.zeros(table_heads, 2, 1)
        ones = torch.ones(len(heads), 3, 2)
        chunk.add_to_heads(gradient, ones, ones[..., :1], 5)
        wanted = torch.zeros(table_heads)
        wanted.index_add_(0, (heads % table_heads).long(), torch.full_like(heads, 15))
        assert torch.equal(gradient, wanted.view(-1, 1, 1).expand(-1, 2, 1))


def test_parts_are_as_few_and_as_equal_as_can_be():
    lengths = Lengths(1024, 1024, 0, 17, False, 128)
    found = chunks(lengths, 8, 26 * 128 * 160)  # room for three heads
    assert [(one.heads, one.number) for one in found] == [(3, 8), (3, 8), (2, 8)]
    found = chunks(lengths, 1, 5 * 128 * 160)
    assert [one.number for one in found] == [4, 4]
