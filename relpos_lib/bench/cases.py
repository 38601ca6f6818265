"""What is measured: a scheme at a length, and random tensors that fit it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relpos_lib.bias import ALiBi, SimpleBiasRPE, T5BucketBias

FORWARD, BOTH = "forward", "forward+backward"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.half}


class Setting(NamedTuple):
    """What stays the same in a run: the device, and B, H and D."""

    device: str = "cpu"
    batch: int = 1
    heads: int = 8
    width: int = 64


class Case(NamedTuple):
    """One question, put to every contender.

    Attributes:
        workload: a name in :data:`WORKLOADS`.
        length: L, as many queries as keys.
        max_distance: K of the tables; None where the scheme has its own.
        causal: whether a query sees only keys at or before its own position.
        backward: whether the backward pass belongs to it.
        dtype: a name in :data:`DTYPES`.
    """

    workload: str
    length: int
    max_distance: int | None = None
    causal: bool = False
    backward: bool = False
    dtype: str = "float32"

    @property
    def direction(self) -> str:
        """The passes that belong to it, in words."""
        return BOTH if self.backward else FORWARD

    @property
    def key(self) -> str:
        """Its name in the file of results, without spaces and dots.

        >>> Case("shaw", 4096, 16, causal=True).key
        'shaw-causal-k16-4096-forward-float32'
        """
        parts = [self.workload, "causal" if self.causal else ""]
        parts += [f"k{self.max_distance}" if self.max_distance is not None else ""]
        parts += [str(self.length), self.direction, self.dtype]
        return "-".join(part for part in parts if part)

    def described(self) -> dict[str, Any]:
        """What a file of results says about it."""
        about = {**self._asdict(), "direction": self.direction}
        del about["backward"]
        return about


def case_of(about: dict[str, Any]) -> Case:
    """The case that :meth:`Case.described` described."""
    fields = {name: about[name] for name in Case._fields if name in about}
    return Case(**fields, backward=about["direction"] == BOTH)


class Problem(NamedTuple):
    """Tensors of one case.

    Attributes:
        query: (B, H, L, D).
        key: (B, H, L, D).
        value: (B, H, L, D).
        tables: keyword arguments of ``relative_attention``.
        upstream: (B, H, L, D), the gradient of the output.
        causal: whether a query sees only keys at or before its own position.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    tables: dict[str, Tensor]
    upstream: Tensor
    causal: bool

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def leaves(self) -> list[Tensor]:
        """Everything that wants a gradient."""
        return [t for t in (*self.inputs, *self.tables.values()) if t.requires_grad]


def _clipped_bias(case: Case, setting: Setting) -> dict[str, Tensor]:
    return {"bias_table": torch.randn(setting.heads, _rows(case))}


def _shaw_keys(case: Case, setting: Setting) -> dict[str, Tensor]:
    return {"key_table": torch.randn(_rows(case), setting.width)}


def _shaw_values(case: Case, setting: Setting) -> dict[str, Tensor]:
    return {"value_table": torch.randn(_rows(case), setting.width)}


def _shaw(case: Case, setting: Setting) -> dict[str, Tensor]:
    return {**_shaw_keys(case, setting), **_shaw_values(case, setting)}


def _unclipped(case: Case, setting: Setting) -> dict[str, Tensor]:
    """A number for every offset: the default ``max_len`` as far as it reaches."""
    rpe = SimpleBiasRPE(setting.heads, max(512, case.length))
    return dict(rpe.tables())  # type: ignore[arg-type]


def _alibi(case: Case, setting: Setting) -> dict[str, Tensor]:
    tables = ALiBi(setting.heads).tables(max_distance=case.length - 1)
    return dict(tables)  # type: ignore[arg-type]


def _t5(case: Case, setting: Setting) -> dict[str, Tensor]:
    rpe = T5BucketBias(setting.heads, bidirectional=not case.causal)
    return dict(rpe.tables())  # type: ignore[arg-type]


WORKLOADS: dict[str, Callable[[Case, Setting], dict[str, Tensor]]] = {
    "bias": _clipped_bias,
    "shaw-keys": _shaw_keys,
    "shaw-values": _shaw_values,
    "shaw": _shaw,
    "unclipped": _unclipped,
    "alibi": _alibi,
    "t5": _t5,
}
CLIPPED = ("bias", "shaw-keys", "shaw-values", "shaw")  # these need a K
FIXED = ("alibi",)  # nothing to learn here


def problem_of(case: Case, setting: Setting, seed: int = 0) -> Problem:
    """Random tensors of a case; the same case gets the same numbers each time.

    Args:
        case: what to make tensors for.
        setting: device and sizes.
        seed: another seed gives other numbers.

    Returns:
        The problem; tensors want gradients if the case has a backward pass.

    Raises:
        ValueError: if the case lacks the K that its workload needs.
    """
    if case.workload in CLIPPED and case.max_distance is None:
        raise ValueError(f"{case.workload} needs a max_distance")
    dtype = DTYPES[case.dtype]
    shape = (setting.batch, setting.heads, case.length, setting.width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        query, key, value, upstream = (torch.randn(shape) for _ in range(4))
        tables = WORKLOADS[case.workload](case, setting)

    def leaf(tensor: Tensor, wants_gradient: bool) -> Tensor:
        moved = tensor.detach().to(setting.device, dtype)
        return moved.requires_grad_(wants_gradient and case.backward)

    learned = case.workload not in FIXED
    return Problem(
        leaf(query, True),
        leaf(key, True),
        leaf(value, True),
        {name: leaf(table, learned) for name, table in tables.items()},
        leaf(upstream, False),
        case.causal,
    )


def _rows(case: Case) -> int:
    assert case.max_distance is not None
    return 2 * case.max_distance + 1
