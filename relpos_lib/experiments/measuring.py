"""How good a trained model is, length by length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from relpos_lib.experiments.data import test_batch
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.tasks import IGNORED, TASKS
from relpos_lib.experiments.text import BEFORE, text

TOKENS = 8192  # measured at every length
AT_ONCE = 16_384  # tokens in one call of the model
STRIDE = 64  # characters that a sliding window moves on


def measured(run: Run, model: nn.Module, device: torch.device) -> dict[str, Any]:
    """The metrics of a trained model at each of the run's test lengths.

    Args:
        run: what was trained.
        model: the model, on ``device``.
        device: where to compute.

    Returns:
        ``{"accuracy": {length: share}}``; for text ``{"non_overlapping": {length:
        perplexity}, "sliding": {length: perplexity}}``, per character. Lengths are
        written as strings, for JSON.
    """
    if TASKS[run.task].answers is None:
        strides = {
            "non_overlapping": {n: n for n in run.test_lengths},
            "sliding": {n: min(n, STRIDE) for n in run.test_lengths},
        }
        return {
            name: {
                str(length): perplexity(model, length, stride, device)
                for length, stride in of_length.items()
            }
            for name, of_length in strides.items()
        }
    return {
        "accuracy": {
            str(length): accuracy_of(run, model, length, device)
            for length in run.test_lengths
        }
    }


@torch.no_grad()
def accuracy_of(run: Run, model: nn.Module, length: int, device: torch.device) -> float:
    """Share of right answers at one length, in [0, 1]."""
    symbols, answers = test_batch(run, length, TOKENS)
    right = asked = 0
    for some, wanted in zip(_parts(symbols), _parts(answers), strict=True):
        guess = model(some.to(device)).argmax(-1).cpu()
        right += int(((guess == wanted) & (wanted != IGNORED)).sum())
        asked += int((wanted != IGNORED).sum())
    return right / asked


@torch.no_grad()
def perplexity(
    model: nn.Module, length: int, stride: int, device: torch.device
) -> float:
    """Perplexity per character of held-out text, read in windows of one length.

    Windows move on by ``stride`` and only their last ``stride`` predictions count, so
    that every character counts once. With a stride as long as the window they do not
    overlap, and the first characters of a window have little to look back to; with a
    short one each has nearly the whole window.
    """
    characters = text().testing.long()
    stop = BEFORE + TOKENS // stride * stride
    ends = torch.arange(BEFORE + stride, stop + 1, stride)
    places = ends[:, None] - length + torch.arange(length)
    loss = 0.0
    for some in _parts(places):
        logits = model(characters[some].to(device))[:, -stride:]
        answers = characters[some + 1][:, -stride:].to(device)
        loss += float(
            F.cross_entropy(
                logits.flatten(0, 1).float(), answers.flatten(), reduction="sum"
            )
        )
    return math.exp(loss / (len(ends) * stride))


def _parts(rows: Tensor) -> Iterator[Tensor]:
    yield from torch.split(rows, max(1, AT_ONCE // rows.shape[1]))
