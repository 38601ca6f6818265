"""The command line: what can be chosen, and what is refused."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from relpos_lib.bench.cases import DTYPES, WORKLOADS

PARTS = ("check", "acceptance", "growth", "distances", "workloads", "claims")
EXAMPLES = """\
parts:
  check       our backends against float64: output and every gradient, float32 and
              bfloat16, with a padding mask, causal and not; all queries up to length
              2048, some of them beyond
  acceptance  the cases with a promised ratio, every round of them
  growth      K = 16 at many lengths (--lengths)
  distances   many K (--distances) at one length
  workloads   every workload, causal and not, at one length
  claims      training steps of whole layers, and what an index table costs

examples:
  python -m relpos_lib.bench                        everything, most of an hour
  python -m relpos_lib.bench --resume               goes on where it was stopped
  python -m relpos_lib.bench --parts growth --workloads shaw --lengths 256 512 1024
  python -m relpos_lib.bench --device cuda          check and growth on a GPU, 5 minutes
  python -m relpos_lib.bench --parts check --check-lengths 128 --dtype float32
"""


# What is taken where nothing is given, by kind of device.
DEFAULTS: dict[str, dict[str, Any]] = {
    "cpu": {
        "parts": PARTS,
        "lengths": (512, 1024, 2048, 4096, 8192, 16384),
        "check_lengths": (512, 2048, 4096),
        "dtype": ("float32",),
        "seconds": 30.0,
        "minutes": None,
    },
    "cuda": {
        "parts": ("check", "growth"),
        "lengths": (1024, 2048, 4096, 8192, 16384, 32768),
        "check_lengths": (512, 2048, 32768),
        "dtype": ("float32", "bfloat16"),
        "seconds": 2.0,
        "minutes": 4.75,
    },
}


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command line, with defaults that fit the device.

    Args:
        arguments: the words after the program's name; those of this process if None.

    Returns:
        The options; a bad value ends the program with a message.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    kind = torch.device(options.device).type
    if kind == "cuda" and not torch.cuda.is_available():
        parser.error("argument --device: cuda was asked for, but torch finds no GPU")
    options.check_dtype = options.dtype or ("float32", "bfloat16")
    for name, default in DEFAULTS[kind].items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    return options


def device(text: str) -> str:
    """A device that the benchmark knows how to time."""
    try:
        found = torch.device(text)
    except RuntimeError:
        found = torch.device("meta")
    if found.type != "cuda" and found != torch.device("cpu"):
        raise argparse.ArgumentTypeError(f"must be cpu or cuda, got {text!r}")
    return text


def at_least_one(text: str) -> int:
    """A positive integer."""
    number = _number(text, int)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(number)


def not_negative(text: str) -> int:
    """An integer that is not negative."""
    number = _number(text, int)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return int(number)


def above_zero(text: str) -> float:
    """A positive number."""
    number = _number(text, float)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0 and finite, got {text}")
    return number


def _number(text: str, kind: type) -> float:
    try:
        number: float = kind(text)
    except ValueError:
        wanted = "an integer" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}") from None
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m relpos_lib.bench",
        description=(
            "Time and memory of relative attention, as a ratio to plain attention."
        ),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    what = parser.add_argument_group("what is measured").add_argument
    what("--parts", nargs="+", choices=PARTS, help="parts of the run, see below")
    what("--workloads", nargs="+", choices=WORKLOADS, help="only these workloads")
    what("--contenders", nargs="+", metavar="NAME", help="only these, and plain")
    what(
        "--lengths",
        nargs="+",
        type=at_least_one,
        metavar="L",
        help="lengths of growth (512 … 16384; cuda: 1024 … 32768)",
    )
    what(
        "--distances",
        nargs="+",
        type=not_negative,
        default=(4, 16, 64, 256),
        metavar="K",
        help="maximum distances (4 16 64 256)",
    )
    what(
        "--distances-length",
        type=at_least_one,
        default=4096,
        metavar="L",
        help="length of distances (4096)",
    )
    what(
        "--workloads-length",
        type=at_least_one,
        default=1024,
        metavar="L",
        help="length of workloads (1024)",
    )
    what(
        "--check-lengths",
        nargs="+",
        type=at_least_one,
        metavar="L",
        help="lengths of check (512 2048 4096; cuda: 512 2048 32768)",
    )
    where = parser.add_argument_group("sizes and device").add_argument
    where("--device", type=device, default="cpu", help="cpu (default) or cuda")
    where("--batch", type=at_least_one, default=1, metavar="B", help="B (1)")
    where("--heads", type=at_least_one, default=8, metavar="H", help="H (8)")
    where("--width", type=at_least_one, default=64, metavar="D", help="D (64)")
    where(
        "--dtype",
        nargs="+",
        choices=DTYPES,
        help="what is timed (float32; cuda: float32 bfloat16) and checked (both)",
    )
    how = parser.add_argument_group("how").add_argument
    how("--rounds", type=at_least_one, default=7, help="rounds of a case, at least (7)")
    how(
        "--max-seconds",
        dest="seconds",
        type=above_zero,
        metavar="S",
        help="skip a contender predicted to need more for one pass, and let it leave "
        "the rounds after so many (30; cuda: 2)",
    )
    how(
        "--max-gigabytes",
        dest="gigabytes",
        type=above_zero,
        default=8.0,
        metavar="G",
        help="skip what is predicted to need more (8)",
    )
    how(
        "--minutes",
        type=above_zero,
        metavar="M",
        help="begin no case after so many minutes (no limit; cuda: 4.75)",
    )
    add("--out", type=Path, metavar="FILE", help="JSON file, or folder for it")
    add("--resume", action="store_true", help="keep what the file holds already")
    add("--plot", type=Path, metavar="FILE", help="also draw the growth there")
    return parser
