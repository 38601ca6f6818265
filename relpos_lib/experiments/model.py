"""A tiny Transformer in which only the way of telling positions differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from relpos_lib.attention import relative_attention
from relpos_lib.heads import join_heads, split_heads
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
        max_distance: K, at least 0.
        head_dim: D, at least 1.
        keys: whether keys have vectors.
        values: whether values have vectors.
    """

    def __init__(
        self, max_distance: int, head_dim: int, keys: bool = True, values: bool = True
    ) -> None:
        super().__init__()
        self.max_distance: int | None = max_distance
        self.keys = RelativePositionEmbedding(max_distance, head_dim) if keys else None
        self.values = (
            RelativePositionEmbedding(max_distance, head_dim) if values else None
        )

    def tables(self, max_distance: int | None = None) -> Tables:
        """Tables of keys and values, those that there are."""
        tables: Tables = {}
        if self.keys is not None:
            tables["key_table"] = self.keys.table(max_distance)
        if self.values is not None:
            tables["value_table"] = self.values.table(max_distance)
        return tables


class TinyTransformer(nn.Module):
    """Pre-norm encoder that maps symbols to symbols.

    Args:
        num_symbols: size of the alphabet.
        encoding: module that adds absolute codes to the embeddings; None adds none.
        make_rpe: makes the module with the tables of a layer; None makes none.
        d_model: E, a multiple of ``num_heads``.
        num_heads: H.
        num_layers: number of layers.
        is_causal: whether a position sees only itself and what is before it.
    """

    def __init__(
        self,
        num_symbols: int,
        *,
        encoding: nn.Module | None = None,
        make_rpe: Callable[[], Scheme] | None = None,
        d_model: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        is_causal: bool = False,
    ) -> None:
        super().__init__()
        self.num_symbols = num_symbols
        self.embedding = nn.Embedding(num_symbols, d_model)
        self.encoding = encoding if encoding is not None else nn.Identity()
        self.layers = nn.ModuleList(
            TinyLayer(d_model, num_heads, make_rpe() if make_rpe else None, is_causal)
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.readout = nn.Linear(d_model, num_symbols)

    def forward(self, symbols: Tensor) -> Tensor:
        """Logits (B, L, num_symbols) for symbols (B, L)."""
        x = self.encoding(self.embedding(symbols))
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.readout(self.norm(x))
        return logits


class TinyLayer(nn.Module):
    """Attention with the tables of ``rpe``, then a two-layer network."""

    def __init__(
        self, d_model: int, num_heads: int, rpe: Scheme | None, is_causal: bool
    ) -> None:
        super().__init__()
        self.num_heads, self.is_causal = num_heads, is_causal
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        self.rpe = rpe
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.network = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, x: Tensor) -> Tensor:
        """One layer, (B, L, E) to (B, L, E)."""
        y = self.norm1(x)
        heads = [
            split_heads("x", projection, y, self.num_heads)
            for projection in (self.wq, self.wk, self.wv)
        ]
        attended = relative_attention(
            *heads, **self._tables(x.shape[1]), is_causal=self.is_causal
        )
        x = x + join_heads(self.wo, attended)
        out: Tensor = x + self.network(self.norm2(x))
        return out

    def _tables(self, length: int) -> Tables:
        if self.rpe is None:
            return {}
        own = self.rpe.max_distance
        return self.rpe.tables(length - 1 if own is None else own)
