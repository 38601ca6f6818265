"""Attention that is computed again in the backward pass: what it keeps, and when."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from relpos_lib import relative_attention
from relpos_lib.backends import checkpoint, gather
from tests import cases

OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "mask": {"mask": torch.ones(1, 1, 1, 1, dtype=torch.bool)},
    "dropout": {"dropout_p": 0.3},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
BATCH, HEADS = 2, 3


def square(length, dtype=torch.float32):
    case = cases.inputs(
        BATCH, HEADS, length, length, 5, 7, bias=3, keys=2, values=1, dtype=dtype
    )
    return {name: tensor.requires_grad_() for name, tensor in case.items()}


def bytes_of(tensors):
    return sum(tensor.nbytes for tensor in tensors)


def bytes_kept(case, backend, **options):
    """Bytes of all memory that the forward pass keeps for the backward pass."""
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        relative_attention(**case, backend=backend, **options)
    return sum(storage.nbytes() for storage in kept.values())


@each_option
@pytest.mark.parametrize("length", [32, 64])
def test_nothing_but_the_inputs_is_kept(options, length):
    case = square(length)
    given = [*case.values(), *filter(torch.is_tensor, options.values())]
    assert bytes_kept(case, "checkpoint", **options) <= bytes_of(given)


def test_half_inputs_are_kept_as_they_are():
    case = square(64, torch.bfloat16)
    assert bytes_kept(case, "checkpoint") <= bytes_of(case.values())


@each_option
def test_gather_keeps_tensors_of_pairs_and_this_does_not(options):
    """Twice the length: four times what gather keeps, twice what is kept here."""
    factors = []
    for length in (128, 256):
        case = square(length)
        pairs = BATCH * HEADS * length**2 * 4
        kept = bytes_kept(case, "gather", **options)
        assert 3 * pairs <= kept <= 6 * pairs
        factors.append(kept / bytes_kept(case, "checkpoint", **options))
    assert factors[0] > 3 * 128 / (5 + 5 + 7)  # (B, H, L, D) of queries, keys, values
    assert factors[1] == pytest.approx(2 * factors[0], rel=0.1)


@pytest.mark.parametrize("p", [0.3, 0.8])
def test_the_same_weights_are_dropped_again(p):
    def run(backend):
        def function(**case):
            torch.manual_seed(3)
            return relative_attention(**case, dropout_p=p, backend=backend)

        return function

    case = square(7, torch.float64)
    found, wanted = (
        cases.outcome(run(backend), case) for backend in ("checkpoint", "gather")
    )
    assert torch.equal(found["output"], wanted["output"])
    cases.assert_same(found, wanted, 1e-12)


def test_random_numbers_drawn_after_the_backward_pass_are_those_of_gather():
    drawn = []
    for backend in ("checkpoint", "gather"):
        torch.manual_seed(3)
        out = relative_attention(**square(7), dropout_p=0.5, backend=backend)
        torch.rand(1)
        out.sum().backward()
        drawn.append(torch.rand(1))
    assert torch.equal(*drawn)


def test_autocast_is_the_same_in_both_passes():
    found = {}
    for backend in ("checkpoint", "gather"):
        case = square(7)
        with torch.autocast("cpu", torch.bfloat16):
            out = relative_attention(**case, backend=backend)
        found[backend] = [out, *torch.autograd.grad(out.sum(), list(case.values()))]
    for one, other in zip(*found.values(), strict=True):
        assert torch.equal(one, other)


def test_it_is_plain_gather_where_no_gradient_is_needed(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing has to be computed again")

    monkeypatch.setattr(checkpoint, "checkpoint", refuse)
    case = square(7)
    with torch.no_grad():
        out = relative_attention(**case, backend="checkpoint")
    case = {name: tensor.detach() for name, tensor in case.items()}
    wanted = relative_attention(**case, backend="gather")
    assert torch.equal(out, wanted)
    assert torch.equal(relative_attention(**case, backend="checkpoint"), wanted)
    with pytest.raises(AssertionError):
        relative_attention(**square(7), backend="checkpoint")


@pytest.mark.parametrize("name", cases.TENSORS)
def test_one_tensor_that_needs_a_gradient_is_enough(name):
    found = {}
    for backend in ("checkpoint", "gather"):
        case = {n: t.detach() for n, t in square(7).items()}
        leaf = case[name].requires_grad_()
        out = relative_attention(**case, is_causal=True, backend=backend)
        found[backend] = torch.autograd.grad(out.square().sum(), leaf)[0]
    assert torch.equal(*found.values())
    assert found["gather"].any()


def test_the_forward_pass_is_run_once_more(monkeypatch):
    calls, run = [], gather.attention

    def counted(inputs):
        calls.append(inputs.query.shape)
        return run(inputs)

    monkeypatch.setattr(gather, "attention", counted)
    out = relative_attention(**square(7), backend="checkpoint")
    assert len(calls) == 1
    out.sum().backward()
    assert len(calls) == 2


def test_compiled_it_is_one_graph_with_the_same_numbers():
    torch._dynamo.reset()
    compiled = torch.compile(
        relative_attention, backend="aot_eager", fullgraph=True, dynamic=True
    )
    for length in (5, 7, 11):
        case = {**cases.inputs(2, 3, length, length, 5, 7), "is_causal": True}
        cases.assert_same(
            cases.outcome(lambda **c: compiled(**c, backend="checkpoint"), case),
            cases.outcome(relative_attention, case),
            1e-10,
        )
    torch._dynamo.reset()
