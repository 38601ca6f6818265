"""Checks of the chapter on longer inputs accept right answers only."""

import math

import torch

from relpos_lib import clip_table
from relpos_lib.exercises.longer import (
    check_fewest_seeds,
    check_perplexity,
    check_reach,
    check_window_table,
)
from tests.exercises import accepts, names, refuses, sees_gaps


def reach(gap, share):
    return math.exp(gap + math.log(1 / share - 1))


def window_table(table, window):
    wide = clip_table(table[..., None], window + 1)[..., 0].clone()
    wide[:, 0] = wide[:, -1] = -math.inf
    return wide


def perplexity(losses, length, stride):
    total, count = 0.0, 0
    for start in range(0, len(losses), stride):
        for step in range(stride):
            total += losses[start + step, length - stride + step]
            count += 1
    return (total / count).exp()


def best_p(seeds):
    ways = math.factorial(2 * seeds) / math.factorial(seeds) ** 2
    return 2 / ways


RIGHT = [
    (check_reach, reach),
    (check_window_table, window_table),
    (check_perplexity, perplexity),
    (check_fewest_seeds, best_p),
]


def open_edges(table, window):
    return clip_table(table[..., None], window + 1)[..., 0]


def one_too_narrow(table, window):
    return torch.nn.functional.pad(window_table(table, window - 1), (1, 1), value=0.0)


def hides_too_much(table, window):
    wide = window_table(table, window)
    wide[:, 1] = -math.inf
    return wide


def zero_inside(table, window):
    wide = torch.zeros(len(table), 2 * window + 3)
    wide[:, 0] = wide[:, -1] = -math.inf
    return wide


WRONG = [
    (check_reach, lambda g, s: math.exp(-g) * s / (1 - s)),
    (check_reach, lambda g, s: math.exp(g) / s),
    (check_reach, lambda g, s: math.exp(g)),
    (check_reach, lambda g, s: g + math.log((1 - s) / s)),
    (check_window_table, open_edges),
    (check_window_table, one_too_narrow),
    (check_window_table, hides_too_much),
    (check_window_table, zero_inside),
    (check_window_table, lambda t, w: window_table(t.flip(-1), w)),
    (check_window_table, lambda t, w: window_table(t, w + 1)),
    (check_perplexity, lambda x, n, s: perplexity(x, n, n)),
    (check_perplexity, lambda x, n, s: perplexity(x, n, s).log()),
    (check_perplexity, lambda x, n, s: x[:, :n].exp().mean()),
    (check_perplexity, lambda x, n, s: x[:, n - 1].mean().exp()),
    (check_perplexity, lambda x, n, s: perplexity(x.flip(0), n, s)),
    (check_fewest_seeds, lambda n: best_p(n) / 2),
    (check_fewest_seeds, lambda n: 0.5**n),
    (check_fewest_seeds, lambda n: 1 / 0),
]


test_right_answer_is_accepted = accepts(RIGHT)
test_wrong_answer_is_refused_with_a_reason = refuses(WRONG)
test_gap_is_not_attempted = sees_gaps(RIGHT)


test_common_mistakes_are_named = names(
    [
        (check_reach, lambda g, s: math.exp(g) / s, "takes part of the sum"),
        (check_window_table, open_edges, "both edge rows must be -inf"),
        (check_window_table, hides_too_much, "must stay visible"),
        (
            check_window_table,
            lambda t, w: window_table(t.flip(-1), w),
            "left and right are swapped",
        ),
        (
            check_perplexity,
            lambda x, n, s: perplexity(x, n, n),
            "still do not overlap",
        ),
        (
            check_perplexity,
            lambda x, n, s: perplexity(x, n, s).log(),
            "perplexity is its exponential",
        ),
        (check_fewest_seeds, lambda n: best_p(n) / 2, "count both sides"),
    ]
)
