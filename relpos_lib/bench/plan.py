"""Which cases are measured, and what is promised about some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from relpos_lib.bench.cases import CLIPPED, Case
from relpos_lib.bench.contenders import AUTO, Contender
from relpos_lib.bench.measure import rounded
from relpos_lib.bench.timing import spread

MAX_DISTANCE = 16
NO_SLOWER_THAN_BEST = 1.2
OVER_PLAIN = "auto over plain"


class Bound(NamedTuple):
    """What time relative to plain attention is promised for a workload."""

    workload: str
    length: int
    forward: float | None
    both: float
    causal: bool = False

    def cases(self, dtype: str) -> dict[Case, float]:
        """The cases that it is about, and the bound of each."""
        distance = MAX_DISTANCE if self.workload in CLIPPED else None
        one = Case(self.workload, self.length, distance, self.causal, False, dtype)
        found = {one._replace(backward=True): self.both}
        return found if self.forward is None else {one: self.forward, **found}


BOUNDS = (
    Bound("bias", 4096, 1.25, 1.35),
    Bound("shaw", 1024, 2.2, 1.7),
    Bound("shaw", 4096, 1.35, 1.35),
    Bound("shaw", 8192, 1.25, 1.25),
    Bound("unclipped", 512, None, 1.7),
    Bound("alibi", 4096, None, 1.7),
    Bound("shaw", 4096, 1.8, 1.4, causal=True),
    Bound("shaw", 8192, 1.4, 1.3, causal=True),
)
# Workload and causality of the lines that are drawn over the length.
GROWING = (("bias", False), ("shaw", False), ("shaw", True))


def accepted(dtype: str) -> dict[Case, float]:
    """Every case with a bound."""
    return {case: most for bound in BOUNDS for case, most in bound.cases(dtype).items()}


def growth(lengths: Iterable[int], dtype: str) -> list[Case]:
    """The same K at many lengths."""
    return [
        Case(workload, length, MAX_DISTANCE, causal, backward, dtype)
        for length in lengths
        for workload, causal in GROWING
        for backward in (False, True)
    ]


def distances(numbers: Iterable[int], length: int, dtype: str) -> list[Case]:
    """Many K at one length."""
    return [
        Case(workload, length, distance, False, backward, dtype)
        for distance in numbers
        for workload in ("bias", "shaw")
        for backward in (False, True)
    ]


def every_workload(names: Iterable[str], length: int, dtype: str) -> list[Case]:
    """Every workload at one length, both ways; the unclipped bias at 512 or less."""
    return [
        Case(
            name,
            min(512, length) if name == "unclipped" else length,
            MAX_DISTANCE if name in CLIPPED else None,
            causal,
            backward,
            dtype,
        )
        for name in names
        for causal in (False, True)
        for backward in (False, True)
    ]


def in_order(cases: Iterable[Case]) -> list[Case]:
    """Each case once, short ones first: they tell how long the others will take."""
    return sorted(dict.fromkeys(cases), key=lambda case: case.length)


def verdicts(
    records: Mapping[str, Mapping[str, Any]],
    contenders: Mapping[str, Contender],
    dtypes: Sequence[str],
) -> list[dict[str, Any]]:
    """Which promises hold, as far as their cases were measured."""
    found = []
    for dtype in dtypes:
        for case, bound in accepted(dtype).items():
            cell = records.get(case.key, {}).get("cells", {}).get(AUTO)
            if cell is not None:
                found.append(_verdict(OVER_PLAIN, case.key, cell["ratio"], bound))
    ours = [name for name, one in contenders.items() if one.ours]
    for key, record in records.items():
        worst = over_the_best(record["cells"], ours)
        if worst is not None:
            ratio, best = worst
            what = f"auto over {best}"
            found.append(_verdict(what, key, ratio, NO_SLOWER_THAN_BEST))
    return found


def over_the_best(
    cells: Mapping[str, Mapping[str, Any]], ours: Iterable[str]
) -> tuple[float, str] | None:
    """Time of "auto" over that of the backend it compares worst with, and its name.

    Both are taken from the same rounds.
    """
    if AUTO not in cells:
        return None
    auto = cells[AUTO]["ratios"]
    against = [
        (spread([a / b for a, b in zip(auto, cells[n]["ratios"], strict=False)]), n)
        for n in ours
        if n != AUTO and n in cells
    ]
    if not against:
        return None
    worst, name = max(against)
    return rounded(worst.median), name


def _verdict(what: str, key: str, measured: float, bound: float) -> dict[str, Any]:
    return {
        "what": what,
        "case": key,
        "measured": measured,
        "bound": bound,
        "holds": measured <= bound,
    }
