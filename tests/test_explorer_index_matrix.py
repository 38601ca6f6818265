"""Index matrix explorer: the table beside the matrix, in Python."""

import pytest

from relpos_lib.explorers import IndexMatrixExplorer


def test_readers_of_a_row_by_hand():
    explorer = IndexMatrixExplorer(query_length=3, key_length=3, max_distance=1)
    assert explorer.readers(1).long().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert explorer.readers(2).long().tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    explorer.causal = True
    assert not explorer.readers(2).any()
    assert explorer.readers(0).long().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(5, 9), (9, 5), (1, 1), (7, 7)])
def test_every_pair_that_is_not_masked_reads_one_row(sizes, causal):
    explorer = IndexMatrixExplorer(
        query_length=sizes[0], key_length=sizes[1], max_distance=3, causal=causal
    )
    readers = sum(explorer.readers(row).long() for row in range(7))
    assert readers.tolist() == explorer.allowed().long().tolist()


def test_rows_that_are_not_there_are_refused():
    explorer = IndexMatrixExplorer(max_distance=2)
    with pytest.raises(ValueError, match="row must be from 0 to 4, got 5"):
        explorer.readers(5)
    with pytest.raises(ValueError, match="row must be at least 0"):
        explorer.readers(-1)
    with pytest.raises(TypeError, match="row must be an integer"):
        explorer.readers(1.0)
