"""Every additive scheme is its formula, as scores and as a table."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpos_lib import (
    AdditiveBias,
    ALiBi,
    ContentGatedBiasRPE,
    DirectionalBiasRPE,
    GatedBiasRPE,
    MultiplicativeBiasRPE,
    SimpleBiasRPE,
    T5BucketBias,
    alibi_slopes,
    relative_attention,
    t5_bucket,
)
from tests import cases
from tests.cases import B, H, Q, S, numbers

SCHEMES = {
    "simple": lambda: SimpleBiasRPE(H, 4),
    "gated": lambda: GatedBiasRPE(H, 4),
    "gated without scale": lambda: GatedBiasRPE(H, 4, scale=False),
    "directional": lambda: DirectionalBiasRPE(H, 4),
    "t5": lambda: T5BucketBias(H, 8, 7),
    "t5 causal": lambda: T5BucketBias(H, 5, 7, bidirectional=False),
    "alibi": lambda: ALiBi(H),
}
each_scheme = pytest.mark.parametrize("name", SCHEMES)


def trained(module, dtype=torch.float64):
    """The module in a dtype, every parameter filled with normal numbers."""
    module = module.to(dtype)
    for n, parameter in enumerate(module.parameters()):
        parameter.data = numbers(*parameter.shape, seed=n, dtype=dtype)
    return module


def added(module, q_len, k_len, **options):
    """What a scheme adds to scores, (H, Q, S)."""
    return module(torch.zeros(H, q_len, k_len, dtype=torch.float64), **options)


# --- what all schemes share ----------------------------------------------------------


@each_scheme
@pytest.mark.parametrize("start", [None, 0, 5, -3])
def test_scores_and_fast_path_give_the_same_numbers(name, start):
    module, case = trained(SCHEMES[name]()), cases.inputs(bias=None)
    case.pop("key_table"), case.pop("value_table")
    tables = module.tables(max_distance=20 if name == "alibi" else None)
    fast = relative_attention(**case, **tables, query_start=start)
    scores = case["query"] @ case["key"].mT / math.sqrt(case["query"].shape[-1])
    slow = module(scores, query_start=start).softmax(-1) @ case["value"]
    cases.assert_equal(fast, slow)


@each_scheme
def test_the_same_offset_has_the_same_number_at_every_length(name):
    module = trained(SCHEMES[name]())
    table = module.tables(20)["bias_table"]
    assert table.shape == (H, 41)
    for length in range(1, 12):
        bias = added(module, length, length)
        for offset in range(1 - length, length):
            found = bias.diagonal(offset, dim1=1, dim2=2)
            cases.assert_equal(found, table[:, 20 + offset, None].expand_as(found))


@each_scheme
@pytest.mark.parametrize(
    ("q_len", "k_len"), [(1, 1), (1, 11), (11, 1), (5, 11), (7, 3)]
)
def test_any_lengths_work(name, q_len, k_len):
    module = trained(SCHEMES[name]())
    assert added(module, q_len, k_len).shape == (H, q_len, k_len)


@each_scheme
def test_a_table_can_be_read_at_every_distance(name):
    module = trained(SCHEMES[name]())
    widest = module.tables(30)["bias_table"]
    for distance in range(30):
        table = module.tables(distance)["bias_table"]
        assert torch.equal(table, widest[:, 30 - distance : 31 + distance])


@each_scheme
def test_any_axes_may_stand_before_the_heads(name):
    module = trained(SCHEMES[name]())
    bias = added(module, Q, S)
    scores = numbers(2, 3, H, Q, S, seed=1)
    cases.assert_equal(module(scores), scores + bias)
    cases.assert_equal(module(scores[0, 0]), scores[0, 0] + bias)


@each_scheme
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str
)
def test_results_have_the_dtype_of_the_scores(name, dtype):
    module = SCHEMES[name]()
    scores = numbers(B, H, Q, S, seed=1, dtype=dtype)
    out = module(scores)
    assert out.dtype == dtype
    wide = module.double()(scores.double())
    assert (out.double() - wide).abs().max() <= cases.one_ulp(wide, dtype) + 1e-6


@each_scheme
def test_modules_cast_or_moved_keep_working(name):
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        module = SCHEMES[name]().to(dtype)
        scores = numbers(B, H, Q, S, seed=1, dtype=dtype)
        assert module(scores).dtype == dtype
        table = module.tables(5)["bias_table"]
        case = cases.inputs(bias=None, dtype=dtype)
        assert relative_attention(**case, bias_table=table).dtype == dtype
    module = SCHEMES[name]().to("meta")
    assert module(torch.zeros(B, H, Q, S, device="meta")).device.type == "meta"
    assert module.tables(5)["bias_table"].device.type == "meta"


@each_scheme
def test_nothing_that_depends_on_a_length_is_stored(name):
    module, other = trained(SCHEMES[name]()), SCHEMES[name]().double()
    added(module, 8, 8)
    learned = {n for n, _ in module.named_parameters()}
    assert set(module.state_dict()) == learned
    other.load_state_dict(module.state_dict())
    cases.assert_equal(added(other, 16, 16), added(module, 16, 16))
    assert all(buffer.numel() == 0 for buffer in module.buffers())


@pytest.mark.parametrize("name", sorted(SCHEMES.keys() - {"alibi", "t5"}))
def test_every_stored_number_is_trained_by_a_long_enough_input(name):
    module = trained(SCHEMES[name]())
    (added(module, 20, 20) * numbers(H, 20, 20, seed=9)).sum().backward()
    for parameter in module.parameters():
        assert parameter.grad.all()


def test_t5_stores_one_bucket_that_is_never_read_as_its_authors_do():
    module = trained(SCHEMES["t5"]())
    (added(module, 20, 20) * numbers(H, 20, 20, seed=9)).sum().backward()
    trained_rows = module.bias.grad.all(1)
    assert trained_rows.tolist() == [True] * 4 + [False] + [True] * 3


@each_scheme
def test_derivatives_of_the_scores_and_of_every_number(name):
    module = trained(SCHEMES[name]())
    names = [n for n, _ in module.named_parameters()]
    scores = numbers(1, H, 2, 3, seed=2).requires_grad_()

    def function(scores, *values):
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(module, parameters, (scores,))

    values = tuple(p.detach().clone().requires_grad_() for p in module.parameters())
    assert torch.autograd.gradcheck(function, (scores, *values))


def test_a_scheme_is_one_method():
    class Step(AdditiveBias):
        def __init__(self):
            super().__init__(2, 3)

        def bias_at(self, offsets):
            return torch.stack([(offsets > 0).double(), (offsets < 0).double()])

    out = Step()(torch.zeros(2, 2, 2, dtype=torch.float64))
    assert out.tolist() == [[[0, 1], [0, 0]], [[0, 0], [1, 0]]]
    with pytest.raises(NotImplementedError):
        AdditiveBias(2, 3)(torch.zeros(2, 2, 2))


# --- learned tables ------------------------------------------------------------------


@pytest.mark.parametrize("max_len", [1, 2, 17])
def test_simple_bias_is_a_table_of_offsets_by_heads(max_len):
    module = SimpleBiasRPE(H, max_len)
    assert module.bias.shape == (2 * max_len - 1, H)
    assert module.max_distance == max_len - 1
    table = module.tables()["bias_table"]
    assert torch.equal(table, module.bias.T)


def test_simple_bias_starts_uniform_within_a_tenth():
    bias = SimpleBiasRPE(7).bias.detach()
    assert bias.shape == (1023, 7)
    assert bias.abs().max() <= 0.1
    assert bias.max() > 0.099
    assert bias.min() < -0.099
    assert abs(bias.mean()) < 0.005
    assert bias.std() == pytest.approx(0.2 / math.sqrt(12), rel=0.03)


@given(q_len=st.integers(1, 9), k_len=st.integers(1, 9), max_len=st.integers(1, 6))
def test_simple_bias_adds_the_row_of_the_clipped_offset(q_len, k_len, max_len):
    module = trained(SimpleBiasRPE(H, max_len))
    bias, reach = added(module, q_len, k_len), max_len - 1
    for i in range(q_len):
        for j in range(k_len):
            offset = min(max(j - (k_len - q_len + i), -reach), reach)
            assert torch.equal(bias[:, i, j], module.bias[offset + reach])


def test_simple_bias_does_not_slide_with_the_length():
    # Row offset + L - 1 instead of offset + K would read other rows when L < max_len.
    module = SimpleBiasRPE(1, max_len=8)
    module.bias.data = torch.arange(-7.0, 8)[:, None]
    for length in (1, 3, 8, 11):
        bias = module(torch.zeros(1, length, length))
        assert torch.equal(bias.diagonal(dim1=1, dim2=2), torch.zeros(1, length))


def test_a_bias_for_the_past_differs_from_one_for_the_future():
    for name, make in SCHEMES.items():
        bias = added(trained(make()), 5, 5)
        same = torch.equal(bias, bias.mT)
        assert same == (name == "alibi")


def test_gated_bias_starts_at_nothing_with_a_gate_at_three_quarters():
    module = GatedBiasRPE(H, 4)
    assert module.bias.shape == (7, H)
    assert not module.bias.any()
    assert module.gate.tolist() == [1.0] * H
    assert module.logit_scale.tolist() == [0.0] * H
    assert module.strength().tolist() == pytest.approx([0.7310586] * H)
    scores = torch.randn(B, H, Q, S)
    assert torch.equal(module(scores), scores)


def test_gated_bias_trains_its_table_first_and_its_gate_next():
    module = GatedBiasRPE(H, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    (module(torch.zeros(H, 5, 5)) * torch.randn(H, 5, 5)).sum().backward()
    assert module.bias.grad.any()
    assert not module.gate.grad.any()
    assert not module.logit_scale.grad.any()
    optimizer.step()
    optimizer.zero_grad()
    (module(torch.zeros(H, 5, 5)) * torch.randn(H, 5, 5)).sum().backward()
    assert module.gate.grad.all()
    assert module.logit_scale.grad.all()


def test_gated_bias_is_gate_times_scale_times_table():
    module = trained(GatedBiasRPE(H, 4))
    table = module.tables()["bias_table"]
    for h in range(H):
        gate = 1 / (1 + math.exp(-module.gate[h].item()))
        strength = gate * math.exp(module.logit_scale[h].item())
        cases.assert_equal(table[h], strength * module.bias[:, h])


def test_gated_bias_without_scale_has_no_scale():
    module = trained(GatedBiasRPE(H, 4, scale=False))
    assert module.logit_scale is None
    assert {n for n, _ in module.named_parameters()} == {"bias", "gate"}
    cases.assert_equal(module.strength(), module.gate.sigmoid())
    assert GatedBiasRPE(H, 4).logit_scale is not None


def test_directional_bias_is_distance_plus_direction():
    module = DirectionalBiasRPE(H, 4)
    assert module.distance.shape == (4, H)
    assert module.direction.shape == (2, H)
    assert module.distance.abs().max() <= 0.1
    assert not module.direction.any()
    table = trained(module).tables(6)["bias_table"]
    for column, offset in enumerate(range(-6, 7)):
        wanted = module.distance[min(abs(offset), 3)]
        if offset < 0:
            wanted = wanted + module.direction[0]
        if offset > 0:
            wanted = wanted + module.direction[1]
        cases.assert_equal(table[:, column], wanted)


# --- T5 ------------------------------------------------------------------------------


def bucket_of_the_paper(offset, num_buckets, max_distance, bidirectional):
    """T5's rule as its authors publish it: logarithms of floats, cut to integers."""
    bucket, n = 0, -offset
    if bidirectional:
        num_buckets //= 2
        if n < 0:
            bucket += num_buckets
        n = abs(n)
    else:
        n = max(n, 0)
    exact = num_buckets // 2
    if n < exact:
        return bucket + n
    part = math.log(n / exact) / math.log(max_distance / exact)
    # A hair more than the float, so that an exact edge does not fall below itself.
    return bucket + min(
        exact + int(part * (num_buckets - exact) + 1e-9), num_buckets - 1
    )


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [(32, 128), (32, 64), (4, 3), (8, 7), (8, 16), (64, 256), (16, 1000), (10, 128)],
)
def test_buckets_are_those_of_the_paper(num_buckets, max_distance, bidirectional):
    if not bidirectional and max_distance <= num_buckets // 2:
        pytest.skip("the formula needs a distance beyond the exact buckets")
    reach = max_distance + 30
    offsets = torch.arange(-reach, reach + 1)
    found = t5_bucket(offsets, num_buckets, max_distance, bidirectional)
    assert found.dtype == torch.int64
    assert found.tolist() == [
        bucket_of_the_paper(o, num_buckets, max_distance, bidirectional)
        for o in offsets.tolist()
    ]


def test_edges_of_the_usual_buckets():
    offsets = torch.arange(-200, 201)
    both = dict(zip(offsets.tolist(), t5_bucket(offsets).tolist(), strict=True))
    past = t5_bucket(offsets, bidirectional=False)
    past = dict(zip(offsets.tolist(), past.tolist(), strict=True))
    assert [both[-d] for d in range(9)] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert (both[-90], both[-91], both[-200]) == (14, 15, 15)
    assert (both[90], both[91], both[200]) == (30, 31, 31)
    assert both[1] == 17
    assert [past[-d] for d in (0, 1, 15, 16)] == [0, 1, 15, 16]
    assert (past[-112], past[-113], past[-200]) == (30, 31, 31)
    assert {past[d] for d in range(1, 201)} == {0}


def test_exact_edges_are_not_lost_to_rounding():
    # e * (max / e) ** (t / n) is a whole number here: 8, 16, 32, 64 and 128.
    offsets = torch.tensor([-15, -16, -31, -32, -63, -64, -127, -128])
    assert t5_bucket(offsets, 24, 162).unique().numel() > 2
    found = t5_bucket(offsets, 32, 128)
    assert found.tolist() == [9, 10, 11, 12, 13, 14, 15, 15]


@given(
    half=st.integers(2, 20),
    more=st.integers(1, 300),
    bidirectional=st.booleans(),
)
def test_buckets_never_fall_and_use_the_last_one(half, more, bidirectional):
    num_buckets = 2 * half
    one_way = half if bidirectional else num_buckets
    max_distance = one_way // 2 + more
    distances = torch.arange(max_distance + 5)
    buckets = t5_bucket(-distances, num_buckets, max_distance, bidirectional)
    assert (buckets.diff() >= 0).all()
    assert buckets[max_distance:].unique().tolist() == [one_way - 1]


def test_t5_reads_its_buckets():
    module = trained(T5BucketBias(H))
    assert module.bias.shape == (32, H)
    table = module.tables()["bias_table"]
    assert table.shape == (H, 257)
    for column, offset in enumerate(range(-128, 129)):
        bucket = bucket_of_the_paper(offset, 32, 128, True)
        assert torch.equal(table[:, column], module.bias[bucket])


def test_t5_keeps_a_shape_of_offsets():
    offsets = torch.tensor([[0, -1], [1, -9]])
    assert t5_bucket(offsets).tolist() == [[0, 1], [17, 8]]


# --- ALiBi ---------------------------------------------------------------------------


def slopes_of_the_paper(heads):
    """The authors' published recursion: a geometric sequence, filled up from 2n."""
    if math.log2(heads).is_integer():
        first = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [first * first**h for h in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    more = slopes_of_the_paper(2 * lower)[0::2]
    return slopes_of_the_paper(lower) + more[: heads - lower]


@pytest.mark.parametrize("heads", range(1, 65))
def test_alibi_slopes_are_those_of_the_paper(heads):
    slopes = alibi_slopes(heads)
    assert slopes.shape == (heads,)
    assert slopes.tolist() == pytest.approx(slopes_of_the_paper(heads), rel=1e-6)


def test_alibi_slopes_known_by_heart():
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    assert alibi_slopes(1).tolist() == [2.0**-8]
    assert alibi_slopes(16)[0].item() == pytest.approx(2**-0.5)
    assert alibi_slopes(12).tolist()[8:] == pytest.approx(
        [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    )
    assert alibi_slopes(3, device="meta").device.type == "meta"


def test_alibi_is_minus_slope_times_distance():
    table = ALiBi(5).tables(max_distance=7)["bias_table"]
    for h, slope in enumerate(slopes_of_the_paper(5)):
        wanted = [-slope * abs(offset) for offset in range(-7, 8)]
        assert table[h].tolist() == pytest.approx(wanted)


def test_alibi_tells_every_distance_apart():
    with pytest.raises(ValueError, match="max_distance must be given, since ALiBi"):
        ALiBi(2).tables()
    bias = ALiBi(2)(torch.zeros(2, 1, 3000))
    assert bias[0, 0].diff().unique().numel() == 1
    assert bias[0, 0, 0] == -2999 / 16
    assert not list(ALiBi(2).parameters())


def test_alibi_counts_distances_as_integers_beside_half_scores():
    scores = torch.zeros(2, 1, 3000, dtype=torch.float16)
    wide = ALiBi(2)(scores.float())
    assert torch.equal(ALiBi(2).half()(scores), wide.half())


# --- schemes that are no tables ------------------------------------------------------


def test_multiplicative_bias_is_scores_times_bias_plus_scores():
    module = trained(MultiplicativeBiasRPE(H, 4))
    scores = numbers(B, H, Q, S, seed=3)
    bias = added(module.factor, Q, S)
    cases.assert_equal(module(scores), scores * bias + scores)
    assert isinstance(module.factor, GatedBiasRPE)
    assert MultiplicativeBiasRPE(H, 4, scale=False).factor.logit_scale is None


def test_multiplicative_bias_leaves_scores_alone_at_first():
    scores = torch.randn(B, H, Q, S)
    assert torch.equal(MultiplicativeBiasRPE(H, 4)(scores), scores)


@torch.no_grad()
def content_gate(module, scores, query):
    """WavLM's gate, one pair at a time."""
    out = torch.zeros_like(scores)
    bias = added(module.rpe, *scores.shape[-2:])
    for b in range(scores.shape[0]):
        for h in range(scores.shape[1]):
            for i in range(scores.shape[2]):
                q = query[b, h, i]
                u = 1 / (1 + math.exp(-torch.dot(q, module.update[h])))
                r = 1 / (1 + math.exp(-torch.dot(q, module.reset[h])))
                scale = module.scale[h].item()
                for j in range(scores.shape[3]):
                    d = bias[h, i, j]
                    out[b, h, i, j] = (
                        scores[b, h, i, j] + d + u * d + (1 - u) * scale * r * d
                    )
    return out


def test_content_gate_is_its_formula():
    module = trained(ContentGatedBiasRPE(H, 7, 4))
    scores, query = numbers(B, H, Q, S, seed=3), numbers(B, H, Q, 7, seed=4)
    cases.assert_equal(module(scores, query), content_gate(module, scores, query))


def test_content_gate_starts_the_same_for_every_query():
    module = ContentGatedBiasRPE(H, 7, 4)
    assert not module.update.any()
    assert not module.reset.any()
    assert module.scale.tolist() == [1.0] * H
    strength = module.strength(torch.randn(B, H, Q, 7))
    assert strength.shape == (B, H, Q)
    # 1 + 1/2 + 1/2 * 1 * 1/2
    torch.testing.assert_close(strength, torch.full_like(strength, 1.75))


def test_content_gate_is_no_table():
    module = trained(ContentGatedBiasRPE(H, 7, 4))
    query = numbers(1, H, 5, 7, seed=4)
    bias = module(torch.zeros(1, H, 5, 5, dtype=torch.float64), query)
    diagonal = bias[0].diagonal(dim1=1, dim2=2)
    assert (diagonal.std(1) > 1e-3).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_schemes_that_are_no_tables_keep_the_dtype_of_the_scores(dtype):
    scores = torch.randn(B, H, Q, S).to(dtype)
    query = torch.randn(B, H, Q, 7).to(dtype)
    multiplied, gated = MultiplicativeBiasRPE(H, 4), ContentGatedBiasRPE(H, 7, 4)
    assert multiplied(scores).dtype == dtype
    assert gated(scores, query).dtype == dtype
    assert multiplied.to(dtype)(scores).dtype == dtype
    assert gated.to(dtype)(scores, query).dtype == dtype
    multiplied, gated = multiplied.to("meta"), gated.to("meta")
    assert multiplied(scores.to("meta")).device.type == "meta"
    assert gated(scores.to("meta"), query.to("meta")).device.type == "meta"


def test_a_content_gate_stays_in_float32_under_autocast():
    module = trained(ContentGatedBiasRPE(H, 7, 4), torch.float32)
    scores, query = torch.randn(B, H, Q, S), torch.randn(B, H, Q, 7)
    with torch.autocast("cpu", torch.bfloat16):
        found = module(scores, query)
    assert torch.equal(found, module(scores, query))


def test_derivatives_of_schemes_that_are_no_tables():
    for module, more in (
        (trained(MultiplicativeBiasRPE(H, 3)), ()),
        (trained(ContentGatedBiasRPE(H, 2, 3)), (numbers(1, H, 2, 2, seed=5),)),
    ):
        names = [n for n, _ in module.named_parameters()]

        def function(scores, *rest, module=module, names=names):
            arguments = (scores, *rest[: -len(names)])
            parameters = dict(zip(names, rest[-len(names) :], strict=True))
            return torch.func.functional_call(module, parameters, arguments)

        scores = numbers(1, H, 2, 3, seed=2)
        tensors = (scores, *more, *(p.detach() for p in module.parameters()))
        leaves = tuple(t.clone().requires_grad_() for t in tensors)
        assert torch.autograd.gradcheck(function, leaves)
