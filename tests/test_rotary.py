"""Rotary encoding: each pair of columns is turned; products tell the offset alone."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpos_lib.rotary import rotary_encoding
from tests import cases


def turned(x, start=0, base=10_000.0):
    """Each pair as a complex number times ``exp(i a)``, number by number."""
    length, width = x.shape
    out = torch.zeros(length, width, dtype=torch.float64)
    for p in range(length):
        for m in range(width // 2):
            angle = (start + p) / base ** (2 * m / width)
            number = complex(x[p, 2 * m], x[p, 2 * m + 1]) * cmath.exp(1j * angle)
            out[p, 2 * m], out[p, 2 * m + 1] = number.real, number.imag
    return out


@given(
    length=st.integers(1, 7),
    pairs=st.integers(1, 5),
    start=st.integers(-50, 5000),
    base=st.sampled_from([2.0, 100.0, 10_000.0, 500_000]),
)
def test_every_pair_is_turned_by_its_angle(length, pairs, start, base):
    x = cases.numbers(length, 2 * pairs, seed=pairs)
    found = rotary_encoding(x, start=start, base=base)
    cases.assert_equal(found, turned(x, start, base))


def test_axes_in_front_are_left_alone():
    x = cases.numbers(2, 3, 5, 6, seed=0)
    found = rotary_encoding(x, start=7)
    assert found.shape == x.shape
    for b in range(2):
        for h in range(3):
            cases.assert_equal(found[b, h], turned(x[b, h], start=7))


def test_position_zero_is_left_alone():
    x = cases.numbers(1, 6, seed=0)
    assert torch.equal(rotary_encoding(x), x)


def test_a_product_depends_on_the_offset_alone():
    query = cases.numbers(1, 10, seed=0).expand(23, 10)
    key = cases.numbers(1, 10, seed=1).expand(23, 10)
    products = rotary_encoding(query) @ rotary_encoding(key).mT
    for offset in range(-22, 23):
        diagonal = products.diagonal(offset)
        cases.assert_equal(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.allclose(products.diagonal(3), products.diagonal(-3)[:1])


def test_shifting_both_changes_no_product():
    query, key = cases.numbers(5, 8, seed=0), cases.numbers(7, 8, seed=1)
    here = rotary_encoding(query, start=2) @ rotary_encoding(key).mT
    there = rotary_encoding(query, start=1002) @ rotary_encoding(key, start=1000).mT
    cases.assert_equal(here, there, 1e-9)


def test_a_cache_is_continued():
    x = cases.numbers(13, 6, seed=0)
    whole = rotary_encoding(x)
    parts = [rotary_encoding(x[n : n + 1], start=n) for n in range(13)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(rotary_encoding(x[8:], start=8), whole[8:])


def test_norms_are_kept():
    x = cases.numbers(2, 11, 6, seed=0)
    found = rotary_encoding(x, start=100_003)
    cases.assert_equal(found.norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("start", [0, 257, 2049, 65_537, 1_000_003])
def test_large_positions_are_exact_up_to_the_dtype(dtype, start):
    x = cases.numbers(3, 6, seed=0, dtype=dtype)
    found = rotary_encoding(x, start=start)
    assert found.dtype == dtype
    error = (found.double() - turned(x.double(), start)).abs().max()
    assert error <= cases.one_ulp(x, dtype)


def test_far_neighbours_differ_in_half_precision():
    for dtype in (torch.float16, torch.bfloat16):
        found = rotary_encoding(torch.ones(3, 4, dtype=dtype), start=50_000)
        assert not torch.equal(found[0], found[1])
        assert not torch.equal(found[1], found[2])


def test_gradients_turn_back():
    x = cases.numbers(5, 4, seed=0).requires_grad_()
    direction = cases.numbers(5, 4, seed=1)
    (grad,) = torch.autograd.grad(rotary_encoding(x, start=3), x, direction)
    # The inverse of a rotation is its transpose: turning it again restores it.
    cases.assert_equal(rotary_encoding(grad, start=3), direction)


def test_no_number_is_needed_on_the_meta_device():
    x = torch.zeros(2, 3, 4, device="meta")
    found = rotary_encoding(x, start=5)
    assert (found.device.type, found.shape) == ("meta", x.shape)


@pytest.mark.parametrize(
    ("x", "options", "error", "message"),
    [
        ([[1.0, 0.0]], {}, TypeError, "x must be a tensor, got list"),
        (torch.ones(3, 4).long(), {}, TypeError, "x must be a floating.*int64"),
        (torch.ones(4), {}, ValueError, r"x must have shape .*got \(4,\)"),
        (torch.ones(3, 5), {}, ValueError, r"D even, got \(3, 5\)"),
        (torch.ones(0, 4), {}, ValueError, r"L at least 1.*got \(0, 4\)"),
        (torch.ones(3, 0), {}, ValueError, r"got \(3, 0\)"),
        (torch.ones(3, 4), {"start": 1.5}, TypeError, "start must be an int.*float"),
        (torch.ones(3, 4), {"start": True}, TypeError, "start must be an int.*bool"),
        (torch.ones(3, 4), {"base": "10"}, TypeError, "base must be a number, got str"),
        (torch.ones(3, 4), {"base": 1}, ValueError, "base must be .*above 1, got 1"),
        (torch.ones(3, 4), {"base": math.inf}, ValueError, "base must be .*got inf"),
        (torch.ones(3, 4), {"base": math.nan}, ValueError, "base must be .*got nan"),
    ],
)
def test_bad_input_is_refused(x, options, error, message):
    with pytest.raises(error, match=message):
        rotary_encoding(x, **options)
