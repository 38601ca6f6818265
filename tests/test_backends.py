"""Every backend is the definition: outputs and all gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relpos_lib import relative_attention
from relpos_lib.attention import BACKENDS as KNOWN_BACKENDS
from tests import cases
from tests.cases import BACKENDS, D, H, Q, S, any_case, numbers


def run(backend):
    def function(**case):
        return relative_attention(**case, backend=backend)

    return function


def test_every_backend_is_tested():
    # FlexAttention trains on GPUs only: test_flex.py and test_cuda.py have its tests.
    assert {*BACKENDS, "flex"} == set(KNOWN_BACKENDS)


def test_auto_is_one_of_them():
    case = cases.inputs()
    wanted = relative_attention(**case, backend="gather")
    assert torch.equal(relative_attention(**case), wanted)
    assert torch.equal(relative_attention(**case, backend="auto"), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize(
    "present",
    [
        present
        for count in range(4)
        for present in itertools.combinations(("bias", "keys", "values"), count)
    ],
    ids="+".join,
)
def test_outputs_and_gradients_for_every_choice_of_tables(backend, per_head, present):
    case = cases.inputs(
        bias=3 if "bias" in present else None,
        keys=9 if "keys" in present else None,
        values=16 if "values" in present else None,
        per_head=per_head,
    )
    cases.assert_same(cases.outcome(run(backend), case), cases.truth(case), 1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60)
@given(case=any_case())
def test_outputs_and_gradients_of_any_case(backend, case):
    cases.assert_same(cases.outcome(run(backend), case), cases.truth(case), 1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25)
@given(case=any_case(torch.float32))
def test_float32_stays_within_a_hundred_thousandth(backend, case):
    found, wanted = cases.outcome(run(backend), case), cases.truth(case)
    cases.assert_same(found, wanted, 1e-5, terms=1.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@settings(max_examples=25)
@given(data=st.data())
def test_half_precision_loses_no_more_than_its_own_rounding(backend, dtype, data):
    case = data.draw(any_case(dtype))
    found, wanted = cases.outcome(run(backend), case), cases.truth(case)
    for name, want in wanted.items():
        assert found[name].dtype == dtype, name
        # One unit of the result, plus the float32 rounding of terms that cancel.
        bound = 1e-5 + (cases.one_ulp(want, dtype) if want.any() else 0)
        assert (found[name].double() - want).abs().max().item() <= bound, name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_tables_in_float32_keep_their_precision_beside_half_inputs(backend, dtype):
    case = cases.inputs(dtype=dtype)
    names = [name for name in case if name.endswith("table")]
    for name in names:
        case[name] = numbers(*case[name].shape, seed=len(name), dtype=torch.float32)
    found, wanted = cases.outcome(run(backend), case), cases.truth(case)
    assert found["output"].dtype == dtype
    # One unit: half of one for the inputs' gradients, the rest is float32.
    error = (found["output"].double() - wanted["output"]).abs().max().item()
    assert error <= cases.one_ulp(wanted["output"], dtype)
    for name in (f"gradient of {name}" for name in names):
        assert found[name].dtype == torch.float32
        cases.assert_equal(found[name], wanted[name], 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_wide_inputs_take_narrow_tables_as_they_are(backend):
    case = cases.inputs()
    for name in ("bias_table", "key_table", "value_table"):
        case[name] = case[name].half()
    wanted = cases.truth(case)["output"]
    cases.assert_equal(relative_attention(**case, backend=backend), wanted)


def small_case(**changes):
    return cases.inputs(
        1, 2, 2, 3, 2, 1, **{"bias": 1, "keys": 0, "values": 2} | changes
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
def test_first_and_second_derivatives(backend, is_causal, per_head):
    case = small_case(per_head=per_head)
    leaves = {n: t.requires_grad_() for n, t in case.items()}
    mask = torch.tensor([[True, False, True], [False, False, False]])

    def function(*tensors):
        return relative_attention(
            **dict(zip(leaves, tensors, strict=True)),
            mask=mask,
            is_causal=is_causal,
            backend=backend,
        )

    tensors = tuple(leaves.values())
    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


@pytest.mark.parametrize("length", [50, 129])
def test_gather_trains_tables_at_lengths_the_loop_is_too_slow_for(length):
    # Against one-hot rows: a (Q, S, 2K+1) selection, another way to the same sums.
    distance, width = 8, 3
    case = cases.inputs(
        1,
        2,
        length,
        length,
        width,
        width,
        bias=distance,
        keys=distance,
        values=distance,
    )
    rows = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    rows = rows.clamp(-distance, distance) + distance
    chosen = torch.nn.functional.one_hot(rows, 2 * distance + 1).double()

    def dense(query, key, value, bias_table, key_table, value_table):
        keys = key[:, :, None] + chosen @ key_table  # (B, H, Q, S, D)
        scores = (query[:, :, :, None] * keys).sum(-1) / width**0.5
        scores = scores + torch.einsum("ijr,hr->hij", chosen, bias_table)
        values = value[:, :, None] + chosen @ value_table
        return (scores.softmax(-1)[..., None] * values).sum(-2)

    cases.assert_same(
        cases.outcome(run("gather"), case), cases.outcome(dense, case), 1e-10
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_memory_layout_gives_the_same_numbers(backend):
    case = cases.inputs(per_head=True)
    wanted = relative_attention(**case, backend=backend)
    turned = {n: t.transpose(-1, -2).contiguous().mT for n, t in case.items()}
    cases.assert_equal(relative_attention(**turned, backend=backend), wanted)
    case["key"] = case["key"][:1].expand(2, H, S, D)
    case["query"] = numbers(2, Q, H, D, seed=3).transpose(1, 2)
    wanted = cases.truth(case)["output"]
    cases.assert_equal(relative_attention(**case, backend=backend), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_are_left_as_they_were(backend):
    case = cases.inputs()
    case["mask"] = torch.ones(Q, S, dtype=torch.uint8)
    before = {name: tensor.clone() for name, tensor in case.items()}
    relative_attention(**case, is_causal=True, backend=backend)
    assert all(torch.equal(case[name], before[name]) for name in before)
    assert case["mask"].dtype == torch.uint8
