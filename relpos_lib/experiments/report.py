"""From the records of single runs to tables with mean and spread."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from relpos_lib.experiments.folder import files
from relpos_lib.experiments.run import SMOOTHED, Run, differing
from relpos_lib.experiments.spread import spread
from relpos_lib.experiments.tasks import TASKS
from relpos_lib.records import VERSION, ResultsError, load

LEARNED = 0.5  # share of the loss of a blind guess
METRICS = ("accuracy", "non_overlapping", "sliding")
FIELDS = (
    "run",
    "label",
    "machine",
    "text",
    "parameters",
    "curve",
    "metrics",
    "seconds",
)


def records(runs: Iterable[Run], folder: Path) -> list[dict[str, Any]]:
    """The records of those runs that are finished.

    Raises:
        ResultsError: if a record cannot be read.
    """
    paths = [files(run, folder).record for run in runs]
    return [record_at(path) for path in paths if path.exists()]


def record_at(path: Path) -> dict[str, Any]:
    """The record of a finished run.

    Raises:
        ResultsError: if it cannot be read or is no whole record.
    """
    record = load(path)
    missing = [name for name in FIELDS if name not in record]
    if missing:
        raise ResultsError(f"{path.name} is no record of a run: it has no {missing[0]}")
    return record


def finished(plan: str, runs: Sequence[Run], folder: Path) -> list[dict[str, Any]]:
    """The records of all runs of a plan.

    Args:
        plan: its name.
        runs: its runs, or some of them.
        folder: where their records are.

    Returns:
        A record a run.

    Raises:
        ResultsError: if runs are missing, or a record cannot be read.
    """
    found = records(runs, folder)
    if len(found) < len(runs):
        raise ResultsError(
            f"{len(runs) - len(found)} of {len(runs)} runs of {plan!r} are missing in "
            f"{folder}; `python -m relpos_lib.experiments sweep {plan} --out {folder}` "
            "trains them"
        )
    return found


def summary(plan: str, runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    """Mean and spread over the seeds of every setting of a plan.

    Args:
        plan: its name.
        runs: its runs, all finished.
        folder: where their records are.

    Returns:
        "common" holds the fields that all runs share, "groups" one entry a setting,
        with each metric at each length as "mean", "std", "low", "high" and "each".

    Raises:
        ResultsError: if runs are missing or come from different texts or machines.
    """
    runs = list({run.key: run for run in runs}.values())
    found = finished(plan, runs, folder)
    return {
        "version": VERSION,
        "plan": plan,
        "machine": _same(found, "machine"),
        "text": _same([r for r in found if r["text"]] or found, "text"),
        "seconds": round(sum(record["seconds"] for record in found)),
        "common": _common(runs),
        "groups": groups(runs, found),
    }


def groups(
    runs: Sequence[Run], found: Sequence[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Settings by a name that tells them apart, with their metrics over the seeds."""
    names = differing(runs)
    members = defaultdict(list)
    for record in found:
        members[_slug(record, names)].append(record)
    return {slug: _group(own, names) for slug, own in members.items()}


def table(of: dict[str, dict[str, Any]], metric: str) -> str:
    """Groups as lines of text: mean ± standard deviation at each length."""
    rows = {slug: group[metric] for slug, group in of.items() if metric in group}
    if not rows:
        return ""
    lengths = list(dict.fromkeys(n for row in rows.values() for n in row))
    wide = max(map(len, rows))
    lines = [" " * wide + "".join(f"{'L=' + n:>14}" for n in lengths) + "  seeds"]
    for slug, row in rows.items():
        cells = [f"{_cell(row[n]) if n in row else '':>14}" for n in lengths]
        seeds = max(len(cell["each"]) for cell in row.values())
        lines.append(f"{slug:{wide}}{''.join(cells)}{seeds:>7}")
    return "\n".join(lines)


def _group(members: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    members = sorted(members, key=lambda record: record["run"]["seed"])
    group = {
        "label": members[0]["label"],
        "run": {name: members[0]["run"][name] for name in names},
        "seeds": [record["run"]["seed"] for record in members],
        "parameters": members[0]["parameters"],
        "learned_at": [learned_at(record) for record in members],
    }
    for metric in METRICS:
        if metric in members[0]["metrics"]:
            group[metric] = {
                length: spread([r["metrics"][metric][length] for r in members])
                for length in members[0]["metrics"][metric]
            }
    return group


def learned_at(record: dict[str, Any]) -> int | None:
    """The step from which the loss was below half of a blind guess; None if never."""
    curve = record["curve"]
    bound = LEARNED * math.log(TASKS[record["run"]["task"]].num_symbols)
    for step in range(SMOOTHED, len(curve) + 1):
        if statistics.fmean(curve[step - SMOOTHED : step]) < bound:
            return step
    return None


def _cell(spread: dict[str, Any]) -> str:
    digits = 3 if spread["mean"] < 2 else 2
    mean = f"{spread['mean']:.{digits}f}"
    if len(spread["each"]) < 2:  # one seed has no spread
        return mean
    return f"{mean} ±{spread['std']:.{digits}f}"


def _slug(record: dict[str, Any], names: Sequence[str]) -> str:
    """A short name: the label, and what else differs; no dots, for marks in prose."""
    parts = [record["label"].replace(" ", "-").replace("=", "")]
    for name in names:
        value = record["run"][name]
        if name in ("scheme", "max_distance"):
            continue  # in the label
        if name == "task":
            parts.insert(0, value)
        elif isinstance(value, list):
            parts.append("_".join([name, *map(str, value)]))
        elif isinstance(value, str):
            parts.append(value)
        elif value is None:
            parts.append(f"no-{name}")
        else:
            parts.append(f"{name}{value:g}" if value < 1e6 else f"{name}{value}")
    return "-".join(parts).replace(".", "_").replace("/", "_")


def _common(runs: Sequence[Run]) -> dict[str, Any]:
    varied = {*differing(runs), "seed"}
    return {n: value for n, value in runs[0].as_dict().items() if n not in varied}


def _same(found: Sequence[dict[str, Any]], name: str) -> Any:
    values = [record[name] for record in found]
    other = [value for value in values if value != values[0]]
    if other:
        raise ResultsError(
            f"runs of one plan must have the same {name}, got {values[0]!r} and "
            f"{other[0]!r}"
        )
    return values[0]
