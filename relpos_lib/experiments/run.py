"""What one run is: a task, a scheme and everything else that decides its result."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relpos_lib._checks import check_integer, check_number
from relpos_lib.experiments.schemes import INITS, SCHEMES
from relpos_lib.experiments.tasks import TASKS
from relpos_lib.experiments.text import BEFORE, text

PRECISIONS = ("float32", "bfloat16")
SMOOTHED = 20  # steps whose mean loss decides whether something is learned
LAST_SEED = 10_000_000_000  # times the number of steps, it still fits into 64 bits


@dataclass(frozen=True)
class Run:
    """One training run; equal runs on one machine give equal results.

    Args:
        task: name of a task.
        scheme: name of a scheme.
        max_distance: K, or one K per head for Shaw's schemes; the scheme's own if
            None.
        init: how Shaw's tables begin: "xavier", "normal" or "zero".
        window: distance beyond which nothing is seen, at least 1; None for all.
        is_causal: whether a position sees only itself and what is before it.
        seed: of the weights and of the training data.
        steps: number of AdamW steps.
        batch: B, sequences a step, of all processes together.
        lr: peak learning rate.
        shortest: shortest training length.
        longest: longest training length.
        test_lengths: lengths at which the trained model is measured.
        width: E, a multiple of ``heads``.
        heads: H, number of heads.
        layers: number of layers.
        stop_below: training ends early once the mean loss of 20 steps is below this;
            None never does.
        precision: "float32" or "bfloat16" (weights stay float32).

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if a name is unknown, a number out of range, or two don't fit.
    """

    task: str = "switch"
    scheme: str = "shaw"
    max_distance: int | tuple[int, ...] | None = None
    init: str = "xavier"
    window: int | None = None
    is_causal: bool = False
    seed: int = 0
    steps: int = 600
    batch: int = 64
    lr: float = 3e-3
    shortest: int = 8
    longest: int = 32
    test_lengths: tuple[int, ...] = (16, 32, 48, 64, 128, 256, 512, 1024)
    width: int = 64
    heads: int = 4
    layers: int = 2
    stop_below: float | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        self._check_names()
        if self.max_distance is None:
            # Frozen against others; this only says what None stands for.
            own = SCHEMES[self.scheme].distance
            object.__setattr__(self, "max_distance", own)
        self._check_lengths()
        self._check_numbers()
        for name in ("lr", "stop_below"):
            if getattr(self, name) is not None:  # 1 and 1.0 are one run
                object.__setattr__(self, name, float(getattr(self, name)))
        self._check_scheme()
        self._check_task()

    def _check_names(self) -> None:
        for name, known in (
            ("task", TASKS),
            ("scheme", SCHEMES),
            ("init", INITS),
            ("precision", PRECISIONS),
        ):
            _check_name(name, getattr(self, name), known)

    def _check_lengths(self) -> None:
        if not isinstance(self.test_lengths, (tuple, list)):
            raise TypeError(
                "test_lengths must be a tuple of integers, "
                f"got {type(self.test_lengths).__name__}"
            )
        if not self.test_lengths:
            raise ValueError("test_lengths must hold at least one length, got none")
        object.__setattr__(self, "test_lengths", tuple(self.test_lengths))
        fewest = TASKS[self.task].shortest
        named = [("test_lengths", length) for length in self.test_lengths]
        named += [("shortest", self.shortest), ("longest", self.longest)]
        for name, length in named:
            check_integer(name, length, 1)
            if length < fewest:
                raise ValueError(
                    f"{name} must be at least {fewest} for the task {self.task!r}, "
                    f"which asks for nothing in less, got {length}"
                )
        if self.longest < self.shortest:
            raise ValueError(
                f"longest must be at least shortest, {self.shortest}, "
                f"got {self.longest}"
            )

    def _check_numbers(self) -> None:
        for name in ("steps", "batch", "width", "heads", "layers"):
            check_integer(name, getattr(self, name), 1)
        check_integer("seed", self.seed, 0)
        if self.seed > LAST_SEED:
            raise ValueError(f"seed must be at most {LAST_SEED}, got {self.seed}")
        check_number("lr", self.lr, 1e-12, 1e3)
        if self.stop_below is not None:
            check_number("stop_below", self.stop_below, 0.0, 1e9)
        if self.width % self.heads:
            raise ValueError(
                "width must be a multiple of heads, "
                f"got width={self.width} and heads={self.heads}"
            )
        if self.window is not None:
            check_integer("window", self.window, 1)
        if not isinstance(self.is_causal, bool):
            kind = type(self.is_causal).__name__
            raise TypeError(f"is_causal must be True or False, got {kind}")

    def _check_task(self) -> None:
        if self.is_causal and not TASKS[self.task].can_be_causal:
            fit = ", ".join(name for name, task in TASKS.items() if task.can_be_causal)
            raise ValueError(
                f"is_causal must be False for the task {self.task!r}, which asks for "
                f"what comes later; causal tasks: {fit}"
            )
        if not self.is_causal and TASKS[self.task].must_be_causal:
            raise ValueError(
                f"is_causal must be True for the task {self.task!r}, "
                "or the answer could be read from the input"
            )
        if TASKS[self.task].answers is None:
            self._check_text()

    def _check_text(self) -> None:
        if max(self.test_lengths) > BEFORE:
            raise ValueError(
                f"test_lengths must be at most {BEFORE} for the task {self.task!r}, "
                f"got {max(self.test_lengths)}"
            )
        # Every Python's text is longer than that; to read it takes a moment.
        if self.longest > BEFORE and self.longest >= len(text().training):
            raise ValueError(
                "longest must be less than the characters of the text, "
                f"{len(text().training)}, got {self.longest}"
            )

    def _check_scheme(self) -> None:
        scheme, distance = SCHEMES[self.scheme], self.max_distance
        per_head = isinstance(distance, tuple)
        for one in distance if isinstance(distance, tuple) else [distance]:
            if one is not None:
                check_integer("max_distance", one, 0)
        if distance is not None and scheme.distance is None:
            clips = ", ".join(n for n, s in SCHEMES.items() if s.distance is not None)
            raise ValueError(
                f"max_distance must be None for {self.scheme!r}, which clips nothing; "
                f"these clip: {clips}"
            )
        if per_head and not scheme.is_shaw:
            raise ValueError(
                f"max_distance must be one integer for {self.scheme!r}, got {distance}"
            )
        if isinstance(distance, tuple) and len(distance) != self.heads:
            raise ValueError(
                f"max_distance must be one integer or one per head, {self.heads} of "
                f"them, got {len(distance)}"
            )
        if self.init != "xavier" and not scheme.is_shaw:
            raise ValueError(
                f"init must be 'xavier' unless the scheme is Shaw's, got {self.init!r} "
                f"with {self.scheme!r}"
            )
        if self.window is not None and not scheme.can_hide:
            fit = ", ".join(name for name, one in SCHEMES.items() if one.can_hide)
            raise ValueError(
                f"window must be None for {self.scheme!r}; these can have one: {fit}"
            )
        if scheme.needs_even_head and (self.width // self.heads) % 2:
            raise ValueError(
                f"width / heads must be even for {self.scheme!r}, "
                f"got {self.width} / {self.heads}"
            )

    @property
    def longest_seen(self) -> int:
        """The longest length in training and measuring."""
        return max(self.longest, *self.test_lengths)

    @property
    def label(self) -> str:
        """The scheme with its K, for tables and pictures."""
        distance = self.max_distance
        if distance is None:
            return self.scheme
        each = distance if isinstance(distance, tuple) else (distance,)
        return f"{self.scheme} K={'/'.join(map(str, each))}"

    @property
    def key(self) -> str:
        """A name that no other run has, fit for a file."""
        # Only what was chosen, so that a new field does not rename old runs.
        defaults = {field.name: field.default for field in dataclasses.fields(Run)}
        chosen = {n: v for n, v in self.as_dict().items() if v != _plain(defaults[n])}
        text = json.dumps(chosen, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        label = self.label.replace(" ", "-").replace("=", "").replace("/", "_")
        return f"{self.task}-{label}-s{self.seed}-{digest}"

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {name: _plain(value) for name, value in dataclasses.asdict(self).items()}


def run_from(fields: dict[str, Any]) -> Run:
    """The run whose fields were kept by :meth:`Run.as_dict`.

    Raises:
        ValueError: if a field is unknown or has a bad value.
    """
    known = [field.name for field in dataclasses.fields(Run)]
    for name in fields:
        _check_name("field", name, known)
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields.items()
    }
    return Run(**values)


def differing(runs: Sequence[Run]) -> list[str]:
    """Names of the fields, other than the seed, in which runs differ."""
    fields: list[Mapping[str, Any]] = [run.as_dict() for run in runs]
    names = [name for name in fields[0] if name != "seed"] if fields else []
    return [name for name in names if any(f[name] != fields[0][name] for f in fields)]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _check_name(what: str, name: object, known: Any) -> None:
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, got {name!r}")
