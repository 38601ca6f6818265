"""An attention block whose scores carry a gated relative bias."""

from __future__ import annotations

from torch import Tensor, nn

from relpos_lib._checks import check_number, check_width
from relpos_lib.attention import (
    check_backend,
    checked_visibility,
    relative_attention,
)
from relpos_lib.bias import GatedBiasRPE
from relpos_lib.cache import KeyValueCache, length_with_cache
from relpos_lib.heads import check_input, join_heads, split_heads


class RPETransformerBlock(nn.Module):
    """Self-attention with a gated bias, then dropout, residual and layer norm.

    ``out = norm1(x + dropout(wo(attention(x))))``, with scores
    ``q_i · k_j / sqrt(D) + b[j - i]`` and the b of :class:`relpos_lib.GatedBiasRPE`.

    Args:
        d_model: E, a multiple of ``num_heads``.
        num_heads: H, at least 1.
        max_len: ``K + 1`` of the bias, at least 1; longer inputs read its edge rows.
        dropout: probability, in [0, 1], for attention weights and for the output;
            acts in training mode only.
        backend: who computes it, by its name in ``relative_attention``.

    Attributes:
        wq, wk, wv, wo: projections, E to E.
        rpe: the :class:`relpos_lib.GatedBiasRPE`.
        norm1: the layer norm.

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if a number is out of range, the heads don't divide ``d_model``, or
            the backend is unknown.

    >>> import torch
    >>> block = RPETransformerBlock(d_model=8, num_heads=2)
    >>> block(torch.randn(1, 5, 8), is_causal=True).shape
    torch.Size([1, 5, 8])
    >>> cache = KeyValueCache()
    >>> with torch.no_grad():  # a prompt of five tokens, then one more
    ...     prompt = block(torch.randn(1, 5, 8), is_causal=True, cache=cache)
    ...     block(torch.randn(1, 1, 8), cache=cache).shape, cache.length
    (torch.Size([1, 1, 8]), 6)
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        max_len: int = 512,
        dropout: float = 0.1,
        *,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_width(d_model, num_heads)
        check_number("dropout", dropout, 0.0, 1.0)
        check_backend(backend)
        self.num_heads = num_heads
        self.backend = backend
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        self.rpe = GatedBiasRPE(num_heads, max_len)
        self.dropout = nn.Dropout(dropout)
        self.norm1 = nn.LayerNorm(d_model)

    def extra_repr(self) -> str:
        """Which backend was asked for, for ``print``."""
        return "" if self.backend == "auto" else f"backend={self.backend!r}"

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """One block, over a sequence or the newest part of one.

        Args:
            x: (B, L, E); with a cache the new tokens only.
            mask: True where a query may attend; (L, S) or 4-D broadcastable to
                (B, H, L, S). S is L, and with a cache all tokens so far.
            is_causal: whether a query sees only keys at or before its own position.
            cache: where the new keys and values are added, and read with those before
                them. It keeps no gradients: decode under ``torch.no_grad()``.

        Returns:
            A tensor like ``x``.

        Raises:
            TypeError: if an argument has the wrong type or dtype.
            ValueError: if an argument has the wrong shape or device.
        """
        check_input("x", self.wq, x)
        (batch, length, width), heads = x.shape, self.num_heads
        k_len = length_with_cache(
            cache, (batch, heads, length, width // heads), x.device
        )
        mask, _ = checked_visibility(
            (batch, heads, length, k_len), x.device, mask, is_causal
        )
        q, k, v = (
            split_heads("x", projection, x, heads)
            for projection in (self.wq, self.wk, self.wv)
        )
        if cache is not None:
            k, v = cache.append(k, v)
        attended = relative_attention(
            q,
            k,
            v,
            **self.rpe.tables(),
            mask=mask,
            is_causal=is_causal,
            dropout_p=self.dropout.p if self.training else 0.0,
            backend=self.backend,
        )
        out: Tensor = self.norm1(x + self.dropout(join_heads(self.wo, attended)))
        return out
