"""The run: check, measure, print, and keep everything in one file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from relpos_lib.bench import claims, equality, plan, report, store
from relpos_lib.bench.cases import WORKLOADS, Case, Setting, case_of
from relpos_lib.bench.contenders import PLAIN, Contender, contenders
from relpos_lib.bench.measure import Rules, measure, remember
from relpos_lib.bench.options import parsed
from relpos_lib.bench.predict import History, Limits
from relpos_lib.bench.progress import Progress

STOPPED = 130  # what a shell gives a program that Ctrl-C ended
CHECKED = ("bias", "shaw", "alibi")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Args:
        arguments: the words of the command line; those of this process if None.

    Returns:
        0; 1 if a backend failed or was not equal; 2 if the results cannot be kept; 130
        if it was stopped.
    """
    options = parsed(arguments)
    path = _path(options)
    settings = _settings(options)
    try:
        chosen = _chosen(options)
        start = store.resumed if options.resume else lambda _, *new: store.new(*new)
        results = start(path, settings, options.device)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if torch.device(options.device).index is not None:
        torch.cuda.set_device(options.device)  # where the memory is counted
    print(report.heading(results["machine"], settings), flush=True)
    run = Run(options, chosen, results, path)
    try:
        run.everything()
    except KeyboardInterrupt:
        print("stopped; --resume goes on from here", file=sys.stderr)
        return STOPPED
    finally:
        store.save(path, results)
        print(f"{len(results['cases'])} cases are in {path}", file=sys.stderr)
    for text in (report.growth(results["cases"]), report.promises(results["verdicts"])):
        if text:
            print("\n" + text)
    if options.plot is not None:
        _draw(results, options.plot)
    return int(run.has_failures())


class Run:
    """A run under way.

    Args:
        options: the command line.
        chosen: who takes part.
        results: what is known so far; grows.
        path: where the results are kept.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        chosen: dict[str, Contender],
        results: dict[str, Any],
        path: Path,
    ) -> None:
        self.options, self.chosen = options, chosen
        self.results, self.path = results, path
        self.setting = Setting(
            options.device, options.batch, options.heads, options.width
        )
        self.limits = Limits(options.seconds, options.gigabytes * 1e9)
        self.started = time.monotonic()
        self.history = History()
        for record in results["cases"].values():
            remember(self.history, record, case_of(record))

    def everything(self) -> None:
        """Check and measure all that is planned and not known yet."""
        self.results.pop("left_out", None)
        checks, cases = self.planned_checks(), self.planned_cases()
        checks = [c for c in checks if c.key not in self.results["checks"]]
        cases = [c for c in cases if c.key not in self.results["cases"]]
        stacks, lengths = self.planned_stacks(), self.planned_indices()
        steps = len(checks) + len(cases) + len(stacks) + len(lengths)
        with Progress(steps) as progress:
            for case in checks:
                if self.in_time(case):
                    progress.step(self.check(case, progress))
            for case in cases:
                if self.in_time(case):
                    progress.step(self.measure(case, progress))
            for stack in stacks:
                if self.in_time(stack):
                    progress.step(self.measure_stack(stack, progress))
            for length in lengths:
                progress.step(self.measure_index(length))

    def planned_cases(self) -> list[Case]:
        """The cases of all parts that were asked for."""
        options, found = self.options, []
        for dtype in options.dtype:
            if "acceptance" in options.parts:
                found += list(plan.accepted(dtype))
            if "growth" in options.parts:
                found += plan.growth(options.lengths, dtype)
            if "distances" in options.parts:
                length = options.distances_length
                found += plan.distances(options.distances, length, dtype)
            if "workloads" in options.parts:
                length = options.workloads_length
                found += plan.every_workload(WORKLOADS, length, dtype)
        return plan.in_order(self._wanted(found))

    def planned_checks(self) -> list[Case]:
        """The cases that are compared with float64."""
        if "check" not in self.options.parts:
            return []
        found = [
            case._replace(backward=True)
            for length in self.options.check_lengths
            for dtype in self.options.check_dtype
            for case in plan.every_workload(CHECKED, length, dtype)
        ]
        return plan.in_order(self._wanted(found))

    def check(self, case: Case, progress: Progress) -> str:
        """Compare our backends with float64, and keep how far off they are."""
        found = {
            record["contender"]: record
            for record in equality.check(
                case, self.setting, self.chosen, self.limits, progress.tell
            )
        }
        self.results["checks"][case.key] = found
        store.save(self.path, self.results)
        first = next(iter(found.values()))
        lines = [report.check_line(record) for record in found.values()]
        return "\n".join([report.check_title(first), *lines])

    def measure(self, case: Case, progress: Progress) -> str:
        """Measure everyone, and keep what they need."""
        record = measure(
            case,
            self.setting,
            self.chosen,
            self.history,
            Rules(self.options.rounds, self.limits),
            patient=case in plan.accepted(case.dtype),
            tell=progress.tell,
        )
        self.results["cases"][case.key] = record
        self.results["verdicts"] = plan.verdicts(
            self.results["cases"], self.chosen, self.options.dtype
        )
        store.save(self.path, self.results)
        return report.table(record)

    def planned_stacks(self) -> list[claims.Stack]:
        """The layers that are measured and not known yet."""
        if "claims" not in self.options.parts:
            return []
        names, known = self.options.workloads, self._claims("layers")
        return [
            stack
            for stack in claims.STACKS
            if stack.key not in known and (names is None or stack.workload in names)
        ]

    def planned_indices(self) -> list[int]:
        """The lengths whose index tables are measured and not known yet."""
        if "claims" not in self.options.parts or "gather" not in self.chosen:
            return []
        known = self._claims("index")
        return [n for n in claims.INDEX_LENGTHS if str(n) not in known]

    def measure_stack(self, stack: claims.Stack, progress: Progress) -> str:
        """Measure a training step of some layers, and keep what it needs."""
        record = claims.measure_stack(
            stack,
            self.setting,
            self.chosen,
            Rules(self.options.rounds, self.limits),
            progress.tell,
        )
        self._claims("layers")[stack.key] = record
        store.save(self.path, self.results)
        layers = f"{stack.depth} layer{'s' * (stack.depth > 1)}, B={stack.batch}, "
        return layers + report.table(record)

    def measure_index(self, length: int) -> str:
        """Measure what making an index table costs."""
        rules = Rules(self.options.rounds, self.limits)
        found = claims.measure_index(length, self.setting, self.chosen, rules)
        self._claims("index")[str(length)] = found
        store.save(self.path, self.results)
        return f"index tables at L={length}: {found['share']:.1%} of a forward pass"

    def in_time(self, case: Case | claims.Stack) -> bool:
        """Whether a case may begin; if not, it is named as left out."""
        minutes = self.options.minutes
        if minutes is None or time.monotonic() - self.started < 60 * minutes:
            return True
        self.results.setdefault("left_out", []).append(case.key)
        print(f"{case.key} is left out: {minutes:g} minutes are over", flush=True)
        return False

    def has_failures(self) -> bool:
        """Whether a backend of ours raised, or did not equal the reference."""
        ours = {name for name, contender in self.chosen.items() if contender.ours}
        checks = self.results["checks"].values()
        layers = self._claims("layers").values()
        return any(
            ours & set(record["failed"])
            for record in [*self.results["cases"].values(), *layers]
        ) or any(
            "failed" in record or not record.get("holds", True)
            for found in checks
            for name, record in found.items()
            if name in ours
        )

    def _claims(self, what: str) -> dict[str, Any]:
        """What is known of the claims, to be added to."""
        known: dict[str, Any] = self.results.setdefault("claims", {})
        of_kind: dict[str, Any] = known.setdefault(what, {})
        return of_kind

    def _wanted(self, cases: Iterable[Case]) -> list[Case]:
        names = self.options.workloads
        return [case for case in cases if names is None or case.workload in names]


def _path(options: argparse.Namespace) -> Path:
    default = store.default_path(options.device)
    if options.out is None:
        return default
    path: Path = options.out
    return path / default.name if path.suffix != ".json" else path


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What must not change within a file of results."""
    return {
        "batch": options.batch,
        "heads": options.heads,
        "width": options.width,
        "rounds": options.rounds,
        "max_seconds": options.seconds,
        "max_gigabytes": options.gigabytes,
    }


def _chosen(options: argparse.Namespace) -> dict[str, Contender]:
    everyone = contenders()
    if options.contenders is None:
        del everyone["loop"]  # the definition, for lengths up to about 50
        return everyone
    unknown = [name for name in options.contenders if name not in everyone]
    if unknown:
        raise ValueError(
            f"argument --contenders: {unknown[0]!r} is none of {', '.join(everyone)}"
        )
    return {n: c for n, c in everyone.items() if n in (PLAIN, *options.contenders)}


def _draw(results: dict[str, Any], path: Path) -> None:
    """Draw the growth of Shaw's scheme, with a backward pass, if it was measured."""
    try:
        from relpos_lib.plots.fast import cost_by_length

        fig = cost_by_length(results)
    except (ImportError, ValueError) as error:
        print(f"nothing is drawn: {error}", file=sys.stderr)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=150)
    print(f"drawn in {path}")
