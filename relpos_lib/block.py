"""An attention block whose scores carry a gated relative bias."""

from __future__ import annotations

from torch import Tensor, nn

from relpos_lib._checks import check_number, check_width
from relpos_lib.attention import checked_visibility, relative_attention
from relpos_lib.bias import GatedBiasRPE
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

    Attributes:
        wq, wk, wv, wo: projections, E to E.
        rpe: the :class:`relpos_lib.GatedBiasRPE`.
        norm1: the layer norm.

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if a number is out of range or the heads don't divide ``d_model``.

    >>> import torch
    >>> block = RPETransformerBlock(d_model=8, num_heads=2)
    >>> block(torch.randn(1, 5, 8), is_causal=True).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self, d_model: int, num_heads: int, max_len: int = 512, dropout: float = 0.1
    ) -> None:
        super().__init__()
        check_width(d_model, num_heads)
        check_number("dropout", dropout, 0.0, 1.0)
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        self.rpe = GatedBiasRPE(num_heads, max_len)
        self.dropout = nn.Dropout(dropout)
        self.norm1 = nn.LayerNorm(d_model)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """One block.

        Args:
            x: (B, L, E).
            mask: True where a query may attend; (L, L) or 4-D broadcastable to
                (B, H, L, L).
            is_causal: whether a query sees only keys at or before its own position.

        Returns:
            A tensor like ``x``.

        Raises:
            TypeError: if an argument has the wrong type or dtype.
            ValueError: if an argument has the wrong shape or device.
        """
        check_input("x", self.wq, x)
        batch, length, _ = x.shape
        mask, _ = checked_visibility(
            (batch, self.num_heads, length, length), x.device, mask, is_causal
        )
        q, k, v = (
            split_heads("x", projection, x, self.num_heads)
            for projection in (self.wq, self.wk, self.wv)
        )
        attended = relative_attention(
            q,
            k,
            v,
            **self.rpe.tables(),
            mask=mask,
            is_causal=is_causal,
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        out: Tensor = self.norm1(x + self.dropout(join_heads(self.wo, attended)))
        return out
