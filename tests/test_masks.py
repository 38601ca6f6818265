"""Who may see whom: masks of every accepted shape, and the clear refusal of others."""

from __future__ import annotations

import itertools

import pytest
import torch

from relpos_lib import (
    RelativeMultiHeadAttention,
    RPETransformerBlock,
    relative_attention,
)
from tests import cases
from tests.cases import BACKENDS, DV, B, H, Q, S

FULL = (B, H, Q, S)
FORMS = [
    tuple(full if kept else 1 for full, kept in zip(FULL, choice, strict=True))
    for choice in itertools.product([False, True], repeat=4)
]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def some_mask(shape, share=0.6):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(shape, generator=generator) < share


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("form", [(Q, S), *FORMS], ids=str)
def test_every_accepted_shape_means_its_broadcast(form, is_causal):
    case = cases.inputs(bias=2, keys=3, values=None)
    mask = some_mask(form)
    wide = mask.expand(FULL).contiguous()
    wanted = cases.truth({**case, "mask": wide, "is_causal": is_causal})["output"]
    for backend in BACKENDS:
        for given in (mask, wide):
            out = relative_attention(
                **case, mask=given, is_causal=is_causal, backend=backend
            )
            cases.assert_equal(out, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_ones_and_zeros_mean_true_and_false(dtype, backend):
    case = cases.inputs()
    mask = some_mask((Q, S))
    wanted = relative_attention(**case, mask=mask, backend=backend)
    out = relative_attention(**case, mask=mask.to(dtype), backend=backend)
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_true_means_may_attend(backend):
    case = cases.inputs(bias=None, keys=None, values=None)
    mask = torch.zeros(Q, S, dtype=torch.bool)
    mask[:, 4] = True
    out = relative_attention(**case, mask=mask, backend=backend)
    cases.assert_equal(out, case["value"][:, :, 4:5].expand(B, H, Q, DV))


@pytest.mark.parametrize("backend", BACKENDS)
def test_hidden_keys_and_values_are_neither_read_nor_trained(backend):
    case = cases.inputs()
    mask = torch.ones(1, 1, 1, S, dtype=torch.bool)
    mask[..., :4] = False
    found = cases.outcome(
        lambda **c: relative_attention(**c, mask=mask, backend=backend), case
    )
    assert not found["gradient of key"][:, :, :4].any()
    assert not found["gradient of value"][:, :, :4].any()
    case["key"][:, :, :4] = 1e30
    case["value"][:, :, :4] = -1e30
    out = relative_attention(**case, mask=mask, backend=backend)
    assert torch.equal(out, found["output"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_causal_hides_what_lies_after_each_query(backend):
    case = cases.inputs()
    for start in (None, 0, 3, -2, 20):
        first = S - Q if start is None else start
        past = torch.tensor([[j <= first + i for j in range(S)] for i in range(Q)])
        wanted = relative_attention(
            **case, mask=past, query_start=start, backend=backend
        )
        out = relative_attention(
            **case, is_causal=True, query_start=start, backend=backend
        )
        cases.assert_equal(out, wanted, 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_causal_and_mask_hide_together(backend):
    case = cases.inputs()
    mask = some_mask((B, 1, Q, S))
    past = torch.ones(Q, S, dtype=torch.bool).tril(S - Q)
    wanted = relative_attention(**case, mask=mask & past, backend=backend)
    out = relative_attention(**case, mask=mask, is_causal=True, backend=backend)
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_single_token_sees_its_whole_past_under_a_causal_mask(backend):
    case = cases.inputs(q_len=1, k_len=4)
    out = relative_attention(**case, is_causal=True, backend=backend)
    assert torch.equal(out, relative_attention(**case, backend=backend))


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_that_sees_nothing_gives_zero_and_trains_nothing(backend, dtype):
    case = cases.inputs(dtype=dtype)
    case["mask"] = torch.ones(B, H, Q, S, dtype=torch.bool)
    case["mask"][0, 1, 2] = False
    case["mask"][1] = False
    found = cases.outcome(lambda **c: relative_attention(**c, backend=backend), case)
    assert all(tensor.isfinite().all() for tensor in found.values())
    assert not found["output"][0, 1, 2].any()
    assert not found["output"][1].any()
    assert found["output"][0, 0].any()
    assert not found["gradient of query"][0, 1, 2].any()
    for name in ("query", "key", "value"):
        assert not found[f"gradient of {name}"][1].any()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_query_that_sees_nothing_makes_no_nan_on_the_way(backend):
    case = cases.inputs()
    case["mask"] = torch.ones(Q, S, dtype=torch.bool)
    case["mask"][2] = False
    with torch.autograd.detect_anomaly(check_nan=True):
        cases.outcome(lambda **c: relative_attention(**c, backend=backend), case)


@pytest.mark.parametrize("backend", BACKENDS)
def test_causal_queries_before_the_first_key_give_zero(backend):
    case = cases.inputs()
    out = relative_attention(**case, is_causal=True, query_start=-3, backend=backend)
    assert not out[:, :, :3].any()
    assert out[:, :, 3:].all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_no_bias_pushes_a_masked_row_to_nan(backend, dtype):
    case = cases.inputs(dtype=dtype)
    case["bias_table"] = torch.full_like(case["bias_table"], -20)
    case["mask"] = some_mask((Q, S))
    case["mask"][3] = False
    found = cases.outcome(lambda **c: relative_attention(**c, backend=backend), case)
    wanted = cases.truth(case)
    for name, tensor in found.items():
        assert tensor.isfinite().all(), name
    error = (found["output"].double() - wanted["output"]).abs().max().item()
    assert error <= cases.one_ulp(wanted["output"], dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bias", [-1e30, torch.finfo(torch.float32).min])
def test_a_visible_key_with_a_hopeless_bias_still_beats_a_hidden_one(backend, bias):
    # A large negative fill value would lose against such a bias.
    case = cases.inputs(1, 1, 1, 3, bias=2, keys=None, values=None, dtype=torch.float32)
    case["bias_table"] = torch.full((1, 5), bias)
    mask = torch.tensor([[False, True, False]])
    out = relative_attention(**case, mask=mask, backend=backend)
    assert torch.equal(out, case["value"][:, :, 1:2])


SQUARE = cases.inputs(3, 2, 3, 3)


@pytest.mark.parametrize(
    "shape",
    [
        (3,),
        (3, 3, 3),  # (B, Q, S)
        (2, 3, 3),  # (H, Q, S)
        (1, 3, 3),
        (1, 1, 1, 3, 3),
        (),
        (1, 3),
        (3, 1),
        (3, 4),
        (1, 1, 3, 4),
        (2, 1, 3, 3),
        (1, 3, 3, 3),
    ],
    ids=str,
)
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"mask must have shape \(3, 3\) or be 4-D"):
        relative_attention(**SQUARE, mask=torch.ones(shape, dtype=torch.bool))


def test_a_padding_mask_is_told_its_right_shape():
    case = cases.inputs(2, 2, 3, 5)
    padding = torch.ones(2, 5, dtype=torch.bool)
    with pytest.raises(
        ValueError, match=r"padding mask \(B, S\) is mask\[:, None, None"
    ):
        relative_attention(**case, mask=padding)
    relative_attention(**case, mask=padding[:, None, None, :])


FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_float_mask_is_told_the_way_out(dtype):
    case = cases.inputs()
    hidden = ~some_mask((Q, S))
    additive = torch.zeros(Q, S).masked_fill(hidden, -torch.inf)
    with pytest.raises(
        TypeError, match=r"mask must be bool.*mask == 0.*mask\.bool\(\)"
    ):
        relative_attention(**case, mask=additive.to(dtype))
    # The way out that it names is the right one.
    wanted = relative_attention(**case, mask=~hidden)
    assert torch.equal(relative_attention(**case, mask=additive == 0), wanted)


@pytest.mark.parametrize("value", [-1, 2, 255])
def test_integers_other_than_zero_and_one_are_refused(value):
    mask = torch.ones(Q, S, dtype=torch.int64)
    mask[2, 3] = value
    with pytest.raises(ValueError, match=rf"mask must hold only 0 and 1.*{value}"):
        relative_attention(**cases.inputs(), mask=mask)


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match="mask must be a tensor, got list"):
        relative_attention(**cases.inputs(), mask=[[True] * S] * Q)


MODULES = [RelativeMultiHeadAttention(6, 2, 3), RPETransformerBlock(6, 2, 4)]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: type(m).__name__)
def test_modules_refuse_the_same_masks_before_they_project(module):
    x = torch.randn(3, 3, 6)
    args = (x,) if isinstance(module, RPETransformerBlock) else (x, x, x)
    calls = []
    handles = [
        linear.register_forward_hook(lambda *_: calls.append(1))
        for linear in (module.wq, module.wk, module.wv, module.wo)
    ]
    refused = [
        (torch.zeros(3, 3), TypeError),
        (torch.full((3, 3), 2), ValueError),
        (torch.ones(3, 3, 3, dtype=torch.bool), ValueError),
        (torch.ones(3, 4, dtype=torch.bool), ValueError),
        (torch.ones(3, 3, dtype=torch.bool, device="meta"), ValueError),
        ([[True]], TypeError),
    ]
    for mask, error in refused:
        with pytest.raises(error, match="mask must"):
            module(*args, mask=mask)
    with pytest.raises(TypeError, match="is_causal must"):
        module(*args, is_causal=1)
    assert not calls
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("module", MODULES, ids=lambda m: type(m).__name__)
def test_modules_take_every_accepted_shape(module):
    module.eval()
    x = torch.randn(2, 5, 6)
    args = (x,) if isinstance(module, RPETransformerBlock) else (x, x, x)
    full = (2, 2, 5, 5)
    for choice in itertools.product([False, True], repeat=4):
        form = tuple(n if kept else 1 for n, kept in zip(full, choice, strict=True))
        mask = some_mask(form)
        wanted = module(*args, mask=mask.expand(full).contiguous())
        torch.testing.assert_close(module(*args, mask=mask), wanted)
        torch.testing.assert_close(module(*args, mask=mask.int()), wanted)


def test_a_row_of_a_block_that_sees_nothing_stays_finite():
    block = RPETransformerBlock(6, 2, 4).half()
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    x = torch.randn(2, 5, 6).half().requires_grad_()
    block(x, mask=mask).float().sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in block.parameters())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_bias_of_minus_infinity_hides_its_keys(backend, is_causal):
    """Only offset 1 is left: the last query has none, with a causal mask no query."""
    case = cases.inputs(q_len=5, k_len=5, bias=3, keys=2, values=2)
    case["is_causal"] = is_causal
    case["bias_table"][:, :4] = -torch.inf
    case["bias_table"][:, 5:] = -torch.inf
    offsets = torch.arange(5) - torch.arange(5)[:, None]
    plain = {**case, "bias_table": torch.zeros_like(case["bias_table"])}
    plain["bias_table"][:, 4] = case["bias_table"][:, 4]
    wanted = relative_attention(**plain, mask=offsets == 1, backend=backend)
    leaves = [case[name].requires_grad_() for name in ("query", "key", "value")]
    out = relative_attention(**case, backend=backend)
    torch.testing.assert_close(out, wanted)
    for grad in torch.autograd.grad(out.sum(), leaves):
        assert grad.isfinite().all()
