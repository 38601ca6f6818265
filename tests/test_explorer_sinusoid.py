"""The sinusoid figure's Python side: traits, numbers, sentence and picture."""

import math

import numpy as np
import pytest
import torch
from traitlets import TraitError

from relpos_lib.explorers import SinusoidExplorer
from relpos_lib.sinusoidal import sinusoidal_encoding
from tests.explorers import check_link, check_picture, check_range, nothing_sent

L, E = 11, 6


def explorer(**options):
    return SinusoidExplorer(length=L, width=E, **{"dimension": 2} | options)


@pytest.mark.parametrize(
    ("trait", "good", "bad", "needs"),
    [
        ("position", (0, 10), (-1, 11, 1.0), "from 0 to 10"),
        ("offset", (-10, 10, np.int64(3)), (-11, 11, True), "from -10 to 10"),
        ("dimension", (0, 5), (-1, 6, None), "from 0 to 5"),
        ("base", (2, 1_000_000), (1, 1_000_001, 1e4), "from 2 to 1000000"),
        ("along", ("position", "offset"), ("q", 0), "offset, position"),
    ],
)
def test_traits_take_their_range_and_refuse_the_rest(trait, good, bad, needs):
    check_range(explorer(), trait, good, bad, needs)


def test_construction_refuses_wrong_values_before_anything_is_sent():
    with nothing_sent():
        for options, needs in (
            ({"width": 7}, "width of SinusoidExplorer must be even, got 7"),
            ({"length": 129}, "length .* from 2 to 128, got 129"),
            ({"length": 4, "position": 4}, "position .* from 0 to 3, got 4"),
            ({"length": 4, "offset": -4}, "offset .* from -3 to 3, got -4"),
        ):
            with pytest.raises(TraitError, match=needs):
                SinusoidExplorer(**{"position": 0, "offset": 0} | options)


def test_shape_is_fixed_and_controls_can_be_observed_and_linked():
    one, other = explorer(), explorer()
    for trait in ("length", "width"):
        with pytest.raises(TraitError, match=trait):
            setattr(one, trait, 4)
    assert check_link(one, other, "position", 7) == 7
    assert one.get_state()["position"] == 7


def test_numbers_by_hand():
    one = SinusoidExplorer(length=3, width=2, position=1, offset=1, dimension=1)
    sines = [math.sin(p) for p in range(3)]
    cosines = [math.cos(p) for p in range(3)]
    assert one.codes()[:, 0].tolist() == pytest.approx(sines)
    assert one.codes()[:, 1].tolist() == pytest.approx(cosines)
    expected = [math.cos(offset) for offset in range(-2, 3)]
    assert one.products().tolist() == pytest.approx(expected)
    assert one.hands().flatten().tolist() == pytest.approx(
        [sines[1], cosines[1], sines[2], cosines[2]]
    )


@pytest.mark.parametrize("base", [2, 100, 10_000])
@pytest.mark.parametrize("position", [0, 3, 10])
def test_numbers_are_those_of_the_library(position, base):
    one = explorer(position=position, base=base, offset=-7, dimension=5)
    code = sinusoidal_encoding(L, E, base=base, dtype=torch.float64)
    torch.testing.assert_close(one.codes(), code)
    products = one.products()[L - 1 - position : 2 * L - 1 - position]
    torch.testing.assert_close(products, code @ code[position])
    torch.testing.assert_close(one.hands()[0], code[position, 4:6])


def test_only_the_distance_matters():
    one = explorer()
    before = one.products()
    for position in range(L):
        one.position = position
        torch.testing.assert_close(one.products(), before)
    torch.testing.assert_close(before, before.flip(0))


def test_the_sentence_says_what_is_shown():
    one = SinusoidExplorer(length=4, width=2, position=2, offset=-1, dimension=0)
    assert repr(one) == (
        "Sinusoid explorer: code of 4 positions with 2 dimensions, base 10000; the "
        "codes of positions 2 and 1 have the dot product 0.54, as any two that are 1 "
        "apart."
    )


@pytest.mark.parametrize("options", [{}, {"offset": -9, "along": "position"}])
def test_the_picture_is_small_and_always_the_same(options):
    one, other = explorer(position=2, **options), explorer(position=2, **options)
    check_picture(one.picture(), other.picture())
