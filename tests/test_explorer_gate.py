"""Python side of the gate explorer: gates and scales as traits, numbers, picture."""

import math

import pytest
import torch
from traitlets import TraitError

from relpos_lib.attention import relative_attention
from relpos_lib.bias import GatedBiasRPE, SimpleBiasRPE
from relpos_lib.explorers import GateExplorer
from tests.explorers import check_link, check_picture, check_range, nothing_sent

H, Q, S, D = 3, 7, 11, 5


def trained(max_len=5, scale=True):
    torch.manual_seed(0)
    rpe = GatedBiasRPE(H, max_len, scale)
    for parameter in rpe.parameters():
        torch.nn.init.normal_(parameter)
    return rpe


def content():
    torch.manual_seed(1)
    return torch.randn(H, Q, D), torch.randn(H, S, D)


def explorer(rpe=None, **options):
    return GateExplorer(rpe or trained(), *content(), **options)


@pytest.mark.parametrize(
    ("trait", "limit"),
    [
        ("gate", 6),
        ("log_scale", 3),
        ("second_gate", 6),
        ("second_log_scale", 3),
    ],
)
def test_gates_and_scales_take_their_range_and_refuse_the_rest(trait, limit):
    figure = explorer()
    for good in ([0.0, limit, -limit], torch.tensor([0.5, 1, -2]), (1, 2, 3)):
        setattr(figure, trait, good)
        assert getattr(figure, trait) == tuple(float(x) for x in good)
    needs = f"{trait} of GateExplorer must be 3 numbers from -{limit} to {limit}, got "
    for bad, got in (
        ([0.0, limit + 0.01, 0.0], f"{limit + 0.01}"),
        ([0.0, math.nan, 0.0], "nan"),
        ([0.0, 0.0], "[0.0, 0.0]"),
        (0.0, "0.0"),
        (["a", "b", "c"], "['a', 'b', 'c']"),
        (None, "None"),
    ):
        with pytest.raises(TraitError) as error:
            setattr(figure, trait, bad)
        assert str(error.value) == needs + got
        assert getattr(figure, trait) == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("trait", "good", "bad", "needs"),
    [
        ("head", (1, H), (0, H + 1), "from 1 to 3"),
        ("causal", (True, False), (1, None), "True or False"),
    ],
)
def test_the_other_traits_take_their_range_too(trait, good, bad, needs):
    check_range(explorer(), trait, good, bad, needs)


def test_settings_can_be_observed_and_linked():
    kept = check_link(explorer(), explorer(), "gate", [1, 2, 3])
    assert kept == (1.0, 2.0, 3.0)
    assert {type(gate) for gate in kept} == {float}


def test_the_first_setting_is_the_module_s():
    rpe = trained()
    figure = explorer(rpe)
    torch.testing.assert_close(figure.strengths()[0], rpe.strength().double())
    torch.testing.assert_close(
        figure.tables()[1], rpe.tables()["bias_table"].double().detach()
    )
    torch.testing.assert_close(figure.tables()[0], rpe.bias.T.double().detach())
    assert figure.strengths()[1].tolist() == [0.5] * H


def test_a_module_without_scale_and_wide_gates():
    assert explorer(trained(scale=False)).log_scale == (0.0,) * H
    rpe = trained()
    rpe.gate.data[1], rpe.logit_scale.data[2] = -8.5, 4.25
    figure = explorer(rpe)
    assert (figure.gate_limit, figure.scale_limit) == (9, 5)
    figure.gate = [-9.0, 0.0, 9.0]
    rpe.gate.data[1] = 31
    with pytest.raises(ValueError, match="gate of rpe must be within -30 and 30"):
        explorer(rpe)
    rpe.gate.data[1] = math.nan
    with pytest.raises(ValueError, match="gate must hold finite numbers"):
        explorer(rpe)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("max_len", [1, 5, 40])
def test_maps_are_attention_with_the_effective_table(causal, max_len):
    rpe = trained(max_len).double()
    figure = explorer(rpe, causal=causal, second_gate=[2.0, -1.0, 0.5])
    query, key = (tensor.double()[None] for tensor in content())
    eye = torch.eye(S).double().expand(1, H, S, S)
    for setting, maps in enumerate(figure.maps()):
        if setting:
            rpe.gate.data = torch.tensor([2.0, -1.0, 0.5]).double()
            rpe.logit_scale.data.zero_()
        expected = relative_attention(
            query, key, eye, **rpe.tables(), is_causal=causal, backend="loop"
        )[0].detach()
        torch.testing.assert_close(maps["weights"], expected, atol=1e-5, rtol=1e-5)


def test_values_are_what_is_shown_of_the_head():
    figure = explorer(head=2, causal=True)
    first, second = (maps["weights"][1] for maps in figure.maps())
    masked = ~figure.allowed()
    for name, expected in (
        ("first", first),
        ("second", second),
        ("difference", first - second),
    ):
        found = figure.values()[name]
        assert torch.equal(found.isnan(), masked)
        assert torch.equal(found[~masked], expected[~masked])


def test_another_pair_with_the_same_product_is_the_same_model():
    figure = explorer(head=2)
    others = figure.second_gate[0], figure.second_gate[2]
    found = set()
    for _ in range(5):
        figure.match()
        first, second = figure.strengths()[:, 1]
        assert abs(first / second - 1) < 1e-12
        assert abs(figure.gate[1] - figure.second_gate[1]) > 0.2
        assert figure.values()["difference"].abs().max() < 1e-12
        found.add(figure.second_gate[1])
    assert len(found) == 5
    assert (figure.second_gate[0], figure.second_gate[2]) == others
    assert "the same model" in figure.describe()
    figure.second_gate = [0.0] * H
    assert "their weights differ by up to 0." in figure.describe()


@pytest.mark.parametrize("corner", [(6.0, 3.0), (-6.0, -3.0)])
def test_at_a_corner_of_the_sliders_there_is_no_other_pair(corner):
    figure = explorer()
    figure.gate, figure.log_scale = [corner[0]] * H, [corner[1]] * H
    before = figure.second_gate, figure.second_log_scale
    figure.match()
    assert (figure.second_gate, figure.second_log_scale) == before


def test_every_other_setting_has_another_pair():
    figure = explorer()
    for gate in torch.arange(-6.0, 6.5, 0.5).tolist():
        for scale in torch.arange(-3.0, 3.5, 0.5).tolist():
            if (gate, scale) in ((6.0, 3.0), (-6.0, -3.0)):
                continue
            figure.gate, figure.log_scale = [gate] * H, [scale] * H
            figure.match()
            first, second = figure.strengths()[:, 0]
            assert abs(first / second - 1) < 1e-9, (gate, scale)


def test_tensors_are_copied():
    rpe = trained()
    figure = explorer(rpe)
    before = figure.tables()
    rpe.bias.data.add_(1)
    assert torch.equal(figure.tables(), before)


def test_without_content_only_the_bias_is_left():
    maps, _ = GateExplorer(trained(), length=6).maps()
    assert torch.equal(maps["score"], maps["position"])
    assert maps["score"].shape == (H, 6, 6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda q, k: GateExplorer(SimpleBiasRPE(H)),
            TypeError,
            "rpe must be a GatedBiasRPE, got SimpleBiasRPE",
        ),
        (
            lambda q, k: GateExplorer(trained(), q[:2], k[:2]),
            ValueError,
            "query must have the 3 heads of rpe, got 2",
        ),
        (lambda q, k: GateExplorer(trained(), q), ValueError, "given together"),
        (lambda q, k: GateExplorer(trained(), q, k[:2]), ValueError, "key must have"),
        (
            lambda q, k: GateExplorer(trained(), second_gate=[1.0]),
            TraitError,
            r"second_gate of GateExplorer must be 3 numbers from -6 to 6, got \[1.0\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, error, message):
    with nothing_sent(), pytest.raises(error, match=message):
        make(*content())


def test_the_picture_follows_the_state():
    figure = explorer()
    one = figure.picture()
    check_picture(one, figure.picture(), least=400)
    figure.match()
    assert figure.picture() != one
