"""relative_attention: the order of its operations, its dtypes and its lengths."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from relpos_lib import clip_table, relative_attention
from tests import cases
from tests.cases import BACKENDS, DV, B, D, H, Q, S, numbers

each_backend = pytest.mark.parametrize("backend", BACKENDS)


@each_backend
def test_without_tables_it_is_plain_attention(backend):
    case = cases.inputs(bias=None, keys=None, values=None)
    mask = torch.rand(B, 1, Q, S) < 0.7
    mask[..., 0] = True
    for given in (None, mask):
        wanted = F.scaled_dot_product_attention(
            case["query"], case["key"], case["value"], attn_mask=given
        )
        out = relative_attention(**case, mask=given, backend=backend)
        cases.assert_equal(out, wanted)


@each_backend
def test_a_bias_is_added_after_the_division_and_vectors_before(backend):
    q = torch.full((1, 1, 1, 4), 1.0, dtype=torch.float64)
    k, v = torch.zeros(1, 1, 2, 4).double(), torch.eye(2)[None, None].double()
    bias = torch.tensor([[1.0, 0.0, 0.0]]).double()  # offset -1
    out = relative_attention(q, k, v, bias_table=bias, backend=backend)
    assert out[0, 0, 0, 0].item() == pytest.approx(1 / (1 + math.exp(-1)))
    vectors = torch.tensor([[1.0], [0.0], [0.0]]).expand(3, 4).double()
    out = relative_attention(q, k, v, key_table=vectors, backend=backend)
    assert out[0, 0, 0, 0].item() == pytest.approx(1 / (1 + math.exp(-4 / 2)))
    out = relative_attention(q, k, v, key_table=vectors, scale=3.0, backend=backend)
    assert out[0, 0, 0, 0].item() == pytest.approx(1 / (1 + math.exp(-12)))


@each_backend
@pytest.mark.parametrize("scale", [0, 1, 2.5, -1.0])
def test_scale_multiplies_content_and_position_but_no_bias(backend, scale):
    case = cases.inputs()
    scaled = {**case, "query": case["query"] * scale}
    cases.assert_equal(
        relative_attention(**case, scale=scale, backend=backend),
        relative_attention(**scaled, scale=1.0, backend=backend),
    )


@each_backend
def test_a_key_table_moves_keys_and_a_value_table_moves_values(backend):
    case = cases.inputs(keys=0, values=0)
    moved = {
        **case,
        "key": case["key"] + case["key_table"],
        "value": case["value"] + case["value_table"],
    }
    moved.pop("key_table"), moved.pop("value_table")
    cases.assert_equal(
        relative_attention(**case, backend=backend),
        relative_attention(**moved, backend=backend),
    )


@each_backend
def test_one_row_of_keys_or_bias_is_no_position_at_all(backend):
    # It adds the same number to all scores of a query, which softmax takes away.
    for tables in ({"bias": 0}, {"keys": 0}):
        case = cases.inputs(**{"bias": None, "keys": None, "values": None} | tables)
        plain = {name: case[name] for name in ("query", "key", "value")}
        cases.assert_equal(
            relative_attention(**case, backend=backend),
            relative_attention(**plain, backend=backend),
        )


@each_backend
def test_a_table_repeated_at_its_edges_changes_nothing(backend):
    case = cases.inputs(bias=2, keys=3, values=1)
    wider = dict(case)
    for name in ("key_table", "value_table"):
        wider[name] = clip_table(case[name], 13)
    wider["bias_table"] = clip_table(case["bias_table"][..., None], 13)[..., 0]
    cases.assert_equal(
        relative_attention(**wider, backend=backend),
        relative_attention(**case, backend=backend),
    )


@each_backend
def test_offsets_of_both_signs_read_different_rows(backend):
    q = k = torch.zeros(1, 1, 2, 1)
    v = torch.zeros(1, 1, 2, 1)
    table = torch.tensor([[1.0], [2.0], [4.0]])
    out = relative_attention(q, k, v, value_table=table, backend=backend)
    assert out.flatten().tolist() == [3.0, 1.5]  # (0, +1) and (-1, 0)


@each_backend
@pytest.mark.parametrize(("q_len", "k_len"), [(1, 1), (1, 7), (7, 1), (30, 30)])
def test_any_lengths_work_far_beyond_the_tables(backend, q_len, k_len):
    case = cases.inputs(1, 2, q_len, k_len, 3, 5, bias=1, keys=2, values=0)
    out = relative_attention(**case, backend=backend)
    cases.assert_equal(out, cases.truth(case)["output"])


@each_backend
def test_one_pair_is_its_value_with_its_row(backend):
    case = cases.inputs(1, 1, 1, 1, keys=2, values=2)
    out = relative_attention(**case, backend=backend)
    cases.assert_equal(out[0, 0, 0], case["value"][0, 0, 0] + case["value_table"][2])


# --- dropout -------------------------------------------------------------------------


def ones_case(q_len=401, k_len=31):
    """Every output is the sum of the weights times one."""
    q = numbers(2, 3, q_len, 4, seed=1, dtype=torch.float32)
    k = numbers(2, 3, k_len, 4, seed=2, dtype=torch.float32)
    return q, k, torch.ones(2, 3, k_len, 1)


def test_dropout_keeps_the_mean():
    q, k, v = ones_case()
    for p in (0.2, 0.5):
        out = relative_attention(q, k, v, dropout_p=p)
        assert out.std() > 0.02
        assert out.mean().item() == pytest.approx(1.0, abs=0.02)


def test_dropout_drops_whole_weights_and_their_position_vectors():
    # With a uniform weight of 1/S every output is (kept weights) / S / (1 - p).
    q, k, v = torch.zeros(1, 1, 97, 2), torch.zeros(1, 1, 5, 2), torch.ones(1, 1, 5, 1)
    table = torch.ones(3, 1)
    for p, kept in ((0.25, 0.75), (0.6, 0.4)):
        out = relative_attention(q, k, v, value_table=table, dropout_p=p).flatten()
        counts = out / 2 * 5 * kept  # the value and its row, both 1
        torch.testing.assert_close(counts, counts.round())
        assert counts.round().unique().numel() > 2


@each_backend
def test_dropout_acts_whenever_it_is_asked_for(backend):
    case = cases.inputs(dtype=torch.float32)
    torch.manual_seed(1)
    first = relative_attention(**case, dropout_p=0.5, backend=backend)
    second = relative_attention(**case, dropout_p=0.5, backend=backend)
    torch.manual_seed(1)
    again = relative_attention(**case, dropout_p=0.5, backend=backend)
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


@each_backend
def test_no_dropout_changes_nothing_and_draws_nothing(backend):
    case = cases.inputs()
    state = torch.get_rng_state()
    out = relative_attention(**case, dropout_p=0.0, backend=backend)
    assert torch.equal(out, relative_attention(**case, backend=backend))
    assert torch.equal(state, torch.get_rng_state())


@each_backend
@pytest.mark.parametrize("p", [1, 1.0])
def test_full_dropout_gives_zeros_and_finite_gradients(backend, p):
    case = cases.inputs()
    found = cases.outcome(
        lambda **c: relative_attention(**c, dropout_p=p, backend=backend), case
    )
    assert not found["output"].any()
    assert all(tensor.isfinite().all() for tensor in found.values())


# --- large numbers and narrow dtypes -------------------------------------------------


@each_backend
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str
)
def test_large_logits_stay_finite(backend, dtype):
    case = cases.inputs(dtype=dtype)
    case["query"] = case["query"] * 60
    case["key"] = case["key"] * 60  # logits around 1e4
    case["mask"] = torch.ones(Q, S, dtype=torch.bool).tril(S - Q)
    found = cases.outcome(lambda **c: relative_attention(**c, backend=backend), case)
    wanted = cases.truth(case)
    for name, tensor in found.items():
        assert tensor.isfinite().all(), name
    error = (found["output"].double() - wanted["output"]).abs().max().item()
    # A logit of 1e4 is rounded by 5e-4 in float32, and so is the weight.
    assert error <= cases.one_ulp(wanted["output"], dtype) + 5e-3


@each_backend
def test_logits_beyond_float16_are_summed_in_float32(backend):
    q = torch.full((1, 1, 1, 16), 100.0, dtype=torch.float16)
    k = torch.full((1, 1, 2, 16), 100.0, dtype=torch.float16)
    k[0, 0, 0, 0] = 0  # logits 37,500 and 40,000, before the division 1.6e5
    v = torch.tensor([[[[1.0], [3.0]]]], dtype=torch.float16)
    out = relative_attention(q, k, v, backend=backend)
    assert out.item() == 3.0


@each_backend
def test_many_small_values_are_summed_in_float32(backend):
    length = 48
    q, k = torch.zeros(1, 1, 1, 1).bfloat16(), torch.zeros(1, 1, length, 1).bfloat16()
    v = torch.linspace(1, 1.3, length).bfloat16()[None, None, :, None]
    out = relative_attention(q, k, v, backend=backend)
    assert out.item() == v.double().mean().bfloat16().item()


@each_backend
@pytest.mark.parametrize("table_dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_tables_of_any_dtype_are_accepted_and_the_query_decides(backend, table_dtype):
    case = cases.inputs(dtype=torch.float32)
    for name in ("bias_table", "key_table", "value_table"):
        case[name] = case[name].to(table_dtype)
    out = relative_attention(**case, backend=backend)
    assert out.dtype == torch.float32
    cases.assert_equal(out, cases.truth(case)["output"], 1e-5)


@each_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_does_not_take_sums_back_to_half(backend, dtype):
    def function(**case):
        return relative_attention(**case, backend=backend)

    def under_autocast(**case):
        with torch.autocast("cpu", torch.bfloat16):
            return function(**case)

    case = cases.inputs(dtype=dtype)
    wanted, found = cases.outcome(function, case), cases.outcome(under_autocast, case)
    assert found["output"].dtype == dtype
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


@each_backend
def test_everything_follows_the_inputs_to_their_device(backend):
    case = {n: t.to("meta") for n, t in cases.inputs().items()}
    for dtype in (torch.bool, torch.int64):
        out = relative_attention(
            **case,
            mask=torch.ones(Q, S, dtype=dtype, device="meta"),
            is_causal=True,
            query_start=3,
            dropout_p=0.1,
            backend=backend,
        )
        assert out.device.type == "meta"
        assert out.shape == (B, H, Q, DV)


# --- what may be trained -------------------------------------------------------------


@each_backend
@pytest.mark.parametrize("only", cases.TENSORS)
def test_any_single_tensor_may_be_the_only_one_that_trains(backend, only):
    case = cases.inputs()
    wanted = cases.truth(case)[f"gradient of {only}"]
    case[only].requires_grad_()
    out = relative_attention(**case, backend=backend)
    direction = numbers(*out.shape, seed=7).to(torch.bfloat16).to(out.dtype)
    (grad,) = torch.autograd.grad(out, case[only], direction)
    cases.assert_equal(grad, wanted)


@each_backend
def test_one_table_may_serve_keys_and_values(backend):
    case = cases.inputs(width=D, value_width=D, keys=3, values=3)
    table = case.pop("value_table").requires_grad_()
    case.pop("key_table")
    relative_attention(
        **case, key_table=table, value_table=table, backend=backend
    ).sum().backward()
    twice = [table.detach().clone().requires_grad_() for _ in range(2)]
    relative_attention(
        **case, key_table=twice[0], value_table=twice[1], backend=backend
    ).sum().backward()
    cases.assert_equal(table.grad, twice[0].grad + twice[1].grad)


@each_backend
def test_inference_mode_works(backend):
    with torch.inference_mode():
        out = relative_attention(**cases.inputs(), backend=backend)
    assert not out.requires_grad


def test_batches_and_heads_do_not_mix():
    case = cases.inputs(per_head=True)
    whole = relative_attention(**case)
    for b in range(B):
        for h in range(H):
            one = {n: case[n][b : b + 1, h : h + 1] for n in ("query", "key", "value")}
            tables = {n: t[h : h + 1] for n, t in case.items() if n.endswith("table")}
            cases.assert_equal(
                relative_attention(**one, **tables), whole[b : b + 1, h : h + 1]
            )
