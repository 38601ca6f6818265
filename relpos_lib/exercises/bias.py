"""Checks of the chapter on additive bias."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from relpos_lib.exercises.report import exercise, expect, expect_equal, numbers


@exercise
def check_rows(rows: Callable[..., Tensor]) -> None:
    """Whether ``rows(q_len, k_len, max_distance)`` is the row of every pair."""
    for q_len, k_len, far in ((3, 3, 5), (5, 5, 2), (2, 7, 3), (1, 4, 1), (4, 2, 0)):
        given = f"q_len={q_len}, k_len={k_len}, max_distance={far}"
        wanted = _rows(q_len, k_len, far, k_len - q_len)
        got = numbers(f"the matrix for {given}", rows(q_len, k_len, far))
        for other, why in (
            (
                _rows(q_len, k_len, far, 0),
                "queries stand at the end of the keys, query i at S - Q + i",
            ),
            (
                [[2 * far - row for row in line] for line in wanted],
                "the offset is key position minus query position, not the reverse",
            ),
            (
                [[row - far for row in line] for line in wanted],
                "these are offsets; a row is counted from the end of the table, "
                "so add max_distance",
            ),
            (
                _rows(q_len, k_len, q_len + k_len, k_len - q_len, centre=far),
                "offsets beyond max_distance must read the edge rows: clip them",
            ),
        ):
            expect(not _same(got, other) or other == wanted, f"for {given}, {why}")
        expect_equal(f"the matrix for {given}", got, wanted)


@exercise
def check_repaired_rows(repaired: Callable[..., Tensor]) -> None:
    """Whether ``repaired(length, max_len)`` reads the same row at every length."""
    for length, max_len in ((4, 4), (3, 4), (2, 5), (6, 4), (1, 3)):
        given = f"length={length}, max_len={max_len}"
        far = max_len - 1
        wanted = _rows(length, length, far, 0)
        got = numbers(f"the matrix for {given}", repaired(length, max_len))
        here = f"for {given}, "
        suspect = _rows(length, length, length, 0, centre=length - 1)
        expect(
            length == max_len or not _same(got, suspect),
            here + "the centre row still depends on the length",
        )
        expect(
            not ((got < 0) | (got > 2 * far)).any(),
            here + f"some rows are outside the table, which has rows 0 to {2 * far}",
        )
        expect_equal(f"the matrix for {given}", got, wanted)


@exercise
def check_alibi_table(alibi_table: Callable[..., Tensor]) -> None:
    """Whether ``alibi_table(num_heads, max_distance)`` holds ALiBi's penalties."""
    for num_heads, far in ((2, 3), (8, 5), (1, 2), (4, 0)):
        given = f"num_heads={num_heads}, max_distance={far}"
        slopes = [2 ** (-8 * (h + 1) / num_heads) for h in range(num_heads)]
        wanted = [[-s * abs(d) for d in range(-far, far + 1)] for s in slopes]
        what = f"the table (head, row) for {given}"
        got = numbers(what, alibi_table(num_heads, far))
        from_zero = [[-s * d for d in range(2 * far + 1)] for s in slopes]
        late = [[2 ** (8 / num_heads) * b for b in line] for line in wanted]
        for other, why in (
            (from_zero, "row 0 stands for offset -max_distance, not for offset 0"),
            ([[-b for b in line] for line in wanted], "a penalty is negative"),
            (late, "the first head has slope 2 ** (-8 / num_heads), not 1"),
        ):
            wrong = far > 0 and _same(got, other)
            expect(not wrong, f"for {given}, {why}")
        expect_equal(what, got, wanted)


@exercise
def check_gap(gap: Callable[..., Any]) -> None:
    """Whether ``gap(num_keys, share)`` gives one of the keys that share."""
    for num_keys, share in ((2, 0.5), (16, 0.5), (16, 0.9), (1000, 0.25)):
        given = f"num_keys={num_keys}, share={share}"
        wanted = math.log((num_keys - 1) * share / (1 - share))
        got = numbers(f"the gap for {given}", gap(num_keys, share))
        same_n = math.log(num_keys * share / (1 - share))
        expect(
            not _same(got, same_n),
            f"for {given}, only num_keys - 1 keys are the others",
        )
        expect(
            wanted == 0 or not _same(got, -wanted),
            f"for {given}, the sign is wrong: the gap says how much higher the one "
            "key stands",
        )
        expect_equal(f"the gap for {given}", got, wanted, tolerance=1e-5)


def _rows(
    q_len: int, k_len: int, far: int, start: int, centre: int | None = None
) -> list[list[int]]:
    """Rows by a double loop; ``centre`` is that of offset 0, ``far`` if None."""
    centre = far if centre is None else centre
    return [
        [max(-far, min(far, j - (start + i))) + centre for j in range(k_len)]
        for i in range(q_len)
    ]


def _same(got: Tensor, other: float | Sequence[Sequence[float]]) -> bool:
    """Whether the reader's numbers are another set of numbers."""
    mistake = torch.tensor(other, dtype=torch.double)
    return got.shape == mistake.shape and torch.allclose(got, mistake)
