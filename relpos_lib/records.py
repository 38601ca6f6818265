"""JSON files of results: each written as a whole, with the machine that made it."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

VERSION = 1
NUMBERS = re.compile(r"\[[\s\d.,e+-]*\]")  # lists of them, to be written on one line
RESULTS = Path(__file__).resolve().parent / "results"


class ResultsError(ValueError):
    """A file of results that cannot be read or continued."""


def save(path: Path, results: dict[str, Any]) -> None:
    """Write a file of results such that a stop leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = part_of(path)
    text = json.dumps(results, indent=1)
    text = NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text)
    unfinished.write_text(text + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def part_of(path: Path) -> Path:
    """Where a process writes a file before it takes the file's place.

    Two processes may write the same file, each as a whole.
    """
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def load(path: Path) -> dict[str, Any]:
    """Read a file of results.

    Raises:
        ResultsError: if it is no file of results of this version.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(results, dict) or results.get("version") != VERSION:
        raise ResultsError(f"{path.name} is no file of results of version {VERSION}")
    return results


def result(name: str) -> dict[str, Any]:
    """The results that come with the library, by the name of their file.

    Args:
        name: "bench-cpu", "experiments-length" and so on.

    Returns:
        What the file holds.

    Raises:
        ResultsError: if there is no such file.
    """
    path = RESULTS / f"{name}.json"
    if not path.exists():
        known = ", ".join(sorted(one.stem for one in RESULTS.glob("*.json")))
        raise ResultsError(f"name must be one of {known}, got {name!r}")
    return load(path)


def machine(device: str) -> dict[str, Any]:
    """What the numbers depend on: versions and hardware."""
    about = {
        "device": torch.device(device).type,
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    if about["device"] == "cuda":
        about["gpu"] = torch.cuda.get_device_name(device)
        about["cuda"] = torch.version.cuda
    return about


def _processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if "model name" in line)
    return next(names, platform.processor() or platform.machine())
