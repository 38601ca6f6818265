"""Every scheme that the experiments compare, by name.

A scheme adds codes to the embeddings, or gives each layer something that knows about
positions, or does neither. Nothing else differs between two runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from relpos_lib.bias import (
    ALiBi,
    ContentGatedBiasRPE,
    DirectionalBiasRPE,
    GatedBiasRPE,
    MultiplicativeBiasRPE,
    SimpleBiasRPE,
    T5BucketBias,
)
from relpos_lib.experiments.positions import (
    FromContentGate,
    FromFactor,
    Rotary,
    ShawTables,
    Times,
)
from relpos_lib.sinusoidal import LearnedAbsoluteEncoding, SinusoidalEncoding

if TYPE_CHECKING:
    from relpos_lib.experiments.run import Run

Make = Callable[["Run"], nn.Module]


class Scheme(NamedTuple):
    """A way of telling positions.

    Attributes:
        about: what it is, in a few words.
        encoding: makes the module that adds codes to the embeddings, if any.
        position: makes what each layer knows about positions, if anything.
        distance: K if none is asked for; None if the scheme clips nothing.
        is_shaw: whether it has Shaw's tables, which can differ by head and in init.
        needs_even_head: whether D must be even.
        can_hide: whether it can be made blind beyond a window.
    """

    about: str
    encoding: Make | None = None
    position: Make | None = None
    distance: int | None = None
    is_shaw: bool = False
    needs_even_head: bool = False
    can_hide: bool = True


def _max_len(run: Run) -> int:
    assert isinstance(run.max_distance, int)
    return run.max_distance + 1


def _shaw(keys: bool, values: bool) -> Make:
    def make(run: Run) -> nn.Module:
        assert run.max_distance is not None
        tables = ShawTables(run.max_distance, run.width // run.heads, keys, values)
        for side in (tables.keys, tables.values):
            if side is not None:
                INITS[run.init](side)
        return tables

    return make


def _keep(tables: nn.Module) -> None:
    """Xavier-uniform is how the tables begin anyway."""


def _normal(tables: nn.Module) -> None:
    for table in tables.parameters():
        nn.init.normal_(table, std=0.02)


def _zero(tables: nn.Module) -> None:
    for table in tables.parameters():
        nn.init.zeros_(table)


INITS: dict[str, Callable[[nn.Module], None]] = {
    "xavier": _keep,
    "normal": _normal,
    "zero": _zero,
}

SCHEMES: dict[str, Scheme] = {
    "none": Scheme("no positions"),
    "learned": Scheme(
        "a learned vector of each position",
        encoding=lambda run: _as_wide_as_symbols(
            LearnedAbsoluteEncoding(run.width, run.longest_seen)
        ),
    ),
    "sinusoidal": Scheme(
        "sines and cosines of each position",
        encoding=lambda run: SinusoidalEncoding(run.width),
    ),
    "rotary": Scheme(
        "queries and keys turned by their positions",
        position=lambda run: Rotary(),
        needs_even_head=True,
        can_hide=False,
    ),
    "alibi": Scheme(
        "a fixed slope per head, growing with the distance",
        position=lambda run: ALiBi(run.heads),
    ),
    "t5": Scheme(
        "a learned bias, far offsets in buckets",
        position=lambda run: T5BucketBias(run.heads, bidirectional=not run.is_causal),
    ),
    "bias-unclipped": Scheme(
        "a learned bias for every offset",
        position=lambda run: SimpleBiasRPE(run.heads, run.longest_seen),
    ),
    "bias": Scheme(
        "a learned bias, clipped to K",
        position=lambda run: SimpleBiasRPE(run.heads, _max_len(run)),
        distance=4,
    ),
    "gated": Scheme(
        "the bias with a gate and a scale per head",
        position=lambda run: GatedBiasRPE(run.heads, _max_len(run)),
        distance=4,
    ),
    "gated-no-scale": Scheme(
        "the bias with a gate per head",
        position=lambda run: GatedBiasRPE(run.heads, _max_len(run), scale=False),
        distance=4,
    ),
    "bias-zero": Scheme(
        "the bias, at first zero like the gated one",
        position=lambda run: _zero_bias(run),
        distance=4,
    ),
    "bias-zero-x3": Scheme(
        "the bias, at first zero, with 3 times the learning rate",
        position=lambda run: Times(_zero_bias(run), 3),
        distance=4,
    ),
    "bias-zero-x9": Scheme(
        "the bias, at first zero, with 9 times the learning rate",
        position=lambda run: Times(_zero_bias(run), 9),
        distance=4,
    ),
    "directional": Scheme(
        "a bias of the distance plus one of the direction",
        position=lambda run: DirectionalBiasRPE(run.heads, _max_len(run)),
        distance=4,
    ),
    "multiplicative": Scheme(
        "the gated bias as a factor of the score",
        position=lambda run: FromFactor(
            MultiplicativeBiasRPE(run.heads, _max_len(run))
        ),
        distance=4,
        can_hide=False,
    ),
    "content-gated": Scheme(
        "the bias with gates that look at the query",
        position=lambda run: FromContentGate(
            ContentGatedBiasRPE(run.heads, run.width // run.heads, _max_len(run))
        ),
        distance=4,
        can_hide=False,
    ),
    "shaw-keys": Scheme(
        "Shaw's vectors on the keys",
        position=_shaw(keys=True, values=False),
        distance=4,
        is_shaw=True,
    ),
    "shaw-values": Scheme(
        "Shaw's vectors on the values",
        position=_shaw(keys=False, values=True),
        distance=4,
        is_shaw=True,
    ),
    "shaw": Scheme(
        "Shaw's vectors on keys and values",
        position=_shaw(keys=True, values=True),
        distance=4,
        is_shaw=True,
    ),
}


def _as_wide_as_symbols(encoding: nn.Module) -> nn.Module:
    """At first as large as the embeddings it is added to, or it would be drowned."""
    for table in encoding.parameters():
        nn.init.normal_(table)
    return encoding


def _zero_bias(run: Run) -> SimpleBiasRPE:
    rpe = SimpleBiasRPE(run.heads, _max_len(run))
    _zero(rpe)
    return rpe
