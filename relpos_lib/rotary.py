"""Rotary position embedding: queries and keys turned by an angle per position.

Turning both by their positions turns their product by the offset alone, so the scores
are relative although no table exists. Su et al. 2021, section 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from relpos_lib._checks import check_base, check_floating, check_integer


def rotary_encoding(x: Tensor, *, start: int = 0, base: float = 10_000.0) -> Tensor:
    """Turn each pair of columns by its position times the speed of the pair.

    With ``a = (start + p) * base**(-2m / D)``,
    ``out[p, 2m] = x[p, 2m] cos a - x[p, 2m + 1] sin a`` and
    ``out[p, 2m + 1] = x[p, 2m] sin a + x[p, 2m + 1] cos a``.

    Turn queries and keys, not values. The product of a turned query and a turned key
    depends on the two vectors and on the offset between them.

    Args:
        x: (…, L, D), positions on the second-last axis, D even.
        start: position of the first row, any integer; for a query against a cache
            ``S - Q``.
        base: ratio of the slowest to the fastest wavelength, above 1.

    Returns:
        A tensor like ``x``. Angles are computed in float64.

    Raises:
        TypeError: if ``x`` is no floating-point tensor, ``start`` no integer or
            ``base`` no number.
        ValueError: if ``x`` has fewer than two axes, an odd or empty last one, or
            ``base`` is not finite and above 1.

    Source:
        Su et al. 2021, section 3.2.2.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> rotary_encoding(x)
    tensor([[1.0000, 0.0000],
            [0.5403, 0.8415]])
    """
    check_floating("x", x)
    if x.dim() < 2 or x.shape[-1] % 2 or 0 in x.shape[-2:]:
        raise ValueError(
            "x must have shape (..., L, D) with L at least 1 and D even, "
            f"got {tuple(x.shape)}"
        )
    check_integer("start", start)
    check_base(base)
    length, width = x.shape[-2:]
    wide = torch.float32 if x.device.type == "mps" else torch.float64  # it has no other
    positions = torch.arange(length, device=x.device) + start
    pairs = torch.arange(0, width, 2, device=x.device, dtype=wide)
    speed = torch.exp(pairs * (-math.log(base) / width))
    angles = positions.to(wide)[:, None] * speed  # (L, D / 2)
    kind = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    even, odd = x[..., 0::2], x[..., 1::2]  # (…, L, D / 2)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)
