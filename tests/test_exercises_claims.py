"""Checks of the chapter on claims accept right answers only."""

import itertools
import math
import statistics

import pytest

from relpos_lib.exercises.claims import (
    check_fair_pairs,
    check_flipped_share,
    check_is_tie,
    check_rest_of_memory,
)
from tests.exercises import accepts, names, refuses, sees_gaps


def ties(of_errors):
    """An answer that combines the two spreads in its own way."""

    def is_tie(first, second):
        difference = abs(statistics.mean(first) - statistics.mean(second))
        parts = [(statistics.stdev(each), len(each)) for each in (first, second)]
        return difference < 2 * of_errors(*parts)

    return is_tie


is_tie = ties(lambda a, b: math.sqrt(a[0] ** 2 / a[1] + b[0] ** 2 / b[1]))


def flipped_share(first, second):
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    flips = list(itertools.product((1, -1), repeat=len(gaps)))
    totals = [
        abs(sum(f * g for f, g in zip(flip, gaps, strict=True))) for flip in flips
    ]
    return statistics.mean(total >= abs(sum(gaps)) - 1e-9 for total in totals)


def fair(accepted):
    """An answer that accepts a pair for the names of what differs in it."""

    def fair_pairs(runs, factor):
        return [
            (b["name"], a["name"])
            for a, b in itertools.combinations(runs, 2)
            if accepted({key for key in a if a[key] != b[key]}, factor)
        ]

    return fair_pairs


fair_pairs = fair(lambda keys, factor: keys - {"name", "accuracy"} == {factor})


def rest_of_memory(saved, length, head_dim):
    return 8 * length**2 * head_dim * (1 - saved) / saved


RIGHT = [
    (check_is_tie, is_tie),
    (check_flipped_share, flipped_share),
    (check_fair_pairs, fair_pairs),
    (check_rest_of_memory, rest_of_memory),
]

of_single_seeds = ties(lambda a, b: math.hypot(a[0], b[0]))
of_summed_errors = ties(lambda a, b: a[0] / math.sqrt(a[1]) + b[0] / math.sqrt(b[1]))
of_the_first = ties(lambda a, b: a[0] / math.sqrt(a[1]))
of_one_number = ties(lambda a, b: math.sqrt((a[0] ** 2 + b[0] ** 2) / a[1]))
of_one_less = ties(
    lambda a, b: math.sqrt(a[0] ** 2 / (a[1] - 1) + b[0] ** 2 / (b[1] - 1))
)


def fair_as(kind):
    """An answer whose pairs are right, but not the names of two runs."""
    return lambda runs, factor: [kind(pair) for pair in fair_pairs(runs, factor)]


WRONG = [
    (check_is_tie, lambda first, second: True),
    (check_is_tie, lambda first, second: False),
    (check_is_tie, lambda first, second: not is_tie(first, second)),
    (check_is_tie, of_single_seeds),
    (check_is_tie, of_summed_errors),
    (check_is_tie, of_the_first),
    (check_is_tie, of_one_number),
    (check_is_tie, of_one_less),
    (check_flipped_share, lambda first, second: 0.05),
    (check_flipped_share, lambda first, second: flipped_share(first, second) / 2),
    (check_flipped_share, lambda first, second: 2 / 2 ** len(first)),
    (check_fair_pairs, fair(lambda keys, factor: factor in keys)),
    (check_fair_pairs, fair(lambda keys, factor: keys == {factor})),
    (check_fair_pairs, lambda runs, factor: []),
    (check_fair_pairs, fair_as("".join)),
    (check_fair_pairs, fair_as(lambda pair: (*pair, pair[0]))),
    (check_fair_pairs, lambda runs, factor: 2 * fair_pairs(runs, factor)),
    (check_rest_of_memory, lambda s, n, d: 4 * n * n * d * (1 - s) / s),
    (check_rest_of_memory, lambda s, n, d: 2 * n * n * d * (1 - s) / s),
    (check_rest_of_memory, lambda s, n, d: 8 * n * n * d / s),
    (check_rest_of_memory, lambda s, n, d: 8 * n * n * d * (1 - s)),
    (check_rest_of_memory, lambda s, n, d: 8 * n * d * (1 - s) / s),
    (check_rest_of_memory, lambda s, n, d: "much"),
]

MISTAKES = [
    (check_is_tie, of_single_seeds, "smaller by the root of n"),
    (check_is_tie, of_summed_errors, "add up as squares"),
    (
        check_flipped_share,
        lambda first, second: flipped_share(first, second) / 2,
        "the other way round",
    ),
    (check_fair_pairs, fair(lambda keys, factor: factor in keys), "A and B differ in"),
    (check_fair_pairs, lambda runs, factor: [], "are missing"),
    (check_fair_pairs, lambda runs, factor: [runs[:2]], "the names of two runs"),
    (check_fair_pairs, lambda runs, factor: ["XY"], "the names of two runs"),
    (
        check_rest_of_memory,
        lambda s, n, d: 4 * n * n * d * (1 - s) / s,
        "keys and values have one each",
    ),
    (
        check_rest_of_memory,
        lambda s, n, d: 8 * n * n * d / s,
        "a share of the whole, not of the rest",
    ),
]

test_right_answers_are_accepted = accepts(RIGHT)
test_wrong_answers_are_refused = refuses(WRONG)
test_gaps_are_seen = sees_gaps(RIGHT)
test_the_message_names_the_mistake = names(MISTAKES)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_pairs_does_not_matter(order, capsys):
    def reordered(runs, factor):
        return [pair[::order] for pair in fair_pairs(runs, factor)][::order]

    check_fair_pairs(reordered)
    assert capsys.readouterr().out == "check_fair_pairs: correct\n"
