"""Checks of the steps to offsets, the causal mask and rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relpos_lib.exercises.implement.common import DISTANCES, FLIPPED, LEFT, LOST
from relpos_lib.exercises.pairs import expect_other_than, pair_rows
from relpos_lib.exercises.report import (
    exercise,
    expect,
    expect_equal,
    expect_given,
    numbers,
)


@exercise
def check_step_3(offsets_of: Callable[..., Tensor]) -> None:
    """Whether ``offsets_of(q_len, k_len)`` is key position minus query position."""
    for q_len, k_len in ((3, 3), (1, 4), (2, 5), (5, 2), (1, 1)):
        case = f"for Q={q_len}, S={k_len}"
        got = _whole(
            f"the result {case}", offsets_of(q_len, k_len), (q_len, k_len), "an offset"
        )
        far = q_len + k_len
        wanted = pair_rows(q_len, k_len, far, far).double() - far
        from_left = pair_rows(q_len, k_len, far, far, start=0).double() - far
        expect_other_than(got, wanted, from_left, LEFT)
        expect_other_than(got, wanted, -wanted, FLIPPED)
        expect_equal(f"{case}, the offset (i, j)", got, wanted)


@exercise
def check_step_3_visible(visible_keys: Callable[..., Tensor]) -> None:
    """Whether ``visible_keys(q_len, real)`` is causal and hides padding."""
    for batch, q_len, k_len in ((2, 3, 5), (3, 3, 3), (2, 1, 4), (1, 5, 2)):
        real = torch.ones(batch, k_len, dtype=torch.bool)
        real[0, 0] = False
        got = visible_keys(q_len, real.clone())
        expect_given(got)
        case = f"for B={batch}, Q={q_len}, S={k_len}"
        shape, has = (batch, 1, q_len, k_len), tuple(getattr(got, "shape", ()))
        expect(
            has == shape,
            f"{case}, the result has shape {has}, expected {shape}: give `real` two "
            "more axes, real[:, None, None, :], or (B, S) may be read as (Q, S)",
        )
        expect(got.dtype == torch.bool, f"the result must be bool, got {got.dtype}")
        _expect_visible(case, got, real)


@exercise
def check_step_4(rows_of: Callable[..., Tensor]) -> None:
    """Whether ``rows_of(q_len, k_len, max_distance)`` is the row of every pair."""
    for distance in DISTANCES:
        for q_len, k_len in ((3, 3), (1, 5), (4, 6), (5, 2)):
            case = f"for Q={q_len}, S={k_len}, K={distance}"
            got = _whole(
                f"the result {case}",
                rows_of(q_len, k_len, distance),
                (q_len, k_len),
                "a row",
            )
            wanted = pair_rows(q_len, k_len, distance, distance).double()
            for wrong, hint in _wrong_rows(q_len, k_len, distance):
                expect_other_than(got, wanted, wrong.double(), hint)
            expect(
                float(got.min()) >= 0,
                f"{case}, there is a row {got.min():.0f}, but the first one is 0: "
                "clip to [-K, K] at both ends",
            )
            expect(
                float(got.max()) <= 2 * distance,
                f"{case}, there is a row {got.max():.0f}, but the last one is 2K = "
                f"{2 * distance}: clip to [-K, K] at both ends",
            )
            expect_equal(f"{case}, the row (i, j)", got, wanted)


def _whole(what: str, answer: Any, shape: tuple[int, ...], one: str) -> Tensor:
    """The numbers of an answer that must be of whole numbers."""
    got = numbers(what, answer, shape)
    if isinstance(answer, Tensor):
        half = answer.dtype in (torch.float16, torch.bfloat16)
        expect(
            answer.dtype in (torch.int64, torch.int32),
            f"{one} is a whole number, int64, got {answer.dtype}"
            + half * ", which cannot even count to 3000",
        )
    return got


def _expect_visible(case: str, got: Tensor, real: Tensor) -> None:
    q_len, k_len = got.shape[2:]
    far = q_len + k_len
    offsets = pair_rows(q_len, k_len, far, far) - far
    from_left = pair_rows(q_len, k_len, far, far, start=0) - far
    padding = real[:, None, None, :]
    wanted = ((offsets <= 0) & padding).double()
    wrongs = [
        ((from_left <= 0) & padding, LEFT),
        ((offsets < 0) & padding, "a token may attend to itself"),
        ((offsets >= 0) & padding, "this shows the future and hides the past"),
        ((offsets <= 0).expand_as(got), "padding is still visible: use `real`"),
        (padding.expand_as(got), "the future is still visible"),
        ((offsets <= 0) | padding, "a pair is visible if both agree: use &, not |"),
        ((offsets <= 0) & ~padding, "`real` is True for a token, False for padding"),
    ]
    if q_len == k_len:
        by_query = (offsets <= 0) & real[:, None, :, None]
        wrongs.append((by_query, "padding hides keys, the last axis, not queries"))
    for wrong, hint in wrongs:
        expect_other_than(got.double(), wanted, wrong.double(), f"{case}, {hint}")
    expect_equal(f"{case}, the result (b, 0, i, j)", got, wanted)


def _wrong_rows(q_len: int, k_len: int, distance: int) -> list[tuple[Tensor, str]]:
    far = q_len + k_len
    offsets = pair_rows(q_len, k_len, far, far) - far
    right = pair_rows(q_len, k_len, distance, distance)
    return [
        (pair_rows(q_len, k_len, distance, distance, start=0), LEFT),
        (2 * distance - right, FLIPPED),
        (right - distance, LOST),
        (right + 1, "rows count from zero: add K and no more"),
        (
            offsets.clamp(-distance, distance) + k_len - 1,
            "offset 0 must be row K at every length; with S - 1 in the place of K, a "
            "distance reads another row whenever the length changes",
        ),
        (
            (offsets + k_len - 1).clamp(0, 2 * distance),
            "offset 0 must be row K at every length: add K, not S - 1",
        ),
        (
            offsets.clamp(-distance, distance - 1) + distance,
            "offset K has a row of its own, the last one: clip to [-K, K]",
        ),
        (
            torch.where(offsets.abs() > distance, 0, right),
            "whatever is farther than K reads the row at its own end",
        ),
        (offsets + distance, "an offset beyond K has no row: clip it to [-K, K]"),
    ]
