"""Times taken in turn, so that a busy machine slows all contenders alike.

In a round every contender runs once, and is compared with the base of the same round.
The order changes from round to round such that everyone follows everyone equally often:
whoever came before decides what the caches hold.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

Clock = Callable[[], float]
MOST = 10  # times as many rounds as asked for, if they are short
FEWEST = 3  # rounds, however long they are: one alone says nothing of the spread


class Spread(NamedTuple):
    """What is said about some numbers: median, ends and quartiles."""

    median: float
    low: float
    first: float
    third: float
    high: float


def spread(numbers: list[float]) -> Spread:
    """Median, lowest, quartiles and highest.

    >>> spread([4.0, 1.0, 2.0, 3.0, 5.0])
    Spread(median=3.0, low=1.0, first=2.0, third=4.0, high=5.0)
    """
    middle = statistics.median(numbers)
    first = third = middle
    if len(numbers) > 1:
        first, _, third = statistics.quantiles(numbers, method="inclusive")
    return Spread(middle, min(numbers), first, third, max(numbers))


def order(count: int, turn: int) -> list[int]:
    """Who comes when in a round: Williams' design, balanced for who comes before whom.

    >>> [order(4, turn) for turn in range(2)]
    [[0, 1, 3, 2], [1, 2, 0, 3]]
    """
    # 0, 1, -1, 2, -2 … takes steps of every size; shifting keeps the steps. With an odd
    # count the steps of one direction only are met, so every other round goes back.
    zigzag = [(n + 1) // 2 if n % 2 else -(n // 2) for n in range(count)]
    places = [(place + turn) % count for place in zigzag]
    return places[::-1] if count % 2 and turn % 2 else places


def interleaved(
    runs: Mapping[str, Callable[[], object]],
    base: str,
    rounds: int,
    *,
    enough: float = 0.0,
    budget: float = float("inf"),
    patient: Collection[str] = (),
    clock: Clock = time.perf_counter,
    wait: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of every contender, round by round.

    A contender leaves after some rounds if another would take it past its budget; the
    base stays as long as anybody else does.

    Args:
        runs: name → call; they should have been called once before, to warm up.
        base: the name of what the others are compared with.
        rounds: how many rounds at least, 1 or more.
        enough: seconds that the base should take in all: what is done in a moment is
            measured more often, up to :data:`MOST` times ``rounds``.
        budget: seconds that a contender may take in all, after :data:`FEWEST` rounds.
        patient: names that stay whatever they take.
        clock: gives the time in seconds.
        wait: returns when the device has finished everything.

    Returns:
        Name → seconds; the first rounds if it left early.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    stays = {base, *patient}
    staying = list(runs)
    for turn in range(MOST * rounds):
        if turn >= rounds and sum(found[base]) >= enough:
            break
        for place in order(len(staying), turn):
            name = staying[place]
            found[name].append(_seconds(runs[name], clock, wait))
        staying = [
            name
            for name in staying
            if name in stays
            or turn + 1 < FEWEST
            or sum(found[name]) + found[name][-1] <= budget
        ]
        if staying == [base]:
            break
    return found


def ratios(found: Mapping[str, list[float]], base: str) -> dict[str, list[float]]:
    """Seconds of everyone over those of the base in the same round."""
    return {
        name: [mine / its for mine, its in zip(times, found[base], strict=False)]
        for name, times in found.items()
        if name != base
    }


def _seconds(
    run: Callable[[], object], clock: Clock, wait: Callable[[], None]
) -> float:
    wait()
    start = clock()
    result = run()
    wait()
    seconds = clock() - start
    del result  # releasing it is not part of the call
    return seconds
