"""Gate explorer: what gate and scale do, and two settings that are the same model."""

from __future__ import annotations

import math
from typing import Any

import torch
import traitlets
from torch import Tensor

from relpos_lib.bias import GatedBiasRPE
from relpos_lib.explorers._base import Numbers, WholeNumber, fixed
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._content import ContentExplorer
from relpos_lib.explorers._curve_picture import Group, draw_curves_over_panels
from relpos_lib.explorers._picture import round_up
from relpos_lib.explorers._tensors import bias_maps, coloured, content_heads, to_bytes
from relpos_lib.offsets import clip_table, farthest_offset, table_offsets

WIDEST_GATE, WIDEST_SCALE = 30, 15
GOLDEN = 0.382  # steps of the golden section come back to no place for long


class GateExplorer(ContentExplorer):
    """Gate and scale of every head of a gated bias, in two settings side by side.

    A head adds ``sigmoid(gate) * exp(log_scale) * b[offset]``. The figure shows the
    table b as it is stored, what each setting adds, the attention weights of both and
    their difference, for one head at a time. Two settings with the same product are
    the same model: the difference is zero.

    Args:
        rpe: the gated bias; its table is b, its gates and scales are the first setting.
        query: (H, Q, D) or (1, H, Q, D); copied as float32. Without query and key the
            content says nothing and only the bias is left.
        key: (H, S, D) or (1, H, S, D).
        length: Q and S if there is no query, from 1 to 256.
        second_gate: H gates of the second setting; zeros if not given.
        second_log_scale: H scales of the second setting; zeros if not given.
        head: which head is shown first, from 1.
        causal: whether keys later than the query are masked.

    Raises:
        TypeError: if ``rpe`` is no ``GatedBiasRPE``, or query or key is no
            floating-point tensor.
        ValueError: if the tensors don't fit together, or hold numbers that float32 or
            the sliders cannot show.
        traitlets.TraitError: if a value is out of its range, now or when it is set.

    >>> figure = GateExplorer(GatedBiasRPE(num_heads=2, max_len=4))
    >>> figure.match()
    >>> bool((figure.strengths()[0, 0] - figure.strengths()[1, 0]).abs() < 1e-12)
    True
    """

    _esm = bundle("gate.js")

    gate_limit = fixed(WholeNumber, 1, WIDEST_GATE)
    scale_limit = fixed(WholeNumber, 1, WIDEST_SCALE)
    _table = fixed(traitlets.Bytes)
    gate = Numbers("num_heads", "gate_limit")
    log_scale = Numbers("num_heads", "scale_limit")
    second_gate = Numbers("num_heads", "gate_limit")
    second_log_scale = Numbers("num_heads", "scale_limit")

    def __init__(
        self,
        rpe: GatedBiasRPE,
        query: Tensor | None = None,
        key: Tensor | None = None,
        *,
        length: int = 12,
        second_gate: Any = None,
        second_log_scale: Any = None,
        head: int = 1,
        causal: bool = False,
    ) -> None:
        if not isinstance(rpe, GatedBiasRPE):
            raise TypeError(f"rpe must be a GatedBiasRPE, got {type(rpe).__name__}")
        self._take(rpe, *content_heads(query, key, rpe.num_heads, length))
        gate, log_scale = _setting(rpe)
        self._fix(
            gate_limit=_limit("gate", gate, 6, WIDEST_GATE),
            scale_limit=_limit("logit_scale", log_scale, 3, WIDEST_SCALE),
        )
        zeros = [0.0] * rpe.num_heads
        super().__init__(
            gate=gate,
            log_scale=log_scale,
            second_gate=zeros if second_gate is None else second_gate,
            second_log_scale=zeros if second_log_scale is None else second_log_scale,
            head=head,
            causal=causal,
        )

    def _take(self, rpe: GatedBiasRPE, query: Tensor, key: Tensor) -> None:
        """Send what belongs to the data to the page: sizes, content and the table."""
        if len(query) != rpe.num_heads:
            raise ValueError(
                f"query must have the {rpe.num_heads} heads of rpe, got {len(query)}"
            )
        reach = farthest_offset(query.shape[1], key.shape[1])
        distance = min(reach, len(rpe.bias) // 2)
        self._stored = clip_table(coloured("bias", rpe.bias), distance)
        self._take_content(query, key, distance)
        self._fix(_table=to_bytes(self._stored.T))

    def _module(self, gate: Any, log_scale: Any) -> GatedBiasRPE:
        """The gated bias with the stored table and these gates and scales."""
        rpe = GatedBiasRPE(self.num_heads, self.table_distance + 1).double()
        for parameter, numbers in (
            (rpe.bias, self._stored),
            (rpe.gate, gate),
            (rpe.logit_scale, log_scale),
        ):
            assert parameter is not None
            parameter.data.copy_(torch.as_tensor(numbers, dtype=torch.float64))
        return rpe.requires_grad_(False)

    def modules(self) -> tuple[GatedBiasRPE, GatedBiasRPE]:
        """Both settings as modules in float64, for lengths up to those shown."""
        return (
            self._module(self.gate, self.log_scale),
            self._module(self.second_gate, self.second_log_scale),
        )

    def strengths(self) -> Tensor:
        """``sigmoid(gate) * exp(log_scale)`` of both settings, (2, H), float64."""
        return torch.stack([module.strength() for module in self.modules()])

    def tables(self) -> Tensor:
        """The table as stored, and what both settings add, (3, H, 2K+1), float64."""
        added = [module.tables()["bias_table"] for module in self.modules()]
        return torch.stack([self._stored.T.double(), *added])

    def maps(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What the figure computes for both settings, for all heads.

        Returns:
            Twice "content", "position", "score" and "weights", each (H, Q, S), float64.
        """
        _, first, second = self.tables()
        query, key = self._query_heads, self._key_heads
        return (
            bias_maps(query, key, first, self.causal),
            bias_maps(query, key, second, self.causal),
        )

    def values(self) -> dict[str, Tensor]:
        """What the figure shows now of the head of now.

        Returns:
            "first" and "second", the weights of both settings, and their "difference",
            each (Q, S), float64; NaN where masked.
        """
        first, second = (
            maps["weights"][self.head - 1].masked_fill(~self.allowed(), math.nan)
            for maps in self.maps()
        )
        return {"first": first, "second": second, "difference": first - second}

    def match(self) -> None:
        """Find another pair with the same product, as the button does.

        The second setting of the head of now gets a gate and a scale that differ from
        the first ones and have the same product; each call finds others. Nothing
        happens if the sliders reach no other pair.
        """
        h = self.head - 1
        found = _other_setting(
            (self.gate[h], self.log_scale[h]),
            self.second_gate[h],
            self.gate_limit,
            self.scale_limit,
        )
        if found is None:
            return
        gates, scales = list(self.second_gate), list(self.second_log_scale)
        gates[h], scales[h] = found
        self.second_gate, self.second_log_scale = tuple(gates), tuple(scales)

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        first, second = self.strengths()[:, self.head - 1].tolist()
        most = self.values()["difference"].nan_to_num(0.0).abs().max().item()
        verdict = (
            "the same model"
            if most < 1e-9
            else f"their weights differ by up to {most:.3f}"
        )
        return (
            f"Gate explorer: head {self.head} of {self.num_heads} with the strengths "
            f"{first:.3f} and {second:.3f}, {verdict}; {self.query_length} queries and "
            f"{self.key_length} keys, maximum distance {self.table_distance}"
            f"{', causal' if self.causal else ''}."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        tables = self.tables()[:, self.head - 1].numpy()
        names = ("stored table b", "setting A adds", "setting B adds")
        reach = round_up(float(abs(tables).max()))
        first, second, difference = self.values().values()
        high = max(part.nan_to_num(0.0).max().item() for part in (first, second))
        top = round_up(high)
        return draw_curves_over_panels(
            table_offsets(self.table_distance).numpy(),
            dict(zip(names, tables, strict=True)),
            (-reach, reach),
            [
                Group(
                    [first.numpy(), second.numpy()],
                    ["setting A", "setting B"],
                    0.0,
                    top,
                    "attention weight",
                ),
                Group([difference.numpy()], ["A − B"], -top, top, "difference"),
            ],
        )


def _setting(rpe: GatedBiasRPE) -> tuple[list[float], list[float]]:
    """Gates and scales of a module; scales of 0 if it has none."""
    gate = coloured("gate", rpe.gate).tolist()
    if rpe.logit_scale is None:
        return gate, [0.0] * len(gate)
    return gate, coloured("logit_scale", rpe.logit_scale).tolist()


def _limit(name: str, numbers: list[float], usual: int, widest: int) -> int:
    """Where a slider ends: the usual end, or farther out if a number is."""
    most = max(abs(number) for number in numbers)
    if most > widest:
        raise ValueError(
            f"{name} of rpe must be within {-widest} and {widest} to be shown, "
            f"got {most}"
        )
    return max(usual, math.ceil(most))


def _log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def _other_setting(
    setting: tuple[float, float], before: float, gate_limit: int, scale_limit: int
) -> tuple[float, float] | None:
    """Another gate and scale with the same product; the page computes the same."""
    gate, scale = setting
    log = _log_sigmoid(gate) + scale
    low = max(-gate_limit, _gate_of(log - scale_limit))
    high = float(gate_limit)
    if log + scale_limit < 0:
        high = min(high, _gate_of(log + scale_limit))
    width = high - low
    if width < 0.05:
        return None

    def after(place: float) -> float:
        return low + math.fmod(place - low + GOLDEN * width, width)

    found = after(max(low, min(high, before)))
    if abs(found - gate) < width / 10:
        found = after(found)
    short = round(found, 2)
    if low <= short <= high:
        found = short
    other = log - _log_sigmoid(found)
    return found, max(-scale_limit, min(scale_limit, other))


def _gate_of(log: float) -> float:
    """The gate whose logistic function has this logarithm, which is below 0."""
    return log - math.log(-math.expm1(log))
