"""Memory for what is computed block by block and thrown away.

A tensor of a megabyte made anew for every block is often new memory from the system,
whose pages cost more to get than the numbers in them to compute.
"""

from __future__ import annotations

import math

from torch import Tensor


class Scratch:
    """Memory of a tensor's dtype and device, for one tensor at a time.

    Args:
        like: has the dtype and the device.

    >>> import torch
    >>> scratch = Scratch(torch.ones(1))
    >>> scratch.numbers(2, 3).fill_(7).sum(), scratch.numbers(3)
    (tensor(42.), tensor([7., 7., 7.]))
    """

    def __init__(self, like: Tensor) -> None:
        self._numbers = like.new_empty(0)

    def numbers(self, *shape: int) -> Tensor:
        """A contiguous tensor, not yet set, in place of the one before."""
        size = math.prod(shape)
        if size > len(self._numbers):
            self._numbers = self._numbers.new_empty(size)
        return self._numbers[:size].view(shape)
