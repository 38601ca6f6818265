"""Training a tiny model on a task, and measuring it at any length."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.experiments.model import TinyTransformer
from relpos_lib.experiments.tasks import IGNORED

Task = Callable[[Tensor], Tensor]


def train(
    model: TinyTransformer,
    task: Task,
    *,
    lengths: tuple[int, int],
    steps: int,
    batch: int = 64,
    lr: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Train on random symbols, a new length at every step.

    Args:
        model: trained in place.
        task: maps symbols (B, L) to answers (B, L).
        lengths: shortest and longest length, both used.
        steps: number of AdamW steps.
        batch: B, sequences a step.
        lr: learning rate.
        seed: of symbols and lengths.

    Returns:
        The loss of every step.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        length = int(torch.randint(lengths[0], lengths[1] + 1, (), generator=generator))
        symbols = _draw(model, batch, length, generator)
        loss = F.cross_entropy(
            model(symbols).flatten(0, 1), task(symbols).flatten(), ignore_index=IGNORED
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(
    model: TinyTransformer, task: Task, length: int, *, batch: int = 64, seed: int = 1
) -> float:
    """Share of right answers on random symbols of one length.

    Args:
        model: the model, not changed.
        task: maps symbols (B, L) to answers (B, L).
        length: L, long enough for the task to ask for something.
        batch: B, number of sequences.
        seed: of the symbols.

    Returns:
        The accuracy, in [0, 1]; NaN if nothing was asked.
    """
    generator = torch.Generator().manual_seed(seed)
    symbols = _draw(model, batch, length, generator)
    answers = task(symbols)
    asked = answers != IGNORED
    right = model(symbols).argmax(-1)[asked] == answers[asked]
    return float(right.float().mean())


def _draw(
    model: TinyTransformer, batch: int, length: int, generator: torch.Generator
) -> Tensor:
    shape = (batch, length)
    symbols = torch.randint(model.num_symbols, shape, generator=generator)
    return symbols.to(model.readout.weight.device)
