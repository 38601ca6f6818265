"""One case measured: who is skipped, who refuses, and what the others need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relpos_lib.bench.cases import Case, Problem, Setting, problem_of
from relpos_lib.bench.contenders import AUTO, PLAIN, Contender, Pass
from relpos_lib.bench.memory import peak_bytes
from relpos_lib.bench.predict import History, Limits
from relpos_lib.bench.timing import Clock, interleaved, ratios, spread

Tell = Callable[[str], object]


class Rules(NamedTuple):
    """How a case is measured.

    Attributes:
        rounds: rounds after the one that warms up, at least.
        enough: seconds that the base takes in all before the rounds may end.
        limits: what a cell may be predicted to need.
        patience: seconds in all after which a contender leaves the rounds.
        clock: gives the time in seconds.
    """

    rounds: int = 7
    limits: Limits = Limits()
    patience: float = 8.0
    enough: float = 2.0
    clock: Clock = time.perf_counter


def once(prepared: Pass, problem: Problem, backward: bool) -> Tensor | list[Tensor]:
    """One pass: the output, and with a backward pass the gradients too."""
    with torch.set_grad_enabled(backward):
        out = prepared.run()
        if not backward:
            return out
        grads = torch.autograd.grad(out, prepared.leaves, problem.upstream)
    return [out.detach(), *grads]


def measure(
    case: Case,
    setting: Setting,
    contenders: Mapping[str, Contender],
    history: History,
    rules: Rules,
    *,
    patient: bool = False,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """What every contender needs for a case, as a record of the file of results.

    Args:
        case: what to compute.
        setting: device and sizes.
        contenders: who takes part; the one named "plain" is the base.
        history: what was measured before; this case is added to it.
        rules: rounds and limits.
        patient: whether "auto" is measured in all rounds, however long it takes.
        tell: is called with what is done next.

    Returns:
        The case, its peer, its cells, and who was skipped, not served, or failed.
    """
    record = _empty_record(case)
    chosen = _affordable(case, setting, contenders, history, rules.limits, record)
    problem = problem_of(case, setting)
    runs: dict[str, Callable[[], object]] = {}
    peaks: dict[str, int] = {}
    for name, contender in chosen.items():
        tell(f"{case.key}: {name} warms up")
        ready = _warmed_up(contender, problem, case, setting, record)
        if ready is not None:
            runs[name], peaks[name] = ready
    if PLAIN not in runs or len(runs) == 1:
        return record
    tell(f"{case.key}: {rules.rounds} rounds or more")
    found = interleaved(
        runs,
        PLAIN,
        rules.rounds,
        enough=rules.enough,
        budget=rules.patience,
        patient=(AUTO,) if patient else (),
        clock=rules.clock,
        wait=waiter(setting.device),
    )
    _write_down(record, found, peaks)
    remember(history, record, case)
    return record


def waiter(device: str) -> Callable[[], None]:
    """What waits until a device has finished."""
    if torch.device(device).type == "cuda":
        return torch.cuda.synchronize
    return lambda: None


def remember(history: History, record: Mapping[str, Any], case: Case) -> None:
    """Add what a record says to what is extrapolated from."""
    if record["peer"]:
        peer = record["peer"]
        history.add(PLAIN, case, peer["seconds"], peer["peak_bytes"])
    for name, cell in record["cells"].items():
        history.add(name, case, cell["seconds"], cell["peak_bytes"])


def _empty_record(case: Case) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "peer": None,
        "cells": {},
        "skipped": {},
        "not_served": {},
        "failed": {},
    }
    return {**case.described(), **nothing}


def _affordable(
    case: Case,
    setting: Setting,
    contenders: Mapping[str, Contender],
    history: History,
    limits: Limits,
    record: dict[str, Any],
) -> dict[str, Contender]:
    """Who is for the case and within the limits; the others are written down."""
    chosen = {}
    for name, contender in contenders.items():
        if not contender.is_for(case.workload):
            continue
        predicted = history.predict(contender, case, setting)
        reason = limits.refuse(predicted)
        if reason is None and name != PLAIN and PLAIN in record["skipped"]:
            reason = "nothing to compare it with"
        if reason is None:
            chosen[name] = contender
        else:
            record["skipped"][name] = {
                "reason": reason,
                "seconds": rounded(predicted.seconds),
                "bytes": round(predicted.bytes),
            }
    return chosen


def _warmed_up(
    contender: Contender,
    problem: Problem,
    case: Case,
    setting: Setting,
    record: dict[str, Any],
) -> tuple[Callable[[], object], int] | None:
    """The pass of a contender, called once, and its peak; None if it did not work.

    One failure must not end a run of an hour, so anything raised is written down.
    """
    try:
        prepared = contender.prepare(problem)

        def run() -> object:
            return once(prepared, problem, case.backward)

        # What compiling or a first call keeps is no memory of the pass; the second call
        # of something compiled may compile it anew.
        for _ in range(2 if contender.compiled else int(setting.device != "cpu")):
            run()
        return run, peak_bytes(run, setting.device)
    except (ValueError, NotImplementedError) as refusal:
        record["not_served"][contender.name] = _first_line(refusal)
    except Exception as error:
        text = f"{type(error).__name__}: {_first_line(error)}"
        record["failed"][contender.name] = text
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _write_down(
    record: dict[str, Any], found: dict[str, list[float]], peaks: dict[str, int]
) -> None:
    """Turn times and peaks into the peer and the cells of a record."""
    times = spread(found[PLAIN])
    record["peer"] = {
        "name": PLAIN,
        "seconds": rounded(times.median),
        "low": rounded(times.low),
        "high": rounded(times.high),
        "rounds": len(found[PLAIN]),
        "peak_bytes": peaks[PLAIN],
        "megabytes": rounded(peaks[PLAIN] / 1e6),
    }
    for name, by_round in ratios(found, PLAIN).items():
        about = spread(by_round)
        record["cells"][name] = {
            "ratio": rounded(about.median),
            "low": rounded(about.low),
            "high": rounded(about.high),
            "quartiles": [rounded(about.first), rounded(about.third)],
            "rounds": len(by_round),
            "ratios": [rounded(ratio) for ratio in by_round],
            "seconds": rounded(spread(found[name]).median),
            "peak_bytes": peaks[name],
            "megabytes": rounded(peaks[name] / 1e6),
        }


def rounded(number: float) -> float:
    """A number with four digits that count.

    >>> rounded(1.234567), rounded(0.0001234567)
    (1.235, 0.0001235)
    """
    return float(f"{number:.4g}")
