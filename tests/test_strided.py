"""An additive bias through a strided view equals the definition, in O(L) memory."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from relpos_lib import ALiBi, SimpleBiasRPE, relative_attention
from relpos_lib.backends import strided
from relpos_lib.backends.near_far.kernels import Blockwise
from tests import cases
from tests.cases import numbers


def by_view(**case: Any) -> torch.Tensor:
    return relative_attention(**case, backend="strided")


def gathered(**case: Any) -> torch.Tensor:
    return relative_attention(**case, backend="gather")


@contextmanager
def divided(rows: int, causal_rows: int, at_a_time: int):
    """So many queries at a time, so that short sequences have several blocks."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(strided, "ROWS", rows))
        stack.enter_context(patch.object(strided, "CAUSAL_ROWS", causal_rows))
        stack.enter_context(patch.object(strided, "NUMBERS", at_a_time))
        yield


@st.composite
def biased(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments with a bias and perhaps a mask of keys."""
    batch, heads = draw(st.integers(1, 2)), draw(st.sampled_from([1, 3]))
    q_len, k_len = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    case = cases.inputs(
        batch,
        heads,
        q_len,
        k_len,
        5,
        draw(st.sampled_from([5, 3, 7])),
        bias=draw(st.sampled_from([0, 1, 5, 40, 99])),
        keys=None,
        values=None,
        seed=draw(st.integers(0, 99)),
    )
    case["is_causal"] = draw(st.booleans())
    case["query_start"] = draw(st.one_of(st.none(), st.integers(-80, 80)))
    case["scale"] = draw(st.sampled_from([None, 0.0, -0.7]))
    if draw(st.booleans()):
        shape = (draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])))
        share = draw(st.sampled_from([0.0, 0.3, 0.9]))
        case["mask"] = numbers(*shape, 1, k_len, seed=5).sigmoid() < share
    return case


@given(biased(), st.sampled_from([1, 7, 128]), st.sampled_from([1, 16, 512]))
@settings(max_examples=80, deadline=None)
def test_output_and_gradients_equal_the_definition(case, rows, causal_rows):
    with divided(rows, causal_rows, 1 << 10):
        found = cases.outcome(by_view, case)
    cases.assert_same(found, cases.outcome(gathered, case), 1e-10)


@given(biased())
@settings(max_examples=20, deadline=None)
def test_with_the_kernel_of_plain_pytorch(case):
    with patch.object(strided, "kernel_for", lambda *_: Blockwise(100)):
        found = cases.outcome(by_view, case)
    cases.assert_same(found, cases.outcome(gathered, case), 1e-10)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("length", [1, 127, 128, 129, 600])
def test_a_bias_that_is_not_trained(length, is_causal):
    case = cases.inputs(1, 2, length, length, 4, 4, bias=200, keys=None, values=None)
    table = case.pop("bias_table")
    for name, tensor in cases.outcome(
        lambda **rest: by_view(**rest, bias_table=table, is_causal=is_causal), case
    ).items():
        wanted = cases.outcome(
            lambda **rest: gathered(**rest, bias_table=table, is_causal=is_causal), case
        )
        cases.assert_equal(tensor, wanted[name])


@pytest.mark.parametrize("is_causal", [False, True])
def test_numbers_that_hide_keys(is_causal):
    case = cases.inputs(bias=3, keys=None, values=None)
    case["bias_table"][0, :2] = -torch.inf
    case["bias_table"][1] = -torch.inf
    case["is_causal"] = is_causal
    cases.assert_same(
        cases.outcome(by_view, case), cases.outcome(gathered, case), 1e-10
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_precisions(dtype):
    case = cases.inputs(2, 3, 150, 150, 8, 8, bias=149, keys=None, values=None)
    case = {name: tensor.to(dtype) for name, tensor in case.items()}
    wanted = cases.outcome(
        gathered, {name: tensor.double() for name, tensor in case.items()}
    )
    tolerance = 1e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    found = cases.outcome(by_view, case)
    assert found["output"].dtype == dtype
    cases.assert_same(found, wanted, tolerance)


class Largest(TorchDispatchMode):
    """Remembers the largest storage that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor):
                size = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.numbers = max(self.numbers, size)
        return out


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_nothing_of_the_size_of_all_pairs_is_made(is_causal, trained):
    length, heads, width = 1024, 4, 8
    table = numbers(heads, 2 * length - 1, seed=3, dtype=torch.float32)
    query, key, value = (
        numbers(1, heads, length, width, seed=n, dtype=torch.float32) for n in range(3)
    )
    line = strided._line(
        strided.Inputs(
            query, key, value, table, None, None, None, is_causal, 0, 0.0, 1.0
        )
    )
    options = (line, None, 0, is_causal, 1.0)
    run = strided.strided_backward_line if trained else strided.strided_backward
    with divided(128, 512, 1 << 17), Largest() as seen:
        out, logsumexp = strided.strided._init_fn(query, key, value, *options)
        saved = (query, key, value, line, None, out, logsumexp, 0, is_causal, 1.0)
        run._init_fn(torch.ones_like(out), *saved)
    assert seen.numbers < heads * length**2 / 8


def test_modules_of_biases_are_trained_through_it():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 90, 4, dtype=torch.float64) for _ in range(3))
    simple = SimpleBiasRPE(3, max_len=50).double()
    for backend in ("gather", "strided"):
        out = relative_attention(q, k, v, **simple.tables(), backend=backend)
        out.square().sum().backward()
    gathered_plus_strided = simple.bias.grad.clone()
    simple.bias.grad = None
    relative_attention(
        q, k, v, **simple.tables(), backend="gather"
    ).square().sum().backward()
    cases.assert_equal(gathered_plus_strided, 2 * simple.bias.grad)


def test_alibi_reaches_as_far_as_the_sequence():
    q, k, v = (numbers(1, 4, 300, 8, seed=n) for n in range(3))
    tables = ALiBi(4).tables(max_distance=299)
    tables = {name: table.double() for name, table in tables.items()}
    for is_causal in (False, True):
        options = {**tables, "is_causal": is_causal}
        cases.assert_equal(
            relative_attention(q, k, v, **options, backend="strided"),
            relative_attention(q, k, v, **options, backend="gather"),
        )


def test_second_derivatives_are_refused_with_the_way_out():
    case = cases.inputs(bias=3, keys=None, values=None)
    case["bias_table"].requires_grad_()
    out = by_view(**case)
    (first,) = torch.autograd.grad(out.sum(), case["bias_table"], create_graph=True)
    with pytest.raises(NotImplementedError, match='use backend="gather"'):
        first.square().sum().backward()


def test_the_operators_keep_their_contracts():
    query, key, value = (numbers(2, 3, 9, 4, seed=n) for n in range(3))
    line = numbers(3, 17, seed=4)
    tensors = [x.requires_grad_() for x in (query, key, value, line)]
    torch.library.opcheck(strided.strided, (*tensors, None, 0, False, 0.5))
    torch.library.opcheck(strided.strided, (*tensors, None, 0, True, 0.5))


def test_gradcheck():
    query, key, value = (numbers(1, 2, 6, 3, seed=n) for n in range(3))
    table = numbers(2, 5, seed=4)
    tensors = [x.requires_grad_() for x in (query, key, value, table)]
    assert torch.autograd.gradcheck(
        lambda q, k, v, b: by_view(query=q, key=k, value=v, bias_table=b), tensors
    )


def test_vectors_and_dropout_are_left_to_the_others():
    case = cases.inputs(bias=3, keys=2, values=1)
    cases.assert_equal(by_view(**case), gathered(**case))
    only_bias = cases.inputs(bias=3, keys=None, values=None)
    torch.manual_seed(0)
    found = by_view(**only_bias, dropout_p=0.5)
    torch.manual_seed(0)
    assert torch.equal(found, gathered(**only_bias, dropout_p=0.5))


@pytest.mark.parametrize("trained", [False, True])
def test_what_is_no_number_is_not_left_out_with_weights_that_underflow(trained):
    case = cases.inputs(1, 2, 9, 9, 3, 3, bias=8, keys=None, values=None)
    case["bias_table"] = 1000 * case["bias_table"].requires_grad_(trained)
    case["query"][0, 0, 4, 1] = torch.nan
    query = case["query"].requires_grad_()
    (grad,) = torch.autograd.grad(by_view(**case).sum(), query)
    assert grad[0, 0].isnan().any()
    assert grad[0, 1].isfinite().all()
