"""What a run trains on and is measured with.

Each step draws from a generator of its own, made from the seed and the step's number.
So a run that goes on from a checkpoint sees what it would have seen, and so does each
process of several.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relpos_lib.experiments.run import Run
from relpos_lib.experiments.tasks import TASKS
from relpos_lib.experiments.text import text

MOST_STEPS = 1_000_000_000  # seeds of two runs never meet


def training_batch(run: Run, step: int) -> tuple[Tensor, Tensor]:
    """Symbols and answers of one step, (B, L) each, of a length drawn for it."""
    generator = torch.Generator().manual_seed(run.seed * MOST_STEPS + step)
    length = _uniform(run.shortest, run.longest, generator)
    answers = TASKS[run.task].answers
    if answers is None:
        return _windows(text().training, run.batch, length, generator)
    symbols = _symbols(run, run.batch, length, generator)
    return symbols, answers(symbols)


def test_batch(run: Run, length: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Symbols and answers to measure with, about ``tokens`` of them, (B, L) each.

    They depend on the length alone, so that all runs are measured with the same ones.
    """
    generator = torch.Generator().manual_seed(MOST_STEPS - length)
    batch = max(1, tokens // length)
    answers = TASKS[run.task].answers
    assert answers is not None
    symbols = _symbols(run, batch, length, generator)
    return symbols, answers(symbols)


def _symbols(run: Run, batch: int, length: int, generator: torch.Generator) -> Tensor:
    number = TASKS[run.task].num_symbols
    return torch.randint(number, (batch, length), generator=generator)


def _windows(
    characters: Tensor, batch: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Pieces of text, and what comes after each of their characters."""
    last = len(characters) - length - 1
    starts = torch.randint(last + 1, (batch,), generator=generator)
    places = starts[:, None] + torch.arange(length + 1)
    pieces = characters[places].long()
    return pieces[:, :-1], pieces[:, 1:]


def _uniform(low: int, high: int, generator: torch.Generator) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))
