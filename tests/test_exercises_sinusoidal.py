"""Checks of chapter 1 accept right answers only."""

import math

import torch

from relpos_lib import sinusoidal_encoding
from relpos_lib.exercises.sinusoidal import (
    check_dot_product,
    check_encoding,
    check_four_terms,
    check_look_ahead,
)
from tests.exercises import accepts, refuses, sees_gaps


def encoding(length, width, start=0, base=10_000.0):
    return sinusoidal_encoding(length, width, start=start, base=base)


def dot_product(offset, width):
    return (
        sinusoidal_encoding(1, width)[0]
        @ sinusoidal_encoding(1, width, start=offset)[0]
    )


def rotation(offset, width):
    """The matrix that turns a code, as a row, into the code ``offset`` later."""
    matrix = torch.zeros(width, width)
    for pair in range(0, width, 2):
        angle = offset * 10_000 ** (-pair / width)
        cosine, sine = math.cos(angle), math.sin(angle)
        matrix[pair : pair + 2, pair : pair + 2] = torch.tensor(
            [[cosine, -sine], [sine, cosine]]
        )
    return matrix


def four_terms(x_i, c_i, x_j, c_j, w):
    return [left @ w @ right for left in (x_i, c_i) for right in (x_j, c_j)]


CASES = [
    (check_encoding, encoding),
    (check_dot_product, dot_product),
    (check_look_ahead, rotation),
    (check_four_terms, four_terms),
]

WRONG = [
    (check_encoding, lambda n, w, start=0, base=1e4: encoding(n, w, 0, base)),
    (check_encoding, lambda n, w, start=0, base=1e4: encoding(n, w, start)),
    (check_encoding, lambda n, w, start=0, base=1e4: encoding(n, w + 2, start, base)),
    (check_dot_product, lambda offset, w: dot_product(offset + 1, w)),
    (check_look_ahead, lambda ahead, w: rotation(-ahead, w)),
    (check_look_ahead, lambda ahead, w: torch.eye(w)),
    (check_four_terms, lambda x_i, c_i, x_j, c_j, w: four_terms(c_i, x_i, x_j, c_j, w)),
    (check_four_terms, lambda x_i, c_i, x_j, c_j, w: [x_i @ w @ x_j] * 3),
    (check_four_terms, lambda *_: 1 / 0),
]


test_right_answer_is_accepted = accepts(CASES)
test_wrong_answer_is_refused_with_a_reason = refuses(WRONG)
test_gap_is_not_attempted = sees_gaps(CASES)
