"""Checks of the chapter on choices accept right answers only."""

import math
import statistics

import torch

from relpos_lib import clip_table
from relpos_lib.exercises.choosing import (
    check_smallest_distance,
    check_smallest_tied,
    check_table_parameters,
    check_widened,
)
from relpos_lib.experiments.spread import compare
from tests.exercises import accepts, names, refuses, sees_gaps


def smallest_distance(offsets, length):
    return min(max(map(abs, offsets)) + 1, length - 1)


def table_parameters(distances, head_dim, shared):
    tables = [max(distances)] if shared else distances
    return 2 * head_dim * sum(2 * one + 1 for one in tables)


def widened(tables):
    farthest = max(len(table) // 2 for table in tables)
    return torch.stack([clip_table(table, farthest) for table in tables])


def smallest_tied(sweep):
    best = max(sweep, key=lambda k: statistics.fmean(sweep[k]))
    return min(k for k in sweep if compare(sweep[k], sweep[best]) == "tie")


RIGHT = [
    (check_smallest_distance, smallest_distance),
    (check_table_parameters, table_parameters),
    (check_widened, widened),
    (check_smallest_tied, smallest_tied),
]


def padded_with_zeros(tables):
    farthest = max(len(table) // 2 for table in tables)
    out = torch.zeros(len(tables), 2 * farthest + 1, tables[0].shape[1])
    for own, table in zip(out, tables, strict=True):
        start = farthest - len(table) // 2
        own[start : start + len(table)] = table
    return out


def from_the_first_row(tables):
    farthest = max(len(table) // 2 for table in tables)
    rows = torch.arange(2 * farthest + 1)
    return torch.stack([t[rows.clamp(max=len(t) - 1)] for t in tables])


def best_mean(sweep):
    return max(sweep, key=lambda k: statistics.fmean(sweep[k]))


def within_a_hundredth(sweep):
    most = statistics.fmean(sweep[best_mean(sweep)])
    return min(k for k in sweep if statistics.fmean(sweep[k]) > most - 0.01)


def first_in_order(sweep):
    best = best_mean(sweep)
    return next(k for k in sweep if compare(sweep[k], sweep[best]) == "tie")


def tied_with(best, combined):
    """An answer with its own best K, or its own error of a difference."""

    def smallest(sweep):
        top = sweep[max(sweep, key=lambda k: best(sweep[k]))]

        def ties(each):
            errors = (statistics.stdev(x) / len(x) ** 0.5 for x in (each, top))
            gap = abs(statistics.fmean(each) - statistics.fmean(top))
            return gap < 2 * combined(*errors)

        return min(k for k in sweep if ties(sweep[k]))

    return smallest


def by_best_seed(sweep):
    most = max(max(each) for each in sweep.values())
    return min(k for k in sweep if max(sweep[k]) >= most - 0.01)


WRONG = [
    (check_smallest_distance, lambda offsets, n: max(map(abs, offsets))),
    (check_smallest_distance, lambda offsets, n: max(map(abs, offsets)) + 1),
    (check_smallest_distance, lambda offsets, n: max(offsets) + 1),
    (check_smallest_distance, lambda offsets, n: n - 1),
    (check_smallest_distance, lambda offsets, n: n // 4),
    (check_table_parameters, lambda d, w, shared: table_parameters(d, w, shared) // 2),
    (check_table_parameters, lambda d, w, shared: table_parameters(d, w, False)),
    (check_table_parameters, lambda d, w, shared: table_parameters(d, w, True)),
    (check_table_parameters, lambda d, w, shared: 4 * w * sum(d)),
    (
        check_table_parameters,
        lambda d, w, shared: table_parameters(d[-1:] if shared else d, w, shared),
    ),
    (check_widened, padded_with_zeros),
    (check_widened, from_the_first_row),
    (check_widened, lambda tables: widened([t.flip(0) for t in tables])),
    (check_widened, lambda tables: widened(tables[::-1])),
    (check_widened, lambda tables: widened(tables)[..., :1]),
    (check_smallest_tied, best_mean),
    (check_smallest_tied, min),
    (check_smallest_tied, within_a_hundredth),
    (check_smallest_tied, first_in_order),
    (check_smallest_tied, by_best_seed),
    (check_smallest_tied, tied_with(statistics.median, math.hypot)),
    (check_smallest_tied, tied_with(statistics.fmean, math.hypot)),
    (check_smallest_tied, lambda sweep: "large"),
    (check_smallest_tied, lambda sweep: 1 / 0),
]


test_right_answer_is_accepted = accepts(RIGHT)
test_wrong_answer_is_refused_with_a_reason = refuses(WRONG)
test_gap_is_not_attempted = sees_gaps(RIGHT)


test_common_mistakes_are_named = names(
    [
        (check_smallest_distance, WRONG[0][1], "shares its row with -2"),
        (check_smallest_distance, WRONG[1][1], "farther apart than 5"),
        (check_table_parameters, WRONG[5][1], "counts one side"),
        (check_widened, padded_with_zeros, "what head 0 reads at offset"),
        (check_smallest_tied, best_mean, "a smaller K ties with it"),
    ]
)
