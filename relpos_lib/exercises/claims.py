"""Checks of the chapter on claims."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from relpos_lib.exercises.report import exercise, expect, expect_equal, expect_given
from relpos_lib.records import result

Pair = tuple[Sequence[float], Sequence[float]]
FLOAT32 = 4  # bytes


@exercise
def check_is_tie(is_tie: Callable[..., bool]) -> None:
    """Whether ``is_tie(first, second)`` compares with two standard errors."""
    for name, (first, second) in _comparisons().items():
        difference = abs(statistics.fmean(first) - statistics.fmean(second))
        error = math.sqrt(_squared_error(first) + _squared_error(second))
        wanted = difference < 2 * error
        got = is_tie(list(first), list(second))
        expect_given(got)
        case = f"for {name}"
        summed = math.sqrt(_squared_error(first)) + math.sqrt(_squared_error(second))
        spread = math.hypot(statistics.stdev(first), statistics.stdev(second))
        reasons = {
            "errors of independent samples add up as squares": summed,
            "that is the spread of one seed; the error of a mean of n is smaller by "
            "the root of n": spread,
        }
        hints = [
            text
            for text, other in reasons.items()
            if bool(got) != wanted and bool(got) == (difference < 2 * other)
        ]
        expect(
            bool(got) == wanted,
            f"{case} the difference is {difference:.4f} and its standard error "
            f"{error:.4f}, which is {'a' if wanted else 'no'} tie"
            + "".join(f" ({hint})" for hint in hints[:1]),
        )


@exercise
def check_flipped_share(flipped_share: Callable[..., float]) -> None:
    """Whether ``flipped_share(first, second)`` counts the signs as extreme as ours."""
    for name, (first, second) in _comparisons().items():
        if len(first) != len(second):
            continue
        pairs = list(zip(first, second, strict=True))
        ours = abs(math.fsum(a - b for a, b in pairs))
        swapped = [
            abs(math.fsum((b - a) if swap else (a - b) for (a, b), swap in chosen))
            for chosen in (
                list(zip(pairs, swaps, strict=True))
                for swaps in itertools.product((False, True), repeat=len(pairs))
            )
        ]
        wanted = sum(total >= ours - 1e-12 for total in swapped) / len(swapped)
        got = flipped_share(list(first), list(second))
        expect_given(got)
        expect(
            not (got == wanted / 2 != wanted),
            f"for {name} the share is {wanted:g}: a difference as large the other way "
            "round is as extreme",
        )
        expect_equal(f"for {name}, the share", got, wanted, 1e-9)


@exercise
def check_fair_pairs(fair_pairs: Callable[..., Any]) -> None:
    """Whether ``fair_pairs(runs, factor)`` leaves out every confounded pair."""
    for factor in ("scheme", "lr", "steps"):
        runs = _runs()
        wanted = {
            frozenset((a["name"], b["name"]))
            for a, b in itertools.combinations(runs, 2)
            if _settings(a, without=factor) == _settings(b, without=factor)
            and a[factor] != b[factor]
        }
        got = fair_pairs([dict(run) for run in runs], factor)
        expect_given(got)
        found = [_names(pair, runs, factor) for pair in got]
        expect(len(found) == len(set(found)), f"for {factor!r} a pair is there twice")
        for pair in found:
            names = " and ".join(sorted(pair))
            differ = _differing([run for run in runs if run["name"] in pair])
            expect(
                pair in wanted,
                f"for {factor!r}, {names} differ in {', '.join(differ) or 'nothing'}",
            )
        for pair in wanted - set(found):
            names = " and ".join(sorted(pair))
            expect(False, f"for {factor!r}, {names} are missing")


@exercise
def check_rest_of_memory(rest_of_memory: Callable[..., float]) -> None:
    """Whether ``rest_of_memory(saved, length, head_dim)`` is what must be left over."""
    for saved, length, width in ((0.4, 512, 64), (0.5, 1024, 64), (0.9, 96, 7)):
        tensors = 2 * FLOAT32 * length * length * width
        wanted = tensors / saved - tensors
        got = rest_of_memory(saved, length, width)
        expect_given(got)
        case = f"rest_of_memory({saved}, {length}, {width})"
        mistakes = {
            "that is one tensor; keys and values have one each": wanted / 2,
            "that counts numbers; a float32 has four bytes": wanted / FLOAT32,
            "the tensors are a share of the whole, not of the rest": tensors / saved,
            "that is what the tensors take": tensors,
            "this is a share of the tensors; they are a share of the whole": tensors
            * (1 - saved),
        }
        for text, value in mistakes.items():
            if not math.isclose(value, wanted):
                expect(not _is_near(got, value), f"{case}: {text}")
        expect_equal(f"{case} in MB", got / 1e6, wanted / 1e6, 1e-6)


def _comparisons() -> dict[str, Pair]:
    """What to compare: made up to be done by hand, and measured."""
    length = _accuracy("experiments-length")
    gates = _accuracy("experiments-gate")
    return {
        "the six seeds of the text": (
            [0.90, 0.94, 0.92, 0.96, 0.88, 0.92],
            [0.88, 0.91, 0.90, 0.93, 0.86, 0.89],
        ),
        "a large difference of wide spread": (
            [0.90, 0.94, 0.92, 0.96, 0.88, 0.92],
            [0.85, 0.88, 0.87, 0.90, 0.83, 0.86],
        ),
        "a small spread": ([0.90, 0.92, 0.91, 0.91], [0.93, 0.94, 0.95, 0.94]),
        "errors that barely overlap": ([0.0, 2.0, 0.0, 2.0], [2.0, 4.0, 2.0, 4.0]),
        "a difference just too large": ([0.0, 2.0, 0.0, 2.0], [1.75, 3.75, 1.75, 3.75]),
        "few seeds of wide spread": ([1.0, 1.1, 0.9, 1.0, 1.0], [1.0, 2.0, 3.0]),
        "unequal numbers of seeds": ([0.5, 0.7, 0.6], [0.66, 0.7, 0.74, 0.7, 0.7]),
        "T5's bias and the unclipped one at 64": (
            length("t5", "64"),
            length("bias-unclipped", "64"),
        ),
        "the gated and the plain bias at 256": (
            length("gated-K4", "256"),
            length("bias-K4", "256"),
        ),
        "both at a rate of 0.01": (
            gates("gated-K4-lr0_01", "256"),
            gates("bias-K4-lr0_01", "256"),
        ),
    }


def _accuracy(name: str) -> Callable[[str, str], Sequence[float]]:
    groups = result(name)["groups"]

    def each(setting: str, length: str) -> Sequence[float]:
        values: Sequence[float] = groups[setting]["accuracy"][length]["each"]
        return values

    return each


def _squared_error(each: Sequence[float]) -> float:
    return statistics.variance(each) / len(each)


def _runs() -> list[dict[str, Any]]:
    """Some runs of a careless comparison; the accuracies are made up."""
    names = ("name", "scheme", "lr", "steps", "seeds", "accuracy")
    rows = (
        ("A", "plain", 0.003, 600, 5, 0.54),
        ("B", "gated", 0.01, 600, 5, 0.77),
        ("C", "plain", 0.01, 600, 5, 0.63),
        ("D", "gated", 0.003, 600, 5, 0.63),
        ("E", "plain", 0.01, 1200, 5, 0.71),
        ("F", "gated", 0.01, 1200, 2, 0.71),
        ("G", "plain", 0.003, 1200, 5, 0.54),
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def _names(pair: Any, runs: list[dict[str, Any]], factor: str) -> frozenset[str]:
    """The two names of a pair."""
    names = list(pair)
    for name in names:
        expect_given(name)
    known = [run["name"] for run in runs]
    expect(
        not isinstance(pair, str)
        and len(names) == 2
        and all(isinstance(name, str) and name in known for name in names),
        f"for {factor!r} a pair must be the names of two runs, got {pair!r}",
    )
    return frozenset(names)


def _settings(run: dict[str, Any], without: str = "") -> dict[str, Any]:
    left_out = {"name", "accuracy", without}
    return {key: value for key, value in run.items() if key not in left_out}


def _differing(runs: list[dict[str, Any]]) -> list[str]:
    return [key for key in _settings(runs[0]) if len({run[key] for run in runs}) > 1]


def _is_near(got: Any, value: float) -> bool:
    return isinstance(got, (int, float)) and math.isclose(got, value, rel_tol=1e-6)
