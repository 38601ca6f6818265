"""Bias curve explorer: draw the bias of a head and see what it does to attention."""

from __future__ import annotations

import math
from typing import Any

import torch
import traitlets
from torch import Tensor

from relpos_lib.bias import ALiBi, T5BucketBias
from relpos_lib.explorers._base import WholeNumber, YesNo, fixed, numbers_of
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._content import ContentExplorer
from relpos_lib.explorers._curve_picture import Group, draw_curves_over_panels
from relpos_lib.explorers._picture import Panel, round_up
from relpos_lib.explorers._tensors import bias_maps, coloured, content_heads, to_bytes
from relpos_lib.explorers._traits import TraitType
from relpos_lib.explorers.attention_map import AdditiveScheme
from relpos_lib.offsets import clip_table, farthest_offset, table_offsets

WINDOW = 2  # how far the preset of a local window sees
T5_STEPS = (0.3, 0.6)  # how much a bucket of T5's preset loses, backward and forward

Rows = tuple[tuple[float, ...], ...]


def _to_json(rows: Rows, widget: Any) -> list[list[float | None]]:
    """JSON knows no infinity: hidden offsets are null."""
    return [[None if x == -math.inf else x for x in row] for row in rows]


def _from_json(rows: Any, widget: Any) -> Any:
    """What the page sent, or as it is if it is no list of lists."""
    try:
        return [[-math.inf if x is None else x for x in row] for row in rows]
    except TypeError:
        return rows


class Curve(TraitType[Rows, Any]):
    """A synchronised bias for every head and offset, in which -inf hides an offset."""

    def __init__(self, **options: Any) -> None:
        super().__init__((), **options)
        self.tag(sync=True, to_json=_to_json, from_json=_from_json)

    def validate(self, obj: Any, value: object) -> Rows:
        """Refuse another shape, or a number out of range, naming trait and range."""
        shape, limit = (obj.num_heads, 2 * obj.table_distance + 1), obj.limit
        array = numbers_of(value)
        if array is not None and array.shape == shape:
            strange = array[~((abs(array) <= limit) | (array == -math.inf))]
            if not len(strange):
                return tuple(tuple(row) for row in array.tolist())
            value = strange[0].item()
        elif array is not None:
            value = f"shape {array.shape}"
        raise traitlets.TraitError(
            f"{self.name} of {type(obj).__name__} must have shape {shape}, one row a "
            f"head, and hold numbers from {-limit:g} to {limit:g}, or -inf to hide an "
            f"offset, got {value}"
        )


class BiasCurveExplorer(ContentExplorer):
    """The bias curve b[offset] of every head, to draw by hand, and what it does.

    ``score_ij = q_i · k_j / sqrt(D) + b[offset]``; weights are the softmax over keys.
    The slider of the maximum distance K clips: every offset beyond K reads b at K.
    What was drawn is the trait ``curve``, and :meth:`table` makes it ready for
    ``relative_attention``.

    Args:
        query: (H, Q, D) or (1, H, Q, D); copied as float32. Without query and key the
            content says nothing and only the bias is left.
        key: (H, S, D) or (1, H, S, D).
        num_heads: H if there is no query, from 1 to 16.
        length: Q and S if there is no query, from 1 to 256.
        learned: a preset of your own, an additive scheme such as ``SimpleBiasRPE`` or a
            table (H, 2K+1). The other presets are a flat bias, T5's buckets, ALiBi and
            a local window.
        curve: where the curves stand at first, (H, 2 * reach + 1), with one number for
            each offset up to the farthest; the learned preset if not given, else zeros.
        head: which head is drawn first, from 1.
        heads_shown: how many heads are shown at first; up to two if not given.
        max_distance: K at first; the farthest offset if not given.
        causal: whether keys later than the query are masked.
        content: whether the content scores count.

    Raises:
        TypeError: if query, key or table is no floating-point tensor.
        ValueError: if the tensors don't fit together, or hold numbers that float32 or
            the colours cannot show.
        traitlets.TraitError: if a value is out of its range, now or when it is set.

    >>> figure = BiasCurveExplorer(num_heads=1, length=3)
    >>> figure.curve = [[0.0, 2.0, 0.0, 0.0, 0.0]]
    >>> figure.table()
    tensor([[0., 2., 0., 0., 0.]], dtype=torch.float64)
    """

    _esm = bundle("bias_curve.js")

    limit = fixed(traitlets.Float)
    preset_names = fixed(traitlets.Tuple)
    _presets = fixed(traitlets.Bytes)
    curve = Curve()
    max_distance = WholeNumber(0, "table_distance")
    heads_shown = WholeNumber(1, "num_heads")
    content = YesNo()

    def __init__(
        self,
        query: Tensor | None = None,
        key: Tensor | None = None,
        *,
        num_heads: int = 4,
        length: int = 16,
        learned: AdditiveScheme | Tensor | None = None,
        curve: Any = None,
        head: int = 1,
        heads_shown: int | None = None,
        max_distance: int | None = None,
        causal: bool = False,
        content: bool = True,
    ) -> None:
        self._take(*content_heads(query, key, num_heads, length), learned, curve)
        super().__init__(
            curve=self._first_curve() if curve is None else curve,
            head=head,
            heads_shown=(
                min(2, self.num_heads) if heads_shown is None else heads_shown
            ),
            max_distance=self.table_distance if max_distance is None else max_distance,
            causal=causal,
            content=content,
        )

    def _take(
        self,
        query: Tensor,
        key: Tensor,
        learned: AdditiveScheme | Tensor | None,
        curve: Any,
    ) -> None:
        """Send what belongs to the data to the page: sizes, content and presets."""
        reach = farthest_offset(query.shape[1], key.shape[1])
        self._take_content(query, key, reach)
        self.presets = _presets(len(query), reach, learned)
        stacked = torch.stack(list(self.presets.values()))
        drawn = [stacked[stacked.isfinite()].abs().max().item()]
        given = None if curve is None else numbers_of(curve)
        if given is not None:
            drawn += [abs(x) for x in given.ravel().tolist() if math.isfinite(x)]
        self._fix(
            limit=round_up(max([4.0, *drawn])),
            preset_names=tuple(self.presets),
            _presets=to_bytes(stacked),
        )

    def _first_curve(self) -> list[list[float]]:
        name = "learned" if "learned" in self.presets else "flat"
        return [_few_digits(row) for row in self.presets[name]]

    def fill(self, preset: str, head: int | None = None) -> None:
        """Set the curve of a head to a preset, as its button does.

        Args:
            preset: one of ``preset_names``.
            head: which head, from 1; the one that is drawn if not given.

        Raises:
            ValueError: if there is no such preset or no such head.
        """
        if preset not in self.presets:
            known = ", ".join(self.presets)
            raise ValueError(f"preset must be one of {known}, got {preset!r}")
        head = self.head if head is None else head
        if head not in range(1, self.num_heads + 1):
            raise ValueError(f"head must be from 1 to {self.num_heads}, got {head!r}")
        rows = list(self.curve)
        rows[head - 1] = tuple(_few_digits(self.presets[preset][head - 1]))
        self.curve = tuple(rows)

    def table(self) -> Tensor:
        """The curves, clipped to the maximum distance of now.

        Returns:
            (H, 2K+1), float64: a ``bias_table`` of ``relative_attention``.
        """
        whole = torch.tensor(self.curve, dtype=torch.float64)
        start = self.table_distance - self.max_distance
        return whole.narrow(1, start, 2 * self.max_distance + 1)

    def maps(self) -> dict[str, Tensor]:
        """What the figure computes, for all heads.

        Returns:
            "content", "position", "score" and "weights", each (H, Q, S) in float64;
            the first two add up to the third, hidden cells have weight 0.
        """
        query = self._query_heads if self.content else 0 * self._query_heads
        return bias_maps(query, self._key_heads, self.table(), self.causal)

    def shown_heads(self) -> list[int]:
        """Which heads are shown, from 1; the one that is drawn is always among them."""
        heads = list(range(1, self.heads_shown + 1))
        return heads if self.head in heads else [*heads[:-1], self.head]

    def values(self) -> dict[str, Tensor]:
        """What the figure shows now.

        Returns:
            "score" and "weights", each (heads shown, Q, S) in float64; NaN where masked
            or hidden.
        """
        maps = self.maps()
        rows = [head - 1 for head in self.shown_heads()]
        masked = ~self.allowed()
        hidden = masked | (maps["score"] == -math.inf)
        return {
            "score": maps["score"].masked_fill(hidden, math.nan)[rows],
            "weights": maps["weights"].masked_fill(masked, math.nan)[rows],
        }

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        row = self.table()[self.head - 1]
        best = int(row.argmax()) - self.max_distance
        peak = f"its highest bias is {row.max():.2f} at offset {best}"
        if row.max() == -math.inf:
            peak = "every offset is hidden"
        elif row.min() == row.max():
            peak = f"its bias is {row.max():.2f} everywhere"
        return (
            f"Bias curve explorer: head {self.head} of {self.num_heads} is drawn, "
            f"{peak}; {self.query_length} queries and {self.key_length} keys, maximum "
            f"distance {self.max_distance}"
            f"{', causal' if self.causal else ''}"
            f"{'' if self.content else ', without content'}."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        shown = self.shown_heads()
        scores, weights = self.values().values()
        offsets = table_offsets(self.max_distance).numpy()
        table = self.table().masked_fill(self.table() == -math.inf, math.nan).numpy()
        titles = [f"head {head}" for head in shown]
        ends = [_scale_end(part) for part in (scores, weights)]
        return draw_curves_over_panels(
            offsets,
            {f"head {head}": table[head - 1] for head in shown},
            (-self.limit, self.limit),
            [
                Group(_panels(scores), titles, -ends[0], ends[0], "score"),
                Group(_panels(weights), titles, 0.0, ends[1], "attention weight"),
            ],
        )


def _panels(values: Tensor) -> list[Panel]:
    return list(values.numpy())


def _scale_end(values: Tensor) -> float:
    return round_up(values.nan_to_num(0.0).abs().max().item())


def _presets(
    num_heads: int, reach: int, learned: AdditiveScheme | Tensor | None
) -> dict[str, Tensor]:
    """Tables to start from, (H, 2 * reach + 1) in float32, by name."""
    offsets = table_offsets(reach)
    flat = torch.zeros(num_heads, len(offsets))
    presets = {"flat": flat}
    if learned is not None:
        presets["learned"] = _learned(learned, num_heads, reach)
    presets["T5 buckets"] = _t5(num_heads, reach)
    presets["ALiBi"] = ALiBi(num_heads).tables(reach)["bias_table"]
    presets["local window"] = flat.masked_fill(offsets.abs() > WINDOW, -math.inf)
    return presets


def _learned(scheme: AdditiveScheme | Tensor, num_heads: int, reach: int) -> Tensor:
    """The table of a scheme, or the given one, read at another maximum distance."""
    if isinstance(scheme, AdditiveScheme):
        own = reach if scheme.max_distance is None else scheme.max_distance
        scheme = scheme.tables(min(own, reach))["bias_table"]
    if not isinstance(scheme, Tensor):
        raise TypeError(
            "learned must be a tensor or an additive scheme such as SimpleBiasRPE, "
            f"got {type(scheme).__name__}"
        )
    table = coloured("learned", scheme)
    if table.dim() != 2 or len(table) != num_heads or table.shape[1] % 2 == 0:
        raise ValueError(
            f"learned must have shape ({num_heads}, 2K+1), got {tuple(table.shape)}"
        )
    return clip_table(table[..., None], reach)[..., 0]


def _t5(num_heads: int, reach: int) -> Tensor:
    """T5's stairs: each bucket is lower than the nearer one, forward more so."""
    scheme = T5BucketBias(num_heads, num_buckets=16, max_distance=max(reach, 5))
    back, ahead = T5_STEPS
    steps = torch.arange(8.0)
    with torch.no_grad():
        scheme.bias.copy_(torch.cat([-back * steps, -ahead * steps])[:, None])
        return scheme.tables(reach)["bias_table"]


def _few_digits(row: Tensor) -> list[float]:
    """Numbers of float32 as short as they can be written, as the page does."""
    return [float(f"{x:.7g}") + 0.0 for x in row.tolist()]
