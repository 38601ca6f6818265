"""Tasks whose answer depends on where symbols stand.

A task maps a batch of symbols (B, L) to the right answers (B, L), with ``IGNORED``
where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from relpos_lib.experiments.text import ALPHABET

IGNORED = -100
NUM_SYMBOLS = 16
STOPS = 4  # every multiple of it ends a clause


def delayed_copy(symbols: Tensor, delay: int = 1) -> Tensor:
    """The symbol that stood ``delay`` positions before.

    ``y_i = x_{i - delay}``

    Args:
        symbols: (B, L), int64.
        delay: how far back, at least 0.

    Returns:
        The answers, (B, L); ``IGNORED`` at the first ``delay`` positions.

    >>> delayed_copy(torch.tensor([[5, 6, 7]]))
    tensor([[-100,    5,    6]])
    """
    return _shifted(symbols, -delay)


def shift(symbols: Tensor) -> Tensor:
    """The next symbol, which only a model that looks ahead can know.

    ``y_i = x_{i+1}``

    Args:
        symbols: (B, L), int64.

    Returns:
        The answers, (B, L); ``IGNORED`` at the last position.

    >>> shift(torch.tensor([[5, 6, 7]]))
    tensor([[   6,    7, -100]])
    """
    return _shifted(symbols, 1)


def switch(symbols: Tensor) -> Tensor:
    """The symbol before an even one, the second symbol after an odd one.

    ``y_i = x_{i-1}`` if ``x_i`` is even, else ``y_i = x_{i+2}``

    What a position must look at depends on what stands there: content and position
    have to work together.

    Args:
        symbols: (B, L), int64.

    Returns:
        The answers, (B, L); ``IGNORED`` where the place asked for does not exist.

    >>> switch(torch.tensor([[2, 3, 4, 5]]))
    tensor([[-100,    5,    3, -100]])
    """
    return torch.where(symbols % 2 == 0, _shifted(symbols, -1), _shifted(symbols, 2))


def switch_source(symbols: Tensor) -> Tensor:
    """The position whose symbol :func:`switch` asks for; -1 if there is none.

    Args:
        symbols: (B, L), int64.

    Returns:
        The positions, (B, L), int64.

    >>> switch_source(torch.tensor([[2, 3, 4, 5]]))
    tensor([[-1,  3,  1, -1]])
    """
    places = torch.arange(symbols.shape[1], device=symbols.device)
    source = places + torch.where(symbols % 2 == 0, -1, 2)
    return torch.where(source < symbols.shape[1], source, -1)


def recall(symbols: Tensor) -> Tensor:
    """What came after the same symbol when it was last seen.

    ``y_i = x_{j+1}`` with the largest ``j < i`` where ``x_j = x_i``

    The attention that solves it is known: one layer looks one position back, the next
    one at ``j + 1`` (:func:`recall_source`).

    Args:
        symbols: (B, L), int64.

    Returns:
        The answers, (B, L); ``IGNORED`` where the symbol is new.

    Source:
        Olsson et al. 2022, on induction heads.

    >>> recall(torch.tensor([[1, 2, 3, 1, 2]]))
    tensor([[-100, -100, -100,    2,    3]])
    """
    source = recall_source(symbols)
    return torch.where(source < 0, IGNORED, symbols.gather(1, source.clamp(min=0)))


def recall_source(symbols: Tensor) -> Tensor:
    """The position whose symbol :func:`recall` asks for; -1 if there is none.

    Args:
        symbols: (B, L), int64.

    Returns:
        The positions, (B, L), int64.

    >>> recall_source(torch.tensor([[1, 2, 3, 1, 2]]))
    tensor([[-1, -1, -1,  1,  2]])
    """
    places = torch.arange(symbols.shape[1], device=symbols.device).expand_as(symbols)
    source = torch.full_like(symbols, -1)
    for symbol in range(int(symbols.max()) + 1):
        here = symbols == symbol
        seen = torch.where(here, places, -1).cummax(1).values  # up to and with i
        before = torch.nn.functional.pad(seen[:, :-1], (1, 0), value=-1)
        source = torch.where(here & (before >= 0), before + 1, source)
    return source


def translate(symbols: Tensor) -> Tensor:
    """A toy language: other words, and the first word of a clause at its end.

    Multiples of 4 are full stops. Inside a clause word i becomes ``t(x_{i+1})``, its
    last word becomes ``t`` of its first one, and ``t(x) = (5 x + 3) mod 16``. A stop
    becomes ``t`` of itself.

    Like a verb that moves to the end of a sentence, the first word is at a distance
    that depends on the content.

    Args:
        symbols: (B, L), int64, below 16.

    Returns:
        The answers, (B, L); ``IGNORED`` at the end of a clause that has no stop.

    >>> translate(torch.tensor([[1, 2, 3, 0]]))  # t is 3, 8, 13, 2 for 0, 1, 2, 15
    tensor([[13,  2,  8,  3]])
    """
    is_stop = symbols % STOPS == 0
    places = torch.arange(symbols.shape[1], device=symbols.device).expand_as(symbols)
    after_stop = torch.where(is_stop, places + 1, 0).cummax(1).values
    first = symbols.gather(1, after_stop.clamp(max=symbols.shape[1] - 1))
    following = _shifted(symbols, 1)
    ends = following % STOPS == 0
    word = torch.where(ends, first, following)
    word = torch.where(is_stop, symbols, word)
    missing = (following == IGNORED) & ~is_stop
    return torch.where(missing, IGNORED, (5 * word + 3) % NUM_SYMBOLS)


class Task(NamedTuple):
    """A task, as the experiments know it.

    Attributes:
        about: what is asked for, in a few words.
        answers: maps symbols (B, L) to answers (B, L); None if text brings its own.
        num_symbols: size of the alphabet.
        can_be_causal: whether the answer can be known from what came before.
        must_be_causal: whether the answer stands in the input, one step later.
        shortest: the shortest length at which anything is asked.
    """

    about: str
    answers: Callable[[Tensor], Tensor] | None
    num_symbols: int = NUM_SYMBOLS
    can_be_causal: bool = False
    must_be_causal: bool = False
    shortest: int = 1


COPY_DELAY = 5

TASKS: dict[str, Task] = {
    "switch": Task("x[i-1] if x[i] is even, else x[i+2]", switch, shortest=2),
    "shift": Task("x[i+1]", shift, shortest=2),
    "copy": Task(
        f"x[i-{COPY_DELAY}]",
        partial(delayed_copy, delay=COPY_DELAY),
        can_be_causal=True,
        shortest=COPY_DELAY + 1,
    ),
    "recall": Task(
        "what followed when x[i] was last seen", recall, can_be_causal=True, shortest=2
    ),
    "translate": Task("other words, the first word of a clause at its end", translate),
    "text": Task(
        "the next character of English text",
        None,
        num_symbols=len(ALPHABET),
        can_be_causal=True,
        must_be_causal=True,
    ),
}


def _shifted(symbols: Tensor, offset: int) -> Tensor:
    """``x_{i + offset}``, or ``IGNORED`` where that does not exist."""
    length = symbols.shape[1]
    places = torch.arange(length, device=symbols.device) + offset
    inside = (places >= 0) & (places < length)
    return torch.where(inside, symbols[:, places.clamp(0, length - 1)], IGNORED)
