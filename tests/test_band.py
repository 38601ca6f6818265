"""Rows of a table on a band: what is added to pairs, and its adjoint."""

from __future__ import annotations

import pytest
import torch

from relpos_lib.backends.near_far import band
from tests import cases
from tests.cases import numbers

# (T, K, causal)
BANDS = [
    (tile, distance, causal)
    for tile in (1, 2, 5, 8)
    for distance in (1, 2, 7)
    for causal in (False, True)
]


def sizes(distance: int, causal: bool) -> tuple[int, int]:
    """Near offsets and rows of a table."""
    return (distance, distance + 1) if causal else (2 * distance - 1, 2 * distance + 1)


def row_of(query: int, column: int, distance: int, num_rows: int) -> int:
    """Row of a pair: column c is at the offset 1 - K + c - t from query t."""
    offset = 1 - distance + column - query
    return min(max(offset, -distance) + distance, num_rows - 1)


def chosen(tile: int, distance: int, causal: bool) -> torch.Tensor:
    """1 where a pair reads a row, (T, W, R)."""
    near, num_rows = sizes(distance, causal)
    width = tile + near - 1
    found = torch.zeros(tile, width, num_rows, dtype=torch.float64)
    for t in range(tile):
        for w in range(width):
            found[t, w, row_of(t, w, distance, num_rows)] = 1
    return found


def seen(tile: int, distance: int, causal: bool) -> torch.Tensor:
    """Pairs that a causal band leaves visible, (T, W)."""
    near, _ = sizes(distance, causal)
    width = tile + near - 1
    offsets = 1 - distance + torch.arange(width) - torch.arange(tile)[:, None]
    return offsets <= 0 if causal else torch.ones(tile, width, dtype=torch.bool)


@pytest.mark.parametrize(("tile", "distance", "causal"), BANDS)
def test_every_pair_gets_the_number_of_its_row(tile, distance, causal):
    near, num_rows = sizes(distance, causal)
    before = numbers(3, tile, tile + near - 1, seed=1)
    rows = numbers(3, tile, num_rows, seed=2)
    pairs = before.clone()
    band.add_rows(pairs, rows, near)
    added = torch.einsum("twr,ntr->ntw", chosen(tile, distance, causal), rows)
    visible = seen(tile, distance, causal)
    cases.assert_equal(pairs[:, visible], (before + added)[:, visible])


@pytest.mark.parametrize(("tile", "distance", "causal"), BANDS)
def test_sums_by_row_are_the_adjoint(tile, distance, causal):
    near, num_rows = sizes(distance, causal)
    pairs = numbers(3, tile, tile + near - 1, seed=1)
    pairs[:, ~seen(tile, distance, causal)] = 0
    wanted = torch.einsum("twr,ntw->ntr", chosen(tile, distance, causal), pairs)
    found = band.sum_rows(pairs, near, num_rows)
    assert found.shape == wanted.shape
    cases.assert_equal(found[..., 1:], wanted[..., 1:])  # the first is the caller's


@pytest.mark.parametrize(("tile", "distance", "causal"), BANDS)
def test_the_index_of_rows_says_the_same(tile, distance, causal):
    near, num_rows = sizes(distance, causal)
    pairs = torch.empty(1, tile, tile + near - 1)
    wanted = chosen(tile, distance, causal).argmax(-1)
    assert torch.equal(band.band_rows(pairs, near, num_rows), wanted)


def test_diagonals_are_a_view_of_a_part_of_a_larger_tensor():
    whole = numbers(4, 5, 11, seed=1)
    pairs = whole[1:3]
    found = band.diagonals(pairs, 7)
    assert found.data_ptr() == pairs.data_ptr()
    for t in range(5):
        assert torch.equal(found[:, t], pairs[:, t, t : t + 7])


def test_triangles_meet_at_the_diagonal():
    upper = band.upper_triangle(torch.empty(2, 4, 3))
    assert upper.tolist() == [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]]
    lower = band.lower_triangle(torch.empty(2, 4, 3))
    assert torch.equal(upper + lower, torch.ones(4, 3))
    assert band.upper_triangle(torch.empty(2, 2).double()).dtype == torch.float64
