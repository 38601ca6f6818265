"""Relative attention by gathering scores and scattering weights: the readable form.

Keys: the scores of a query with all 2K+1 rows are one matrix product; each key gathers
the one of its row. Values: weights that read the same row are summed into one of 2K+1
bins, and the bins are multiplied with the table once. Nothing of shape (Q, S, D) is
made.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.backends.inputs import Inputs
from relpos_lib.offsets import clip_table, farthest_offset, table_rows


def attention(inputs: Inputs) -> Tensor:
    """Relative attention through one (B, H, Q, S) tensor of scores, (B, H, Q, Dv)."""
    wide = prepared(inputs)
    scores = inputs.scale * (content_scores(wide) + positional_scores(wide))
    weights = attention_weights(wide, scores)
    return weighted_values(wide, weights).to(inputs.query.dtype)


def prepared(inputs: Inputs) -> Inputs:
    """The inputs in float32 or wider, without table rows that no pair reads."""
    wide = inputs.widened()
    if torch.compiler.is_compiling():
        return wide  # a width that follows the length would be a graph per length
    farthest = farthest_offset(wide.query.shape[2], wide.key.shape[2], wide.query_start)
    return wide._replace(
        key_table=_clipped(wide.key_table, farthest),
        value_table=_clipped(wide.value_table, farthest),
    )


def content_scores(inputs: Inputs) -> Tensor:
    """``q_i · k_j``, before any scaling, (B, H, Q, S)."""
    return inputs.query @ inputs.key.mT


def positional_scores(inputs: Inputs) -> Tensor:
    """``q_i · key_table[row]``, before any scaling; (B, H, Q, S), or a zero."""
    if inputs.key_table is None:
        return inputs.query.new_zeros(())
    by_row = inputs.query @ inputs.key_table.mT  # (B, H, Q, 2K+1)
    rows = _rows(inputs, by_row.shape[-1])
    return by_row.gather(-1, rows.expand(*by_row.shape[:2], *rows.shape))


def attention_weights(inputs: Inputs, scores: Tensor) -> Tensor:
    """Softmax of the scaled scores plus bias over the visible keys, (B, H, Q, S)."""
    if inputs.bias_table is not None:
        scores = (
            scores + inputs.bias_table[:, _rows(inputs, inputs.bias_table.shape[1])]
        )
    visible = visible_keys(inputs)
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    elif inputs.bias_table is None:
        return scores.softmax(-1)
    # A row without keys is -inf throughout and would be NaN: soften it, then zero it.
    hidden = scores == -torch.inf
    scores = scores.masked_fill(hidden.all(-1, keepdim=True), 0)
    return scores.softmax(-1).masked_fill(hidden, 0)


def visible_keys(inputs: Inputs) -> Tensor | None:
    """Which keys each query may attend to, 4-D and bool; None if all of them."""
    if not inputs.is_causal:
        return inputs.mask
    q_len, k_len = inputs.query.shape[2], inputs.key.shape[2]
    device = inputs.query.device
    queries = torch.arange(q_len, device=device) + inputs.query_start
    past = torch.arange(k_len, device=device) <= queries[:, None]
    return past[None, None] if inputs.mask is None else past & inputs.mask


def weighted_values(inputs: Inputs, weights: Tensor) -> Tensor:
    """``sum_j weight_ij * (v_j + value_table[row])`` after dropout, (B, H, Q, Dv)."""
    weights = F.dropout(weights, inputs.dropout_p)
    out = weights @ inputs.value
    if inputs.value_table is None:
        return out
    num_rows = inputs.value_table.shape[-2]
    rows = _rows(inputs, num_rows).expand_as(weights)
    bins = weights.new_zeros(*weights.shape[:3], num_rows)
    return out + bins.scatter_add(-1, rows, weights) @ inputs.value_table


def _clipped(table: Tensor | None, farthest: int) -> Tensor | None:
    """The table, cut to the rows up to the farthest offset if it has more."""
    if table is None or table.shape[-2] <= 2 * farthest + 1:
        return table
    return clip_table(table, farthest)


def _rows(inputs: Inputs, num_rows: int) -> Tensor:
    """Table row of every pair, (Q, S)."""
    return table_rows(
        inputs.query.shape[2],
        inputs.key.shape[2],
        (num_rows - 1) // 2,
        query_start=inputs.query_start,
        device=inputs.query.device,
    )
