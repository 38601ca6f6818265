"""Relative attention that computes twice instead of remembering: the gather path again.

The backward pass of the gather path needs several (B, H, Q, S) tensors, and every layer
keeps its own until then. Here a layer keeps its inputs only and the backward pass
computes the rest anew, so that a model of many layers holds the tensors of one layer at
a time. It costs one more forward pass.

Source: Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from relpos_lib.backends import gather
from relpos_lib.backends.inputs import Inputs


def attention(inputs: Inputs) -> Tensor:
    """Relative attention that keeps nothing but its inputs, (B, H, Q, Dv)."""
    if not inputs.needs_gradient():
        return gather.attention(inputs)
    out: Tensor = checkpoint(
        _attention_of_fields,
        *inputs,
        use_reentrant=False,
        preserve_rng_state=inputs.dropout_p > 0,  # the same weights are dropped again
    )
    return out


def _attention_of_fields(*fields: Any) -> Tensor:
    """The gather path of separate arguments: only those are seen to be kept."""
    return gather.attention(Inputs(*fields))
