"""How far a trained model reaches, and what limits it.

With absolute codes: where in a longer input are the right answers? With a clipped
table: a head that favours a near key by a *gap* over the far ones leaves it the weight
``e^gap / (e^gap + n)`` among n far keys. If that is what limits length, then models
with a larger gap reach farther, whatever their scheme.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relpos_lib.experiments.build import trained
from relpos_lib.experiments.data import test_batch
from relpos_lib.experiments.measuring import accuracy_of
from relpos_lib.experiments.model import TinyLayer, TinyTransformer
from relpos_lib.experiments.positions import OwnAttention
from relpos_lib.experiments.report import records
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.spread import spread
from relpos_lib.experiments.tasks import IGNORED
from relpos_lib.heads import split_heads
from relpos_lib.records import VERSION, ResultsError, machine

CPU = torch.device("cpu")
FALLEN = 0.75  # accuracy at which a model no longer reaches
FAR = (2048, 4096, 8192, 16_384)  # for those that still reach at 1024
SEQUENCES = 64  # on which the gap is measured
WHOLE, BLOCK = 64, 8  # length of the input whose places are told apart, by so many
PLANS_TOLD = ("length", "gate", "gate-rate")  # whose models have their reach told
WITH_GAP = (
    "bias",
    "bias-zero",
    "bias-zero-x3",
    "bias-zero-x9",
    "gated",
    "gated-no-scale",
    "directional",
    "shaw-keys",
    "shaw",
)
WITH_PLACES = ("learned", "sinusoidal", "rotary")
PLAIN = str.maketrans({" ": "-", "=": None, ".": "_", "/": "_"})


def reach(
    clipped: Sequence[Run], others: Sequence[Run], folder: Path
) -> dict[str, Any]:
    """What limits the length of trained models.

    Args:
        clipped: runs of schemes that clip and hand tables to attention, finished.
        others: runs of any scheme on a task without text, finished.
        folder: where their records and weights are.

    Returns:
        "groups": clipped scheme and learning rate → "gap", "reach" (None where a
        model never was above the threshold) and "accuracy" by length, over the seeds.
        "places": other scheme → "accuracy" by position, in an input of 64.

    Raises:
        ResultsError: if a run is not finished.
    """
    groups, places = (_by_setting(runs) for runs in (clipped, others))
    return {
        "version": VERSION,
        "machine": machine("cpu"),
        "common": {"fallen": FALLEN, "longest": clipped[0].longest},
        "groups": {name: _group(own, folder) for name, own in groups.items()},
        "places": {name: _places(own, folder) for name, own in places.items()},
    }


def _by_setting(runs: Sequence[Run]) -> dict[str, list[Run]]:
    members = defaultdict(list)
    for run in {run.key: run for run in runs}.values():
        members[f"{run.label}-lr{run.lr:g}".translate(PLAIN)].append(run)
    return members


@torch.no_grad()
def _places(runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    """Accuracy at positions 0 to 7, 8 to 15 and so on, of an input of 64."""
    symbols, answers = test_batch(runs[0], WHOLE, 4 * SEQUENCES * WHOLE)
    asked = answers != IGNORED
    each = []
    for run in runs:
        right = trained(run, folder)(symbols).argmax(-1) == answers
        each.append((_by_block(right & asked) / _by_block(asked)).tolist())
    starts = range(0, WHOLE, BLOCK)
    return {
        "accuracy": {
            str(start): spread(shares)
            for start, shares in zip(starts, zip(*each, strict=True), strict=True)
        }
    }


def _group(runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    found = records(runs, folder)
    if len(found) < len(runs):
        raise ResultsError(f"runs of {runs[0].label!r} are missing in {folder}")
    models = [trained(run, folder) for run in runs]
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


def _by_block(flags: Tensor) -> Tensor:
    """How many of the flags (B, L) are set, block by block."""
    return flags.sum(0).view(-1, BLOCK).sum(1)


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
    for low, high in itertools.pairwise(lengths):
        if curve[high] <= FALLEN:
            share = (curve[low] - FALLEN) / (curve[low] - curve[high])
            return round(float(low * (high / low) ** share), 1)
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
