"""The block: attention with a gated bias, dropout, residual and norm."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from relpos_lib import GatedBiasRPE, RPETransformerBlock
from tests import cases, reference
from tests.cases import numbers

WIDTH, HEADS, LENGTH = 6, 3, 7


def make(dropout=0.1, max_len=4):
    block = RPETransformerBlock(WIDTH, HEADS, max_len, dropout).double()
    for n, parameter in enumerate(block.parameters()):
        parameter.data = numbers(*parameter.shape, seed=n)
    return block


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("length", [1, 3, LENGTH, 11])
def test_eval_is_the_formula_from_the_weights(is_causal, length):
    block, x = make().eval(), numbers(2, length, WIDTH, seed=5)
    heads = [
        reference.parted(x @ linear.weight.T + linear.bias, HEADS)
        for linear in (block.wq, block.wk, block.wv)
    ]
    gate = 1 / (1 + torch.exp(-block.rpe.gate)) * torch.exp(block.rpe.logit_scale)
    attended = reference.attention(
        *heads, bias_table=(block.rpe.bias * gate).T, is_causal=is_causal
    )
    y = x + reference.joined(attended) @ block.wo.weight.T + block.wo.bias
    centred = y - y.mean(-1, keepdim=True)
    spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    wanted = centred / spread * block.norm1.weight + block.norm1.bias
    cases.assert_equal(block(x, is_causal=is_causal), wanted)


def test_the_names_readers_know():
    block = RPETransformerBlock(d_model=8, num_heads=2)
    names = {name.split(".")[0] for name, _ in block.named_parameters()}
    assert names == {"wq", "wk", "wv", "wo", "rpe", "norm1"}
    assert isinstance(block.rpe, GatedBiasRPE)
    assert block.rpe.bias.shape == (1023, 2)
    assert block.dropout.p == 0.1


def test_dropout_is_off_in_eval_and_on_in_training():
    block, x = make(dropout=0.5), numbers(2, LENGTH, WIDTH, seed=5)
    block.eval()
    assert torch.equal(block(x), block(x))
    cases.assert_equal(block(x), make(dropout=0.0).train()(x))
    block.train()
    assert not torch.equal(block(x), block(x))


def test_dropout_acts_on_the_weights_and_on_the_output(monkeypatch):
    block, x = make(dropout=0.5), numbers(2, LENGTH, WIDTH, seed=5)
    seen = []
    plain = F.dropout

    def watched(values, p=0.5, training=True, inplace=False):
        seen.append((tuple(values.shape), p, training))
        return plain(values, p, training, inplace)

    monkeypatch.setattr(F, "dropout", watched)
    block.train()(x)
    weights, output = (2, HEADS, LENGTH, LENGTH), (2, LENGTH, WIDTH)
    assert seen == [(weights, 0.5, True), (output, 0.5, True)]


def test_the_residual_reaches_the_output_when_everything_is_dropped():
    block, x = make(dropout=1.0).train(), numbers(2, LENGTH, WIDTH, seed=5)
    cases.assert_equal(block(x), block.norm1(x))


def test_everything_trains():
    block, x = make(dropout=0.0, max_len=3), numbers(2, LENGTH, WIDTH, seed=5)
    (block(x) * numbers(2, LENGTH, WIDTH, seed=6)).sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad.isfinite().all(), name
        if name != "wk.bias":  # adds the same to all scores of a query
            assert parameter.grad.any(), name


def test_saved_at_eight_and_loaded_at_sixteen():
    block, other = make().eval(), make().eval()
    for parameter in other.parameters():
        parameter.data.zero_()
    x = numbers(1, 16, WIDTH, seed=5)
    block(x[:, :8])
    state = block.state_dict()
    assert set(state) == {n for n, _ in block.named_parameters()}
    assert not list(block.buffers())
    other.load_state_dict(state)
    assert torch.equal(other(x), block(x))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str
)
def test_a_cast_block_keeps_working(dtype):
    block, x = make().eval().to(dtype), numbers(2, LENGTH, WIDTH, seed=5, dtype=dtype)
    assert block(x).dtype == dtype
    wide = copy.deepcopy(block).double()(x.double())
    assert (block(x).double() - wide).abs().max() <= 24 * cases.one_ulp(wide, dtype)


def test_a_block_on_another_device_keeps_working():
    block, x = make().to("meta"), torch.zeros(2, LENGTH, WIDTH, device="meta").double()
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device="meta")
    assert block(x, mask=mask, is_causal=True).device.type == "meta"


def test_under_autocast_a_block_takes_float32():
    block = RPETransformerBlock(WIDTH, HEADS, 4).eval()
    x = torch.randn(2, LENGTH, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        out = block(x)
    assert (out - block(x)).abs().max() < 0.1
    assert math.isfinite(out.sum().item())
