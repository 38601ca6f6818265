"""Offsets, clipping and rows: integers until a table is read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpos_lib import clip_table, relative_offsets, table_rows
from relpos_lib.offsets import farthest_offset, first_query, table_offsets
from tests import reference

lengths = st.integers(1, 13)
starts = st.one_of(st.none(), st.integers(-20, 20))


@given(q_len=lengths, k_len=lengths, start=starts)
def test_offset_is_key_position_minus_query_position(q_len, k_len, start):
    offsets = relative_offsets(q_len, k_len, query_start=start)
    first = k_len - q_len if start is None else start
    assert offsets.shape == (q_len, k_len)
    assert offsets.dtype == torch.int64
    assert offsets.tolist() == [
        [j - (first + i) for j in range(k_len)] for i in range(q_len)
    ]


@given(q_len=lengths, k_len=lengths, distance=st.integers(0, 9), start=starts)
def test_rows_are_clipped_offsets_counted_from_the_first_row(
    q_len, k_len, distance, start
):
    rows = table_rows(q_len, k_len, distance, query_start=start)
    # A table that holds its own row numbers says which row an offset reads.
    own_number = torch.arange(2 * distance + 1)
    first = k_len - q_len if start is None else start
    assert rows.dtype == torch.int64
    assert rows.tolist() == [
        [int(reference.entry(own_number, j - (first + i))) for j in range(k_len)]
        for i in range(q_len)
    ]


def test_case_done_by_hand():
    assert table_rows(2, 5, 2).tolist() == [[0, 0, 1, 2, 3], [0, 0, 0, 1, 2]]
    assert table_rows(3, 3, 1, query_start=2).tolist() == [[0, 0, 1], [0] * 3, [0] * 3]
    assert table_rows(2, 2, 1, query_start=-3).tolist() == [[2, 2], [2, 2]]


def test_k_len_is_q_len_if_left_out():
    assert torch.equal(relative_offsets(5), relative_offsets(5, 5))
    assert torch.equal(table_rows(5, None, 2), table_rows(5, 5, 2))


def test_one_new_token_stands_on_the_last_key():
    assert relative_offsets(1, 3).tolist() == [[-2, -1, 0]]


def test_more_queries_than_keys_reach_back_before_the_first_key():
    assert relative_offsets(3, 1).tolist() == [[2], [1], [0]]


def test_every_split_reads_the_last_rows_of_the_whole():
    whole = table_rows(11, 11, 3)
    for q_len in range(1, 12):
        assert torch.equal(table_rows(q_len, 11, 3), whole[-q_len:])


def test_shifting_queries_and_keys_together_changes_no_offset():
    whole = relative_offsets(7, 7)
    for shift in range(1, 5):
        shifted = relative_offsets(7, 7 + shift, query_start=shift)
        assert torch.equal(shifted[:, shift:], whole)


def test_offsets_to_the_left_and_to_the_right_read_different_rows():
    rows = table_rows(5, 5, 4)
    for distance in range(1, 5):
        assert rows.diagonal(distance).unique() == 4 + distance
        assert rows.diagonal(-distance).unique() == 4 - distance


def test_maximum_distance_zero_is_one_row():
    assert table_rows(5, 7, 0).tolist() == [[0] * 7] * 5


def test_far_offsets_read_the_edge_rows():
    assert table_rows(1, 2050, 3)[0, :3].tolist() == [0, 0, 0]
    assert table_rows(2050, 2050, 3)[0, -1].item() == 6


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64])
def test_positions_are_whole_numbers_whatever_the_default_dtype(default):
    torch.set_default_dtype(default)
    try:
        offsets = relative_offsets(1, 70_000)
        rows = table_rows(2049, None, 2048)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(offsets[0], torch.arange(-69_999, 1))
    assert rows[0].tolist() == list(range(2048, 4097))


def test_results_are_made_where_asked():
    assert relative_offsets(3, device="meta").device.type == "meta"
    assert table_rows(3, 3, 1, device="meta").device.type == "meta"
    assert table_offsets(3, device="meta").device.type == "meta"


@given(q_len=lengths, k_len=lengths, start=starts)
def test_farthest_offset_is_the_largest_there_is(q_len, k_len, start):
    offsets = relative_offsets(q_len, k_len, query_start=start)
    assert farthest_offset(q_len, k_len, start) == offsets.abs().max()


def test_first_query():
    assert first_query(5, 11) == 6
    assert first_query(5, 11, 0) == 0
    assert first_query(5, 11, -2) == -2


@given(old=st.integers(0, 5), new=st.integers(0, 9), heads=st.booleans())
def test_a_table_read_at_another_distance_says_the_same_or_its_edge(old, new, heads):
    shape = (3, 2 * old + 1, 2) if heads else (2 * old + 1, 2)
    table = torch.randn(shape)
    clipped = clip_table(table, new)
    assert clipped.shape == (*shape[:-2], 2 * new + 1, 2)
    for row, offset in enumerate(range(-new, new + 1)):
        wanted = table[..., min(max(offset, -old), old) + old, :]
        assert torch.equal(clipped[..., row, :], wanted)


def test_a_clipped_table_still_trains_its_source():
    table = torch.zeros(3, 2, requires_grad=True)
    clip_table(table, 2).sum().backward()
    assert table.grad.tolist() == [[2.0, 2.0], [1.0, 1.0], [2.0, 2.0]]


def test_a_number_of_numpy_is_refused_with_the_way_out():
    """``-np.uint8(2)`` is 254: taking such numbers would be silently wrong."""
    with pytest.raises(TypeError, match=r"got numpy\.uint8: convert it with int\(\)"):
        table_rows(3, 5, np.uint8(2))
