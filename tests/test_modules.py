"""Modules hand their work to the backend that they were told."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from relpos_lib import RelativeMultiHeadAttention, RPETransformerBlock, SimpleBiasRPE
from relpos_lib.attention import BACKENDS as KNOWN_BACKENDS
from relpos_lib.backends import gather
from tests import cases
from tests.cases import BACKENDS, numbers

WIDTH, HEADS, LENGTH = 6, 3, 7


def shaw(**options):
    return filled(RelativeMultiHeadAttention(WIDTH, HEADS, 2, **options))


def block(**options):
    return filled(RPETransformerBlock(WIDTH, HEADS, 3, dropout=0.0, **options))


def filled(module):
    for n, parameter in enumerate(module.double().parameters()):
        parameter.data = numbers(*parameter.shape, seed=n)
    return module


def call(module, **options):
    x = numbers(2, LENGTH, WIDTH, seed=5)
    inputs = (x,) if isinstance(module, RPETransformerBlock) else (x, x, x)
    return module(*inputs, **options)


each_module = pytest.mark.parametrize("make", [shaw, block])


@each_module
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_every_backend_gives_the_same_numbers_and_gradients(make, backend):
    found = []
    for name in (backend, "gather"):
        module = make(backend=name)
        out = call(module, is_causal=True)
        direction = numbers(*out.shape, seed=6)
        grads = torch.autograd.grad(out, list(module.parameters()), direction)
        found.append([out.detach(), *grads])
    for one, other in zip(*found, strict=True):
        assert (one - other).abs().max() <= 1e-10 * max(1, other.abs().max())


@each_module
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_backend_that_was_asked_for_does_the_work(make, backend, monkeypatch):
    calls = []
    for name, run in list(KNOWN_BACKENDS.items()):

        def counted(inputs, name=name, run=run):
            calls.append(name)
            return run(inputs)

        monkeypatch.setitem(KNOWN_BACKENDS, name, counted)
    call(make(backend=backend))
    assert calls == [backend]


@each_module
def test_the_backend_is_kept_and_may_be_changed(make):
    module = make(backend="loop")
    assert module.backend == "loop"
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert twin.backend == "loop"
    assert make().backend == "auto"
    assert set(module.state_dict()) == set(make().state_dict())
    wanted = call(module)
    module.backend = "gather"
    cases.assert_equal(call(module).detach(), wanted.detach())
    module.backend = "flash"
    with pytest.raises(ValueError, match="backend must be one of auto, loop, gather"):
        call(module)


@each_module
def test_only_a_backend_that_was_chosen_is_printed(make):
    assert "backend" not in repr(make())
    assert "backend='loop'" in repr(make(backend="loop"))


@each_module
@pytest.mark.parametrize("name", ["flash", "Gather", "", None, 3, ["loop"]], ids=str)
def test_an_unknown_backend_is_refused_at_once(make, name):
    with pytest.raises(ValueError, match="backend must be one of auto, ") as caught:
        make(backend=name)
    assert f"got {name!r}" in str(caught.value)
    assert all(known in str(caught.value) for known in BACKENDS)


def test_debug_and_scores_keep_the_readable_form(monkeypatch):
    module = shaw(backend="loop")
    plain = call(module)

    def refuse(inputs):
        raise AssertionError("debug must not use a backend")

    for name in KNOWN_BACKENDS:
        monkeypatch.setitem(KNOWN_BACKENDS, name, refuse)
    monkeypatch.setattr(gather, "attention", refuse)
    out, seen = call(module, debug=True)
    cases.assert_equal(out.detach(), plain.detach())
    assert seen["attention_weights"].shape == (2, HEADS, LENGTH, LENGTH)
    scores = torch.zeros(2, HEADS, LENGTH, LENGTH)
    assert SimpleBiasRPE(HEADS, 4)(scores).any()
