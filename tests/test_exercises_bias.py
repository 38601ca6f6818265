"""The checks of the chapter on additive bias accept right answers only."""

import math

import pytest
import torch

from relpos_lib import alibi_slopes, relative_offsets, table_rows
from relpos_lib.exercises.bias import (
    check_alibi_table,
    check_gap,
    check_repaired_rows,
    check_rows,
)


def verdict(capsys, check, answer):
    check(answer)
    name, said = capsys.readouterr().out.strip().split(": ", 1)
    assert name == check.__name__
    return said


def right_table(num_heads, far):
    return -alibi_slopes(num_heads)[:, None] * torch.arange(-far, far + 1).abs()


def right_gap(num_keys, share):
    return math.log((num_keys - 1) * share / (1 - share))


def square_rows(length, max_len):
    return table_rows(length, length, max_len - 1)


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (check_rows, table_rows),
        (check_repaired_rows, square_rows),
        (check_alibi_table, right_table),
        (check_gap, right_gap),
        (check_gap, lambda n, share: torch.tensor(right_gap(n, share))),
    ],
)
def test_right_answers(capsys, check, answer):
    assert verdict(capsys, check, answer) == "correct"


def rows_with_a_gap(q_len, k_len, far):
    query = ...
    return torch.arange(k_len)[None, :] - query[:, None]


def table_with_a_gap(num_heads, far):
    return -... * torch.arange(-far, far + 1).abs()


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (check_rows, rows_with_a_gap),
        (check_rows, lambda q, k, far: ...),
        (check_repaired_rows, lambda length, max_len: None),
        (check_alibi_table, table_with_a_gap),
        (check_gap, lambda n, share: ...),
        (check_gap, None),
    ],
)
def test_gaps_are_not_attempted(capsys, check, answer):
    assert verdict(capsys, check, answer) == "not attempted yet"


def rows_from_the_first_key(q_len, k_len, far):
    return table_rows(q_len, k_len, far, query_start=0)


def mirrored_rows(q_len, k_len, far):
    return 2 * far - table_rows(q_len, k_len, far)


def rows_without_centre(q_len, k_len, far):
    return table_rows(q_len, k_len, far) - far


def rows_without_clip(q_len, k_len, far):
    return relative_offsets(q_len, k_len) + far


def rows_clipped_one_too_early(q_len, k_len, far):
    return relative_offsets(q_len, k_len).clamp(1 - far, far) + far


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (rows_from_the_first_key, "queries stand at the end"),
        (mirrored_rows, "key position minus query position"),
        (rows_without_centre, "add max_distance"),
        (rows_without_clip, "clip them"),
        (rows_clipped_one_too_early, "the matrix for"),
        (lambda q, k, far: table_rows(k, q, far), "has shape"),
        (lambda q, k, far: 1 / 0, "your code raised ZeroDivisionError"),
    ],
)
def test_wrong_rows(capsys, answer, reason):
    said = verdict(capsys, check_rows, answer)
    assert said.startswith("not yet: ")
    assert reason in said


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda n, most: relative_offsets(n) + n - 1, "depends on the length"),
        (lambda n, most: relative_offsets(n) + most - 1, "outside the table"),
        (lambda n, most: relative_offsets(n).clamp(-most, most) + most, "outside"),
        (lambda n, most: square_rows(n, most).T, "the matrix for"),
        (lambda n, most: square_rows(n, most)[:-1], "has shape"),
    ],
)
def test_wrong_repairs(capsys, answer, reason):
    said = verdict(capsys, check_repaired_rows, answer)
    assert said.startswith("not yet: ")
    assert reason in said


def table_from_zero(num_heads, far):
    return -alibi_slopes(num_heads)[:, None] * torch.arange(2 * far + 1)


def table_from_slope_one(num_heads, far):
    slopes = 2.0 ** (-8 * torch.arange(num_heads) / num_heads)
    return -slopes[:, None] * torch.arange(-far, far + 1).abs()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (table_from_zero, "row 0 stands for offset -max_distance"),
        (table_from_slope_one, "the first head has slope"),
        (lambda h, far: -right_table(h, far), "a penalty is negative"),
        (lambda h, far: right_table(h, far).T, "has shape"),
        (lambda h, far: right_table(h, far).flip(0), "the table (head, row)"),
    ],
)
def test_wrong_tables(capsys, answer, reason):
    said = verdict(capsys, check_alibi_table, answer)
    assert said.startswith("not yet: ")
    assert reason in said


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda n, share: math.log(n * share / (1 - share)), "num_keys - 1"),
        (lambda n, share: -right_gap(n, share), "the sign is wrong"),
        (lambda n, share: math.log(n - 1), "the gap for"),
        (lambda n, share: share / (1 - share), "the gap for"),
    ],
)
def test_wrong_gaps(capsys, answer, reason):
    said = verdict(capsys, check_gap, answer)
    assert said.startswith("not yet: ")
    assert reason in said
