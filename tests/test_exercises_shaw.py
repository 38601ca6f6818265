"""Checks of the chapter on Shaw's vectors accept right answers only."""

import torch

from relpos_lib import relative_attention, relative_offsets, table_rows
from relpos_lib.exercises.shaw import (
    check_decode_step,
    check_one_sided_scores,
    check_repaired_scores,
    check_repaired_values,
    check_value_table_gradient,
)
from tests.exercises import accepts, names, refuses, sees_gaps


def one_sided_scores(query, key_table, k_len, past, start=None):
    offsets = relative_offsets(query.shape[2], k_len, query_start=start)
    rows = offsets.clamp(-past, len(key_table) - past - 1) + past
    return torch.einsum("bhid,ijd->bhij", query, key_table[rows])


def table_gradient(weights, grad_out, max_distance):
    rows = table_rows(*weights.shape[2:], max_distance)
    table = torch.zeros(2 * max_distance + 1, grad_out.shape[-1], requires_grad=True)
    out = torch.einsum("bhij,ijd->bhid", weights, table[rows])
    return torch.autograd.grad((out * grad_out).sum(), table)[0]


def repaired_scores(query, pairs):
    return torch.einsum("bhid,ijd->bhij", query, pairs)


def repaired_values(weights, pairs):
    return torch.einsum("bhij,ijd->bhid", weights, pairs)


def decode_step(query, key, value, cache, window, tables, **options):
    both = [
        torch.cat(pair, dim=2)[:, :, -window:]
        for pair in zip(cache, (key, value), strict=True)
    ]
    return relative_attention(query, *both, **tables, **options), tuple(both)


RIGHT = [
    (check_one_sided_scores, one_sided_scores),
    (check_value_table_gradient, table_gradient),
    (check_repaired_scores, repaired_scores),
    (check_repaired_values, repaired_values),
    (check_decode_step, decode_step),
]


def clipped_alike(query, key_table, k_len, past):
    reach = max(past, len(key_table) - past - 1)
    rows = table_rows(query.shape[2], k_len, reach).clamp(max=len(key_table) - 1)
    return torch.einsum("bhid,ijd->bhij", query, key_table[rows])


def future_first(query, key_table, k_len, past):
    return one_sided_scores(query, key_table.flip(0), k_len, len(key_table) - past - 1)


def scores_unmoved(query, pairs):
    batch, heads, q_len, width = query.shape
    scores = query.reshape(q_len, batch * heads, width) @ pairs.mT
    return scores.reshape(batch, heads, q_len, -1)


def scores_moved_one_way(query, pairs):
    batch, heads, q_len, width = query.shape
    flat = query.permute(2, 0, 1, 3).reshape(q_len, batch * heads, width)
    return (flat @ pairs.mT).reshape(batch, heads, q_len, -1)


def values_moved_one_way(weights, pairs):
    batch, heads, q_len, k_len = weights.shape
    flat = weights.permute(2, 0, 1, 3).reshape(q_len, batch * heads, k_len)
    return (flat @ pairs).reshape(batch, heads, q_len, -1)


def heads_and_batch_swapped(query, pairs):
    batch, heads, q_len, width = query.shape
    flat = query.permute(2, 1, 0, 3).reshape(q_len, batch * heads, width)
    return (flat @ pairs.mT).view(q_len, batch, heads, -1).permute(1, 2, 0, 3)


def forgets_nothing(query, key, value, cache, window, tables):
    return decode_step(query, key, value, cache, 99, tables)


def newest_first(query, key, value, cache, window, tables):
    both = [
        torch.cat([new, old], dim=2)[:, :, :window]
        for old, new in zip(cache, (key, value), strict=True)
    ]
    return relative_attention(query, *both, **tables), tuple(both)


def counted_from_zero(*args):
    return decode_step(*args, query_start=0)


def without_tables(query, key, value, cache, window, tables):
    return decode_step(query, key, value, cache, window, {})


WRONG = [
    (check_one_sided_scores, lambda q, t, n, p: one_sided_scores(q, t, n, p, 0)),
    (check_one_sided_scores, clipped_alike),
    (check_one_sided_scores, future_first),
    (check_one_sided_scores, lambda q, t, n, p: one_sided_scores(q, t, n, p).mT),
    (check_one_sided_scores, lambda q, t, n, p: q @ t.mT),
    (check_value_table_gradient, lambda w, g, k: table_gradient(w, g, k).flip(0)),
    (check_value_table_gradient, lambda w, g, k: table_gradient(w, g, k + 1)),
    (
        check_value_table_gradient,
        lambda w, g, k: table_gradient(w, g, k) / g.shape[:3].numel(),
    ),
    (check_value_table_gradient, lambda w, g, k: table_gradient(w * 0 + 1, g, k)),
    (check_repaired_scores, scores_unmoved),
    (check_repaired_scores, scores_moved_one_way),
    (check_repaired_scores, heads_and_batch_swapped),
    (check_repaired_values, lambda weights, pairs: weights @ pairs),
    (check_repaired_values, values_moved_one_way),
    (check_repaired_values, lambda w, p: repaired_values(w, p).mT),
    (check_decode_step, forgets_nothing),
    (check_decode_step, newest_first),
    (check_decode_step, counted_from_zero),
    (check_decode_step, without_tables),
    (check_decode_step, lambda *args: decode_step(*args)[0]),
    (check_decode_step, lambda *_: 1 / 0),
]


test_right_answer_is_accepted = accepts(RIGHT)
test_wrong_answer_is_refused_with_a_reason = refuses(WRONG)
test_gap_is_not_attempted = sees_gaps(RIGHT)


def test_gap_in_the_cache_is_not_attempted(capsys):
    check_decode_step(lambda q, *_: (q, (..., ...)))
    assert "not attempted yet" in capsys.readouterr().out


test_common_mistakes_are_named = names(
    [
        (check_one_sided_scores, WRONG[0][1], "must stand on the last"),
        (check_one_sided_scores, future_first, "changed places"),
        (check_value_table_gradient, WRONG[7][1], "mean"),
        (check_repaired_scores, scores_unmoved, "read the pairs of query"),
        (check_decode_step, forgets_nothing, "the cache holds"),
        (check_decode_step, newest_first, "come last"),
    ]
)
