"""How far a trained model reaches, and whether the height of its favourite tells.

A head that favours a near key by a *gap* over the far ones leaves it the weight
``e^gap / (e^gap + n)`` among n far keys. If that is what limits length, then models
with a larger gap reach farther, whatever their scheme.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from relpos_lib.experiments.build import build
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.measuring import accuracy_of
from relpos_lib.experiments.model import TinyLayer, TinyTransformer
from relpos_lib.experiments.positions import OwnAttention
from relpos_lib.experiments.report import records
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.spread import spread
from relpos_lib.heads import split_heads
from relpos_lib.records import VERSION, ResultsError, machine

CPU = torch.device("cpu")
FALLEN = 0.75  # accuracy at which a model no longer reaches
FAR = (2048, 4096, 8192, 16_384)  # for those that still reach at 1024
SEQUENCES = 64  # on which the gap is measured


def reach(runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    """Gap and reach of trained models whose positions are a table with a clip.

    Args:
        runs: of schemes that clip and hand tables to attention, finished.
        folder: where their records and weights are.

    Returns:
        "groups": scheme and learning rate → "gap", "reach" (None where a model never
        was above the threshold) and "accuracy" by length, over the seeds.

    Raises:
        ResultsError: if a run is not finished.
    """
    runs = list({run.key: run for run in runs}.values())
    members = defaultdict(list)
    for run in runs:
        members[f"{run.label}-lr{run.lr:g}".translate(PLAIN)].append(run)
    return {
        "version": VERSION,
        "machine": machine("cpu"),
        "common": {"fallen": FALLEN, "longest": runs[0].longest},
        "groups": {name: _group(own, folder) for name, own in members.items()},
    }


PLAIN = str.maketrans({" ": "-", "=": None, ".": "_", "/": "_"})


def _group(runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    found = records(runs, folder)
    if len(found) < len(runs):
        raise ResultsError(f"runs of {runs[0].label!r} are missing in {folder}")
    models = [_trained(run, folder) for run in runs]
    curves = [
        {int(n): share for n, share in record["metrics"]["accuracy"].items()}
        for record in found
    ]
    if any(curve[max(curve)] > FALLEN for curve in curves):
        for run, model, curve in zip(runs, models, curves, strict=True):
            curve.update((n, accuracy_of(run, model, n, CPU)) for n in FAR)
    gaps = [
        [gap(run, model, layer) for layer in range(run.layers)]
        for run, model in zip(runs, models, strict=True)
    ]
    return {
        "label": runs[0].label,
        "lr": runs[0].lr,
        "seeds": [run.seed for run in runs],
        "gap": spread([statistics.fmean(layers) for layers in gaps]),
        "gap_of_layers": [spread(layers) for layers in zip(*gaps, strict=True)],
        "reach": [reached(curve) for curve in curves],
        "accuracy": {
            str(n): spread([curve[n] for curve in curves]) for n in sorted(curves[0])
        },
    }


def reached(curve: Mapping[int, float]) -> float | None:
    """The length at which accuracy falls to 0.75, between two measured lengths.

    Args:
        curve: length → accuracy.

    Returns:
        The length, on the straight line between its neighbours over log2 of the
        length; the longest one if it never falls so far; None if it begins there.

    >>> reached({16: 1.0, 32: 1.0, 64: 0.5})
    45.3
    """
    lengths = sorted(curve)
    if curve[lengths[0]] <= FALLEN:
        return None
    for low, high in zip(lengths, lengths[1:], strict=False):
        if curve[high] <= FALLEN:
            share = (curve[low] - FALLEN) / (curve[low] - curve[high])
            return round(low * (high / low) ** share, 1)
    return float(lengths[-1])


@torch.no_grad()
def gap(run: Run, model: TinyTransformer, layer: int) -> float:
    """How far the highest position score stands above the far keys' one.

    Mean over heads and queries of sequences of the longest training length; where both
    sides have a far key's row, the higher one counts.
    """
    generator = torch.Generator().manual_seed(run.longest)
    shape = (SEQUENCES, run.longest)
    x = model.encoding(
        model.embedding(torch.randint(model.num_symbols, shape, generator=generator))
    )
    for before in model.layers[:layer]:
        x = before(x)
    scores = _position_scores(model.layers[layer], x)
    return float((scores.amax(-1) - scores[..., [0, -1]].amax(-1)).mean())


def _position_scores(layer: torch.nn.Module, x: Tensor) -> Tensor:
    """What each row of the table adds to the score of a query, (B, H, L, 2K+1)."""
    assert isinstance(layer, TinyLayer)
    if layer.rpe is None or isinstance(layer.rpe, OwnAttention):
        raise ValueError("the scheme must hand tables to attention")
    tables = layer.tables(x.shape[1])
    query = split_heads("x", layer.wq, layer.norm1(x), layer.num_heads)
    scores = query.new_zeros(())
    if "key_table" in tables:
        scores = scores + query @ tables["key_table"].mT / math.sqrt(query.shape[-1])
    if "bias_table" in tables:
        scores = scores + tables["bias_table"][:, None].expand(*query.shape[:3], -1)
    if not scores.ndim:
        raise ValueError("the scheme must have a table for scores")
    return scores


def _trained(run: Run, folder: Path) -> TinyTransformer:
    model = build(run)
    model.load_state_dict(load_file(files(run, folder).weights))
    return model.eval()
