"""The commands: list, run, sweep and report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.utilities import rank_zero_only
from safetensors.torch import load_file, save_file

from relpos_lib.experiments.dilution import dilution
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.options import fields_of, parsed
from relpos_lib.experiments.plans import PLANS
from relpos_lib.experiments.reach import PLANS_TOLD, WITH_GAP, WITH_PLACES, reach
from relpos_lib.experiments.report import (
    METRICS,
    finished,
    groups,
    record_at,
    records,
    summary,
    table,
)
from relpos_lib.experiments.run import Run, run_from
from relpos_lib.experiments.schemes import SCHEMES
from relpos_lib.experiments.sweep import grid, sweep
from relpos_lib.experiments.tasks import TASKS
from relpos_lib.experiments.trainer import Stopped, train_run
from relpos_lib.records import save

STOPPED = 130  # what a shell gives a program that Ctrl-C ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.

    Args:
        arguments: the words of the command line; those of this process if None.

    Returns:
        0; 1 if a run failed; 2 if what was asked for cannot be; 130 if it was stopped.
    """
    try:
        return _done(parsed(arguments))
    except KeyboardInterrupt:  # a second one, or one between two steps
        print("stopped; the same command goes on from here", file=sys.stderr)
        return STOPPED


def _done(options: argparse.Namespace) -> int:
    commands = {
        "list": _list,
        "run": _run,
        "sweep": _sweep,
        "report": _report,
        "dilution": _dilution,
        "reach": _reach,
    }
    try:
        return commands[options.command](options)
    except (ValueError, TypeError, OSError) as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return 2
    except FloatingPointError as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return 1


def _list(options: argparse.Namespace) -> int:
    for title, things in (
        ("tasks", {name: task.about for name, task in TASKS.items()}),
        ("schemes", {name: scheme.about for name, scheme in SCHEMES.items()}),
        (
            "prepared sweeps",
            {n: f"{plan.about} ({len(plan.runs)} runs)" for n, plan in PLANS.items()},
        ),
    ):
        print(title)
        for name, about in things.items():
            print(f"  {name:16}{about}")
    return 0


def _run(options: argparse.Namespace) -> int:
    fields = fields_of(options)
    if "test_lengths" in fields:
        fields["test_lengths"] = tuple(fields["test_lengths"])
    run = Run(**fields)
    torch.set_num_threads(options.threads)
    path = files(run, options.out).record
    if path.exists():
        _say(f"known from {path}", file=sys.stderr)
        record = record_at(path)
    else:
        try:
            record = train_run(
                run,
                options.out,
                device=options.device,
                save_every=options.save_every,
                show_progress=not options.quiet,
            )
        except Stopped as stop:
            _say(f"{stop}; the same command goes on from here", file=sys.stderr)
            return STOPPED
    _say(_tables([run], [record]))
    return 0


def _say(*words: str, **more: Any) -> None:
    """Print, in the first of several processes."""
    rank_zero_only(print)(*words, **more)


def _sweep(options: argparse.Namespace) -> int:
    fields = fields_of(options)
    if "test_lengths" in fields:
        fields["test_lengths"] = [tuple(fields["test_lengths"])]
    if "is_causal" in fields:
        fields["is_causal"] = [True]
    runs = [run for name in options.plan for run in PLANS[name].runs] or grid(**fields)
    outcome = sweep(
        runs,
        options.out,
        jobs=options.jobs,
        threads=options.threads,
        device=options.device,
    )
    print(
        f"{outcome.finished} runs finished, {outcome.known} were known, "
        f"{len(outcome.failed)} failed",
        file=sys.stderr,
    )
    for message in dict.fromkeys(outcome.failed.values()):
        keys = [key for key, own in outcome.failed.items() if own == message]
        more = f" and {len(keys) - 1} more" if keys[1:] else ""
        print(f"  {keys[0]}{more}: {message}", file=sys.stderr)
    if outcome.was_stopped:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return STOPPED
    done = [run for run in runs if files(run, options.out).record.exists()]
    if done:
        print(_tables(done, records(done, options.out)))
    return int(bool(outcome.failed))


def _report(options: argparse.Namespace) -> int:
    if not options.plan:
        runs = _runs_in(options.out)
        if not runs:
            raise ValueError(f"--out: no finished run is in {options.out}")
        print(_tables(runs, records(runs, options.out)))
        return 0
    for name in options.plan:
        found = summary(name, PLANS[name].runs, options.out)
        print(f"{name}: {PLANS[name].about}")
        print(_tables_of(found["groups"]))
        if options.write is not None:
            save(options.write / f"experiments-{name}.json", found)
            if options.weights:
                _keep_weights(name, options.out, options.write)
        if options.plot is not None:
            _draw(found, options.plot)
    return 0


def _dilution(options: argparse.Namespace) -> int:
    runs = _runs_of(["length"], ["bias"], options.out)
    found = dilution(runs, options.out)
    print(_tables_of(found["groups"]))
    print("share of attention beyond K")
    print(table({n: {"share": row} for n, row in found["tail_share"].items()}, "share"))
    if options.write is not None:
        save(options.write / "experiments-dilution.json", found)
    return 0


def _reach(options: argparse.Namespace) -> int:
    clipped = _runs_of(PLANS_TOLD, WITH_GAP, options.out)
    others = _runs_of(["length"], WITH_PLACES, options.out)
    found = reach(clipped, others, options.out)
    for name, group in found["groups"].items():
        print(f"{name:28} gap {group['gap']['mean']:5.2f}, reach {group['reach']}")
    if options.write is not None:
        save(options.write / "experiments-reach.json", found)
    return 0


def _runs_of(plans: Sequence[str], schemes: Sequence[str], folder: Path) -> list[Run]:
    """The runs of some schemes in some plans; all of them must be finished."""
    runs = []
    for name in plans:
        own = [run for run in PLANS[name].runs if run.scheme in schemes]
        finished(name, own, folder)
        runs += own
    return runs


def _keep_weights(plan: str, source: Path, target: Path) -> None:
    """Keep the weights of the first seed in half precision: small enough for a page."""
    first = [run for run in PLANS[plan].runs if run.seed == 0]
    schemes = [run.scheme for run in first]
    for run in first:
        alone = schemes.count(run.scheme) == 1
        name = f"{plan}-{run.scheme if alone else run.key}.safetensors"
        weights = load_file(files(run, source).weights)
        half = {name: tensor.half() for name, tensor in weights.items()}
        save_file(half, target / name)


def _runs_in(folder: Path) -> list[Run]:
    """The finished runs of a folder."""
    return [
        run_from(record_at(path)["run"]) for path in sorted(folder.glob("*-s*-*.json"))
    ]


def _tables(runs: Sequence[Run], found: Sequence[dict[str, Any]]) -> str:
    return _tables_of(groups(runs, found))


def _tables_of(of: dict[str, dict[str, Any]]) -> str:
    tables = {metric: table(of, metric) for metric in METRICS}
    return "\n".join(
        f"{metric.replace('_', ' ')}\n{text}" for metric, text in tables.items() if text
    )


def _draw(found: dict[str, Any], folder: Path) -> None:
    """Draw each metric of a summary by length."""
    from relpos_lib.plots.experiments import by_length

    folder.mkdir(parents=True, exist_ok=True)
    for metric in METRICS:
        if any(metric in group for group in found["groups"].values()):
            path = folder / f"{found['plan']}-{metric}.png"
            by_length(found, metric).savefig(path, dpi=150)
            print(f"drawn in {path}", file=sys.stderr)
