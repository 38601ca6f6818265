"""Where the files of a run are kept."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from relpos_lib.experiments.run import Run


class Files(NamedTuple):
    """Where a run is kept.

    Attributes:
        record: configuration, machine, curve and metrics.
        weights: of the trained model.
        checkpoint: what an unfinished run goes on from.
    """

    record: Path
    weights: Path
    checkpoint: Path


def files(run: Run, folder: Path) -> Files:
    """The files of a run in a folder."""
    return Files(
        *(folder / f"{run.key}.{end}" for end in ("json", "safetensors", "checkpoint"))
    )
