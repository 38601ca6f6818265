"""Faults that other projects have shipped, each at the smallest input that shows it."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from relpos_lib import (
    DirectionalBiasRPE,
    GatedBiasRPE,
    RelativeMultiHeadAttention,
    RelativePositionEmbedding,
    RPETransformerBlock,
    SimpleBiasRPE,
    SinusoidalEncoding,
    T5BucketBias,
    relative_attention,
    relative_offsets,
    sinusoidal_encoding,
    table_rows,
)
from tests import cases
from tests.cases import BACKENDS, numbers

each_backend = pytest.mark.parametrize("backend", BACKENDS)


@each_backend
def test_cached_decoding_reads_distance_zero_for_every_key(backend):
    assert relative_offsets(1, 3).tolist() == [[-2, -1, 0]]
    case = cases.inputs(1, 1, 3, 3, 2, 2, bias=2, keys=2, values=2)
    whole = relative_attention(**case, backend=backend)
    case["query"] = case["query"][:, :, -1:]
    step = relative_attention(**case, backend=backend)
    cases.assert_equal(step, whole[:, :, -1:])


@each_backend
def test_queries_are_aligned_left_when_they_are_fewer(backend):
    assert relative_offsets(1, 6).tolist() == [[-5, -4, -3, -2, -1, 0]]
    case = cases.inputs(1, 1, 1, 6, 2, 2)
    out = relative_attention(**case, backend=backend)
    cases.assert_equal(out, cases.truth(case)["output"])


@pytest.mark.parametrize("scheme", [SimpleBiasRPE, GatedBiasRPE, DirectionalBiasRPE])
def test_index_error_past_the_table(scheme):
    assert scheme(2, max_len=10)(torch.zeros(2, 11, 11)).shape == (2, 11, 11)
    assert T5BucketBias(2)(torch.zeros(2, 1, 500)).shape == (2, 1, 500)
    assert RelativePositionEmbedding(10, 2)(12).shape == (12, 12, 2)


@each_backend
def test_maximum_distance_zero_reads_out_of_range(backend):
    case = cases.inputs(1, 1, 3, 3, 2, 2, bias=None, keys=0, values=None)
    out = relative_attention(**case, backend=backend)
    case.pop("key_table")
    cases.assert_equal(out, relative_attention(**case, backend=backend))
    x = torch.randn(1, 3, 4)
    assert RelativeMultiHeadAttention(4, 2, 0)(x, x, x).shape == (1, 3, 4)
    assert SimpleBiasRPE(1, max_len=1)(torch.zeros(1, 3, 3)).shape == (1, 3, 3)


@each_backend
def test_a_shift_that_needs_a_causal_mask_is_used_without_one(backend):
    case = cases.inputs(1, 1, 3, 3, 2, 2, bias=None, keys=2, values=None)
    found = relative_attention(**case, backend=backend)
    cases.assert_equal(found, cases.truth(case)["output"])


@each_backend
def test_left_and_right_read_the_same_row(backend):
    assert table_rows(2, 2, 1).tolist() == [[1, 2], [0, 1]]
    q = k = v = torch.zeros(1, 1, 2, 1)
    table = torch.tensor([[1.0], [0.0], [3.0]])
    out = relative_attention(q, k, v, value_table=table, backend=backend)
    assert out.flatten().tolist() == [1.5, 0.5]


@each_backend
def test_a_relative_table_that_is_really_absolute(backend):
    case = cases.inputs(1, 1, 3, 3, 2, 2)
    whole = relative_attention(**case, backend=backend)
    moved = dict(case)
    for name in ("key", "value"):
        moved[name] = torch.cat([torch.ones(1, 1, 1, 2).double(), case[name]], 2)
    mask = torch.tensor([[False, True, True, True]] * 3)
    out = relative_attention(**moved, mask=mask, query_start=1, backend=backend)
    cases.assert_equal(out, whole)


@pytest.mark.parametrize(
    ("dtype", "length"), [(torch.float16, 2050), (torch.bfloat16, 258)], ids=str
)
def test_positions_are_computed_in_half_precision(dtype, length):
    torch.set_default_dtype(dtype)
    try:
        rows = table_rows(1, length, length)
        code = sinusoidal_encoding(2, 2, start=length - 1)
    finally:
        torch.set_default_dtype(torch.float32)
    assert rows.flatten().diff().unique().tolist() == [1]
    exact = torch.tensor([length - 1, length]).double().sin()
    assert torch.equal(code[:, 0], exact.to(dtype))


@each_backend
def test_a_fill_value_overflows_float16(backend):
    case = cases.inputs(1, 2, 3, 3, 2, 2, bias=2, dtype=torch.float16)
    case["bias_table"] = torch.full((2, 5), -20.0, dtype=torch.float16)
    case["mask"] = torch.eye(3, dtype=torch.bool)
    found = cases.outcome(lambda **c: relative_attention(**c, backend=backend), case)
    assert all(tensor.isfinite().all() for tensor in found.values())
    wanted = case["value"] + case["value_table"][16]
    assert torch.equal(found["output"], wanted)


@each_backend
def test_a_row_with_nothing_to_attend_to_is_nan_or_the_mean(backend):
    case = cases.inputs(1, 1, 2, 2, 2, 2, dtype=torch.float32)
    case["mask"] = torch.tensor([[False, False], [True, True]])
    found = cases.outcome(lambda **c: relative_attention(**c, backend=backend), case)
    assert found["output"][0, 0, 0].tolist() == [0.0, 0.0]
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_dropout_is_active_in_eval():
    block, x = RPETransformerBlock(4, 2, dropout=0.5).eval(), torch.randn(1, 3, 4)
    assert torch.equal(block(x), block(x))


@each_backend
def test_causal_is_aligned_to_the_first_key(backend):
    case = cases.inputs(1, 1, 1, 4, 2, 2)
    seen = relative_attention(**case, is_causal=True, backend=backend)
    cases.assert_equal(seen, relative_attention(**case, backend=backend))


def test_no_gradient_reaches_a_learned_table_at_a_longer_length():
    # The reference at this length: every pair reads its own copy of its row.
    length, distance = 129, 4
    case = cases.inputs(
        1, 1, length, length, 2, 2, bias=distance, keys=distance, values=distance
    )
    rows = torch.arange(length)[None] - torch.arange(length)[:, None]
    rows = rows.clamp(-distance, distance) + distance

    def pairs(query, key, value, bias_table, key_table, value_table):
        keys = key[:, :, None] + key_table[rows]
        scores = torch.einsum("bhid,bhijd->bhij", query, keys) / 2**0.5
        weights = (scores + bias_table[:, rows]).softmax(-1)
        values = value[:, :, None] + value_table[rows]
        return torch.einsum("bhij,bhijd->bhid", weights, values)

    found, wanted = cases.outcome(relative_attention, case), cases.outcome(pairs, case)
    cases.assert_same(found, wanted, 1e-10)


@each_backend
@pytest.mark.parametrize("only", ["bias_table", "key_table", "value_table"])
def test_only_the_table_is_trainable(backend, only):
    case = cases.inputs(1, 1, 3, 3, 2, 2)
    case[only].requires_grad_()
    relative_attention(**case, backend=backend).square().sum().backward()
    assert case[only].grad.any()


def test_an_odd_width_crashes_the_sinusoid():
    assert sinusoidal_encoding(3, 5).shape == (3, 5)
    assert SinusoidalEncoding(5)(torch.zeros(1, 3, 5)).shape == (1, 3, 5)


def test_the_code_is_added_along_the_batch():
    out = SinusoidalEncoding(4)(torch.zeros(2, 3, 4))
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], sinusoidal_encoding(3, 4))


def test_an_index_range_is_left_on_the_cpu():
    x = torch.zeros(1, 3, 4, device="meta")
    assert RelativeMultiHeadAttention(4, 2, 1).to("meta")(x, x, x).device.type == "meta"
    assert RPETransformerBlock(4, 2).to("meta")(x).device.type == "meta"
    assert SinusoidalEncoding(4)(x).device.type == "meta"


@pytest.mark.parametrize(
    "make",
    [lambda: RelativeMultiHeadAttention(4, 2, 3), lambda: RPETransformerBlock(4, 2, 3)],
)
def test_saved_at_eight_it_cannot_be_loaded_at_sixteen(make):
    module, other = make().eval(), make().eval()
    arguments = 3 if isinstance(module, RelativeMultiHeadAttention) else 1
    module(*[torch.randn(1, 8, 4)] * arguments)
    other.load_state_dict(module.state_dict())
    x = torch.randn(1, 16, 4)
    assert torch.equal(other(*[x] * arguments), module(*[x] * arguments))


def test_every_length_is_compiled_anew():
    torch._dynamo.reset()
    counter = CompileCounter()
    module = torch.compile(SimpleBiasRPE(2, 4), backend=counter)
    for length in range(8, 23):
        module(torch.zeros(2, length, length))
    assert counter.frame_count <= 3


@each_backend
def test_far_distances_read_zeros_instead_of_the_edge(backend):
    q = k = v = torch.zeros(1, 1, 4, 1)
    table = torch.tensor([[1.0], [2.0], [5.0]])
    out = relative_attention(q, k, v, value_table=table, backend=backend)
    assert out.flatten().tolist() == [17 / 4, 13 / 4, 9 / 4, 5 / 4]


@each_backend
def test_a_padding_mask_over_everything_counts_as_a_visible_block(backend):
    case = cases.inputs(1, 1, 2, 64, 2, 2, dtype=torch.float32)
    case["query"] = case["query"] * 10  # scores far below zero, too
    mask = torch.zeros(1, 1, 1, 64, dtype=torch.bool)
    mask[..., -1] = True
    out = relative_attention(**case, mask=mask, backend=backend)
    last = {**case, "key": case["key"][:, :, -1:], "value": case["value"][:, :, -1:]}
    alone = relative_attention(**last, query_start=-1, backend=backend)
    cases.assert_equal(out, alone, 1e-6)


def test_a_padding_mask_is_read_as_pairs():
    # With as many queries as batches the two look alike, so it is never accepted:
    # whoever tries it at another length is told what to write.
    x = cases.inputs(3, 1, 4, 5, 2, 2)
    with pytest.raises(
        ValueError, match=r"padding mask \(B, S\) is mask\[:, None, None"
    ):
        relative_attention(**x, mask=torch.ones(3, 5, dtype=torch.bool))
    square = cases.inputs(3, 1, 3, 3, 2, 2)
    with pytest.raises(ValueError, match="mask must have shape"):
        relative_attention(**square, mask=torch.ones(3, 1, 3, dtype=torch.bool))


def test_a_float_mask_is_read_as_ones_and_zeros():
    case = cases.inputs(1, 1, 2, 2, 2, 2)
    mask = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])
    with pytest.raises(TypeError, match="mask == 0"):
        relative_attention(**case, mask=mask)


def test_maps_are_drawn_without_the_mask_the_model_uses():
    module, x = RelativeMultiHeadAttention(4, 2, 1), numbers(1, 3, 4, seed=1).float()
    mask = torch.tensor([[True, False, False]] * 3)
    _, seen = module(x, x, x, mask=mask, debug=True)
    wanted = mask.float().expand(1, 2, 3, 3)
    assert torch.equal(seen["attention_weights"], wanted)
