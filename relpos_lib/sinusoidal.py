"""Absolute positions, added to the input: sinusoids and a learned table.

Each pair of columns is the hand of a clock: it turns by a fixed angle per position, and
each pair turns more slowly than the one before. Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relpos_lib._checks import check_base, check_floating, check_integer


def sinusoidal_encoding(
    length: int,
    d_model: int,
    *,
    start: int = 0,
    base: float = 10_000.0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Sinusoidal code of ``length`` consecutive positions.

    ``code[p, 2m] = sin((start + p) * base**(-2m / E))`` and
    ``code[p, 2m + 1] = cos((start + p) * base**(-2m / E))``

    Args:
        length: L, number of positions, at least 1.
        d_model: E, width, at least 1; an odd width ends with a sine.
        start: position of the first row, any integer.
        base: ratio of the slowest to the fastest wavelength, above 1.
        device: where to make the result.
        dtype: floating-point type of the result; torch's default if not given. Angles
            are computed in float64 whatever it is.

    Returns:
        The codes, (L, E).

    Raises:
        TypeError: if ``length``, ``d_model`` or ``start`` is no integer, or ``dtype``
            is no floating-point type.
        ValueError: if ``length`` or ``d_model`` is below 1, or ``base`` not above 1.

    Source:
        Vaswani et al. 2017, section 3.5.

    >>> sinusoidal_encoding(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    check_integer("length", length, 1)
    check_integer("d_model", d_model, 1)
    check_integer("start", start)
    check_base(base)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating-point type, got {dtype}")
    positions = torch.arange(length, device=device) + start
    columns = torch.arange(d_model, device=positions.device)
    on_mps = positions.device.type == "mps"  # has no float64
    wide = torch.float32 if on_mps else torch.float64
    pair = columns - columns % 2
    speed = torch.exp(pair.to(wide) * (-math.log(base) / d_model))
    angles = positions.to(wide)[:, None] * speed
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos()).to(dtype)


class SinusoidalEncoding(nn.Module):
    """Adds the sinusoidal code of each position to its input.

    ``out[b, p] = x[b, p] + code[start + p]``

    Args:
        d_model: E, width, at least 1.
        base: ratio of the slowest to the fastest wavelength, above 1.

    Raises:
        TypeError: if ``d_model`` is no integer.
        ValueError: if ``d_model`` is below 1 or ``base`` not above 1.

    Source:
        Vaswani et al. 2017, section 3.5.

    >>> SinusoidalEncoding(4)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, d_model: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        check_integer("d_model", d_model, 1)
        check_base(base)
        self.d_model = d_model
        self.base = base

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """``x + code``.

        Args:
            x: (…, L, E), positions on the second-last axis.
            start: position of the first row, any integer.

        Returns:
            A tensor like ``x``.

        Raises:
            TypeError: if ``x`` is no floating-point tensor.
            ValueError: if ``x`` has fewer than two axes, no position or another width.
        """
        _check_sequence(x, self.d_model)
        return x + sinusoidal_encoding(
            x.shape[-2],
            self.d_model,
            start=start,
            base=self.base,
            device=x.device,
            dtype=x.dtype,
        )


class LearnedAbsoluteEncoding(nn.Module):
    """Adds a learned vector of each position: the baseline that cannot go further.

    ``out[b, p] = x[b, p] + table[start + p]``

    Args:
        d_model: E, width, at least 1.
        max_len: number of positions that have a vector, at least 1.

    Raises:
        TypeError: if an argument is no integer.
        ValueError: if an argument is below 1.

    Source:
        Gehring et al. 2017, section 3.1.

    >>> LearnedAbsoluteEncoding(4, max_len=8)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, d_model: int, max_len: int = 512) -> None:
        super().__init__()
        check_integer("d_model", d_model, 1)
        check_integer("max_len", max_len, 1)
        self.d_model = d_model
        self.max_len = max_len
        self.table = nn.Parameter(torch.empty(max_len, d_model).normal_(std=0.02))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """``x + table[start : start + L]``.

        Args:
            x: (…, L, E), positions on the second-last axis.
            start: position of the first row, at least 0.

        Returns:
            A tensor like ``x``.

        Raises:
            TypeError: if ``x`` is no floating-point tensor or ``start`` no integer.
            ValueError: if ``x`` has fewer than two axes, no position or another width,
                or a position has no vector.
        """
        _check_sequence(x, self.d_model)
        check_integer("start", start, 0)
        stop = start + x.shape[-2]
        if stop > self.max_len:
            raise ValueError(
                f"x needs positions up to {stop - 1}, but the table ends at "
                f"max_len - 1 = {self.max_len - 1}"
            )
        return x + self.table[start:stop].to(x.dtype)


def _check_sequence(x: object, d_model: int) -> None:
    check_floating("x", x)
    assert isinstance(x, Tensor)
    if x.dim() < 2 or x.shape[-1] != d_model or x.shape[-2] == 0:
        raise ValueError(
            f"x must have shape (..., L, {d_model}) with L at least 1, "
            f"got {tuple(x.shape)}"
        )
