"""From model width to heads and back."""

from __future__ import annotations

from torch import Tensor, nn

from relpos_lib._checks import check_floating, is_autocasting


def check_input(name: str, projection: nn.Linear, x: Tensor) -> None:
    """Refuse anything but a (B, L, E) tensor that the projection takes."""
    check_floating(name, x)
    width = projection.in_features
    if x.dim() != 3 or x.shape[2] != width or 0 in x.shape:
        raise ValueError(
            f"{name} must have shape (B, length, {width}) with no empty axis, "
            f"got {tuple(x.shape)}"
        )
    weight = projection.weight
    if not isinstance(weight, Tensor):
        return  # a quantised layer takes inputs of another dtype than its weights
    if x.device != weight.device:
        raise ValueError(
            f"{name} must be on the device of the module, {weight.device}, "
            f"got {x.device}"
        )
    if x.dtype != weight.dtype and not is_autocasting(x.device):
        raise TypeError(
            f"{name} must have the dtype of the module, {weight.dtype}, got {x.dtype}"
        )


def split_heads(name: str, projection: nn.Linear, x: Tensor, num_heads: int) -> Tensor:
    """Project (B, L, E) and split it into heads, (B, H, L, D)."""
    check_input(name, projection, x)
    batch, length, width = x.shape
    projected: Tensor = projection(x)  # (B, L, E)
    return projected.view(batch, length, num_heads, width // num_heads).transpose(1, 2)


def join_heads(projection: nn.Linear, x: Tensor) -> Tensor:
    """Join (B, H, L, D) into (B, L, E) and project it."""
    joined: Tensor = projection(x.transpose(1, 2).flatten(2))
    return joined
