"""Attention map explorer: real queries, keys and tables, all heads on one scale."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

import torch
import traitlets
from torch import Tensor

from relpos_lib._checks import check_floating
from relpos_lib.attention import checked_inputs, relative_attention
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
from relpos_lib.explorers._picture import draw_panels, draw_steps, round_up
from relpos_lib.explorers._tensors import (
    checked_heads,
    coloured,
    content_traits,
    to_bytes,
)
from relpos_lib.heads import split_heads
from relpos_lib.offsets import (
    clip_table,
    farthest_offset,
    relative_offsets,
    table_rows,
)
from relpos_lib.shaw import RelativeMultiHeadAttention, RelativePositionEmbedding

UNITS = {
    "weights": "attention weight",
    "content": "content score",
    "position": "position score",
    "score": "score",
    "steps": "step",
}
KINDS = {
    "key_table": "Shaw's key table",
    "bias_table": "a bias table",
    "value_table": "Shaw's value table",
}
SCORES = ("content", "position", "score")
TABLES = ("key_table", "value_table", "bias_table")
MOST_HEADS, LONGEST = 64, 512
PLAIN_SCORES = 8  # beyond it scores are made smaller before the exponential


@runtime_checkable
class AdditiveScheme(Protocol):
    """Any additive scheme of :mod:`relpos_lib.bias`: it has a K and a table."""

    max_distance: int | None

    def tables(self, max_distance: int | None = None) -> dict[str, Tensor]:
        """Tables as keyword arguments of ``relative_attention``."""
        ...


class AttentionMapExplorer(Explorer):
    """Attention of every head, one cell at a time.

    ``score_ij = content_ij + position_ij``; content is ``q_i · k_j / sqrt(D)``,
    position is ``q_i · a[offset] / sqrt(D)`` (Shaw) or ``b[offset]`` (bias). Weights
    are the softmax over keys. With a value table the figure shows, too, what the
    weights of a query add up to for each of its rows: these sums, times the rows, are
    Shaw's value term. The slider of the maximum distance clips the tables to their
    middle rows. A click on a cell, or Enter, writes out its arithmetic. Mostly made by
    :meth:`from_shaw` or :meth:`from_bias`.

    Args:
        query: (H, Q, D) or (1, H, Q, D); all tensors are copied as float32.
        key: (H, S, D) or (1, H, S, D).
        value: (H, S, Dv) or (1, H, S, Dv), to be seen in the arithmetic of a cell.
        key_table: Shaw's table of keys, (2K+1, D) or (H, 2K+1, D).
        value_table: Shaw's table of values, (2K+1, Dv) or (H, 2K+1, Dv).
        bias_table: additive table, (H, 2K+1); not together with a ``key_table``. One
            of the three tables is needed.
        max_distance: where the slider stands at first; the largest K of the tables if
            not given. A table is shown up to the largest offset that occurs.
        length: how many queries and keys are shown, from the first on; all if not
            given. The last query shown stands on the last key shown.
        heads_shown: how many heads are shown at first; up to four if not given.
        causal: whether keys later than the query are masked.
        view: "weights", "content", "position", "score", or "steps" for all four.
        head: head of the cell whose arithmetic is written out, from 1.
        query_index: its query, from 0; the last one if not given.
        key_index: its key, from 0.

    Raises:
        TypeError: if one of the tensors is no floating-point tensor.
        ValueError: if the tensors don't fit together, hold numbers that float32 or
            the colours cannot show, or the tables are not as said above.
        traitlets.TraitError: if a value is out of its range, now or when it is set.
    """

    _esm = bundle("attention_map.js")

    num_heads = fixed(WholeNumber, 1, MOST_HEADS)
    query_length = fixed(WholeNumber, 1, LONGEST)
    key_length = fixed(WholeNumber, 1, LONGEST)
    head_width = fixed(WholeNumber, 1, 4096)
    value_width = fixed(WholeNumber, 0, 4096)
    table_distance = fixed(WholeNumber, 0, LONGEST)
    key_distance = fixed(WholeNumber, 0, LONGEST)
    value_distance = fixed(WholeNumber, 0, LONGEST)
    scheme = fixed(Word, "shaw", "bias")
    tables = fixed(traitlets.Tuple)
    _query = fixed(traitlets.Bytes)
    _key = fixed(traitlets.Bytes)
    _value = fixed(traitlets.Bytes)
    _table = fixed(traitlets.Bytes)
    _value_table = fixed(traitlets.Bytes)
    max_distance = WholeNumber(0, "table_distance")
    length = WholeNumber(1, "_longest")
    heads_shown = WholeNumber(1, "num_heads")
    causal = YesNo()
    view = Word("weights", "content", "position", "score", "steps")
    head = WholeNumber(1, "num_heads")
    query_index = WholeNumber(0, "_last_query")
    key_index = WholeNumber(0, "_last_key")

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        *,
        value: Tensor | None = None,
        key_table: Tensor | None = None,
        value_table: Tensor | None = None,
        bias_table: Tensor | None = None,
        max_distance: int | None = None,
        length: int | None = None,
        heads_shown: int | None = None,
        causal: bool = False,
        view: str = "weights",
        head: int = 1,
        query_index: int | None = None,
        key_index: int = 0,
    ) -> None:
        alone = value_table is not None and key_table is None and bias_table is None
        if not alone and (key_table is None) == (bias_table is None):
            raise ValueError(
                "exactly one of key_table and bias_table must be given, unless there "
                "is a value_table alone"
            )
        self._take(_checked(query, key, value, key_table, value_table, bias_table))
        given = {
            "max_distance": (max_distance, self.table_distance),
            "length": (length, self._longest),
            "heads_shown": (heads_shown, min(4, self.num_heads)),
            "query_index": (query_index, self._last_query),
        }
        super().__init__(
            causal=causal,
            view=view,
            head=head,
            key_index=key_index,
            **{name: usual if x is None else x for name, (x, usual) in given.items()},
        )

    @classmethod
    def from_shaw(
        cls, module: RelativeMultiHeadAttention, x: Tensor, **shown: Any
    ) -> AttentionMapExplorer:
        """Self-attention of a sequence in a module with Shaw's vectors.

        Args:
            module: the attention, with vectors on keys, values or both.
            x: the sequence, (L, E) or (1, L, E).
            **shown: how the figure stands at first, ``max_distance``, ``length``,
                ``heads_shown``, ``causal``, ``view`` and the cell, as of the class.

        Returns:
            The figure.

        Raises:
            TypeError: if x is no floating-point tensor of the module's dtype.
            ValueError: if x does not fit the module.
            traitlets.TraitError: if a value is out of its range.
        """
        check_floating("x", x)
        x = x[0] if x.dim() == 3 and len(x) == 1 else x
        if x.dim() != 2 or x.shape[1] != module.d_model or len(x) == 0:
            raise ValueError(
                f"x must have shape (L, {module.d_model}) or (1, L, {module.d_model}) "
                f"with L at least 1, got {tuple(x.shape)}"
            )
        with torch.no_grad():
            query, key, value = (
                split_heads("x", projection, x[None], module.num_heads)[0]
                for projection in (module.wq, module.wk, module.wv)
            )
            key_table, value_table = (
                _rows_that_occur(embedding, len(x))
                for embedding in (
                    module.relative_positions_embeddings_k,
                    module.relative_positions_embeddings_v,
                )
            )
            return cls(
                query,
                key,
                value=value,
                key_table=key_table,
                value_table=value_table,
                **shown,
            )

    @classmethod
    def from_bias(
        cls,
        query: Tensor,
        key: Tensor,
        rpe: AdditiveScheme,
        **shown: Any,
    ) -> AttentionMapExplorer:
        """Attention with an additive bias.

        Args:
            query: (H, Q, D) or (1, H, Q, D).
            key: (H, S, D) or (1, H, S, D).
            rpe: an additive scheme, such as ``SimpleBiasRPE`` or ``ALiBi``.
            **shown: how the figure stands at first, ``max_distance``, ``length``,
                ``heads_shown``, ``causal``, ``view`` and the cell, as of the class.

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
            table = rpe.tables(distance)["bias_table"]
            return cls(query, key, bias_table=table, **shown)

    @property
    def _longest(self) -> int:
        return int(max(self.query_length, self.key_length))

    @property
    def _last_query(self) -> int:
        return int(self.query_length) - 1

    @property
    def _last_key(self) -> int:
        return int(self.key_length) - 1

    def _take(self, tensors: dict[str, Tensor]) -> None:
        """Keep the tensors, trim tables to what occurs and send all to the page."""
        query, key = tensors["query"], tensors["key"]
        farthest = farthest_offset(query.shape[1], key.shape[1])
        reach = {}
        for name in TABLES:
            if name in tensors:
                reach[name] = min(_own_distance(name, tensors[name]), farthest)
                tensors[name] = _clipped(name, tensors[name], reach[name])
        self._tensors = tensors
        # Keys without vectors are keys that all read one row of zeros.
        table = tensors.get("key_table", tensors.get("bias_table", query[0, :1] * 0))
        nothing = torch.empty(0)
        value, value_table = (
            tensors.get(name, nothing) for name in ("value", "value_table")
        )
        self._fix(
            **content_traits(query, key),
            value_width=max(value.shape[-1], value_table.shape[-1]),
            table_distance=max(reach.values()),
            key_distance=reach.get("key_table", reach.get("bias_table", 0)),
            value_distance=reach.get("value_table", 0),
            scheme="bias" if "bias_table" in tensors else "shaw",
            tables=tuple(reach),
            _value=to_bytes(value),
            _table=to_bytes(table),
            _value_table=to_bytes(value_table),
        )

    def _shown(self) -> dict[str, Any]:
        """What is shown, as arguments of ``relative_attention``, in float64.

        Tables are clipped to the maximum distance of now.
        """
        shown = {}
        for name, tensor in self._tensors.items():
            if name in TABLES:
                distance = min(self.max_distance, _own_distance(name, tensor))
                shown[name] = _clipped(name, tensor, distance).double()
            else:
                shown[name] = tensor[None, :, : self.length].double()
        return shown

    def maps(self) -> dict[str, Tensor]:
        """What the figure computes, for all heads and the controls of now.

        Returns:
            "content", "position", "score" and "weights", each (H, Q, S) in float64;
            the first two add up to the third, masked cells have weight 0.
        """
        shown = self._shown()
        # These are scores and weights only, so the keys can stand in for the values.
        inputs = checked_inputs(
            shown["query"],
            shown["key"],
            shown["key"],
            key_table=shown.get("key_table"),
            is_causal=self.causal,
        )
        content = inputs.scale * gather.content_scores(inputs)
        if self.scheme == "shaw":
            position = inputs.scale * gather.positional_scores(inputs)
            position = position.expand_as(content)
        else:
            table = shown["bias_table"]
            q_len, k_len = self._lengths()
            rows = table_rows(q_len, k_len, table.shape[1] // 2)
            position = table[None, :, rows]
        score = content + position
        return {
            "content": content[0],
            "position": position[0],
            "score": score[0],
            "weights": gather.attention_weights(inputs, score)[0],
        }

    def bins(self) -> Tensor:
        """What the weights of every query add up to for each row of the value table.

        Returns:
            (H, Q, 2K+1), float64; times the value table it is Shaw's value term.

        Raises:
            ValueError: if there is no value table.
        """
        shown = self._shown()
        if "value_table" not in shown:
            raise ValueError("the figure needs a value_table to have bins")
        # Values that are zero and a table of unit vectors leave only the sums.
        rows = shown["value_table"].shape[-2]
        unit = torch.eye(rows, dtype=torch.float64)
        key = shown["key"]
        nothing = key.new_zeros(*key.shape[:3], rows)
        shown |= {"value": nothing, "value_table": unit}
        return relative_attention(**shown, is_causal=self.causal)[0]

    def cell(self) -> tuple[int, int, int]:
        """Head, query and key whose arithmetic is written out, each from 0.

        Where fewer are shown than were chosen from, it is the nearest that is shown.
        """
        return (
            min(self.head, self.heads_shown) - 1,
            min(self.query_index, self.length - 1),
            min(self.key_index, self.length - 1),
        )

    def arithmetic(self) -> dict[str, float | Tensor]:
        """The numbers that are written out for the chosen cell.

        Returns:
            "offset", "clipped", "key_row" and "value_row", with "content", "position",
            "score" and "weight"; "denominator", the sum of ``exp(score - shift)`` over
            the keys that are seen, and "shift"; "bin", the sum of the weights that read
            the same row of the value table; "added", (Dv,), what the cell adds to the
            output of its query.
        """
        head, i, j = self.cell()
        maps, shown = self.maps(), self._shown()
        q_len, k_len = self._lengths()
        offset = int(relative_offsets(q_len, k_len)[i, j])
        clipped = max(-self.max_distance, min(self.max_distance, offset))
        seen = maps["score"][head, i][self.allowed()[i]]
        most = seen.max().item() if len(seen) else 0.0
        shift = most if abs(most) > PLAIN_SCORES else 0.0
        numbers: dict[str, float | Tensor] = {
            name: maps[plural][head, i, j].item()
            for name, plural in (*((n, n) for n in SCORES), ("weight", "weights"))
        }
        reach = {
            name: min(self.max_distance, distance)
            for name, distance in (
                ("key_row", self.key_distance),
                ("value_row", self.value_distance),
            )
        }
        rows = {
            name: int(table_rows(q_len, k_len, distance)[i, j])
            for name, distance in reach.items()
        }
        vector = torch.zeros(self.value_width, dtype=torch.float64)
        if "value" in shown:
            vector = vector + shown["value"][0, head, j]
        if "value_table" in shown:
            table = shown["value_table"]
            own = table if table.dim() == 2 else table[head]
            vector = vector + own[rows["value_row"]]
            numbers["bin"] = self.bins()[head, i, rows["value_row"]].item()
        return numbers | {
            "offset": offset,
            "clipped": clipped,
            **rows,
            "shift": shift,
            "denominator": (seen - shift).exp().sum().item(),
            "added": numbers["weight"] * vector,
        }

    def values(self) -> Tensor:
        """What the panels show now.

        Returns:
            (heads shown, Q, S), float64, NaN where masked; with view "steps"
            (4, heads shown, Q, S), in the order of :meth:`maps`.
        """
        maps = self.maps()
        names = list(maps) if self.view == "steps" else [self.view]
        shown = torch.stack([maps[name] for name in names])[:, : self.heads_shown]
        shown = shown.masked_fill(~self.allowed(), math.nan)
        return shown if self.view == "steps" else shown[0]

    def allowed(self) -> Tensor:
        """Where a query that is shown may attend, (Q, S), bool."""
        return allowed_pairs(*self._lengths(), self.causal)

    def _lengths(self) -> tuple[int, int]:
        """Q and S of what is shown."""
        return min(self.length, self.query_length), min(self.length, self.key_length)

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        kind = next(KINDS[name] for name in KINDS if name in self.tables)
        q_len, k_len = self._lengths()
        return (
            f"Attention map explorer: {UNITS[self.view]}s of {self.heads_shown} of "
            f"{self.num_heads} heads with {kind}, {q_len} queries and "
            f"{k_len} keys, maximum distance {self.max_distance}"
            f"{', causal' if self.causal else ''}."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        names = [*SCORES, "weights"] if self.view == "steps" else [self.view]
        shown = self.values()
        steps = shown if self.view == "steps" else shown[None]
        by_step = dict(zip(names, steps.numpy(), strict=True))
        tops = self._scale_ends(names)
        if self.view == "steps":
            return draw_steps(by_step, tops["score"], tops["weights"])
        top = tops[self.view]
        low = 0.0 if self.view == "weights" else -top
        titles = [f"head {h + 1}" for h in range(len(shown))]
        return draw_panels(list(by_step[self.view]), titles, low, top, UNITS[self.view])

    def _scale_ends(self, names: list[str]) -> dict[str, float]:
        """Where the scale of each step ends; scores that are shown share theirs."""
        maps, masked = self.maps(), ~self.allowed()
        most = {n: maps[n].masked_fill(masked, 0).abs().max().item() for n in names}
        scores = max((most[name] for name in names if name != "weights"), default=0.0)
        return {
            name: round_up(most[name] if name == "weights" else scores)
            for name in names
        }


def _own_distance(name: str, table: Tensor) -> int:
    """K of a table."""
    return table.shape[-1 if name == "bias_table" else -2] // 2


def _clipped(name: str, table: Tensor, max_distance: int) -> Tensor:
    """A table read at another maximum distance."""
    if name == "bias_table":
        return clip_table(table[..., None], max_distance)[..., 0]
    return clip_table(table, max_distance)


def _rows_that_occur(
    embedding: RelativePositionEmbedding | None, length: int
) -> Tensor | None:
    """The rows that a sequence of this length reads, if there is a table."""
    if embedding is None:
        return None
    return embedding.table(min(embedding.max_distance, length - 1))


def _checked(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    key_table: Tensor | None,
    value_table: Tensor | None,
    bias_table: Tensor | None,
) -> dict[str, Tensor]:
    """Copies of the tensors, on the CPU in float32, after all checks."""
    named = {
        "query": checked_heads("query", query),
        "key": checked_heads("key", key),
        "value": None if value is None else checked_heads("value", value),
        "key_table": key_table,
        "value_table": value_table,
        "bias_table": bias_table,
    }
    kept = {
        name: coloured(name, tensor)
        for name, tensor in named.items()
        if tensor is not None
    }
    if value is None and value_table is not None:
        width = kept["value_table"].shape[-1]
        stand_in = kept["key"].new_zeros(*kept["key"].shape[:2], width)
    else:
        stand_in = kept.get("value", kept["key"])
    checked_inputs(
        kept["query"][None],
        kept["key"][None],
        stand_in[None],
        key_table=kept.get("key_table"),
        value_table=kept.get("value_table"),
        bias_table=kept.get("bias_table"),
    )
    return kept
