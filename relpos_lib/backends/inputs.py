"""What every backend is handed: checked tensors and plain options."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Inputs(NamedTuple):
    """Checked inputs of relative attention.

    Attributes:
        query: (B, H, Q, D).
        key: (B, H, S, D).
        value: (B, H, S, Dv).
        bias_table: (H, 2K+1) or None.
        key_table: (2K+1, D), (H, 2K+1, D) or None.
        value_table: (2K+1, Dv), (H, 2K+1, Dv) or None.
        mask: bool, 4-D, broadcastable to (B, H, Q, S), True = may attend; or None.
        is_causal: whether a query sees only keys at or before its own position.
        query_start: position of the first query.
        dropout_p: probability of dropping an attention weight.
        scale: factor of the content and position scores.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias_table: Tensor | None
    key_table: Tensor | None
    value_table: Tensor | None
    mask: Tensor | None
    is_causal: bool
    query_start: int
    dropout_p: float
    scale: float

    def needs_gradient(self) -> bool:
        """Whether a backward pass may come."""
        return torch.is_grad_enabled() and any(
            isinstance(field, Tensor) and field.requires_grad for field in self
        )

    def widened(self) -> Inputs:
        """The same inputs with every float tensor in float32 or wider."""
        wide = torch.promote_types(self.query.dtype, torch.float32)
        tensors = {
            name: tensor.to(wide)
            for name in (
                "query",
                "key",
                "value",
                "bias_table",
                "key_table",
                "value_table",
            )
            if (tensor := getattr(self, name)) is not None
        }
        return self._replace(**tensors)
