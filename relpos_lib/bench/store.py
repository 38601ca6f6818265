"""The file of results: one JSON, replaced as a whole whenever something is added."""

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
RESULTS = Path(__file__).resolve().parents[1] / "results"


class ResultsError(ValueError):
    """A file of results that cannot be continued."""


def default_path(device: str) -> Path:
    """Where the results of a device are kept."""
    return RESULTS / f"bench-{torch.device(device).type}.json"


def save(path: Path, results: dict[str, Any]) -> None:
    """Write a file of results such that a stop leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    text = json.dumps(results, indent=1)
    text = NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text)
    unfinished.write_text(text + "\n", encoding="utf-8")
    os.replace(unfinished, path)


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


def new(settings: dict[str, Any], device: str) -> dict[str, Any]:
    """Results of nothing so far."""
    return {
        "version": VERSION,
        "settings": settings,
        "machine": machine(device),
        "cases": {},
        "checks": {},
        "verdicts": [],
    }


def resumed(path: Path, settings: dict[str, Any], device: str) -> dict[str, Any]:
    """Results to continue: those of a file, if they are of the same kind.

    Raises:
        ResultsError: if they come from another machine or other settings.
    """
    if not path.exists():
        return new(settings, device)
    results = load(path)
    for name, now in (("settings", settings), ("machine", machine(device))):
        then = results[name]
        other = [key for key in now if then.get(key) != now[key]]
        if other:
            key = other[0]
            raise ResultsError(
                f"{path.name} has other {name}: {key} was {then.get(key)!r} "
                f"and is {now[key]!r}; leave out --resume or name another --out"
            )
    return results


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
