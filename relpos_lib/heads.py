"""From model width to heads and back."""

from __future__ import annotations

from torch import Tensor, nn

from relpos_lib._checks import check_floating


def split_heads(name: str, projection: nn.Linear, x: Tensor, num_heads: int) -> Tensor:
    """Project (B, L, E) and split it into heads, (B, H, L, D)."""
    check_floating(name, x)
    width = projection.in_features
    if x.dim() != 3 or x.shape[2] != width:
        raise ValueError(
            f"{name} must have shape (B, length, {width}), got {tuple(x.shape)}"
        )
    batch, length, width = x.shape
    projected: Tensor = projection(x)  # (B, L, E)
    return projected.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def join_heads(projection: nn.Linear, x: Tensor) -> Tensor:
    """Join (B, H, L, D) into (B, L, E) and project it."""
    joined: Tensor = projection(x.transpose(1, 2).flatten(2))
    return joined
