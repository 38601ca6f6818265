"""Why a clipped bias fades with length: is it the tail?

Beyond K all keys of one side share a row, so a head that favours near keys gives every
far one the same small weight. The longer the input, the more of them there are, and
together they drown the near ones. If that is the reason, then (1) the share of weight
beyond K grows with length, and (2) a trained model is repaired, without training, when
the tail is kept from growing: by a window that hides what lies farther than anything in
training, or by lowering the tail's scores such that it weighs as much as a tail of the
length seen in training.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from relpos_lib._checks import check_integer
from relpos_lib.bias import SimpleBiasRPE
from relpos_lib.experiments.build import build
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.measuring import accuracy_of
from relpos_lib.experiments.model import TinyLayer, TinyTransformer
from relpos_lib.experiments.positions import OwnAttention
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.spread import spread
from relpos_lib.offsets import relative_offsets
from relpos_lib.records import VERSION, ResultsError, machine

CPU = torch.device("cpu")


class WatchedTail(OwnAttention):
    """The bias as it is, which remembers how much weight lies beyond K."""

    def __init__(self, rpe: SimpleBiasRPE) -> None:
        super().__init__()
        self.rpe = rpe
        self.share = math.nan

    def placed(self, scores: Tensor, query: Tensor) -> Tensor:
        """``scores + b``."""
        out: Tensor = self.rpe(scores)
        assert self.rpe.max_distance is not None
        beyond = relative_offsets(*scores.shape[-2:]).abs() >= self.rpe.max_distance
        self.share = float((out.softmax(-1) * beyond).sum(-1).mean())
        return out


class CappedTail(OwnAttention):
    """The bias with each side's tail lowered to the weight of a tail of ``most`` keys.

    With n keys beyond K on a side, ``log(min(n, most) / n)`` is added to their scores.
    """

    def __init__(self, rpe: SimpleBiasRPE, most: int) -> None:
        super().__init__()
        check_integer("most", most, 1)
        self.rpe, self.most = rpe, most

    def placed(self, scores: Tensor, query: Tensor) -> Tensor:
        """``scores + b``, and the correction on both tails."""
        out: Tensor = self.rpe(scores)
        assert self.rpe.max_distance is not None
        offsets = relative_offsets(*scores.shape[-2:])
        for beyond in (
            offsets <= -self.rpe.max_distance,
            offsets >= self.rpe.max_distance,
        ):
            number = beyond.sum(-1, keepdim=True).clamp(min=1)
            lower = (number.clamp(max=self.most) / number).log()  # (Q, 1)
            out = out + lower * beyond
        return out


def dilution(runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    """What becomes of trained models with a clipped bias when their tail is held back.

    Args:
        runs: of the scheme "bias", on a task without text, finished.
        folder: where their weights are.

    Returns:
        "accuracy" by repair and length, "tail_share" by layer and length, each with
        its spread over the seeds.

    Raises:
        ResultsError: if weights are missing.
        ValueError: if a run has another scheme.
    """
    models = [(run, _trained(run, folder)) for run in runs]
    lengths = runs[0].test_lengths
    repairs: dict[str, Callable[[Run, TinyLayer], None]] = {
        "as_trained": lambda run, layer: None,
        "window": _hide_unseen,
        "capped_tail": _cap_tail,
    }
    return {
        "version": VERSION,
        "machine": machine("cpu"),
        "common": {"longest": runs[0].longest, "max_distance": runs[0].max_distance},
        "groups": {
            name: {"accuracy": _at_lengths(lengths, models, partial(_repaired, how))}
            for name, how in repairs.items()
        },
        "tail_share": {
            f"layer_{layer + 1}": _at_lengths(lengths, models, partial(_share, layer))
            for layer in range(runs[0].layers)
        },
    }


def _at_lengths(
    lengths: Sequence[int],
    models: Sequence[tuple[Run, TinyTransformer]],
    measure: Callable[[Run, TinyTransformer, int], float],
) -> dict[str, Any]:
    return {
        str(n): spread([measure(run, model, n) for run, model in models])
        for n in lengths
    }


@torch.no_grad()
def _repaired(
    how: Callable[[Run, TinyLayer], None],
    run: Run,
    model: TinyTransformer,
    length: int,
) -> float:
    model = copy.deepcopy(model)
    for layer in model.layers:
        assert isinstance(layer, TinyLayer)
        how(run, layer)
    return accuracy_of(run, model, length, CPU)


@torch.no_grad()
def _share(at: int, run: Run, model: TinyTransformer, length: int) -> float:
    """Share of a layer's weight beyond K, mean over heads, queries and sequences."""
    model = copy.deepcopy(model)
    layer = model.layers[at]
    assert isinstance(layer, TinyLayer)
    assert isinstance(layer.rpe, SimpleBiasRPE)
    watched = WatchedTail(layer.rpe)
    layer.rpe = watched
    generator = torch.Generator().manual_seed(length)
    shares = []
    for _ in range(4):
        model(torch.randint(model.num_symbols, (1, length), generator=generator))
        shares.append(watched.share)
    return statistics.fmean(shares)


def _hide_unseen(run: Run, layer: TinyLayer) -> None:
    layer.window = run.longest - 1


def _cap_tail(run: Run, layer: TinyLayer) -> None:
    assert isinstance(layer.rpe, SimpleBiasRPE)
    assert isinstance(run.max_distance, int)
    layer.rpe = CappedTail(layer.rpe, run.longest - run.max_distance)


def _trained(run: Run, folder: Path) -> TinyTransformer:
    if run.scheme not in ("bias", "bias-zero"):
        raise ValueError(f"scheme must be 'bias', got {run.scheme!r}")
    path = files(run, folder).weights
    if not path.exists():
        raise ResultsError(
            f"{path} is missing; `python -m relpos_lib.experiments sweep length` "
            "makes it"
        )
    model = build(run)
    model.load_state_dict(load_file(path))
    return model.eval()
