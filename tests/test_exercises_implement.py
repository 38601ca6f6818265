"""Checks of the steps to an own attention accept right answers only."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from relpos_lib import relative_offsets, table_rows
from relpos_lib.exercises.implement import (
    check_step_1,
    check_step_2,
    check_step_3,
    check_step_3_visible,
    check_step_4,
    check_step_5,
    check_step_6,
    check_step_7,
    check_step_8,
    check_step_8_attention,
    check_step_9,
    check_step_10,
    check_whole,
)
from tests.exercises import accepts, names, refuses, sees_gaps


def plain_attention(q, k, v, scale=None, axis=-1):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return (q @ k.mT * scale).softmax(axis) @ v


def masked_softmax(scores, visible):
    hidden = ~visible
    return scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0)


def from_left(q_len, k_len):
    return torch.arange(k_len) - torch.arange(q_len)[:, None]


def visible_keys(q_len, real):
    causal = relative_offsets(q_len, real.shape[1]) <= 0
    return causal & real[:, None, None, :]


def rows_from_left(q_len, k_len, distance):
    return from_left(q_len, k_len).clamp(-distance, distance) + distance


def bias_attention(q, k, v, bias_table, visible, rows_of=table_rows):
    rows = rows_of(q.shape[2], k.shape[2], bias_table.shape[1] // 2)
    scores = q @ k.mT / q.shape[-1] ** 0.5 + bias_table[:, rows]
    return masked_softmax(scores, visible) @ v


def bias_inside(q, k, v, bias_table, visible):
    return bias_attention(q, k, v, bias_table / q.shape[-1] ** 0.5, visible)


def bias_after(q, k, v, bias_table, visible):
    rows = table_rows(q.shape[2], k.shape[2], bias_table.shape[1] // 2)
    weights = masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, visible)
    return (weights + bias_table[:, rows]) @ v


def bias_times(q, k, v, bias_table, visible):
    rows = table_rows(q.shape[2], k.shape[2], bias_table.shape[1] // 2)
    scores = q @ k.mT / q.shape[-1] ** 0.5 * bias_table[:, rows]
    return masked_softmax(scores, visible) @ v


def bias_by(q, k, v, bias_table, visible, rows):
    scores = q @ k.mT / q.shape[-1] ** 0.5 + bias_table[:, rows]
    return masked_softmax(scores, visible) @ v


def mask_before_adding(q, k, v, bias_table, visible):
    rows = table_rows(q.shape[2], k.shape[2], bias_table.shape[1] // 2)
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, -1e9)
    weights = (scores + bias_table[:, rows]).softmax(-1)
    return weights.masked_fill(~visible.any(-1, keepdim=True), 0) @ v


def no_mask(q, k, v, bias_table, visible):
    return bias_attention(q, k, v, bias_table, torch.ones_like(visible))


def scores_by_loop(q, k, key_table, first_row=0):
    distance = len(key_table) // 2
    scores = q.new_zeros(*q.shape[:3], k.shape[2])
    for i in range(q.shape[2]):
        for j in range(k.shape[2]):
            offset = j - (k.shape[2] - q.shape[2] + i)
            row = min(max(offset, -distance), distance) + distance - first_row
            key = k[:, :, j] + key_table[row]
            scores[:, :, i, j] = (q[:, :, i] * key).sum(-1)
    return scores / q.shape[-1] ** 0.5


def position_scores(q, key_table, k_len, rows_of=table_rows):
    rows = rows_of(q.shape[2], k_len, len(key_table) // 2)
    by_row = q @ key_table.mT
    return by_row.gather(-1, rows.expand(*by_row.shape[:3], -1))


def shaw_scores(q, k, key_table, rows_of=table_rows):
    position = position_scores(q, key_table, k.shape[2], rows_of)
    return (q @ k.mT + position) / q.shape[-1] ** 0.5


def content_scaled_alone(q, k, key_table):
    content = q @ k.mT / q.shape[-1] ** 0.5
    return content + position_scores(q, key_table, k.shape[2])


def scores_of_every_pair(q, k, key_table):
    rows = table_rows(q.shape[2], k.shape[2], len(key_table) // 2)
    position = torch.einsum("bhid,ijd->bhij", q, key_table[rows])
    return (q @ k.mT + position) / q.shape[-1] ** 0.5


def value_term(weights, value_table, add="scatter_add", rows_of=table_rows):
    rows = rows_of(*weights.shape[2:], len(value_table) // 2)
    bins = weights.new_zeros(*weights.shape[:3], len(value_table))
    return getattr(bins, add)(-1, rows.expand_as(weights), weights) @ value_table


def value_term_in_float32(weights, value_table):
    rows = table_rows(*weights.shape[2:], len(value_table) // 2)
    bins = torch.zeros(*weights.shape[:3], len(value_table))
    return bins.scatter_add(-1, rows.expand_as(weights), weights) @ value_table


def scores_by_one_hot(q, k, key_table):
    rows = table_rows(q.shape[2], k.shape[2], len(key_table) // 2)
    each = F.one_hot(rows, len(key_table)).to(q.dtype)
    position = torch.einsum("bhir,ijr->bhij", q @ key_table.mT, each)
    return (q @ k.mT + position) / q.shape[-1] ** 0.5


def scores_against_keys(q, k, key_table):
    rows = table_rows(q.shape[2], k.shape[2], len(key_table) // 2)
    position = torch.einsum("bhjd,ijd->bhij", k, key_table[rows])
    return (q @ k.mT + position) / q.shape[-1] ** 0.5


def value_term_of_shares(weights, value_table):
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
    return value_term(shares, value_table)


def forgets_bins(weights, value_table):
    bins = weights.new_zeros(*weights.shape[:3], len(value_table))
    return bins @ value_table


def learns_nothing(*args):
    return shaw_attention(*args).detach()


def learns_half(q, k, v, key_table, value_table, visible, dropout=0.0):
    weights = masked_softmax(shaw_scores(q, k, key_table), visible)
    return weights @ v + value_term(weights.detach(), value_table)


def values_of_every_pair(weights, value_table):
    rows = table_rows(*weights.shape[2:], len(value_table) // 2)
    return torch.einsum("bhij,ijd->bhid", weights, value_table[rows])


def shaw_attention(q, k, v, key_table, value_table, visible, dropout=0.0):
    weights = masked_softmax(shaw_scores(q, k, key_table), visible)
    weights = F.dropout(weights, dropout)
    return weights @ v + value_term(weights, value_table)


def drops_twice(q, k, v, key_table, value_table, visible, dropout=0.0):
    weights = masked_softmax(shaw_scores(q, k, key_table), visible)
    values = F.dropout(weights, dropout) @ v
    return values + value_term(F.dropout(weights, dropout), value_table)


def drops_one_side(q, k, v, key_table, value_table, visible, dropout=0.0, side=0):
    weights = masked_softmax(shaw_scores(q, k, key_table), visible)
    both = [weights, weights]
    both[side] = F.dropout(weights, dropout)
    return both[0] @ v + value_term(both[1], value_table)


def drops_output(*args):
    return F.dropout(shaw_attention(*args[:6]), *args[6:] or [0.0])


def drops_by_hand(
    q, k, v, key_table, value_table, visible, dropout=0.0, grow=True, share=False
):
    weights = masked_softmax(shaw_scores(q, k, key_table), visible)
    weights = weights * (torch.rand_like(weights) >= dropout)
    if share and dropout:
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
    elif grow:
        weights = weights / (1 - dropout)
    return weights @ v + value_term(weights, value_table)


def drops_nothing(*args):
    return shaw_attention(*args[:6])


def without_value_vectors(q, k, v, key_table, value_table, visible, dropout=0.0):
    return shaw_attention(q, k, v, key_table, value_table * 0, visible, dropout)


def tables_swapped(q, k, v, key_table, value_table, visible, dropout=0.0):
    return shaw_attention(q, k, v, value_table, key_table, visible, dropout)


def project(module, x):
    parts = module.wq(x), module.wk(x), module.wv(x)
    return [p.unflatten(-1, (module.heads, -1)).transpose(1, 2) for p in parts]


def join(module, out):
    return module.wo(out.transpose(1, 2).flatten(2))


class ShawAttention(nn.Module):
    def __init__(self, width, heads, max_distance, dropout=0.1):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width) for _ in range(4))
        shape = 2 * max_distance + 1, width // heads
        self.key_table = self.make_table(shape)
        self.value_table = self.make_table(shape)

    def make_table(self, shape):
        return nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))

    def probability(self):
        return self.dropout if self.training else 0.0

    def forward(self, x, visible):
        q, k, v = project(self, x)
        tables = self.key_table, self.value_table
        return join(self, shaw_attention(q, k, v, *tables, visible, self.probability()))


class WithGaps(ShawAttention):
    def make_table(self, shape):
        return ...


class PlainTables(ShawAttention):
    def make_table(self, shape):
        return nn.init.xavier_uniform_(torch.empty(shape))


class EmptyTables(ShawAttention):
    def make_table(self, shape):
        return nn.Parameter(torch.full(shape, 1e20))


class WideTables(ShawAttention):
    def make_table(self, shape):
        return super().make_table((shape[0], shape[1] * self.heads))


class OneTable(ShawAttention):
    def __init__(self, *args):
        super().__init__(*args)
        self.value_table = self.key_table


class DropsATenth(ShawAttention):
    def probability(self):
        return 0.1 if self.training else 0.0


class DropsAlways(ShawAttention):
    def probability(self):
        return self.dropout


class DropsNever(ShawAttention):
    def probability(self):
        return 0.0


class WithoutKeyTable(ShawAttention):
    def forward(self, x, visible):
        q, k, v = project(self, x)
        weights = masked_softmax(q @ k.mT / q.shape[-1] ** 0.5, visible)
        weights = F.dropout(weights, self.probability())
        return join(self, weights @ v + value_term(weights, self.value_table))


def decode_step(module, x, cache, hide=None, new_first=False):
    q, *new = project(module, x)
    order = slice(None, None, -1 if new_first else 1)
    keys, values = (
        torch.cat([old, one][order], dim=2) for old, one in zip(cache, new, strict=True)
    )
    offsets = relative_offsets(q.shape[2], keys.shape[2])
    visible = offsets <= 0 if hide is None else hide(*offsets.shape)
    tables = module.key_table, module.value_table
    out = shaw_attention(q, keys, values, *tables, visible)
    return join(module, out), (keys, values)


def sees_all(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool)


def keeps_the_old_cache(module, x, cache):
    return decode_step(module, x, cache)[0], cache


def forgets_the_cache(module, x, cache):
    empty = tuple(part[:, :, :0] for part in cache)
    return decode_step(module, x, empty)[0], decode_step(module, x, cache)[1]


RIGHT = [
    (check_step_1, plain_attention),
    (check_step_2, masked_softmax),
    (check_step_3, relative_offsets),
    (check_step_3_visible, visible_keys),
    (check_step_4, table_rows),
    (check_step_5, bias_attention),
    (check_step_6, scores_by_loop),
    (check_step_6, shaw_scores),
    (check_step_7, shaw_scores),
    (check_step_8, value_term),
    (check_step_8_attention, shaw_attention),
    (check_step_9, ShawAttention),
    (check_step_10, decode_step),
    (check_whole, shaw_attention),
]

# Each usual mistake with a part of what its check says.
MISTAKES = [
    (check_step_1, lambda *a: plain_attention(*a, scale=1), "divide the scores by"),
    (
        check_step_1,
        lambda *a: plain_attention(*a, scale=1 / a[0].shape[-1]),
        "root of D",
    ),
    (check_step_1, lambda *a: plain_attention(*a, axis=-2), "the last axis"),
    (check_step_1, lambda q, k, v: (q @ k.mT).softmax(-1), "has shape"),
    (
        check_step_1,
        lambda *a: plain_attention(*a, scale=(a[0].shape[1] * a[0].shape[3]) ** -0.5),
        "of one head",
    ),
    (check_step_1, lambda *a: plain_attention(*a, axis=1), "the last axis"),
    (
        check_step_1,
        lambda *a: plain_attention(*a, scale=a[0].shape[3] ** 0.5),
        "do not multiply",
    ),
    *(
        (
            check_step_1,
            lambda *a, axis=axis: plain_attention(
                *a, scale=(a[0].shape + a[1].shape)[axis] ** -0.5
            ),
            f"root of the number of {name}",
        )
        for axis, name in ((1, "heads"), (2, "queries"), (6, "keys"))
    ),
    (
        check_step_1,
        lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5) @ v,
        "softmax is missing",
    ),
    (
        check_step_2,
        lambda s, m: (s + ~m * -1e9).softmax(-1).masked_fill(~m, 0),
        "a hidden score of 1e10",
    ),
    (
        check_step_2,
        lambda s, m: F.normalize(
            s.softmax(-1).masked_fill(~m, 0), p=1, dim=-1, eps=1e-9
        ),
        "a hidden score of 1e10",
    ),
    (check_step_2, lambda s, m: masked_softmax(s.mT, m.mT).mT, "the last axis"),
    (check_step_2, lambda s, m: masked_softmax(s, ~m), "True means may attend"),
    (
        check_step_2,
        lambda s, m: s.masked_fill(~m, -torch.inf).softmax(-1),
        "got NaN",
    ),
    (check_step_2, lambda s, m: s.softmax(-1) * m, "must add up to one"),
    (check_step_2, lambda s, m: (s * m).softmax(-1), "hides nothing"),
    (
        check_step_2,
        lambda s, m: s.masked_fill(~m, -1e9).softmax(-1),
        "got weights all the same",
    ),
    (
        check_step_2,
        lambda s, m: s.masked_fill(~m, -1e9).softmax(-1).masked_fill(~m, 0),
        "not hidden enough",
    ),
    (
        check_step_2,
        lambda s, m: (
            s.masked_fill(~m, torch.finfo(torch.float32).min)
            .softmax(-1)
            .masked_fill(~m, 0)
        ),
        "with float16",
    ),
    (
        check_step_2,
        lambda s, m: (s + torch.where(m, 0, -torch.inf)).softmax(-1).nan_to_num(),
        "gradient of a row",
    ),
    (check_step_2, lambda s, m: masked_softmax(s.detach(), m), "no gradient"),
    (check_step_3, from_left, "stand on the last"),
    (check_step_3, lambda q, k: -relative_offsets(q, k), "changed places"),
    (check_step_3, lambda q, k: relative_offsets(q, k).float(), "whole number"),
    (check_step_3, lambda q, k: relative_offsets(q), "has shape"),
    (
        check_step_3_visible,
        lambda q, real: (from_left(q, real.shape[1]) <= 0) & real[:, None, None],
        "stand on the last",
    ),
    (
        check_step_3_visible,
        lambda q, real: (relative_offsets(q, real.shape[1]) <= 0) & real[:, None],
        "two more axes",
    ),
    (
        check_step_3_visible,
        lambda q, real: (relative_offsets(q, real.shape[1]) < 0) & real[:, None, None],
        "attend to itself",
    ),
    (
        check_step_3_visible,
        lambda q, real: (relative_offsets(q, real.shape[1]) >= 0) & real[:, None, None],
        "shows the future",
    ),
    (
        check_step_3_visible,
        lambda q, real: visible_keys(q, torch.ones_like(real)),
        "padding is still visible",
    ),
    (
        check_step_3_visible,
        lambda q, real: real[:, None, None].expand(-1, -1, q, -1),
        "future is still visible",
    ),
    (check_step_3_visible, lambda *a: visible_keys(*a).float(), "must be bool"),
    (
        check_step_3_visible,
        lambda q, real: (relative_offsets(q, real.shape[1]) <= 0) | real[:, None, None],
        "use &",
    ),
    (check_step_3_visible, lambda q, real: visible_keys(q, ~real), "False for padding"),
    (check_step_4, lambda *a: table_rows(*a) + 1, "from zero"),
    (check_step_4, lambda q, k, d: relative_offsets(q, k) + d, "clip it to [-K, K]"),
    (check_step_4, lambda *a: table_rows(*a) - 9, "the first one is 0"),
    (check_step_4, lambda *a: table_rows(*a) + 9, "the last one is 2K"),
    (check_step_4, rows_from_left, "stand on the last"),
    (check_step_4, lambda *a: table_rows(*a) - a[2], "add K after clipping"),
    (
        check_step_4,
        lambda q, k, d: relative_offsets(q, k).clamp(-d, d) + k - 1,
        "with S - 1",
    ),
    (
        check_step_4,
        lambda q, k, d: (relative_offsets(q, k) + k - 1).clamp(0, 2 * d),
        "not S - 1",
    ),
    (
        check_step_4,
        lambda q, k, d: relative_offsets(q, k).clamp(-d, max(d - 1, -d)) + d,
        "row of its own",
    ),
    (check_step_4, lambda *a: 2 * a[2] - table_rows(*a), "changed places"),
    (
        check_step_4,
        lambda q, k, d: (relative_offsets(q, k) + d).clamp(min=0),
        "clip to [-K, K]",
    ),
    (check_step_5, bias_inside, "after the division"),
    (check_step_5, bias_after, "before the softmax"),
    (check_step_5, bias_times, "not multiplied"),
    (check_step_5, mask_before_adding, "first add, then mask"),
    (check_step_5, no_mask, "still visible"),
    (
        check_step_5,
        lambda *a: bias_attention(*a, rows_of=rows_from_left),
        "stand on the last",
    ),
    (
        check_step_5,
        lambda q, k, v, b, m: bias_attention(q, k, v, b.flip(1), m),
        "changed places",
    ),
    (
        check_step_5,
        lambda q, k, v, b, m: bias_attention(q, k, v, b * 0, m),
        "bias is missing",
    ),
    (
        check_step_5,
        lambda q, k, v, b, m: bias_attention(q * 0, k, v, b, m),
        "content scores are missing",
    ),
    (
        check_step_5,
        lambda q, k, v, b, m: bias_attention(q, k, v, b[:1].expand_as(b), m),
        "every head",
    ),
    (
        check_step_5,
        lambda q, k, v, b, m: bias_by(
            q, k, v, b, m, table_rows(q.shape[2], k.shape[2], len(b) // 2)
        ),
        "the second axis of bias_table",
    ),
    (check_step_6, lambda *a: scores_by_loop(*a, len(a[2]) // 2), "add K after"),
    (check_step_6, scores_against_keys, "meet the query"),
    (
        check_step_6,
        lambda *a: scores_by_loop(*a) / a[0].shape[-1] ** 0.5,
        "by the root of D",
    ),
    (check_step_7, scores_by_one_hot, "(Q, S, 2K+1)"),
    (check_step_8, value_term_of_shares, "add up to one"),
    (check_step_8, forgets_bins, "the bins are empty"),
    (check_step_6, content_scaled_alone, "divide both terms"),
    (
        check_step_6,
        lambda *a: scores_by_loop(*a) * a[0].shape[-1] ** 0.5,
        "divide by sqrt(D)",
    ),
    (check_step_6, lambda q, k, t: shaw_scores(q, k, t * 0), "keys are missing"),
    (check_step_6, lambda q, k, t: shaw_scores(q, k * 0, t), "content"),
    (
        check_step_6,
        lambda *a: shaw_scores(*a, rows_of=rows_from_left),
        "stand on the last",
    ),
    (check_step_6, lambda q, k, t: shaw_scores(q, k, t.flip(0)), "changed places"),
    (check_step_7, scores_of_every_pair, "a vector for every pair"),
    (check_step_7, scores_by_loop, "without a loop"),
    (check_step_7, content_scaled_alone, "divide both terms"),
    (check_step_8, lambda *a: value_term(*a, add="scatter"), "must add up"),
    (
        check_step_8,
        lambda w, t: value_term(torch.ones_like(w), t),
        "do not count keys",
    ),
    (
        check_step_8,
        lambda *a: value_term(*a, rows_of=rows_from_left),
        "stand on the last",
    ),
    (check_step_8, lambda w, t: value_term(w, t.flip(0)), "changed places"),
    (check_step_8, values_of_every_pair, "a vector for every pair"),
    (check_step_8, value_term_in_float32, "weights.new_zeros"),
    (check_step_8_attention, drops_twice, "drop once"),
    (check_step_8_attention, drops_nothing, "nothing is dropped"),
    (check_step_8_attention, drops_one_side, "the bins get weights"),
    (
        check_step_8_attention,
        lambda *a: drops_one_side(*a, side=1),
        "the values get weights",
    ),
    (check_step_8_attention, drops_output, "not numbers of the output"),
    (check_step_8_attention, drops_by_hand, "is NaN"),
    (
        check_step_8_attention,
        lambda *a: drops_by_hand(*a, grow=False),
        "must grow by",
    ),
    (
        check_step_8_attention,
        lambda *a: drops_by_hand(*a, share=True),
        "add up to one again",
    ),
    (
        check_step_8_attention,
        lambda *a: shaw_attention(*a[:5], torch.ones_like(a[5]), *a[6:]),
        "still visible",
    ),
    (
        check_step_8_attention,
        lambda q, k, v, a, b, *rest: shaw_attention(q, k, v, a, a, *rest),
        "a table of their own",
    ),
    (check_step_8_attention, without_value_vectors, "of the values are missing"),
    (check_step_8_attention, tables_swapped, "two tables"),
    (check_step_9, PlainTables, "no nn.Parameter"),
    (check_step_9, EmptyTables, "Xavier-uniform"),
    (check_step_9, WideTables, "as wide as a head"),
    (check_step_9, OneTable, "the same numbers"),
    (check_step_9, DropsATenth, "made with dropout=0"),
    (check_step_9, DropsAlways, "in eval mode differ"),
    (check_step_9, DropsNever, "does nothing"),
    (check_step_9, WithoutKeyTable, "the output"),
    (check_step_9, lambda *_: plain_attention, "nn.Module"),
    (check_step_10, keeps_the_old_cache, "the old ones and the new ones"),
    (check_step_10, forgets_the_cache, "see only one another"),
    (check_step_10, lambda *a: decode_step(*a, new_first=True), "behind the old"),
    (check_step_10, lambda *a: decode_step(*a, hide=sees_all), "hide the future"),
    (
        check_step_10,
        lambda *a: decode_step(*a, hide=lambda *n: sees_all(*n).tril()),
        "aligned with the first key",
    ),
    (
        check_step_10,
        lambda *a: decode_step(*a, hide=lambda q, k: relative_offsets(q, k) < 0),
        "attend to itself",
    ),
    (check_step_10, lambda *a: decode_step(*a)[0], "return the output and"),
    (check_whole, learns_nothing, "no gradient"),
    (check_whole, learns_half, "the gradient of q"),
    (check_whole, without_value_vectors, "of the values are missing"),
]
OTHERS = [
    (check_step_1, lambda *_: 1 / 0),
    (check_step_2, lambda s, m: math.nan * s),
    (check_step_10, lambda *_: 1 / 0),
]

test_right_answer_is_accepted = accepts(RIGHT)
test_wrong_answer_is_refused_with_a_reason = refuses(
    [*((check, answer) for check, answer, _ in MISTAKES), *OTHERS]
)
test_gap_is_not_attempted = sees_gaps(RIGHT)
test_common_mistakes_are_named = names(MISTAKES)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (check_step_9, WithGaps),
        (check_step_10, lambda m, x, cache: (x, (..., ...))),
        (check_step_10, lambda m, x, cache: (..., cache)),
    ],
)
def test_gap_inside_is_not_attempted(check, answer, capsys):
    check(answer)
    assert capsys.readouterr().out == f"{check.__name__}: not attempted yet\n"
