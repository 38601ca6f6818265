"""Absolute codes: any width, any start, any dtype."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpos_lib import LearnedAbsoluteEncoding, SinusoidalEncoding, sinusoidal_encoding
from tests import cases


def code(position: int, column: int, width: int, base: float = 10_000.0) -> float:
    """One number, as Vaswani et al. 2017 write it."""
    angle = position / base ** (2 * (column // 2) / width)
    return math.sin(angle) if column % 2 == 0 else math.cos(angle)


@given(
    length=st.integers(1, 7),
    width=st.integers(1, 11),
    start=st.integers(-50, 5000),
    base=st.sampled_from([2.0, 100.0, 10_000.0, 500_000]),
)
def test_every_number_is_the_formula(length, width, start, base):
    found = sinusoidal_encoding(
        length, width, start=start, base=base, dtype=torch.float64
    )
    wanted = torch.tensor(
        [
            [code(start + p, c, width, base) for c in range(width)]
            for p in range(length)
        ],
        dtype=torch.float64,
    )
    assert found.shape == (length, width)
    assert (found - wanted).abs().max() < 1e-10


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7])
def test_any_width_works_and_an_odd_one_ends_with_a_sine(width):
    found = sinusoidal_encoding(3, width)
    assert found.shape == (3, width)
    assert found[0].tolist() == [float(c % 2) for c in range(width)]


def test_a_later_start_is_a_later_part_of_the_same_code():
    whole = sinusoidal_encoding(13, 7)
    assert torch.equal(sinusoidal_encoding(5, 7, start=8), whole[8:])
    before = sinusoidal_encoding(5, 7, start=-2)
    assert torch.equal(before[2:], whole[:3])


def test_moving_on_is_a_rotation_of_every_pair():
    width, base, shift = 8, 10_000.0, 5
    here = sinusoidal_encoding(11, width, dtype=torch.float64)
    there = sinusoidal_encoding(11, width, start=shift, dtype=torch.float64)
    for pair in range(width // 2):
        angle = shift / base ** (2 * pair / width)
        sine, cosine = here[:, 2 * pair], here[:, 2 * pair + 1]
        turned_sine = sine * math.cos(angle) + cosine * math.sin(angle)
        turned_cosine = cosine * math.cos(angle) - sine * math.sin(angle)
        cases.assert_equal(there[:, 2 * pair], turned_sine)
        cases.assert_equal(there[:, 2 * pair + 1], turned_cosine)


def test_how_alike_two_codes_are_depends_on_their_distance_alone():
    codes = sinusoidal_encoding(23, 12, dtype=torch.float64)
    alike = codes @ codes.T
    for distance in range(23):
        diagonal = alike.diagonal(distance)
        cases.assert_equal(diagonal, diagonal[:1].expand_as(diagonal))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str
)
@pytest.mark.parametrize("start", [257, 2049, 65_537, 1_000_003])
def test_large_positions_are_exact_up_to_the_dtype_of_the_result(dtype, start):
    found = sinusoidal_encoding(3, 6, start=start, dtype=dtype)
    wide = sinusoidal_encoding(3, 6, start=start, dtype=torch.float64)
    assert found.dtype == dtype
    assert torch.equal(found, wide.to(dtype))
    module = SinusoidalEncoding(6)(torch.zeros(3, 6, dtype=dtype), start=start)
    assert torch.equal(module, found)
    assert code(start + 2, 0, 6) == pytest.approx(wide[2, 0].item(), abs=1e-9)


def test_neighbours_differ_in_half_precision():
    for dtype in (torch.float16, torch.bfloat16):
        codes = sinusoidal_encoding(3, 4, start=5000, dtype=dtype)
        assert not torch.equal(codes[0], codes[1])
        assert not torch.equal(codes[1], codes[2])


def test_the_default_dtype_is_torchs():
    assert sinusoidal_encoding(3, 4).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert sinusoidal_encoding(3, 4).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_code_is_made_where_asked():
    assert sinusoidal_encoding(3, 4, device="meta").device.type == "meta"
    with torch.device("meta"):
        assert sinusoidal_encoding(3, 4).device.type == "meta"
    x = torch.zeros(2, 3, 4, device="meta")
    assert SinusoidalEncoding(4)(x).device.type == "meta"
    assert LearnedAbsoluteEncoding(4).to("meta")(x).device.type == "meta"


@pytest.mark.parametrize("front", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("width", [4, 5])
def test_positions_run_along_the_length_and_not_the_batch(front, width):
    module = SinusoidalEncoding(width)
    x = torch.randn(*front, 7, width)
    out = module(x, start=3)
    added = (out - x).reshape(-1, 7, width)
    wanted = sinusoidal_encoding(7, width, start=3)
    for one in added:
        torch.testing.assert_close(one, wanted, atol=1e-6, rtol=0)
    zeros = module(torch.zeros(2, 3, width))
    assert torch.equal(zeros[0], zeros[1])
    assert not torch.equal(zeros[:, 0], zeros[:, 1])


def test_the_module_stores_nothing_and_uses_its_base():
    module = SinusoidalEncoding(4, base=100.0)
    assert not module.state_dict()
    wanted = sinusoidal_encoding(5, 4, base=100.0)
    assert torch.equal(module(torch.zeros(5, 4)), wanted)
    assert module(torch.zeros(5000, 4)).shape == (5000, 4)


def test_the_module_passes_gradients_through():
    x = torch.randn(2, 3, 4, requires_grad=True)
    SinusoidalEncoding(4)(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_learned_codes_are_added_by_position():
    module = LearnedAbsoluteEncoding(5, max_len=11)
    x = torch.randn(2, 3, 5)
    assert module.table.shape == (11, 5)
    torch.testing.assert_close(module(x), x + module.table[:3])
    torch.testing.assert_close(module(x, start=8), x + module.table[8:])
    zeros = module(torch.zeros(2, 3, 5))
    assert torch.equal(zeros[0], zeros[1])


def test_learned_codes_train_the_positions_that_were_read():
    module = LearnedAbsoluteEncoding(5, max_len=11)
    module(torch.zeros(2, 3, 5), start=4).sum().backward()
    assert module.table.grad.sum(1).tolist() == [0.0] * 4 + [10.0] * 3 + [0.0] * 4


@pytest.mark.parametrize(("length", "start"), [(12, 0), (3, 9), (1, 11)])
def test_learned_codes_refuse_positions_that_have_none(length, start):
    module = LearnedAbsoluteEncoding(5, max_len=11)
    with pytest.raises(
        ValueError, match=rf"up to {length + start - 1}.*max_len - 1 = 10"
    ):
        module(torch.zeros(2, length, 5), start=start)


def test_learned_codes_follow_the_dtype_of_the_input():
    out = LearnedAbsoluteEncoding(5)(torch.zeros(3, 5, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
