"""From a run to its model, before and after training."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file

from relpos_lib.experiments.folder import files
from relpos_lib.experiments.model import TinyTransformer
from relpos_lib.experiments.positions import OwnAttention, Scheme
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.schemes import SCHEMES
from relpos_lib.experiments.tasks import TASKS
from relpos_lib.records import ResultsError


def build(run: Run) -> TinyTransformer:
    """The model of a run, as it is before training; only the seed makes it random."""
    scheme = SCHEMES[run.scheme]
    make = scheme.position
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        return TinyTransformer(
            TASKS[run.task].num_symbols,
            encoding=scheme.encoding(run) if scheme.encoding else None,
            make_rpe=(lambda: cast("Scheme | OwnAttention", make(run)))
            if make
            else None,
            d_model=run.width,
            num_heads=run.heads,
            num_layers=run.layers,
            is_causal=run.is_causal,
            window=run.window,
        )


def trained(run: Run, folder: Path) -> TinyTransformer:
    """The model of a finished run with its trained weights, in eval mode.

    Args:
        run: what was trained.
        folder: where its weights are.

    Returns:
        The model.

    Raises:
        ResultsError: if the weights are missing.
    """
    path = files(run, folder).weights
    if not path.exists():
        raise ResultsError(f"the weights {path} are missing")
    model = build(run)
    model.load_state_dict(load_file(path))
    return model.eval()
