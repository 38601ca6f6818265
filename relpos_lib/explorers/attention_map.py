"""Attention map explorer: real queries, keys and tables, all heads on one scale."""

from __future__ import annotations

import math
from typing import Protocol

import torch
import traitlets
from torch import Tensor

from relpos_lib.attention import relative_attention
from relpos_lib.explorers._base import (
    Explorer,
    WholeNumber,
    Word,
    YesNo,
    allowed_pairs,
    fixed,
)
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._picture import draw_panels, round_up
from relpos_lib.offsets import farthest_offset, table_rows
from relpos_lib.shaw import RelativeMultiHeadAttention

UNITS = {
    "weights": "attention weight",
    "content": "content score",
    "position": "position score",
    "score": "score",
}
MOST_HEADS, LONGEST = 64, 512


class AdditiveScheme(Protocol):
    """Any additive scheme of :mod:`relpos_lib.bias`: it has a K and a table."""

    max_distance: int | None

    def tables(self, max_distance: int | None = None) -> dict[str, Tensor]:
        """Tables as keyword arguments of ``relative_attention``."""
        ...


class AttentionMapExplorer(Explorer):
    """Attention of every head, with sliders for maximum distance and heads shown.

    ``score_ij = content_ij + position_ij``; content is ``q_i · k_j / sqrt(D)``,
    position is ``q_i · a[offset] / sqrt(D)`` (Shaw) or ``b[offset]`` (bias). The slider
    of the maximum distance clips the same table to its middle rows. Mostly made by
    :meth:`from_shaw` or :meth:`from_bias`.

    Args:
        query: (H, Q, D).
        key: (H, S, D).
        key_table: Shaw's table, (2K+1, D) or (H, 2K+1, D).
        bias_table: additive table, (H, 2K+1); exactly one of the two tables is needed.
        max_distance: where the slider stands at first; the table's K if not given. A
            table is shown up to the largest offset that occurs.
        heads_shown: how many heads are shown at first; up to four if not given.
        causal: whether keys later than the query are masked.
        view: "weights", "content", "position" or "score".

    Raises:
        ValueError: if the tensors don't fit together, or not one table is given.
        traitlets.TraitError: if a value is out of its range, now or when it is set.
    """

    _esm = bundle("attention_map.js")

    num_heads = fixed(WholeNumber, 1, MOST_HEADS)
    query_length = fixed(WholeNumber, 1, LONGEST)
    key_length = fixed(WholeNumber, 1, LONGEST)
    head_width = fixed(WholeNumber, 1, 4096)
    table_distance = fixed(WholeNumber, 0, LONGEST)
    scheme = fixed(Word, "shaw", "bias")
    _query = fixed(traitlets.Bytes)
    _key = fixed(traitlets.Bytes)
    _table = fixed(traitlets.Bytes)
    max_distance = WholeNumber(0, "table_distance")
    heads_shown = WholeNumber(1, "num_heads")
    causal = YesNo()
    view = Word("weights", "content", "position", "score")

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        *,
        key_table: Tensor | None = None,
        bias_table: Tensor | None = None,
        max_distance: int | None = None,
        heads_shown: int | None = None,
        causal: bool = False,
        view: str = "weights",
    ) -> None:
        if (key_table is None) == (bias_table is None):
            raise ValueError("exactly one of key_table and bias_table must be given")
        self._take(_checked(query, key, key_table, bias_table))
        if max_distance is None:
            max_distance = self.table_distance
        if heads_shown is None:
            heads_shown = min(4, self.num_heads)
        super().__init__(
            max_distance=max_distance,
            heads_shown=heads_shown,
            causal=causal,
            view=view,
        )

    @classmethod
    def from_shaw(
        cls,
        module: RelativeMultiHeadAttention,
        x: Tensor,
        *,
        max_distance: int | None = None,
        heads_shown: int | None = None,
        causal: bool = False,
        view: str = "weights",
    ) -> AttentionMapExplorer:
        """Self-attention of a sequence in a module with Shaw's key vectors.

        Args:
            module: the attention; it must have key vectors.
            x: the sequence, (L, E) or (1, L, E).
            max_distance: as of the class.
            heads_shown: as of the class.
            causal: as of the class.
            view: as of the class.

        Returns:
            The figure.

        Raises:
            ValueError: if the module has no key vectors or x does not fit it.
            traitlets.TraitError: if a value is out of its range.
        """
        table = module.relative_positions_embeddings_k
        if table is None:
            raise ValueError("module must have key vectors (keys=True) to show scores")
        x = x[0] if x.dim() == 3 and len(x) == 1 else x
        if x.dim() != 2 or x.shape[1] != module.d_model:
            raise ValueError(
                f"x must have shape (L, {module.d_model}) or (1, L, {module.d_model}), "
                f"got {tuple(x.shape)}"
            )
        with torch.no_grad():
            query, key = (
                projection(x).unflatten(-1, (module.num_heads, -1)).transpose(0, 1)
                for projection in (module.wq, module.wk)
            )
            distance = min(table.max_distance, len(x) - 1)
            return cls(
                query,
                key,
                key_table=table.table(distance),
                max_distance=max_distance,
                heads_shown=heads_shown,
                causal=causal,
                view=view,
            )

    @classmethod
    def from_bias(
        cls,
        query: Tensor,
        key: Tensor,
        rpe: AdditiveScheme,
        *,
        max_distance: int | None = None,
        heads_shown: int | None = None,
        causal: bool = False,
        view: str = "weights",
    ) -> AttentionMapExplorer:
        """Attention with an additive bias.

        Args:
            query: (H, Q, D) or (1, H, Q, D).
            key: (H, S, D) or (1, H, S, D).
            rpe: an additive scheme, such as ``SimpleBiasRPE`` or ``ALiBi``.
            max_distance: as of the class.
            heads_shown: as of the class.
            causal: as of the class.
            view: as of the class.

        Returns:
            The figure.

        Raises:
            ValueError: if the tensors don't fit together.
            traitlets.TraitError: if a value is out of its range.
        """
        query, key = (t[0] if t.dim() == 4 and len(t) == 1 else t for t in (query, key))
        reach = farthest_offset(query.shape[-2], key.shape[-2])
        distance = reach if rpe.max_distance is None else min(rpe.max_distance, reach)
        with torch.no_grad():
            return cls(
                query,
                key,
                bias_table=rpe.tables(distance)["bias_table"],
                max_distance=max_distance,
                heads_shown=heads_shown,
                causal=causal,
                view=view,
            )

    def _take(self, tensors: dict[str, Tensor]) -> None:
        """Keep the tensors, trim the table to what occurs and send all to the page."""
        self._tensors = tensors
        query, key = tensors["query"], tensors["key"]
        name = "key_table" if "key_table" in tensors else "bias_table"
        axis = -2 if name == "key_table" else -1
        own = tensors[name].shape[axis] // 2
        reach = min(own, farthest_offset(query.shape[1], key.shape[1]))
        tensors[name] = tensors[name].narrow(axis, own - reach, 2 * reach + 1)
        self._fix(
            num_heads=len(query),
            query_length=query.shape[1],
            key_length=key.shape[1],
            head_width=query.shape[2],
            table_distance=reach,
            scheme="shaw" if name == "key_table" else "bias",
            _query=_to_bytes(query),
            _key=_to_bytes(key),
            _table=_to_bytes(tensors[name]),
        )

    def maps(self) -> dict[str, Tensor]:
        """What the figure computes, for all heads and the maximum distance of now.

        Returns:
            "content", "position", "score" and "weights", each (H, Q, S) in float64;
            the first two add up to the third, masked cells have weight 0.
        """
        query, key = self._tensors["query"].double(), self._tensors["key"].double()
        tables = self._clipped()
        scale = 1 / math.sqrt(self.head_width)
        rows = table_rows(self.query_length, self.key_length, self.max_distance)
        content = scale * query @ key.transpose(-1, -2)
        if self.scheme == "shaw":
            pairs = tables["key_table"][..., rows, :]
            position = scale * (query[:, :, None, :] * pairs).sum(-1)
        else:
            position = tables["bias_table"][:, rows]
        # With the identity as values, attention returns its own weights.
        identity = torch.eye(self.key_length).double().expand(1, self.num_heads, -1, -1)
        weights = relative_attention(
            query[None],
            key[None],
            identity,
            key_table=tables.get("key_table"),
            bias_table=tables.get("bias_table"),
            is_causal=self.causal,
        )[0]
        score = content + position
        return {
            "content": content,
            "position": position,
            "score": score,
            "weights": weights,
        }

    def _clipped(self) -> dict[str, Tensor]:
        """The table, clipped to the maximum distance of now, in float64."""
        start = self.table_distance - self.max_distance
        count = 2 * self.max_distance + 1
        if self.scheme == "shaw":
            table = self._tensors["key_table"].double().narrow(-2, start, count)
            return {"key_table": table}
        table = self._tensors["bias_table"].double().narrow(-1, start, count)
        return {"bias_table": table}

    def values(self) -> Tensor:
        """What the figure shows now, (heads shown, Q, S), float64; NaN where masked."""
        shown = self.maps()[self.view].masked_fill(~self.allowed(), float("nan"))
        return shown[: self.heads_shown]

    def allowed(self) -> Tensor:
        """Where a query may attend, (Q, S), bool."""
        return allowed_pairs(self.query_length, self.key_length, self.causal)

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        kind = "Shaw's key table" if self.scheme == "shaw" else "a bias table"
        return (
            f"Attention map explorer: {UNITS[self.view]}s of {self.heads_shown} of "
            f"{self.num_heads} heads with {kind}, {self.query_length} queries and "
            f"{self.key_length} keys, maximum distance {self.max_distance}"
            f"{', causal' if self.causal else ''}."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        everything = self.maps()[self.view].masked_fill(~self.allowed(), 0.0)
        top = round_up(everything.abs().max().item())
        low = 0.0 if self.view == "weights" else -top
        panels = list(self.values().numpy())
        titles = [f"head {h + 1}" for h in range(len(panels))]
        return draw_panels(panels, titles, low, top, UNITS[self.view])


def _checked(
    query: Tensor, key: Tensor, key_table: Tensor | None, bias_table: Tensor | None
) -> dict[str, Tensor]:
    """The tensors on the CPU in float32, after the checks of ``relative_attention``."""
    for name, tensor in (("query", query), ("key", key)):
        if tensor.dim() != 3:
            raise ValueError(
                f"{name} must have shape (H, length, D), got {tuple(tensor.shape)}"
            )
    named = {
        "query": query,
        "key": key,
        "key_table": key_table,
        "bias_table": bias_table,
    }
    kept = {
        name: tensor.detach().to("cpu", torch.float32)
        for name, tensor in named.items()
        if tensor is not None
    }
    batched = [kept[name][None] for name in ("query", "key", "key")]
    relative_attention(
        *batched,
        key_table=kept.get("key_table"),
        bias_table=kept.get("bias_table"),
    )
    return kept


def _to_bytes(tensor: Tensor) -> bytes:
    """The numbers as little-endian float32."""
    return tensor.contiguous().numpy().astype("<f4").tobytes()
