"""Attention map explorer: real queries, keys and tables, all heads on one scale."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
import traitlets
from torch import Tensor

from relpos_lib._checks import check_floating
from relpos_lib.attention import checked_inputs
from relpos_lib.backends import gather
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
from relpos_lib.explorers._tensors import checked_heads, coloured, to_bytes
from relpos_lib.heads import split_heads
from relpos_lib.offsets import farthest_offset, table_rows
from relpos_lib.shaw import RelativeMultiHeadAttention

UNITS = {
    "weights": "attention weight",
    "content": "content score",
    "position": "position score",
    "score": "score",
}
MOST_HEADS, LONGEST = 64, 512


@runtime_checkable
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
        query: (H, Q, D) or (1, H, Q, D); all tensors are copied as float32.
        key: (H, S, D) or (1, H, S, D).
        key_table: Shaw's table, (2K+1, D) or (H, 2K+1, D).
        bias_table: additive table, (H, 2K+1); exactly one of the two tables is needed.
        max_distance: where the slider stands at first; the table's K if not given. A
            table is shown up to the largest offset that occurs.
        heads_shown: how many heads are shown at first; up to four if not given.
        causal: whether keys later than the query are masked.
        view: "weights", "content", "position" or "score".

    Raises:
        TypeError: if query, key or table is no floating-point tensor.
        ValueError: if the tensors don't fit together, hold numbers that float32 or
            the colours cannot show, or not one table is given.
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
            TypeError: if x is no floating-point tensor of the module's dtype.
            ValueError: if the module has no key vectors or x does not fit it.
            traitlets.TraitError: if a value is out of its range.
        """
        table = module.relative_positions_embeddings_k
        if table is None:
            raise ValueError("module must have key vectors (keys=True) to show scores")
        check_floating("x", x)
        x = x[0] if x.dim() == 3 and len(x) == 1 else x
        if x.dim() != 2 or x.shape[1] != module.d_model or len(x) == 0:
            raise ValueError(
                f"x must have shape (L, {module.d_model}) or (1, L, {module.d_model}) "
                f"with L at least 1, got {tuple(x.shape)}"
            )
        with torch.no_grad():
            query, key = (
                split_heads("x", projection, x[None], module.num_heads)[0]
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
            TypeError: if query or key is no floating-point tensor, or the scheme has
                no table over offsets.
            ValueError: if the tensors don't fit together or hold numbers that float32
                or the colours cannot show.
            traitlets.TraitError: if a value is out of its range.
        """
        if not isinstance(rpe, AdditiveScheme):
            raise TypeError(
                "rpe must be an additive scheme, with a table over offsets such as "
                f"SimpleBiasRPE or ALiBi have, got {type(rpe).__name__}"
            )
        query, key = (
            checked_heads(name, tensor)
            for name, tensor in (("query", query), ("key", key))
        )
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
            _query=to_bytes(query),
            _key=to_bytes(key),
            _table=to_bytes(tensors[name]),
        )

    def maps(self) -> dict[str, Tensor]:
        """What the figure computes, for all heads and the maximum distance of now.

        Returns:
            "content", "position", "score" and "weights", each (H, Q, S) in float64;
            the first two add up to the third, masked cells have weight 0.
        """
        query, key = (self._tensors[name].double()[None] for name in ("query", "key"))
        table = self._clipped()
        shaw = self.scheme == "shaw"
        # These are scores and weights only, so the keys can stand in for the values.
        inputs = checked_inputs(
            query, key, key, key_table=table if shaw else None, is_causal=self.causal
        )
        content = inputs.scale * gather.content_scores(inputs)
        if shaw:
            position = inputs.scale * gather.positional_scores(inputs)
        else:
            rows = table_rows(self.query_length, self.key_length, self.max_distance)
            position = table[None, :, rows]
        score = content + position
        return {
            "content": content[0],
            "position": position[0],
            "score": score[0],
            "weights": gather.attention_weights(inputs, score)[0],
        }

    def _clipped(self) -> Tensor:
        """The table, clipped to the maximum distance of now, in float64."""
        name, axis = ("key_table", -2) if self.scheme == "shaw" else ("bias_table", -1)
        start, count = (
            self.table_distance - self.max_distance,
            2 * self.max_distance + 1,
        )
        return self._tensors[name].narrow(axis, start, count).double()

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
    """Copies of the tensors, on the CPU in float32, after all checks."""
    named = {
        "query": checked_heads("query", query),
        "key": checked_heads("key", key),
        "key_table": key_table,
        "bias_table": bias_table,
    }
    kept = {
        name: coloured(name, tensor)
        for name, tensor in named.items()
        if tensor is not None
    }
    batched = [kept[name][None] for name in ("query", "key", "key")]
    checked_inputs(
        *batched,
        key_table=kept.get("key_table"),
        bias_table=kept.get("bias_table"),
    )
    return kept
