"""Why a clipped bias fades with length: is it the tail?

Beyond K all keys of one side share a row, so a head that favours near keys gives every
far one the same small weight. The longer the input, the more of them there are, and
together they drown the near ones. If that is the reason, then (1) the share of weight
beyond K grows with length, and (2) a trained model is repaired, without training, when
the tail is kept from growing: by a window that hides what is far, or by lowering the
tail's scores such that it weighs as much as a tail of the length seen in training. In
the middle of a long input both sides of a query are long, and in training both together
were shorter than the input, so there are two sizes of each repair: one that limits each
side, and one that limits both together.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relpos_lib._checks import check_integer
from relpos_lib.bias import SimpleBiasRPE
from relpos_lib.experiments.build import trained
from relpos_lib.experiments.measuring import accuracy_of
from relpos_lib.experiments.model import TinyLayer, TinyTransformer
from relpos_lib.experiments.positions import OwnAttention
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.spread import spread
from relpos_lib.offsets import relative_offsets
from relpos_lib.records import VERSION, machine

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
    """The bias with its tails lowered to the weight of ``most`` keys.

    With n keys beyond K, ``log(min(n, most) / n)`` is added to their scores.

    Args:
        rpe: the bias.
        most: how many keys a tail may weigh as much as, at least 1.
        together: whether both sides are one tail; else each side is one.

    Raises:
        TypeError: if ``most`` is no integer.
        ValueError: if ``most`` is below 1.
    """

    def __init__(
        self, rpe: SimpleBiasRPE, most: int, *, together: bool = False
    ) -> None:
        super().__init__()
        check_integer("most", most, 1)
        self.rpe, self.most, self.together = rpe, most, together

    def placed(self, scores: Tensor, query: Tensor) -> Tensor:
        """``scores + b``, and the correction on the tails."""
        out: Tensor = self.rpe(scores)
        assert self.rpe.max_distance is not None
        offsets = relative_offsets(*scores.shape[-2:])
        before = offsets <= -self.rpe.max_distance
        after = offsets >= self.rpe.max_distance
        for beyond in (before | after,) if self.together else (before, after):
            number = beyond.sum(-1, keepdim=True).clamp(min=1)
            lower = (number.clamp(max=self.most) / number).log()  # (Q, 1)
            out = out + lower * beyond
        return out


def _hide_unseen(run: Run, layer: TinyLayer) -> None:
    layer.window = run.longest - 1


def _hide_half(run: Run, layer: TinyLayer) -> None:
    """With this window no query sees more keys than in training."""
    layer.window = (run.longest - 1) // 2


def _cap(run: Run, layer: TinyLayer, *, together: bool) -> None:
    assert isinstance(layer.rpe, SimpleBiasRPE)
    assert isinstance(run.max_distance, int)
    # A query at an end of the longest input has the heaviest tail.
    most = run.longest - run.max_distance
    layer.rpe = CappedTail(layer.rpe, most, together=together)


REPAIRS: Mapping[str, Callable[[Run, TinyLayer], None]] = {
    "as_trained": lambda run, layer: None,
    "window": _hide_unseen,
    "half_window": _hide_half,
    "capped_tail": partial(_cap, together=False),
    "capped_tails": partial(_cap, together=True),
}


def dilution(runs: Sequence[Run], folder: Path) -> dict[str, Any]:
    """What becomes of trained models with a clipped bias when their tail is held back.

    Args:
        runs: of the scheme "bias" or "bias-zero", on a task without text, finished.
        folder: where their weights are.

    Returns:
        "groups": repair → "accuracy" by length. "tail_share": layer → share by length.
        Each with its spread over the seeds.

    Raises:
        ResultsError: if weights are missing.
        ValueError: if a run has another scheme.
    """
    for run in runs:
        if run.scheme not in ("bias", "bias-zero"):
            raise ValueError(
                f"scheme must be 'bias' or 'bias-zero', got {run.scheme!r}"
            )
    models = [(run, trained(run, folder)) for run in runs]
    lengths = runs[0].test_lengths
    return {
        "version": VERSION,
        "machine": machine("cpu"),
        "common": {"longest": runs[0].longest, "max_distance": runs[0].max_distance},
        "groups": {
            name: {"accuracy": _at_lengths(lengths, models, partial(_repaired, how))}
            for name, how in REPAIRS.items()
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
