"""Checks of the chapter on fast attention accept right answers only."""

import math

import pytest
import torch

from relpos_lib import table_rows
from relpos_lib.exercises.fast import (
    check_bias_line,
    check_constant_gradient,
    check_masked_attend,
    check_merge_two,
    check_near_pairs,
)
from tests.exercises import accepts, names, refuses, sees_gaps


def merge_two(out1, lse1, out2, lse2):
    lses = torch.stack([lse1, lse2])
    lse = lses.logsumexp(0)
    shares = (lses - lse.masked_fill(lse == -math.inf, 0)).exp()
    return shares[0][:, None] * out1 + shares[1][:, None] * out2, lse


def masked_attend(q, k, v, visible):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, -math.inf)
    return scores.softmax(-1).nan_to_num(0) @ v, scores.logsumexp(-1)


def near_pairs(length, tile, max_distance):
    starts = torch.arange(length) // tile * tile
    ends = (starts + tile).clamp(max=length) - 1
    keys = torch.arange(length)
    inside = (keys > starts[:, None] - max_distance) & (
        keys < ends[:, None] + max_distance
    )
    return int(inside.sum())


def bias_line(table, q_len, k_len):
    bias = table[table_rows(q_len, k_len, len(table) // 2)].flip(0)
    return torch.cat([bias[0], bias[1:, -1]])


def constant_gradient(grad, out, lse, far_out, far_lse):
    return (far_lse - lse).exp() * torch.linalg.vecdot(grad, far_out - out)


RIGHT = [
    (check_merge_two, merge_two),
    (check_masked_attend, masked_attend),
    (check_near_pairs, near_pairs),
    (check_bias_line, bias_line),
    (check_constant_gradient, constant_gradient),
]


def careless_merge(out1, lse1, out2, lse2):
    share = torch.sigmoid(lse2 - lse1)  # NaN if both are empty
    return out1 + share[:, None] * (out2 - out1), torch.logaddexp(lse1, lse2)


def overflowing_merge(out1, lse1, out2, lse2):
    total = lse1.exp() + lse2.exp()
    shares = [(x.exp() / total.clamp_min(1e-30))[:, None] for x in (lse1, lse2)]
    return shares[0] * out1 + shares[1] * out2, total.log()


def plain_mean(out1, lse1, out2, lse2):
    return (out1 + out2) / 2, torch.logaddexp(lse1, lse2)


def wrong_share(out1, lse1, out2, lse2):
    return merge_two(out1, lse2, out2, lse1)


def says_zero(q, k, v, visible):
    out, lse = masked_attend(q, k, v, visible)
    return out, lse.masked_fill(lse == -math.inf, 0)


def spreads_nan(q, k, v, visible):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(-1)
    return (scores - lse[:, None]).exp() @ v, lse


def unscaled(q, k, v, visible):
    return masked_attend(q * q.shape[-1] ** 0.5, k, v, visible)


WRONG = [
    (check_merge_two, careless_merge),
    (check_merge_two, overflowing_merge),
    (check_merge_two, plain_mean),
    (check_merge_two, wrong_share),
    (check_merge_two, lambda *args: merge_two(*args)[0]),
    (check_masked_attend, says_zero),
    (check_masked_attend, spreads_nan),
    (check_masked_attend, unscaled),
    (check_masked_attend, lambda q, k, v, m: masked_attend(q, k, v, ~m)),
    (check_masked_attend, lambda q, k, v, m: masked_attend(q, k, v, m | True)),
    (check_near_pairs, lambda n, t, k: n * (t + 2 * k - 2)),
    (check_near_pairs, lambda n, t, k: near_pairs(n, t, k + 1)),
    (check_near_pairs, lambda n, t, k: near_pairs(n, 1, k)),
    (check_bias_line, lambda t, q, k: bias_line(t, q, k).flip(0)),
    (check_bias_line, lambda t, q, k: bias_line(t.flip(0), q, k)),
    (check_bias_line, lambda t, q, k: t[(torch.arange(1 - q, k)).clamp(-1, 1)]),
    (check_bias_line, lambda t, q, k: bias_line(t, q, k)[:-1]),
    (check_constant_gradient, lambda g, o, z, f, y: constant_gradient(g, 0, z, f, y)),
    (check_constant_gradient, lambda g, o, z, f, y: constant_gradient(g, o, y, f, z)),
    (check_constant_gradient, lambda g, *rest: (g * 0).sum(-1)),
    (check_constant_gradient, lambda *_: 1 / 0),
]


def counted_from_the_first_key(table, q_len, k_len):
    rows = table_rows(q_len, k_len, len(table) // 2, query_start=0)
    bias = table[rows].flip(0)
    return torch.cat([bias[0], bias[1:, -1]])


test_right_answer_is_accepted = accepts(RIGHT)
test_wrong_answer_is_refused_with_a_reason = refuses(WRONG)
test_gap_is_not_attempted = sees_gaps(RIGHT)


@pytest.mark.parametrize("check", [check_merge_two, check_masked_attend])
def test_gap_in_a_pair_is_not_attempted(check, capsys):
    check(lambda q, *_: (q, ...))
    assert "not attempted yet" in capsys.readouterr().out


test_common_mistakes_are_named = names(
    [
        (check_merge_two, careless_merge, "NaN"),
        (check_merge_two, overflowing_merge, "scores around 1000"),
        (check_masked_attend, says_zero, "log-sum-exp -inf, got 0"),
        (check_masked_attend, spreads_nan, "inf minus inf"),
        (check_bias_line, lambda t, q, k: bias_line(t.flip(0), q, k), "left and right"),
        (check_bias_line, counted_from_the_first_key, "must stand on the last"),
        (
            check_constant_gradient,
            lambda g, o, z, f, y: constant_gradient(g, 0, z, f, y),
            "G · O is missing",
        ),
    ]
)
