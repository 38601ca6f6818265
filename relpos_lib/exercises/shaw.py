"""Checks of the chapter on Shaw's vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relpos_lib.attention import relative_attention
from relpos_lib.exercises.decoding import output_and_cache
from relpos_lib.exercises.pairs import (
    SIZES,
    draw,
    expect_other_than,
    loop_scores,
    loop_values,
    pair_rows,
    pair_vectors,
)
from relpos_lib.exercises.report import (
    copies,
    exercise,
    expect,
    expect_equal,
    numbers,
)
from relpos_lib.tables import Tables


@exercise
def check_one_sided_scores(one_sided_scores: Callable[..., Tensor]) -> None:
    """Whether ``one_sided_scores(query, key_table, k_len, past)`` is right."""
    for past, future in ((2, 1), (0, 3), (4, 0), (1, 1)):
        for batch, heads, q_len, k_len, width in SIZES:
            query, table = draw(
                (batch, heads, q_len, width), (past + future + 1, width)
            )
            case = f"Q={q_len}, S={k_len}, past={past}, future={future}"
            answer = one_sided_scores(*copies(query, table), k_len, past)
            got = numbers(
                f"the result for {case}", answer, (batch, heads, q_len, k_len)
            )
            wanted = loop_scores(query, pair_vectors(table, q_len, k_len, past))
            expect_other_than(
                got,
                wanted,
                loop_scores(query, pair_vectors(table, q_len, k_len, past, start=0)),
                "the first query stands on the first key; the last one must stand on "
                "the last",
            )
            expect_other_than(
                got,
                wanted,
                loop_scores(query, pair_vectors(table.flip(0), q_len, k_len, future)),
                "past and future have changed places: keys to the left have negative "
                "offsets and read the first rows",
            )
            expect_equal(f"for {case}, the score (b, h, i, j)", got, wanted, 1e-5)


@exercise
def check_value_table_gradient(value_table_gradient: Callable[..., Tensor]) -> None:
    """Whether ``value_table_gradient(weights, grad_out, max_distance)`` is right."""
    for max_distance in (2, 0, 1, 6):
        for batch, heads, q_len, k_len, width in SIZES:
            logits, grad_out = draw(
                (batch, heads, q_len, k_len), (batch, heads, q_len, width)
            )
            weights = logits.softmax(-1)
            case = f"Q={q_len}, S={k_len}, K={max_distance}"
            answer = value_table_gradient(*copies(weights, grad_out), max_distance)
            got = numbers(
                f"the gradient for {case}", answer, (2 * max_distance + 1, width)
            )
            wanted = torch.zeros_like(got)
            rows = pair_rows(q_len, k_len, max_distance, max_distance)
            for i in range(q_len):
                for j in range(k_len):
                    row = rows[i, j]
                    given = weights[:, :, i, j, None] * grad_out[:, :, i]
                    wanted[row] += given.sum((0, 1))
            expect_other_than(
                got,
                wanted,
                wanted / (batch * heads * q_len),
                "the gradients of all queries add up; do not take their mean",
            )
            expect_equal(f"for {case}, the gradient (row, d)", got, wanted, 1e-5)


@exercise
def check_repaired_scores(repaired_scores: Callable[..., Tensor]) -> None:
    """Whether ``repaired_scores(query, pairs)`` is ``q_i · pairs_ij``."""
    for batch, heads, q_len, k_len, width in SIZES:
        shape = (batch, heads, q_len, k_len)
        ones = torch.ones(batch, heads, q_len, width)
        named = _named(q_len, k_len, width) / width
        _expect_address("scores", repaired_scores(*copies(ones, named)), shape)
        query, pairs = draw((batch, heads, q_len, width), (q_len, k_len, width))
        got = repaired_scores(*copies(query, pairs))
        wanted = loop_scores(query, pairs)
        expect_equal("the score (b, h, i, j)", got, wanted, 1e-5)


@exercise
def check_repaired_values(repaired_values: Callable[..., Tensor]) -> None:
    """Whether ``repaired_values(weights, pairs)`` is the sum over j."""
    for batch, heads, q_len, k_len, width in SIZES:
        shape = (batch, heads, q_len, width)
        even = torch.full((batch, heads, q_len, k_len), 1 / k_len)
        named = _named(q_len, k_len, width)
        _expect_address("values", repaired_values(*copies(even, named)), shape)
        logits, pairs = draw((batch, heads, q_len, k_len), (q_len, k_len, width))
        weights = logits.softmax(-1)
        got = repaired_values(*copies(weights, pairs))
        wanted = loop_values(weights, pairs)
        expect_equal("the value (b, h, i, d)", got, wanted, 1e-5)


@exercise
def check_decode_step(decode_step: Callable[..., Any]) -> None:
    """Whether ``decode_step(query, key, value, cache, window, tables)`` decodes."""
    batch, heads, length, width = 2, 3, 7, 5
    query, key, value = draw(*[(batch, heads, length, width)] * 3)
    key_table, value_table = draw((5, width), (5, width))
    tables: Tables = {"key_table": key_table, "value_table": value_table}
    places = torch.arange(length)
    for window in (3, 1, 20):
        ago = places[:, None] - places  # (Q, S)
        wanted = relative_attention(
            query, key, value, **tables, mask=(ago >= 0) & (ago < window)
        )
        cache: Any = tuple(copies(key[:, :, :0], value[:, :, :0]))
        for t in range(length):
            now = [x[:, :, t : t + 1] for x in (query, key, value)]
            lent: Tables = {
                "key_table": key_table.float(),
                "value_table": value_table.float(),
            }
            out, cache = output_and_cache(
                decode_step(*copies(*now), cache, window, lent)
            )
            keys, values = (numbers("a part of the cache", part) for part in cache)
            expect(
                keys.dim() == values.dim() == 4,
                "the cache must hold keys and values of shape (B, H, length, D)",
            )
            kept, expected = (keys.shape[2], values.shape[2]), min(t + 1, window)
            expect(
                kept == (expected, expected),
                f"after {t + 1} steps with window={window} the cache holds "
                f"{kept[0]} keys and {kept[1]} values, expected {expected}",
            )
            expect(
                torch.equal(keys[:, :, -1:], now[1])
                and torch.equal(values[:, :, -1:], now[2]),
                "the newest key and value must come last in the cache",
            )
            expect_equal(
                f"step {t}, window={window}: the output (b, h, 0, d)",
                out,
                wanted[:, :, t : t + 1],
                1e-5,
            )


def _named(q_len: int, k_len: int, width: int) -> Tensor:
    """Pairs that hold the position of their query, (Q, S, D)."""
    return torch.arange(float(q_len))[:, None, None].expand(q_len, k_len, width)


def _expect_address(what: str, answer: Any, shape: tuple[int, ...]) -> None:
    """Refuse a result in which a query does not name its own position."""
    got = numbers(f"the {what}", answer, shape)
    for h in range(shape[1]):
        for i in range(shape[2]):
            named = float(got[0, h, i, 0])
            expect(
                abs(named - i) < 1e-3,
                f"in the {what}, query {i} of head {h} read the pairs of query "
                f"{named:.3g}: bring Q to the front before you merge B and H",
            )
