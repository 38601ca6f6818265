"""The sweeps behind the book's results, by name."""

from __future__ import annotations

from typing import Any, NamedTuple

from relpos_lib.experiments.run import Run
from relpos_lib.experiments.schemes import SCHEMES
from relpos_lib.experiments.sweep import grid

SEEDS = (0, 1, 2, 3, 4)
FEW_SEEDS = SEEDS[:3]  # enough to see a trend, not to rank
TEXT_SEEDS = SEEDS[:4]  # the fewest with which a difference can be told from chance
DISTANCES = (0, 1, 2, 4, 8, 16, 32)
FASTER = ("bias-zero-x3", "bias-zero-x9")
COMPARED = ("none", "learned", "sinusoidal", "rotary", "alibi", "t5", "bias", "shaw")
TEXT: dict[str, list[Any]] = {
    "task": ["text"],
    "is_causal": [True],
    "shortest": [64],
    "longest": [128],
    "batch": [16],
    "steps": [800],
    "test_lengths": [(64, 128, 256, 512, 1024)],
}


class Plan(NamedTuple):
    """A named sweep.

    Attributes:
        about: the question that it answers.
        runs: what is trained.
    """

    about: str
    runs: list[Run]


def _gate() -> list[Run]:
    return grid(
        seed=SEEDS,
        scheme=["bias", "bias-zero", "gated", "gated-no-scale"],
        lr=[1e-3, 3e-3, 1e-2],
    )


def _length() -> list[Run]:
    only_for_gates = ("bias-zero", "gated-no-scale", *FASTER)
    return grid(seed=SEEDS, scheme=[n for n in SCHEMES if n not in only_for_gates])


def _parts() -> list[Run]:
    return grid(
        seed=SEEDS,
        task=["switch", "recall", "translate"],
        scheme=["none", "shaw-keys", "shaw-values", "shaw"],
    )


def _distance_longer() -> list[Run]:
    return grid(
        seed=FEW_SEEDS,
        scheme=["shaw"],
        max_distance=[2, 4, 16, 32, 64],
        longest=[64],
        test_lengths=[(64, 128, 256, 512)],
    )


def _offset() -> list[Run]:
    clipped = grid(seed=SEEDS, task=["copy"], scheme=["bias", "shaw"], max_distance=[8])
    others = ["none", "learned", "sinusoidal", "rotary"]
    return grid(seed=SEEDS, task=["copy"], scheme=others) + clipped


def _distance_text() -> list[Run]:
    distances = (0, 2, 8, 32, 128)
    return grid(seed=SEEDS[:2], scheme=["shaw"], max_distance=distances, **TEXT)


def _long() -> list[Run]:
    """Ways to choose K beyond 2048 tokens, each with the same number of steps."""
    length = 2304
    budget: dict[str, Any] = TEXT | {
        "shortest": [length],
        "longest": [length],
        "batch": [1],
        "steps": [120],
        "test_lengths": [(2048,)],
        "scheme": ["shaw"],
        "seed": TEXT_SEEDS,
    }
    per_head, by_length = (4, 16, 64, 256), length // 4
    return [
        *grid(max_distance=[16, per_head, by_length], **budget),
        *grid(max_distance=[16], window=[256], **budget),
    ]


def _live() -> list[Run]:
    """Models small enough to run in a web page."""
    return grid(
        scheme=["none", "sinusoidal", "alibi", "bias", "shaw"],
        width=[32],
        steps=[2000],
        seed=SEEDS[:1],
    )


def _large() -> list[Run]:
    """A model and lengths that ask for a GPU."""
    return grid(
        seed=FEW_SEEDS,
        scheme=["sinusoidal", "rotary", "bias", "shaw"],
        shortest=[64],
        longest=[512],
        width=[256],
        heads=[8],
        layers=[4],
        steps=[3000],
        precision=["bfloat16"],
        test_lengths=[(512, 1024, 2048, 4096, 8192)],
    )


PLANS: dict[str, Plan] = {
    "length": Plan(
        "which scheme still works at lengths it was not trained on", _length()
    ),
    "gate": Plan("whether a gate helps, at the best learning rate of each", _gate()),
    "gate-rate": Plan(
        "whether a plain table that learns faster does what a gate does",
        grid(seed=SEEDS, scheme=FASTER, lr=[1e-3, 3e-3, 1e-2]),
    ),
    "distance": Plan(
        "how large K must be",
        grid(seed=SEEDS, scheme=["bias", "shaw"], max_distance=DISTANCES),
    ),
    "distance-longer": Plan(
        "whether K must grow with the training length", _distance_longer()
    ),
    "distance-copy": Plan(
        "how large K must be for what is 5 apart",
        grid(seed=FEW_SEEDS, task=["copy"], scheme=["shaw"], max_distance=DISTANCES),
    ),
    "distance-text": Plan("how large K must be for English text", _distance_text()),
    "init": Plan(
        "how Shaw's tables should begin",
        grid(
            seed=SEEDS,
            scheme=["shaw"],
            init=["xavier", "normal", "zero"],
            max_distance=[2, 16],
            steps=[300],
        ),
    ),
    "parts": Plan("whether keys, values or both need vectors", _parts()),
    "offset": Plan("whether absolute codes can find what is 5 apart", _offset()),
    "translate": Plan(
        "relative against absolute in a toy translation",
        grid(seed=SEEDS, task=["translate"], scheme=COMPARED),
    ),
    "text": Plan(
        "relative against absolute on English text, by length",
        grid(seed=TEXT_SEEDS, scheme=COMPARED, **TEXT),
    ),
    "long": Plan("how to choose K beyond 2048 characters, at equal steps", _long()),
    "live": Plan("small models that a web page can run", _live()),
    "large": Plan("longer lengths in bfloat16, for a GPU", _large()),
}
