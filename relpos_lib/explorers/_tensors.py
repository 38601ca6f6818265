"""Tensors on their way into a figure: checked, copied, and written as bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from relpos_lib._checks import check_floating


def checked_heads(name: str, tensor: Tensor) -> Tensor:
    """A query or a key as (H, length, D), without a batch axis of length 1."""
    check_floating(name, tensor)
    tensor = tensor[0] if tensor.dim() == 4 and len(tensor) == 1 else tensor
    if tensor.dim() != 3 or 0 in tensor.shape:
        raise ValueError(
            f"{name} must have shape (H, length, D) with no empty axis, "
            f"got {tuple(tensor.shape)}"
        )
    return tensor


def coloured(name: str, tensor: Tensor) -> Tensor:
    """A copy on the CPU in float32, in which every number must have a colour."""
    check_floating(name, tensor)
    # A copy: later changes in place would move the picture but not the page.
    copy = tensor.detach().to("cpu", torch.float32, copy=True)
    strange = tensor.detach().cpu()[~copy.isfinite()]
    if len(strange):
        aside = "; attention takes -inf there, but it has no colour here"
        raise ValueError(
            f"{name} must hold finite numbers within the range of float32, "
            f"got {strange[0].item()}{aside if name == 'bias_table' else ''}"
        )
    return copy


def to_bytes(tensor: Tensor) -> bytes:
    """The numbers as little-endian float32."""
    return tensor.contiguous().numpy().astype("<f4").tobytes()
