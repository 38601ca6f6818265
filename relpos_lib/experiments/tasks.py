"""Tasks whose answer depends on where symbols stand.

A task maps a batch of symbols (B, L) to the right answers (B, L), with ``IGNORED``
where there is none.
"""

from __future__ import annotations

import torch
from torch import Tensor

IGNORED = -100


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


def _shifted(symbols: Tensor, offset: int) -> Tensor:
    """``x_{i + offset}``, or ``IGNORED`` where that does not exist."""
    length = symbols.shape[1]
    places = torch.arange(length, device=symbols.device) + offset
    inside = (places >= 0) & (places < length)
    return torch.where(inside, symbols[:, places.clamp(0, length - 1)], IGNORED)
