"""Integer arithmetic of positions: offsets, clipping and table rows.

``offset = key position - query position``. It is clipped to ``[-K, K]`` and row
``offset + K`` of a table with ``2K + 1`` rows is read. Queries stand at the end of the
keys: query i is at position ``S - Q + i``, so that cached decoding, chunked prefill and
full attention agree. Everything here stays int64 until a table is indexed: positions in
half precision are already wrong at 257 (bfloat16) and 2049 (float16).
"""

from __future__ import annotations

import torch
from torch import Tensor

from relpos_lib._checks import check_integer, check_table


def relative_offsets(
    q_len: int,
    k_len: int | None = None,
    *,
    query_start: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Offset of every key from every query.

    ``offsets[i, j] = j - (query_start + i)``

    Args:
        q_len: Q, number of queries, at least 1.
        k_len: S, number of keys, at least 1; Q if not given.
        query_start: position of the first query; ``S - Q`` if not given, which puts
            the last query on the last key.
        device: where to make the result.

    Returns:
        The offsets, (Q, S), int64; negative for keys to the left.

    Raises:
        TypeError: if a length or ``query_start`` is no integer.
        ValueError: if a length is below 1.

    Source:
        Shaw et al. 2018, section 3.1.

    >>> relative_offsets(3)
    tensor([[ 0,  1,  2],
            [-1,  0,  1],
            [-2, -1,  0]])
    >>> relative_offsets(1, 3)  # one new token against a cache of three keys
    tensor([[-2, -1,  0]])
    """
    k_len = q_len if k_len is None else k_len
    check_integer("q_len", q_len, 1)
    check_integer("k_len", k_len, 1)
    start = first_query(q_len, k_len, query_start)
    queries = torch.arange(q_len, device=device) + start
    keys = torch.arange(k_len, device=device)
    return keys[None, :] - queries[:, None]


def table_rows(
    q_len: int,
    k_len: int | None,
    max_distance: int,
    *,
    query_start: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Row of the table that every (query, key) pair reads.

    ``rows[i, j] = clip(j - (query_start + i), -K, K) + K``

    Args:
        q_len: Q, number of queries, at least 1.
        k_len: S, number of keys, at least 1; Q if None.
        max_distance: K, at least 0; offsets beyond it read the edge rows.
        query_start: position of the first query; ``S - Q`` if not given.
        device: where to make the result.

    Returns:
        The rows, (Q, S), int64, in 0 … 2K.

    Raises:
        TypeError: if a length, ``max_distance`` or ``query_start`` is no integer.
        ValueError: if a length is below 1 or ``max_distance`` below 0.

    Source:
        Shaw et al. 2018, section 3.2.

    >>> table_rows(4, 4, max_distance=1)
    tensor([[1, 2, 2, 2],
            [0, 1, 2, 2],
            [0, 0, 1, 2],
            [0, 0, 0, 1]])
    """
    check_integer("max_distance", max_distance, 0)
    offsets = relative_offsets(q_len, k_len, query_start=query_start, device=device)
    return offsets.clamp(-max_distance, max_distance) + max_distance


def first_query(q_len: int, k_len: int, query_start: int | None = None) -> int:
    """Position of the first query: ``query_start``, or ``S - Q`` if it is None."""
    if query_start is None:
        return k_len - q_len
    check_integer("query_start", query_start)
    return query_start


def table_offsets(
    max_distance: int, *, device: torch.device | str | None = None
) -> Tensor:
    """Offsets that the rows of a table stand for: ``-K … K``, (2K+1,), int64.

    >>> table_offsets(2)
    tensor([-2, -1,  0,  1,  2])
    """
    check_integer("max_distance", max_distance, 0)
    return torch.arange(-max_distance, max_distance + 1, device=device)


def farthest_offset(q_len: int, k_len: int, query_start: int | None = None) -> int:
    """Largest absolute offset between any query and any key.

    >>> farthest_offset(1, 8)
    7
    """
    start = first_query(q_len, k_len, query_start)
    leftmost, rightmost = -(start + q_len - 1), k_len - 1 - start
    return max(abs(leftmost), abs(rightmost))


def clip_table(table: Tensor, max_distance: int) -> Tensor:
    """The same table read at another maximum distance.

    Rows beyond the new K are dropped; beyond the old K the edge rows repeat.

    Args:
        table: (…, 2K+1, D), one row an offset.
        max_distance: the new K', at least 0.

    Returns:
        The table, (…, 2K'+1, D).

    Raises:
        TypeError: if ``table`` is no tensor or ``max_distance`` no integer.
        ValueError: if ``max_distance`` is below 0, the number of rows is even, or
            ``table`` has fewer than two axes.

    >>> clip_table(torch.tensor([[1.0], [2.0], [3.0]]), 2).squeeze(-1)
    tensor([1., 1., 2., 3., 3.])
    >>> clip_table(torch.tensor([[1.0], [2.0], [3.0]]), 0).squeeze(-1)
    tensor([2.])
    """
    check_table("table", table)
    own = own_distance("table", table.shape[-2])
    offsets = table_offsets(max_distance, device=table.device)
    return table.index_select(-2, offsets.clamp(-own, own) + own)


def own_distance(name: str, rows: int) -> int:
    """K of a table with ``2K + 1`` rows; an even number of rows is refused."""
    if rows % 2 == 0:
        raise ValueError(
            f"{name} must have an odd number of rows, 2K + 1 of them, got {rows}"
        )
    return (rows - 1) // 2
