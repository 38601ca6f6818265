"""A tiny Transformer in which only the way of telling positions differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from relpos_lib.attention import relative_attention
from relpos_lib.experiments.positions import OwnAttention, Scheme, hide_beyond
from relpos_lib.heads import join_heads, split_heads
from relpos_lib.tables import Tables


class TinyTransformer(nn.Module):
    """Pre-norm encoder that maps symbols to symbols.

    Args:
        num_symbols: size of the alphabet.
        encoding: module that adds absolute codes to the embeddings; None adds none.
        make_rpe: makes the module with the tables of a layer; None makes none.
        d_model: E, a multiple of ``num_heads``.
        num_heads: H, number of heads.
        num_layers: number of layers.
        is_causal: whether a position sees only itself and what is before it.
        window: distance beyond which nothing is seen; None sees all.
    """

    def __init__(
        self,
        num_symbols: int,
        *,
        encoding: nn.Module | None = None,
        make_rpe: Callable[[], Scheme | OwnAttention] | None = None,
        d_model: int = 64,
        num_heads: int = 4,
        num_layers: int = 2,
        is_causal: bool = False,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.num_symbols = num_symbols
        self.embedding = nn.Embedding(num_symbols, d_model)
        self.encoding = encoding if encoding is not None else nn.Identity()
        self.layers = nn.ModuleList(
            TinyLayer(
                d_model, num_heads, make_rpe() if make_rpe else None, is_causal, window
            )
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
        self,
        d_model: int,
        num_heads: int,
        rpe: Scheme | OwnAttention | None,
        is_causal: bool,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.is_causal, self.window = num_heads, is_causal, window
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
        query, key, value = (
            split_heads("x", projection, y, self.num_heads)
            for projection in (self.wq, self.wk, self.wv)
        )
        x = x + join_heads(self.wo, self.attend(query, key, value))
        out: Tensor = x + self.network(self.norm2(x))
        return out

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention with positions, (B, H, L, D) each, to (B, H, L, D)."""
        if isinstance(self.rpe, OwnAttention):
            return self.rpe.attend(query, key, value, self.is_causal)
        tables = self.tables(query.shape[2])
        if self.window is not None:
            tables = hide_beyond(tables, self.window, query)
        return relative_attention(query, key, value, **tables, is_causal=self.is_causal)

    def tables(self, length: int) -> Tables:
        """Tables of this layer, wide enough for a length."""
        if self.rpe is None:
            return {}
        scheme = cast(Scheme, self.rpe)
        own = scheme.max_distance
        return scheme.tables(length - 1 if own is None else own)
