"""Checks of the chapter on choosing K and the rest."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relpos_lib.exercises.report import (
    copies,
    exercise,
    expect,
    expect_equal,
    expect_given,
    numbers,
)
from relpos_lib.experiments.spread import compare

# A small made-up sweep per case: K → accuracy of each seed. What they teach is in
# their names.
SWEEPS: dict[str, dict[int, list[float]]] = {
    "a clear step between 2 and 4": {
        1: [0.50, 0.52, 0.49, 0.51, 0.50],
        2: [0.71, 0.70, 0.72, 0.69, 0.70],
        4: [0.98, 0.99, 0.97, 0.99, 0.98],
        8: [0.99, 0.98, 0.99, 0.98, 0.99],
        16: [0.98, 0.99, 0.99, 0.98, 0.97],
    },
    "one lucky seed at 2": {
        2: [0.70, 0.71, 1.00, 0.69, 0.72],
        4: [0.97, 0.96, 0.98, 0.99, 0.97],
        8: [0.99, 0.98, 0.97, 0.98, 0.99],
    },
    "a small step that every seed shows": {
        4: [0.90, 0.91, 0.90, 0.91],
        8: [0.93, 0.94, 0.93, 0.94],
        16: [0.93, 0.92, 0.94, 0.93],
    },
    "wide spread, so that even 1 ties": {
        1: [0.60, 0.90, 0.75, 0.70],
        4: [0.80, 0.95, 0.70, 0.92],
        8: [0.85, 0.75, 0.99, 0.90],
    },
    "two unlucky seeds at 4": {
        2: [0.79, 0.80, 0.79, 0.80, 0.80],
        4: [0.90, 0.90, 0.60, 0.90, 0.60],
        8: [0.85, 0.86, 0.85, 0.86, 0.85],
    },
    "a step by two standard errors, but not by the test": {
        4: [0.70, 0.74, 0.70, 0.74],
        8: [0.74, 0.78, 0.74, 0.78],
    },
    "the largest is not the best": {
        32: [0.60, 0.61, 0.59, 0.62, 0.60],
        2: [0.80, 0.81, 0.82, 0.80, 0.79],
        8: [0.99, 0.98, 0.99, 0.99, 0.98],
        4: [0.98, 0.99, 0.99, 0.98, 0.99],
    },
}


@exercise
def check_smallest_distance(smallest_distance: Callable[..., int]) -> None:
    """Whether ``smallest_distance(offsets, length)`` is the smallest K that will do."""
    for offsets, length in (
        ((-1,), 8),
        ((-1, 2), 12),
        ((0,), 5),
        ((3, -7, 1), 20),
        ((-5,), 6),
        ((2, 4), 5),
        ((-2, 1), 4),
        ((1,), 2),
    ):
        case = f"smallest_distance({offsets}, {length})"
        got = numbers(case, smallest_distance(offsets, length), ())
        wanted = next(
            distance
            for distance in range(length)
            if all(_is_alone(offset, distance, length) for offset in offsets)
        )
        reach = max(map(abs, offsets))
        expect(
            not (float(got) == reach and wanted > reach),
            f"{case} is {reach}, but then offset {_farthest(offsets):+d} shares its "
            f"row with {_farthest(offsets) + _sign(_farthest(offsets)):+d}",
        )
        expect(
            not (float(got) > wanted == length - 1),
            f"{case} is more than it takes: no two keys are farther apart than "
            f"{length - 1}",
        )
        expect_equal(case, got, wanted, 0)


@exercise
def check_table_parameters(table_parameters: Callable[..., int]) -> None:
    """Whether ``table_parameters(distances, head_dim, shared)`` counts the numbers."""
    for distances, width in (
        ([16] * 8, 64),
        ([4, 16, 64, 256], 16),
        ([0, 3], 5),
        ([9, 2], 3),
        ([7], 11),
    ):
        for shared in (False, True):
            tables = [max(distances)] if shared else distances
            rows = sum(len(range(-one, one + 1)) for one in tables)
            case = f"table_parameters({distances}, {width}, shared={shared})"
            got = numbers(case, table_parameters(distances, width, shared), ())
            expect(
                float(got) != rows * width,
                f"{case} counts one side; keys and values have a table each",
            )
            expect_equal(case, got, 2 * rows * width, 0)


@exercise
def check_widened(widened: Callable[..., Tensor]) -> None:
    """Whether ``widened(tables)`` reads every head as its own K says."""
    for distances in ((1, 3), (2, 2), (0, 4, 1), (5, 0)):
        width, farthest = 3, max(distances)
        tables = _tables(distances, width)
        got = numbers(
            f"the table for K = {list(distances)}",
            widened(copies(*tables)),
            (len(distances), 2 * farthest + 1, width),
        )
        for head, distance in enumerate(distances):
            for offset in range(-farthest, farthest + 1):
                row = min(max(offset, -distance), distance) + distance
                expect_equal(
                    f"for K = {list(distances)}, what head {head} reads at offset "
                    f"{offset:+d}",
                    got[head, offset + farthest],
                    tables[head][row],
                    1e-6,
                )


@exercise
def check_smallest_tied(smallest_tied: Callable[..., int]) -> None:
    """Whether ``smallest_tied(sweep)`` reads a sweep over K as its spread allows."""
    for name, sweep in SWEEPS.items():
        best = max(sweep, key=lambda distance: statistics.fmean(sweep[distance]))
        wanted = min(k for k in sweep if compare(sweep[k], sweep[best]) == "tie")
        given = {distance: list(each) for distance, each in sweep.items()}
        answer = smallest_tied(given)
        expect_given(answer)
        case = f"for a sweep with {name}, the K"
        expect(
            not (answer == best != wanted),
            f"{case} is {best}: the best mean, but a smaller K ties with it",
        )
        expect_equal(case, answer, wanted, 0)


def _is_alone(offset: int, distance: int, length: int) -> bool:
    """Whether no other offset between two of so many keys reads the same row."""

    def row(one: int) -> int:
        return min(max(one, -distance), distance)

    others = (one for one in range(1 - length, length) if one != offset)
    return all(row(one) != row(offset) for one in others)


def _farthest(offsets: tuple[int, ...]) -> int:
    return max(offsets, key=abs)


def _sign(offset: int) -> int:
    return 1 if offset >= 0 else -1


def _tables(distances: tuple[int, ...], width: int) -> list[Any]:
    generator = torch.Generator().manual_seed(11)
    return [
        torch.randn(2 * distance + 1, width, generator=generator).double()
        for distance in distances
    ]
