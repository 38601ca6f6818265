"""Shaw's relative position representations: a vector for every offset.

A key is seen as ``k_j + a_K[offset]`` and a value as ``v_j + a_V[offset]``, with
offsets clipped to K, so that any length can be read. Shaw et al. 2018, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from relpos_lib._checks import check_integer, check_width
from relpos_lib.attention import (
    attend,
    check_backend,
    checked_inputs,
    checked_visibility,
    full_precision,
)
from relpos_lib.backends import gather
from relpos_lib.backends.inputs import Inputs
from relpos_lib.cache import KeyValueCache, length_with_cache
from relpos_lib.heads import check_input, join_heads, split_heads
from relpos_lib.offsets import clip_table, table_offsets, table_rows
from relpos_lib.tables import Tables


class RelativePositionEmbedding(nn.Module):
    """A learned vector for every offset from -K to K.

    ``a[offset] = table[clip(offset, -K, K) + K]``

    Heads may share the table or have one each, and each may have its own K, to the
    past and to the future. Only rows that can be read are stored.

    Args:
        max_relative_positions: K, at least 0; or H of them, one per head.
        embedding_dim: D, width of a row, at least 1.
        num_heads: H, for one table per head; None shares one table.
        max_future_positions: K towards the future, one or H; as to the past if not
            given.

    Attributes:
        embedding: the rows, an ``nn.Embedding``; heads stand one below the other. At
            first Xavier-uniform, head by head.
        max_distance: the largest K.

    Raises:
        TypeError: if a number is no integer.
        ValueError: if a number is out of range or the heads don't fit together.

    Source:
        Shaw et al. 2018, section 3.2.

    >>> RelativePositionEmbedding(4, 8)(5).shape
    torch.Size([5, 5, 8])
    >>> RelativePositionEmbedding([1, 2], 8).table().shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        max_relative_positions: int | Sequence[int],
        embedding_dim: int,
        *,
        num_heads: int | None = None,
        max_future_positions: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        check_integer("embedding_dim", embedding_dim, 1)
        if max_future_positions is None:
            max_future_positions = max_relative_positions
        self.num_heads = _count_heads(
            num_heads, max_relative_positions, max_future_positions
        )
        tables = 1 if self.num_heads is None else self.num_heads
        self._past = _per_table(
            "max_relative_positions", max_relative_positions, tables
        )
        self._future = _per_table("max_future_positions", max_future_positions, tables)
        self.max_distance = max(self._past + self._future)
        self._sizes = [p + f + 1 for p, f in zip(self._past, self._future, strict=True)]
        self.embedding = nn.Embedding(sum(self._sizes), embedding_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill each head's rows Xavier-uniform, as if they were alone."""
        for rows in torch.split(self.embedding.weight.detach(), self._sizes):
            nn.init.xavier_uniform_(rows)

    def extra_repr(self) -> str:
        """How far the tables reach, head by head, for ``print``."""
        return f"past={self._past}, future={self._future}"

    def table(self, max_distance: int | None = None) -> Tensor:
        """The table for ``relative_attention``.

        Args:
            max_distance: K of the table, at least 0; the largest own K if not given.

        Returns:
            (2K+1, D), or (H, 2K+1, D) with a table per head; where a head has a
            smaller K its edge rows repeat.

        Raises:
            TypeError: if ``max_distance`` is no integer.
            ValueError: if ``max_distance`` is below 0.
        """
        offsets = table_offsets(self.max_distance, device=self.embedding.weight.device)
        starts = [sum(self._sizes[:h]) for h in range(len(self._sizes))]
        rows = torch.stack(
            [
                offsets.clamp(-past, future) + past + start
                for past, future, start in zip(
                    self._past, self._future, starts, strict=True
                )
            ]
        )
        table: Tensor = self.embedding(rows)  # (1 or H, 2K+1, D)
        table = table[0] if self.num_heads is None else table
        return table if max_distance is None else clip_table(table, max_distance)

    def forward(self, length: int, k_len: int | None = None) -> Tensor:
        """The vector of every (query, key) pair.

        Args:
            length: Q, number of queries, at least 1.
            k_len: S, number of keys; Q if not given.

        Returns:
            (Q, S, D), or (H, Q, S, D) with a table per head. This is large: attention
            never needs it.

        Raises:
            TypeError: if a length is no integer.
            ValueError: if a length is below 1.
        """
        check_integer("length", length, 1)
        device = self.embedding.weight.device
        rows = table_rows(length, k_len, self.max_distance, device=device)
        return self.table()[..., rows, :]


class RelativeMultiHeadAttention(nn.Module):
    """Multi-head attention with Shaw's vectors on keys, values or both.

    ``score_ij = q_i · (k_j + a_K[j - i]) / sqrt(D)``,
    ``out_i = sum_j softmax_j(score_ij) * (v_j + a_V[j - i])``, heads joined by ``wo``.

    It is always relative; for cross attention, where offsets mean nothing, use
    :func:`relpos_lib.relative_attention` without tables.

    Args:
        d_model: E, a multiple of ``num_heads``.
        num_heads: H, at least 1.
        max_relative_positions: K, at least 0; or H of them, one per head.
        keys: whether keys have vectors.
        values: whether values have vectors.
        per_head: whether each head has tables of its own.
        max_future_positions: K towards the future, one or H; as to the past if not
            given.
        max_value_positions: K of the value table, one or H, on both sides; as for keys
            if not given.
        backend: who computes it, by its name in ``relative_attention``.

    Attributes:
        wq, wk, wv, wo: projections, E to E.
        relative_positions_embeddings_k: the :class:`RelativePositionEmbedding` of keys.
        relative_positions_embeddings_v: the same of values. Either is None if unused.

    Raises:
        TypeError: if a number is no integer.
        ValueError: if a number is out of range, the heads don't divide ``d_model``,
            neither keys nor values have vectors, or the backend is unknown.

    Source:
        Shaw et al. 2018, section 3.

    >>> attention = RelativeMultiHeadAttention(d_model=8, num_heads=2)
    >>> x = torch.randn(1, 5, 8)
    >>> attention(x, x, x).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        max_relative_positions: int | Sequence[int] = 64,
        *,
        keys: bool = True,
        values: bool = True,
        per_head: bool = False,
        max_future_positions: int | Sequence[int] | None = None,
        max_value_positions: int | Sequence[int] | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_width(d_model, num_heads)
        check_backend(backend)
        if not (keys or values):
            raise ValueError(
                "keys or values must be True; for attention without positions use "
                "relative_attention without tables"
            )
        self.d_model, self.num_heads = d_model, num_heads
        self.backend = backend
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        past, future = max_relative_positions, max_future_positions
        self.relative_positions_embeddings_k = (
            self._embedding(past, future, per_head) if keys else None
        )
        if max_value_positions is not None:
            _per_table("max_value_positions", max_value_positions, num_heads)
            past, future = max_value_positions, None
        self.relative_positions_embeddings_v = (
            self._embedding(past, future, per_head) if values else None
        )

    def _embedding(
        self,
        past: int | Sequence[int],
        future: int | Sequence[int] | None,
        per_head: bool,
    ) -> RelativePositionEmbedding:
        several = any(isinstance(side, Sequence) for side in (past, future))
        return RelativePositionEmbedding(
            past,
            self.d_model // self.num_heads,
            num_heads=self.num_heads if per_head or several else None,
            max_future_positions=future,
        )

    def extra_repr(self) -> str:
        """Which backend was asked for, for ``print``."""
        return "" if self.backend == "auto" else f"backend={self.backend!r}"

    def tables(self, max_distance: int | None = None) -> Tables:
        """Tables of this module, as keyword arguments of ``relative_attention``.

        Args:
            max_distance: K of the tables, at least 0; each table's own if not given.

        Returns:
            ``{"key_table": …, "value_table": …}``, each (2K+1, D) or (H, 2K+1, D);
            a side without vectors is left out.

        Raises:
            TypeError: if ``max_distance`` is no integer.
            ValueError: if ``max_distance`` is below 0.
        """
        tables: Tables = {}
        if self.relative_positions_embeddings_k is not None:
            tables["key_table"] = self.relative_positions_embeddings_k.table(
                max_distance
            )
        if self.relative_positions_embeddings_v is not None:
            tables["value_table"] = self.relative_positions_embeddings_v.table(
                max_distance
            )
        return tables

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        debug: bool = False,
        *,
        is_causal: bool = False,
        query_start: int | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """Attend from ``q`` to ``k`` and ``v``, and to what a cache holds before them.

        Args:
            q: (B, Q, E).
            k: (B, S, E); with a cache the new tokens only, and S counts all.
            v: (B, S, E); likewise.
            mask: True where a query may attend; (Q, S) or 4-D broadcastable to
                (B, H, Q, S).
            debug: whether to return the scores and weights too; always computed in the
                readable form.
            is_causal: whether a query sees only keys at or before its own position.
            query_start: position of the first query; ``S - Q`` if not given.
            cache: where the new keys and values are added, and read with those before
                them. It keeps no gradients: decode under ``torch.no_grad()``.

        Returns:
            The output, (B, Q, E). With ``debug`` a pair of it and a dictionary of
            "content_scores", "positional_scores" (both before division and mask) and
            "attention_weights", each (B, H, Q, S).

        Raises:
            TypeError: if an argument has the wrong type or dtype.
            ValueError: if an argument has the wrong shape, device or range.
        """
        self._check(q, k, v)
        (batch, q_len, _), new, heads = q.shape, k.shape[1], self.num_heads
        k_len = length_with_cache(
            cache, (batch, heads, new, self.d_model // heads), k.device
        )
        mask, query_start = checked_visibility(
            (batch, heads, q_len, k_len), q.device, mask, is_causal, query_start
        )
        keys = split_heads("k", self.wk, k, heads)
        values = split_heads("v", self.wv, v, heads)
        if cache is not None:
            keys, values = cache.append(keys, values)
        inputs = checked_inputs(
            split_heads("q", self.wq, q, heads),
            keys,
            values,
            **self.tables(),
            mask=mask,
            is_causal=is_causal,
            query_start=query_start,
        )
        if debug:
            return self._attend_openly(inputs)
        return join_heads(self.wo, attend(inputs, self.backend))

    def _check(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Refuse inputs that don't fit the module or one another."""
        for name, projection, x in (
            ("q", self.wq, q),
            ("k", self.wk, k),
            ("v", self.wv, v),
        ):
            check_input(name, projection, x)
        if k.shape[0] != q.shape[0]:
            raise ValueError(
                f"k must have the batch size of q, {q.shape[0]}, got {k.shape[0]}"
            )
        if v.shape != k.shape:
            raise ValueError(
                f"v must have the shape of k, {tuple(k.shape)}, got {tuple(v.shape)}"
            )

    def _attend_openly(self, inputs: Inputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Attention in the readable form, with what it computes on the way."""
        wide = gather.prepared(inputs)
        with full_precision(wide.query.device):
            content = gather.content_scores(wide)
            positional = gather.positional_scores(wide).expand_as(content)
            scores = wide.scale * (content + positional)
            weights = gather.attention_weights(wide, scores)
            attended = gather.weighted_values(wide, weights).to(inputs.query.dtype)
        return join_heads(self.wo, attended), {
            "content_scores": content,
            "positional_scores": positional,
            "attention_weights": weights,
        }


def _count_heads(num_heads: int | None, *distances: int | Sequence[int]) -> int | None:
    """H of the tables, from the argument or the lengths of the sequences."""
    if num_heads is not None:
        check_integer("num_heads", num_heads, 1)
        return num_heads
    lengths = [len(d) for d in distances if isinstance(d, Sequence)]
    return lengths[0] if lengths else None


def _per_table(name: str, distance: int | Sequence[int], tables: int) -> list[int]:
    """One K per table."""
    per_table = (
        list(distance) if isinstance(distance, Sequence) else [distance] * tables
    )
    if not per_table:
        raise ValueError(f"{name} must be one integer or one per head, got none")
    if len(per_table) != tables:
        raise ValueError(
            f"{name} must be one integer or one per head, {tables} of them, "
            f"got {len(per_table)}"
        )
    for one in per_table:
        check_integer(name, one, 0)
    return per_table
