"""Inputs for the tests, and how close two results have to be."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests import reference

BACKENDS = ["loop", "gather", "checkpoint", "near_far", "strided"]
TENSORS = ("query", "key", "value", "bias_table", "key_table", "value_table")
# Distinct primes, so that no swapped axis fits. Offsets reach from -10 to 4: tables
# with K = 3 clip on both sides, with K = 9 on one, and one with K = 16 not at all.
B, H, Q, S, D, DV = 2, 3, 5, 11, 13, 17


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers that depend on the shape and the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def inputs(
    batch: int = B,
    heads: int = H,
    q_len: int = Q,
    k_len: int = S,
    width: int = D,
    value_width: int = DV,
    *,
    bias: int | None = 3,
    keys: int | None = 9,
    values: int | None = 16,
    per_head: bool = False,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Any]:
    """Keyword arguments of ``relative_attention``; a K of None leaves a table out."""
    front = (heads,) if per_head else ()
    shapes: dict[str, tuple[int, ...]] = {
        "query": (batch, heads, q_len, width),
        "key": (batch, heads, k_len, width),
        "value": (batch, heads, k_len, value_width),
    }
    if bias is not None:
        shapes["bias_table"] = (heads, 2 * bias + 1)
    if keys is not None:
        shapes["key_table"] = (*front, 2 * keys + 1, width)
    if values is not None:
        shapes["value_table"] = (*front, 2 * values + 1, value_width)
    return {
        name: numbers(*shape, seed=1000 * seed + n, dtype=dtype)
        for n, (name, shape) in enumerate(shapes.items())
    }


def tensors_of(case: dict[str, Any]) -> dict[str, Tensor]:
    """The floating-point tensors of a case."""
    return {name: case[name] for name in TENSORS if case.get(name) is not None}


def outcome(function: Any, case: dict[str, Any], seed: int = 7) -> dict[str, Tensor]:
    """Output and the gradient of every tensor, for one fixed direction."""
    leaves = {n: t.detach().clone() for n, t in tensors_of(case).items()}
    leaves = {n: t.requires_grad_() for n, t in leaves.items()}
    out = function(**{**case, **leaves})
    direction = numbers(*out.shape, seed=seed).to(torch.bfloat16).to(out.dtype)
    if not out.requires_grad:  # nobody sees anything
        grads: tuple[Tensor | None, ...] = (None,) * len(leaves)
    else:
        grads = torch.autograd.grad(
            out, list(leaves.values()), direction, allow_unused=True
        )
    found = {"output": out.detach()}
    for (name, leaf), grad in zip(leaves.items(), grads, strict=True):
        found[f"gradient of {name}"] = torch.zeros_like(leaf) if grad is None else grad
    return {name: tensor.detach() for name, tensor in found.items()}


def truth(case: dict[str, Any], seed: int = 7) -> dict[str, Tensor]:
    """Output and gradients of the definition, in float64."""
    wide = {n: t.double() for n, t in tensors_of(case).items()}
    return outcome(reference.attention, {**case, **wide}, seed)


def assert_same(
    found: dict[str, Tensor],
    wanted: dict[str, Tensor],
    tolerance: float,
    terms: float = 1e-3,
) -> None:
    """Every tensor within a tolerance of the largest number in it.

    Where terms cancel, as in the gradient of a bias that all keys share, what is left
    is the rounding of the terms: ``terms`` is their size.
    """
    assert found.keys() == wanted.keys()
    for name, want in wanted.items():
        assert found[name].shape == want.shape, name
        assert found[name].isfinite().all(), name
        error = (found[name].double() - want).abs().max().item()
        largest = want.abs().max().item()
        assert error <= tolerance * max(largest, terms), (
            f"{name} is off by {error:.3g}; its largest number is {largest:.3g}"
        )


def assert_equal(found: Tensor, wanted: Tensor, tolerance: float = 1e-10) -> None:
    """One tensor within a tolerance of the largest number of another."""
    assert_same({"tensor": found}, {"tensor": wanted.double()}, tolerance)


def one_ulp(tensor: Tensor, dtype: torch.dtype) -> float:
    """Distance of neighbouring numbers of a dtype at the largest number of a tensor."""
    exponent = math.floor(math.log2(tensor.abs().max().item()))
    return 2.0**exponent * torch.finfo(dtype).eps


@st.composite
def masks(
    draw: st.DrawFn, batch: int, heads: int, q_len: int, k_len: int
) -> Tensor | None:
    """A mask of any accepted shape and dtype, some rows and some keys hidden whole."""
    full = (batch, heads, q_len, k_len)
    kind = draw(st.sampled_from(["none", "2-D", "4-D", "4-D"]))
    if kind == "none":
        return None
    if kind == "2-D":
        shape = full[2:]
    else:
        shape = tuple(draw(st.sampled_from(sorted({1, size}))) for size in full)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    share = draw(st.sampled_from([0.2, 0.7]))
    mask = torch.rand(shape, generator=generator) < share
    if draw(st.booleans()):
        mask[..., draw(st.integers(0, shape[-2] - 1)), :] = False
    if draw(st.booleans()):
        mask[..., : draw(st.integers(0, shape[-1]))] = False
    return mask.to(draw(st.sampled_from([torch.bool, torch.uint8, torch.int64])))


@st.composite
def any_case(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Arguments of ``relative_attention`` that no example was thought of for."""
    size = st.integers(1, 4)
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    q_len, k_len = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    distance = st.one_of(st.none(), st.integers(0, 8))
    case = inputs(
        batch,
        heads,
        q_len,
        k_len,
        draw(size),
        draw(size),
        bias=draw(distance),
        keys=draw(distance),
        values=draw(distance),
        seed=draw(st.integers(0, 1000)),
        dtype=dtype,
    )
    for name in ("key_table", "value_table"):
        if name in case and draw(st.booleans()):
            table = case[name]
            case[name] = numbers(heads, *table.shape, seed=len(name), dtype=dtype)
    case["mask"] = draw(masks(batch, heads, q_len, k_len))
    case["is_causal"] = draw(st.booleans())
    case["query_start"] = draw(st.one_of(st.none(), st.integers(-4, 9)))
    case["scale"] = draw(st.sampled_from([None, 1.0, 0.3, -0.7, 0.0]))
    return case
