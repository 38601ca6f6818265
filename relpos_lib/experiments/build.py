"""From a run to its model."""

from __future__ import annotations

from typing import cast

import torch

from relpos_lib.experiments.model import TinyTransformer
from relpos_lib.experiments.positions import OwnAttention, Scheme
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.schemes import SCHEMES
from relpos_lib.experiments.tasks import TASKS


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
