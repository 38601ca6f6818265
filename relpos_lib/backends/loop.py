"""The definition of relative attention, pair by pair: slow, and obviously right.

For query i and key j, with the row of the offset between them clipped to K::

    score_ij = scale * q_i · (k_j + key_table[row]) + bias_table[row]
    weight_ij = softmax over the keys that i may see
    out_i = sum_j weight_ij * (v_j + value_table[row])

Shaw et al. 2018, equations 3 and 4. Meant for lengths up to about 50.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.backends.inputs import Inputs


def attention(inputs: Inputs) -> Tensor:
    """Relative attention by a double loop over queries and keys, (B, H, Q, Dv)."""
    wide = inputs.widened()
    out = [_attend(wide, i) for i in range(wide.query.shape[2])]
    return torch.stack(out, dim=2).to(inputs.query.dtype)


def _attend(inputs: Inputs, i: int) -> Tensor:
    """Output of query i, (B, H, Dv)."""
    keys = range(inputs.key.shape[2])
    scores = torch.stack([_score(inputs, i, j) for j in keys], dim=-1)  # (B, H, S)
    visible = torch.stack([_visible(inputs, i, j) for j in keys], dim=-1)
    visible = visible & (scores > -torch.inf)  # a bias of -inf hides a key too
    weights = _softmax_of_visible(scores, visible)
    weights = F.dropout(weights, inputs.dropout_p)
    return sum(
        (weights[..., j, None] * _value(inputs, i, j) for j in keys),
        start=torch.zeros_like(inputs.value[:, :, 0]),
    )


def _score(inputs: Inputs, i: int, j: int) -> Tensor:
    """Score of one pair, (B, H)."""
    key = inputs.key[:, :, j]  # (B, H, D)
    if inputs.key_table is not None:
        key = key + _row(inputs.key_table, inputs, i, j)
    score = inputs.scale * (inputs.query[:, :, i] * key).sum(-1)
    if inputs.bias_table is not None:
        score = score + _row(inputs.bias_table[..., None], inputs, i, j)[..., 0]
    return score


def _value(inputs: Inputs, i: int, j: int) -> Tensor:
    """What query i takes from key j, (B, H, Dv)."""
    value = inputs.value[:, :, j]
    if inputs.value_table is not None:
        value = value + _row(inputs.value_table, inputs, i, j)
    return value


def _row(table: Tensor, inputs: Inputs, i: int, j: int) -> Tensor:
    """Row of a (…, 2K+1, D) table for one pair, (…, D)."""
    max_distance = (table.shape[-2] - 1) // 2
    offset = j - (inputs.query_start + i)
    return table[..., min(max(offset, -max_distance), max_distance) + max_distance, :]


def _visible(inputs: Inputs, i: int, j: int) -> Tensor:
    """Whether query i may attend to key j, (B, H)."""
    shape = (*inputs.query.shape[:2], inputs.query.shape[2], inputs.key.shape[2])
    if inputs.is_causal and j > inputs.query_start + i:
        return torch.zeros(shape[:2], dtype=torch.bool, device=inputs.query.device)
    if inputs.mask is None:
        return torch.ones(shape[:2], dtype=torch.bool, device=inputs.query.device)
    return inputs.mask.expand(shape)[:, :, i, j]


def _softmax_of_visible(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the visible keys; zeros where there is none, (B, H, S)."""
    lowest = torch.finfo(scores.dtype).min
    largest = torch.where(visible, scores, lowest).amax(-1, keepdim=True).detach()
    exps = torch.where(visible, scores - largest, -torch.inf).exp()
    total = exps.sum(-1, keepdim=True)
    return exps / torch.where(total > 0, total, 1)
