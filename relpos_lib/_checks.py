"""Checks of arguments, with messages that name the argument and what it needs."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd import forward_ad


def check_integer(name: str, value: object, minimum: int | None = None) -> None:
    """Refuse a value that is no integer, or one below ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{name} must be an integer, got {_kind(value)}")
    if minimum is not None and value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Refuse a value that is no real number in ``[low, high]``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {_kind(value)}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low}, {high}], got {value}")


def check_base(base: object) -> None:
    """Refuse a base of wavelengths that is not finite and above 1."""
    check_number("base", base, 0.0, math.inf)
    assert isinstance(base, (int, float))
    if not 1 < base < math.inf:
        raise ValueError(f"base must be finite and above 1, got {base}")


def check_floating(name: str, value: object) -> None:
    """Refuse anything but a floating-point tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {value.dtype}")


def check_table(name: str, table: object) -> None:
    """Refuse anything but a tensor with rows, (…, 2K+1, D)."""
    if not isinstance(table, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(table).__name__}")
    if table.dim() < 2:
        raise ValueError(
            f"{name} must have shape (..., 2K+1, D), got {tuple(table.shape)}"
        )


def check_width(d_model: object, num_heads: object) -> None:
    """Refuse a model width that the heads do not divide."""
    check_integer("d_model", d_model, 1)
    check_integer("num_heads", num_heads, 1)
    assert isinstance(d_model, int)
    assert isinstance(num_heads, int)
    if d_model % num_heads:
        raise ValueError(
            f"d_model must be a multiple of num_heads, "
            f"got d_model={d_model} and num_heads={num_heads}"
        )


def _kind(value: object) -> str:
    """Type of a value; numpy's small integers overflow, so they are not taken."""
    kind = type(value)
    if kind.__module__ == "numpy":
        return f"numpy.{kind.__name__}: convert it with int() or float()"
    return kind.__name__


def is_autocasting(device: torch.device) -> bool:
    """Whether operations on a device choose their own precision just now."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def is_transformed() -> bool:
    """Whether derivatives are taken in another way than by a backward pass.

    Operators with a hand-written backward pass know nothing of forward mode and of
    ``torch.func``, and would silently say that nothing changes.
    """
    if torch.compiler.is_compiling():
        return False
    in_forward_mode = forward_ad._current_level >= 0
    return in_forward_mode or torch._C._are_functorch_transforms_active()
