"""What the benchmark keeps in its file of results, and when it may go on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from relpos_lib.records import RESULTS, VERSION, ResultsError, load, machine, save

__all__ = ["ResultsError", "default_path", "load", "new", "resumed", "save"]


def default_path(device: str) -> Path:
    """Where the results of a device are kept."""
    return RESULTS / f"bench-{torch.device(device).type}.json"


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
