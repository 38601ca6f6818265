"""Which backend "auto" takes, and what it says about it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch

from relpos_lib import choose_backend, relative_attention
from relpos_lib.attention import BACKENDS
from tests.cases import numbers


def tensors(q_len: int, k_len: int | None = None, **options: Any) -> dict[str, Any]:
    k_len = q_len if k_len is None else k_len
    shapes = {"query": (1, 1, q_len, 2), "key": (1, 1, k_len, 2)}
    found: dict[str, Any] = {
        name: numbers(*shape, seed=n, dtype=torch.float32)
        for n, (name, shape) in enumerate(shapes.items())
    }
    return {**found, "value": found["key"], **options}


def bias(max_distance: int) -> torch.Tensor:
    return torch.zeros(1, 2 * max_distance + 1)


def vectors(max_distance: int) -> torch.Tensor:
    return torch.zeros(2 * max_distance + 1, 2)


def chosen(**options: Any) -> str:
    return choose_backend(**tensors(**options)).backend


def test_short_sequences_are_gathered():
    assert chosen(q_len=63, key_table=vectors(4)) == "gather"
    assert chosen(q_len=63, bias_table=bias(4)) == "gather"


def test_long_sequences_are_divided():
    assert (
        chosen(q_len=272, key_table=vectors(16), value_table=vectors(4)) == "near_far"
    )
    assert chosen(q_len=271, key_table=vectors(16), value_table=vectors(4)) == "gather"
    assert chosen(q_len=512, value_table=vectors(256)) == "near_far"


def test_the_largest_k_decides():
    near, far = vectors(4), vectors(300)
    assert chosen(q_len=400, key_table=near) == "near_far"
    for tables in ({"key_table": far}, {"value_table": far}, {"bias_table": bias(300)}):
        assert chosen(q_len=400, **{"key_table": near, **tables}) == "gather"


def test_few_queries_are_gathered():
    assert chosen(q_len=1, k_len=5000, key_table=vectors(4)) == "gather"
    assert chosen(q_len=128, k_len=5000, key_table=vectors(4)) == "near_far"


def test_a_bias_is_read_as_a_view():
    assert chosen(q_len=64, bias_table=bias(63)) == "strided"
    assert chosen(q_len=4096, bias_table=bias(16), is_causal=True) == "strided"
    padding = torch.ones(1, 1, 1, 64, dtype=torch.bool)
    assert chosen(q_len=64, bias_table=bias(63), mask=padding) == "strided"


def test_a_long_trained_bias_is_divided_if_k_is_small():
    trained = bias(16).requires_grad_()
    assert chosen(q_len=2048, bias_table=trained) == "near_far"
    assert chosen(q_len=2047, bias_table=trained) == "strided"
    assert chosen(q_len=2048, bias_table=bias(300).requires_grad_()) == "strided"
    with torch.no_grad():
        assert chosen(q_len=2048, bias_table=trained) == "strided"


def test_what_only_gather_can_do():
    assert chosen(q_len=512, key_table=vectors(4), dropout_p=0.1) == "gather"
    pairs = torch.ones(512, 512, dtype=torch.bool)
    assert chosen(q_len=512, key_table=vectors(4), mask=pairs) == "gather"
    with patch("torch.compiler.is_exporting", return_value=True):
        assert chosen(q_len=512, key_table=vectors(4)) == "gather"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"q_len": 8}, "fewer than 64 keys"),
        ({"q_len": 512, "dropout_p": 0.5}, "dropout needs every weight"),
        ({"q_len": 512, "key_table": vectors(3)}, "most keys are farther than K = 3"),
        ({"q_len": 300, "key_table": vectors(90)}, "hardly any keys are farther than"),
        ({"q_len": 2, "k_len": 99}, "fewer than 128 queries"),
    ],
)
def test_the_reason_is_told(options, reason):
    choice = choose_backend(**tensors(**options))
    assert reason in choice.reason
    assert choice == (choice.backend, choice.reason)


def test_bad_input_is_refused_as_by_the_function():
    with pytest.raises(ValueError, match="bias_table must have shape"):
        choose_backend(**tensors(4), bias_table=torch.zeros(2, 3))


@pytest.mark.parametrize("q_len", [8, 100, 300])
@pytest.mark.parametrize("table", ["bias_table", "key_table"])
def test_auto_runs_what_is_chosen(q_len, table):
    case = tensors(q_len, **{table: bias(3) if table == "bias_table" else vectors(3)})
    name = choose_backend(**case).backend
    called = []

    def spy(inputs):
        called.append(name)
        return inputs.value

    with patch.dict(BACKENDS, {name: spy}):
        relative_attention(**case)
    assert called == [name]


@pytest.mark.parametrize("table", ["bias_table", "key_table"])
@pytest.mark.parametrize("backend", ["auto", "near_far", "strided"])
def test_forward_mode_and_function_transforms_are_right(backend, table):
    case = tensors(300, **{table: bias(3) if table == "bias_table" else vectors(3)})
    query = case.pop("query")

    def attend(name):
        return lambda x: relative_attention(query=x, **case, backend=name)

    tangent = torch.ones_like(query)
    found = torch.func.jvp(attend(backend), (query,), (tangent,))[1]
    wanted = torch.func.jvp(attend("gather"), (query,), (tangent,))[1]
    assert wanted.abs().max() > 0.01
    torch.testing.assert_close(found, wanted)
    total = torch.func.grad(lambda x: attend(backend)(x).square().sum())(query)
    leaf = query.clone().requires_grad_()
    attend("gather")(leaf).square().sum().backward()
    torch.testing.assert_close(total, leaf.grad, rtol=1e-4, atol=1e-6)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(query, tangent)
        out = attend(backend)(dual)
        assert torch.autograd.forward_ad.unpack_dual(out).tangent is not None
