"""What a layer of the tiny model knows about positions, and how it attends with it.

Most schemes hand tables to :func:`relpos_lib.relative_attention`. The few that cannot
be written as tables attend in a way of their own.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from relpos_lib.attention import relative_attention
from relpos_lib.bias import ContentGatedBiasRPE, MultiplicativeBiasRPE
from relpos_lib.offsets import clip_table, relative_offsets
from relpos_lib.rotary import rotary_encoding
from relpos_lib.shaw import RelativePositionEmbedding
from relpos_lib.tables import Tables


class Scheme(Protocol):
    """What offers tables to a layer."""

    max_distance: int | None

    def tables(self, max_distance: int | None = None) -> Tables:
        """Tables of one layer."""


class ShawTables(nn.Module):
    """Shaw's tables alone, for a model that has projections of its own.

    Args:
        max_distance: K, at least 0; or one per head.
        head_dim: D, at least 1.
        keys: whether keys have vectors.
        values: whether values have vectors.
    """

    def __init__(
        self,
        max_distance: int | tuple[int, ...],
        head_dim: int,
        keys: bool = True,
        values: bool = True,
    ) -> None:
        super().__init__()
        self.keys = RelativePositionEmbedding(max_distance, head_dim) if keys else None
        self.values = (
            RelativePositionEmbedding(max_distance, head_dim) if values else None
        )
        self.max_distance: int | None = (
            max(max_distance) if isinstance(max_distance, tuple) else max_distance
        )

    def tables(self, max_distance: int | None = None) -> Tables:
        """Tables of keys and values, those that there are."""
        tables: Tables = {}
        if self.keys is not None:
            tables["key_table"] = self.keys.table(max_distance)
        if self.values is not None:
            tables["value_table"] = self.values.table(max_distance)
        return tables


class Times(nn.Module):
    """The bias table of another scheme, times a constant.

    Adam moves every parameter by about the learning rate, whatever the size of its
    gradient, so this table moves as if its own rate were that many times larger.

    Args:
        rpe: what offers the table.
        factor: the constant.
    """

    def __init__(self, rpe: Scheme, factor: float) -> None:
        super().__init__()
        self.rpe, self.factor = rpe, factor
        self.max_distance = rpe.max_distance

    def tables(self, max_distance: int | None = None) -> Tables:
        """The table of one layer, multiplied."""
        return {"bias_table": self.factor * self.rpe.tables(max_distance)["bias_table"]}


class OwnAttention(nn.Module):
    """Base of what attends in a way of its own, because it is no table."""

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool
    ) -> Tensor:
        """Attention of one layer, (B, H, L, D) each, to (B, H, L, D)."""
        scores = query @ key.mT / query.shape[-1] ** 0.5  # (B, H, L, L)
        scores = self.placed(scores, query)
        if is_causal:
            later = relative_offsets(*scores.shape[-2:], device=scores.device) > 0
            scores = scores.masked_fill(later, -torch.inf)
        return scores.softmax(-1) @ value

    def placed(self, scores: Tensor, query: Tensor) -> Tensor:
        """The scores with what the scheme knows about positions."""
        raise NotImplementedError


class FromFactor(OwnAttention):
    """Scores multiplied by their offset's factor."""

    def __init__(self, rpe: MultiplicativeBiasRPE) -> None:
        super().__init__()
        self.rpe = rpe

    def placed(self, scores: Tensor, query: Tensor) -> Tensor:
        """``scores * (1 + b)``."""
        out: Tensor = self.rpe(scores)
        return out


class FromContentGate(OwnAttention):
    """Scores with a bias whose strength each query chooses."""

    def __init__(self, rpe: ContentGatedBiasRPE) -> None:
        super().__init__()
        self.rpe = rpe

    def placed(self, scores: Tensor, query: Tensor) -> Tensor:
        """``scores + strength(query) * b``."""
        out: Tensor = self.rpe(scores, query)
        return out


class Rotary(OwnAttention):
    """Queries and keys turned by their positions."""

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool
    ) -> Tensor:
        """Attention of one layer, (B, H, L, D) each, to (B, H, L, D)."""
        query, key = rotary_encoding(query), rotary_encoding(key)
        return relative_attention(query, key, value, is_causal=is_causal)


def hide_beyond(tables: Tables, window: int, like: Tensor) -> Tables:
    """The tables with a bias of -inf beyond ``window``: local attention.

    Args:
        tables: of one layer.
        window: the farthest distance that is still seen.
        like: a tensor (B, H, L, D) whose heads, device and dtype the bias takes.
    """
    bias = tables.get("bias_table", like.new_zeros(like.shape[1], 1))
    bias = clip_table(bias[..., None], window + 1)[..., 0]  # (H, 2 * window + 3)
    edge = torch.zeros(bias.shape[1], dtype=torch.bool, device=bias.device)
    edge[0] = edge[-1] = True
    return {**tables, "bias_table": bias.masked_fill(edge, -torch.inf)}
