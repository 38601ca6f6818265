"""The command line: what can be said, and what is refused."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from relpos_lib.experiments.plans import PLANS
from relpos_lib.experiments.run import PRECISIONS, Run
from relpos_lib.experiments.schemes import INITS, SCHEMES
from relpos_lib.experiments.tasks import TASKS

DESCRIPTION = """\
Train tiny Transformers that differ only in how they tell positions, and see how far
each one carries.

  python -m relpos_lib.experiments list
      tasks, schemes and prepared sweeps
  python -m relpos_lib.experiments run --scheme shaw --max-distance 4
      one run: about 20 s on one core; again, it only shows the result
  python -m relpos_lib.experiments sweep --scheme bias shaw --max-distance 2 4
      every combination; what is finished is not run again
  python -m relpos_lib.experiments sweep length --jobs 2
      a prepared sweep of the book
  python -m relpos_lib.experiments report length
      its table, with mean and standard deviation over the seeds

Ctrl-C stops cleanly; the same command goes on from there. Several processes:
  torchrun --nproc-per-node 2 -m relpos_lib.experiments run --scheme shaw
"""
HELP = {
    "task": f"what is to be learned: {', '.join(TASKS)}",
    "scheme": f"how positions are told: {', '.join(SCHEMES)}",
    "max_distance": "K; or one per head for Shaw's schemes, as 2,4,8,16",
    "init": f"how Shaw's tables begin: {', '.join(INITS)}",
    "window": "farthest distance that is seen at all",
    "is_causal": "see only what came before",
    "seed": "of the weights and of the training data",
    "steps": "number of AdamW steps",
    "batch": "sequences a step, of all processes together",
    "lr": "peak learning rate",
    "shortest": "shortest training length",
    "longest": "longest training length",
    "test_lengths": "lengths to be measured at",
    "width": "E, width of the model",
    "heads": "H",
    "layers": "number of layers",
    "stop_below": "end early once the mean loss of 20 steps is below this",
    "precision": f"{' or '.join(PRECISIONS)}; weights stay float32",
}
DEFAULT_FOLDER = Path("runs")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line as a namespace; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m relpos_lib.experiments",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="show tasks, schemes and prepared sweeps")
    run = commands.add_parser("run", help="train one model")
    _add_fields(run, several=False)
    _add_place(run)
    run.add_argument(
        "--save-every",
        type=_positive,
        default=200,
        metavar="N",
        help="steps from one checkpoint to the next (default 200)",
    )
    run.add_argument("--quiet", action="store_true", help="draw no progress bar")
    many = commands.add_parser("sweep", help="train every combination, or a plan")
    _add_plan(many, "prepared sweeps; without one, the combinations of the options")
    _add_fields(many, several=True)
    _add_place(many)
    many.add_argument(
        "--jobs",
        type=_positive,
        default=1,
        metavar="N",
        help="how many run at the same time (default 1)",
    )
    report = commands.add_parser("report", help="tables and pictures of what is done")
    _add_plan(report, "prepared sweeps; without one, all that is in the folder")
    _add_folders(report, "the summary of each plan here, as experiments-PLAN.json")
    report.add_argument(
        "--weights",
        action="store_true",
        help="with --write: keep the weights of each first seed, too, as float16",
    )
    report.add_argument(
        "--plot", type=Path, metavar="FOLDER", help="draw each table here, as PNG"
    )
    for name, about in (
        ("dilution", "why a clipped bias fades with length (after sweep length)"),
        ("reach", "what limits length (after sweep length gate gate-rate)"),
    ):
        why = commands.add_parser(name, help=about)
        _add_folders(why, f"the result here, as experiments-{name}.json")
    options = parser.parse_args(arguments)
    if options.command == "sweep" and options.plan and fields_of(options):
        name = next(iter(fields_of(options))).replace("_", "-")
        many.error(f"--{name}: a prepared sweep has its own; leave one of them out")
    if getattr(options, "device", None) == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: cuda was asked for, but torch finds no GPU")
    if options.command == "report":
        for name in ("write", "plot"):
            if getattr(options, name) is not None and not options.plan:
                report.error(f"--{name}: which plan? {', '.join(PLANS)}")
        if options.weights and options.write is None:
            report.error("--weights: it needs --write, the folder to keep them in")
    return options


def fields_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of :class:`Run` that the command line names."""
    names = [field.name for field in dataclasses.fields(Run)]
    return {n: v for n, v in vars(options).items() if n in names and v is not None}


def _add_plan(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument(
        "plan",
        nargs="*",
        type=_plan,
        metavar="PLAN",
        help=f"{about}: {', '.join(PLANS)}",
    )


def _add_fields(parser: argparse.ArgumentParser, several: bool) -> None:
    """An option for every field of :class:`Run`; a sweep takes many values of each."""
    group = parser.add_argument_group("the run" if not several else "what to combine")
    for field in dataclasses.fields(Run):
        flag, text = f"--{field.name.replace('_', '-')}", HELP[field.name]
        default = f" (default {_default(field)})"
        if field.name == "is_causal":
            group.add_argument(flag, action="store_true", default=None, help=text)
            continue
        many = several or field.name == "test_lengths"
        group.add_argument(
            flag,
            type=_KINDS.get(field.name, type(field.default)),
            nargs="+" if many else None,
            metavar="X",
            help=text + default,
        )


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="FOLDER",
        help=f"where runs are kept (default {DEFAULT_FOLDER})",
    )


def _add_folders(parser: argparse.ArgumentParser, kept: str) -> None:
    """Where to read runs, and where to write what they show."""
    _add_out(parser)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help=f"keep {kept}")


def _add_place(parser: argparse.ArgumentParser) -> None:
    _add_out(parser)
    parser.add_argument(
        "--device",
        default="auto",
        choices=("auto", "cpu", "cuda", "mps"),
        help="where to compute (default: the fastest there is)",
    )
    parser.add_argument(
        "--threads",
        type=_positive,
        default=1,
        metavar="N",
        help="processor threads of a run; small models want 1 (default)",
    )


def _distance(word: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in word.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be an integer, or one per head as 2,4,8,16, got {word!r}"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _positive(word: str) -> int:
    try:
        number = int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, got {word!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _plan(word: str) -> str:
    if word not in PLANS:
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(PLANS)}, got {word!r}"
        )
    return word


def _default(field: dataclasses.Field[Any]) -> str:
    """What stands for an option that is not given, in words."""
    if field.name == "max_distance":  # each scheme has its own
        own = {s.distance for s in SCHEMES.values() if s.distance is not None}
        return f"{' or '.join(map(str, sorted(own)))}, for schemes that clip"
    return _shown(field.default)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


_KINDS: dict[str, Any] = {
    "max_distance": _distance,
    "window": int,
    "stop_below": float,
    "test_lengths": int,
}
