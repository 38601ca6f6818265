"""The near_far backend equals the definition: every length, mask, table and dtype.

Beyond a few tokens the definition is gather in float64, which the loop tests. Small
tiles give short sequences as many levels as long ones have.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

from relpos_lib import ALiBi, T5BucketBias, relative_attention
from relpos_lib.backends import gather as gather_backend
from relpos_lib.backends.near_far import attention as near_far_backend
from relpos_lib.backends.near_far import far, near, operator
from relpos_lib.backends.near_far.kernels import Blockwise
from tests import cases
from tests.cases import any_case, numbers

TILES = [1, 2, 3, 8, 32, 128]


def fast(**case: Any) -> torch.Tensor:
    return relative_attention(**case, backend="near_far")


def gather(**case: Any) -> torch.Tensor:
    return relative_attention(**case, backend="gather")


def wide_truth(case: dict[str, Any], seed: int = 7) -> dict[str, torch.Tensor]:
    """Output and gradients of gather in float64."""
    wide = {name: tensor.double() for name, tensor in cases.tensors_of(case).items()}
    return cases.outcome(gather, {**case, **wide}, seed)


def assert_exact(case: dict[str, Any], tolerance: float = 1e-10, **options) -> None:
    cases.assert_same(cases.outcome(fast, case), wide_truth(case), tolerance, **options)


@contextmanager
def divided(tile: int, numbers_at_a_time: int = 1 << 19):
    """Tiles of so many queries, so many scores at a time."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(operator, "TILE", tile))
        stack.enter_context(patch.object(near, "NUMBERS", numbers_at_a_time))
        yield


@pytest.fixture(params=[2, 128], ids=["tiles of 2", "tiles of 128"])
def tile(request):
    """Both: many levels, and hardly any."""
    with divided(request.param):
        yield request.param


# --- any case ------------------------------------------------------------------------


@st.composite
def key_masks(draw: st.DrawFn, batch: int, heads: int, keys: int):
    """A mask of keys, blocks of them or all of a batch hidden; or None."""
    if not draw(st.booleans()):
        return None
    shape = [
        draw(st.sampled_from([1, batch])),
        draw(st.sampled_from([1, heads])),
        1,
        draw(st.sampled_from([1, keys, keys, keys])),
    ]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    mask = torch.rand(shape, generator=generator) < draw(
        st.sampled_from([0.1, 0.9, 1.0])
    )
    first = draw(st.integers(0, shape[3] - 1))
    mask[..., first : first + draw(st.integers(0, shape[3]))] = False
    if draw(st.booleans()):
        mask[draw(st.integers(0, shape[0] - 1))] = draw(st.booleans())
    return mask


@st.composite
def long_cases(draw: st.DrawFn, dtype: torch.dtype = torch.float64, most: int = 700):
    """A case with a tile and a number of scores to work on at a time."""
    tile = draw(st.sampled_from(TILES))
    edges = [tile * 2**n + d for n in range(10) for d in (-1, 0, 1)]
    longest = min(most, 96 * tile)
    length = st.one_of(
        st.integers(1, longest),
        st.sampled_from([x for x in edges if 1 <= x <= longest]),
    )
    queries = draw(length)
    keys = draw(st.one_of(st.just(queries), length))
    distance = st.sampled_from([None, 0, 1, 2, 5, 16, keys // 3, keys - 1, keys + 9])
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    case = cases.inputs(
        batch,
        heads,
        queries,
        keys,
        draw(st.sampled_from([1, 4])),
        draw(st.sampled_from([1, 3, 4])),
        bias=draw(distance),
        keys=draw(distance),
        values=draw(distance),
        per_head=draw(st.booleans()),
        seed=draw(st.integers(0, 999)),
        dtype=dtype,
    )
    key_table = case.get("key_table")
    if draw(st.booleans()) and key_table is not None and key_table.dim() == 3:
        case["key_table"] = key_table[0]  # shared, beside one per head
    case["mask"] = draw(key_masks(batch, heads, keys))
    case["is_causal"] = draw(st.booleans())
    case["query_start"] = draw(
        st.one_of(
            st.none(),
            st.integers(-2 * queries, 2 * keys),
            st.sampled_from([-(10**6), 10**6]),
        )
    )
    case["scale"] = draw(st.sampled_from([None, None, 1.0, -0.7, 0.0]))
    return tile, draw(st.sampled_from([1, 2000, 1 << 19])), case


@settings(max_examples=50)
@given(drawn=long_cases())
def test_outputs_and_gradients_at_any_length(drawn):
    tile, numbers_at_a_time, case = drawn
    with divided(tile, numbers_at_a_time):
        assert_exact(case)


@settings(max_examples=30)
@given(drawn=long_cases(torch.float32))
def test_float32_stays_within_a_hundred_thousandth_at_any_length(drawn):
    tile, numbers_at_a_time, case = drawn
    with divided(tile, numbers_at_a_time):
        found = cases.outcome(fast, case)
    other, truth = cases.outcome(gather, case), wide_truth(case)
    most = max(want.abs().max().item() for want in truth.values())
    for name, want in truth.items():
        error = (found[name].double() - want).abs().max().item()
        assert error <= 1e-6 * most, name
        # Where terms cancel, gather says how large the rounding of the terms is.
        others = (other[name].double() - want).abs().max().item()
        largest = want.abs().max().item()
        assert error <= max(1e-5 * largest, 8 * others, 2e-6), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@settings(max_examples=15)
@given(data=st.data())
def test_half_precision_loses_no_more_than_its_own_rounding(dtype, data):
    tile, numbers_at_a_time, case = data.draw(long_cases(dtype, most=300))
    with divided(tile, numbers_at_a_time):
        found = cases.outcome(fast, case)
    for name, want in wide_truth(case).items():
        assert found[name].dtype == dtype, name
        bound = 2e-5 + (cases.one_ulp(want, dtype) if want.any() else 0)
        assert (found[name].double() - want).abs().max().item() <= bound, name


@settings(max_examples=30)
@given(case=any_case(), tile=st.sampled_from([1, 2, 3]))
def test_the_definition_pair_by_pair(case, tile):
    with divided(tile):
        cases.assert_same(cases.outcome(fast, case), cases.truth(case), 1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [127, 128, 129, 255, 256, 257, 511, 513, 700])
def test_lengths_around_the_edges_of_tiles(length, causal):
    case = cases.inputs(1, 2, length, length, 4, 4, bias=5, keys=16, values=1)
    case["is_causal"] = causal
    assert_exact(case)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 700), (700, 1), (200, 450), (450, 200), (129, 128)]
)
def test_more_keys_than_queries_and_the_other_way_round(queries, keys, causal):
    case = cases.inputs(2, 1, queries, keys, 4, 4, bias=2, keys=7, values=3)
    case["is_causal"] = causal
    assert_exact(case)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("start", [-500, -131, -128, -1, 0, 1, 97, 128, 300, 10**15])
def test_queries_left_of_among_and_right_of_the_keys(start, causal):
    case = cases.inputs(1, 2, 140, 131, 4, 4, bias=2, keys=7, values=3)
    case |= {"is_causal": causal, "query_start": start}
    assert_exact(case)


# --- tables --------------------------------------------------------------------------


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "table", [None, "bias", "keys", "values"], ids="only {}".format
)
def test_one_table_alone_and_none_at_all(table, causal):
    present = dict.fromkeys(("bias", "keys", "values")) | {table: 3}
    present.pop(None, None)
    case = cases.inputs(2, 2, 37, 41, 4, 4, **present)
    assert_exact({**case, "is_causal": causal})


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("shared", ["key_table", "value_table"])
def test_one_table_for_all_heads_beside_one_per_head(shared):
    case = cases.inputs(2, 3, 37, 37, 4, 4, per_head=True, bias=1, keys=4, values=2)
    assert_exact({**case, shared: case[shared][1]})


@pytest.mark.parametrize("side", ["past", "future"])
@pytest.mark.parametrize("heads", [[1], [0, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.usefixtures("tile")
def test_a_bias_may_hide_a_whole_far_side_of_some_heads_only(side, heads, causal):
    case = cases.inputs(2, 3, 21, 29, 4, 4, bias=3, keys=2, values=1)
    case["bias_table"][heads, 0 if side == "past" else -1] = -torch.inf
    for start in (None, -40, 40):  # the last two see nothing of the other side
        assert_exact({**case, "is_causal": causal, "query_start": start})


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("causal", [False, True])
def test_a_local_window_hides_both_far_sides_and_some_near_rows(causal):
    case = cases.inputs(1, 2, 40, 40, 4, 4, bias=5, keys=3, values=7)
    case["bias_table"][:, :2] = case["bias_table"][:, -3:] = -torch.inf
    case["bias_table"][1, 4] = -torch.inf
    case["is_causal"] = causal
    assert_exact(case)


@settings(max_examples=40)
@given(drawn=long_cases(most=150), data=st.data())
def test_any_rows_of_a_bias_may_hide_their_keys(drawn, data):
    tile, numbers_at_a_time, case = drawn
    if "bias_table" not in case:
        case["bias_table"] = numbers(case["query"].shape[1], 7, seed=1)
    share = data.draw(st.sampled_from([0.2, 0.6, 1.0]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    hidden = torch.rand(case["bias_table"].shape, generator=generator) < share
    case["bias_table"] = case["bias_table"].masked_fill(hidden, -torch.inf)
    with divided(tile, numbers_at_a_time):
        assert_exact(case)


# -1e9 is a common way to hide, and ALiBi falls without end.
FAR_ROWS = [-1e4, -1e9, -1e30, torch.finfo(torch.float32).min]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("row", FAR_ROWS)
@pytest.mark.parametrize("side", ["past", "future"])
def test_a_far_row_of_any_size_takes_no_precision_from_the_near_ones(side, row, causal):
    case = cases.inputs(
        1, 2, 150, 150, 4, 4, bias=3, keys=None, values=2, dtype=torch.float32
    )
    case["bias_table"][:, 0 if side == "past" else -1] = row
    assert_exact({**case, "is_causal": causal}, 1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scheme", [ALiBi(8), T5BucketBias(8, 32, 16)], ids=repr)
def test_schemes_of_others_keep_float32(scheme, causal):
    case = cases.inputs(
        1, 8, 300, 300, 4, 4, bias=None, keys=None, values=None, dtype=torch.float32
    )
    case["bias_table"] = scheme.tables(301)["bias_table"].detach()
    assert_exact({**case, "is_causal": causal}, 1e-5)


# --- sizes of numbers ----------------------------------------------------------------


def plain_attention(query, key, value, is_causal=False):
    return F.scaled_dot_product_attention(query, key, value, is_causal=is_causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [300, 700])
@pytest.mark.parametrize("size", [1e2, 1e4])
def test_huge_scores_lose_at_most_ten_times_what_plain_attention_loses(
    size, length, causal
):
    case = cases.inputs(1, 2, length, length, 16, 16, bias=None, keys=None, values=None)
    case = {name: tensor.float() for name, tensor in case.items()}
    case["query"] = size * case["query"]
    case["is_causal"] = causal
    wanted = wide_truth(case)
    found, other = cases.outcome(fast, case), cases.outcome(plain_attention, case)
    for name, want in wanted.items():
        assert found[name].isfinite().all(), name
        error = (found[name].double() - want).abs().max().item()
        others = (other[name].double() - want).abs().max().item()
        assert error <= 10 * others + 1e-6 * want.abs().max().item(), name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1e2, 1e4])
def test_huge_position_scores_are_as_good_as_a_dense_mask_of_them(size, causal):
    length, farthest = 300, 3
    case = cases.inputs(1, 2, length, length, 16, 16, keys=3, values=None)
    case = {name: tensor.float() for name, tensor in case.items()}
    case["query"] = size * case["query"]
    offsets = torch.arange(length) - torch.arange(length)[:, None]
    rows = offsets.clamp(-farthest, farthest) + farthest
    by_row = case["query"] @ case["key_table"].mT / 4 + case["bias_table"][:, None]
    mask = by_row.gather(-1, rows.expand(1, 2, length, length))
    if causal:
        mask = mask.masked_fill(offsets > 0, -torch.inf)
    case["is_causal"] = causal
    want = wide_truth(case)["output"]
    dense = F.scaled_dot_product_attention(
        case["query"], case["key"], case["value"], attn_mask=mask
    )
    error = (fast(**case).double() - want).abs().max().item()
    assert error <= 10 * (dense.double() - want).abs().max().item() + 1e-6


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("name", ["query", "key_table", "value_table", "bias_table"])
@pytest.mark.parametrize("causal", [False, True])
def test_huge_tables_and_queries_give_no_nan(name, causal):
    case = cases.inputs(1, 2, 150, 150, 4, 4, bias=2, keys=3, dtype=torch.float32)
    case[name] = 1e4 * case[name]
    found = cases.outcome(fast, {**case, "is_causal": causal})
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_many_small_values_are_summed_in_float32():
    length = 3000
    q = torch.zeros(1, 1, 2, 1).bfloat16()
    k = torch.zeros(1, 1, length, 1).bfloat16()
    v = torch.linspace(1, 1.3, length).bfloat16()[None, None, :, None]
    table = torch.zeros(5, 1).bfloat16()
    out = fast(query=q, key=k, value=v, value_table=table)
    assert out.flatten().tolist() == [v.double().mean().bfloat16().item()] * 2


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("name", cases.TENSORS)
def test_nan_is_not_hidden(name):
    case = cases.inputs(1, 2, 60, 60, 4, 4, bias=1, keys=2, values=3)
    place = (0, 1, 20, 2) if case[name].dim() == 4 else (1, 2)
    case[name][place] = torch.nan
    for causal in (False, True):
        wanted = gather(**case, is_causal=causal).isnan().any(-1)
        found = fast(**case, is_causal=causal).isnan().any(-1)
        if causal and name.startswith("value"):
            # Gather multiplies what nobody sees with 0, which makes NaN too.
            rows = slice(20, None) if name == "value" else slice(None)
            assert found[0, 1, rows].all()
        else:
            assert found[wanted].all()


# --- masks ---------------------------------------------------------------------------


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape", [(2, 1, 1, 50), (2, 3, 1, 50), (1, 1, 1, 50), (1, 3, 1, 50), (2, 1, 1, 1)]
)
def test_masks_of_keys_of_every_shape(shape, causal):
    case = cases.inputs(2, 3, 40, 50, 4, 4, bias=1, keys=2, values=3)
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[..., 8:33] = mask[..., 8:33] & (shape[3] == 1)  # blocks, hidden whole
    assert_exact({**case, "mask": mask, "is_causal": causal})


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("causal", [False, True])
def test_who_sees_nothing_gives_zero_and_trains_nothing(causal):
    case = cases.inputs(2, 3, 40, 40, 4, 4, bias=1, keys=2, values=3)
    mask = torch.ones(2, 3, 1, 40, dtype=torch.bool)
    mask[0] = False
    mask[1, 1] = False
    found = cases.outcome(fast, {**case, "mask": mask, "is_causal": causal})
    assert all(tensor.isfinite().all() for tensor in found.values())
    for name in ("output", *(f"gradient of {x}" for x in ("query", "key", "value"))):
        assert not found[name][0].any(), name
        assert not found[name][1, 1].any(), name
        assert found[name][1, 0].any(), name
    assert not found["gradient of bias_table"][1].abs().max() > 1e-12


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("causal", [False, True])
def test_nobody_sees_anything(causal):
    case = cases.inputs(1, 2, 20, 20, 4, 4, bias=1, keys=2, values=3)
    mask = torch.zeros(1, 1, 1, 20, dtype=torch.bool)
    found = cases.outcome(fast, {**case, "mask": mask, "is_causal": causal})
    assert not any(tensor.any() for tensor in found.values())


@pytest.mark.usefixtures("tile")
def test_hidden_keys_and_values_are_neither_read_nor_trained():
    case = cases.inputs(1, 2, 50, 50, 4, 4, bias=1, keys=2, values=3)
    mask = torch.ones(1, 1, 1, 50, dtype=torch.bool)
    mask[..., 10:31] = False
    found = cases.outcome(fast, {**case, "mask": mask})
    assert not found["gradient of key"][:, :, 10:31].any()
    assert not found["gradient of value"][:, :, 10:31].any()
    wanted = fast(**case, mask=mask)
    case["key"][:, :, 10:31] = 1e30
    case["value"][:, :, 10:31] = -1e30
    assert torch.equal(fast(**case, mask=mask), wanted)


def refused_by_the_parts():
    mask = torch.ones(9, 9, dtype=torch.bool).tril(2)
    return {
        "pairs": {"mask": mask},
        "pairs of a batch": {"mask": mask[None, None]},
        "queries": {"mask": mask[:, :1][None, None]},
        "dropout": {"dropout_p": 0.3},
        "dropout of all": {"dropout_p": 1.0},
    }


@pytest.mark.parametrize("name", refused_by_the_parts())
def test_other_masks_and_dropout_are_left_to_gather(name, monkeypatch):
    options = refused_by_the_parts()[name]
    case = cases.inputs(1, 2, 9, 9, 4, 4)

    def never(*args):
        raise AssertionError("the parts cannot do this")

    monkeypatch.setattr(near_far_backend, "near_far", never)
    torch.manual_seed(0)
    found = fast(**case, **options)
    torch.manual_seed(0)
    assert torch.equal(found, gather(**case, **options))


def test_what_the_parts_can_do_is_not_left_to_gather(monkeypatch):
    def never(*args):
        raise AssertionError("the parts can do this")

    monkeypatch.setattr(gather_backend, "attention", never)
    case = cases.inputs(1, 2, 9, 9, 4, 4)
    for shape in ((1, 1, 1, 9), (1, 2, 1, 9), (1, 1, 1, 1)):
        fast(**case, mask=torch.ones(shape, dtype=torch.bool), is_causal=True)
    one = {**case, "query": case["query"][:, :, :1]}
    fast(**one, mask=torch.ones(1, 9, dtype=torch.bool))


# --- layouts and who trains ----------------------------------------------------------


def in_heads(x):
    """As a module cuts its projections: (B, L, 8) to (B, 2, L, 4), a view."""
    return x.unflatten(-1, (2, 4)).transpose(1, 2)


def layouts():
    """Query, key and value (1 or 2, 2, 30, 4) as callers have them."""
    joined = numbers(1, 30, 3 * 8, seed=1)
    wide = numbers(2, 2, 61, 9, seed=2)
    one = numbers(1, 2, 1, 4, seed=3)
    return {
        "heads of one sequence": [in_heads(x) for x in joined.chunk(3, -1)],
        "heads of two": [in_heads(numbers(2, 30, 8, seed=n)) for n in range(3)],
        "width before length": [numbers(2, 2, 4, 30, seed=n).mT for n in range(3)],
        "every other row and column": [
            wide[:, :, 1:61:2, n : n + 7 : 2] for n in (0, 1, 2)
        ],
        "the same row again": [one.expand(2, 2, 30, 4)] * 3,
        "the same head again": [numbers(2, 1, 30, 4, seed=4).expand(2, 2, 30, 4)] * 3,
        "the same batch again": [numbers(1, 2, 30, 4, seed=5).expand(2, 2, 30, 4)] * 3,
    }


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", layouts())
def test_every_memory_layout_gives_the_same_numbers(name, causal):
    qkv = dict(zip(("query", "key", "value"), layouts()[name], strict=True))
    tables = cases.inputs(1, 2, 1, 1, 4, 4, bias=1, keys=2, values=3)
    tables = {n: t for n, t in tables.items() if n.endswith("table")}
    tables["key_table"] = tables["key_table"].mT.contiguous().mT
    options = {**tables, "is_causal": causal}
    leaves = {n: t.detach().requires_grad_() for n, t in {**qkv, **tables}.items()}
    copies = {
        n: t.detach().contiguous().clone().requires_grad_() for n, t in leaves.items()
    }
    found = fast(**{**options, **leaves})
    wanted = gather(**{**options, **copies})
    cases.assert_equal(found.detach(), wanted.detach())
    direction = numbers(*found.shape, seed=9)
    for one, want in zip(
        torch.autograd.grad(found, list(leaves.values()), direction),
        torch.autograd.grad(wanted, list(copies.values()), direction),
        strict=True,
    ):
        cases.assert_equal(one, want)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("kind", ["sum", "mean of heads", "transposed", "of one query"])
def test_gradients_may_arrive_in_any_layout(kind):
    case = cases.inputs(2, 2, 30, 30, 4, 4, bias=1, keys=2, values=3)

    def loss(out):
        if kind == "sum":
            return out.sum()  # its gradient is one number, expanded
        if kind == "mean of heads":
            return (out.mean(1) ** 2).sum()
        if kind == "transposed":
            return (out.transpose(1, 2).flatten(2) * numbers(2, 30, 8, seed=3)).sum()
        return out[:, :, 4].sum()

    found = {}
    for function in (fast, gather):
        leaves = {n: t.clone().requires_grad_() for n, t in case.items()}
        out = loss(function(**leaves))
        found[function] = torch.autograd.grad(out, list(leaves.values()))
    for one, want in zip(found[fast], found[gather], strict=True):
        cases.assert_equal(one, want)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("only", cases.TENSORS)
def test_any_single_tensor_may_be_the_only_one_that_trains(only):
    case = cases.inputs(1, 2, 30, 30, 4, 4, bias=1, keys=2, values=3)
    wanted = wide_truth(case)[f"gradient of {only}"]
    case[only].requires_grad_()
    out = fast(**case)
    direction = numbers(*out.shape, seed=7).to(torch.bfloat16).to(out.dtype)
    (grad,) = torch.autograd.grad(out, case[only], direction)
    cases.assert_equal(grad, wanted)


@pytest.mark.usefixtures("tile")
def test_one_tensor_may_be_query_key_and_value_and_one_table_both():
    x, table = numbers(1, 2, 30, 4, seed=1), numbers(5, 4, seed=2)
    grads = {}
    for function in (fast, gather):
        one, rows = x.clone().requires_grad_(), table.clone().requires_grad_()
        out = function(query=one, key=one, value=one, key_table=rows, value_table=rows)
        grads[function] = torch.autograd.grad(out.square().sum(), [one, rows])
    for found, wanted in zip(grads[fast], grads[gather], strict=True):
        cases.assert_equal(found, wanted)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_trains_where_nobody_asks(mode):
    case = cases.inputs(1, 2, 30, 30, 4, 4)
    wanted = fast(**case)
    assert not wanted.requires_grad
    case["value_table"].requires_grad_()
    with mode():
        out = fast(**case)
    assert not out.requires_grad
    assert torch.equal(out, wanted)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("start", [None, 0, -30, 5, 45])
@pytest.mark.parametrize("queries", [1, 20])
def test_rows_that_no_pair_reads_get_no_gradient(queries, start, causal):
    # An optimizer that divides by the size of a gradient would move them by rounding.
    case = cases.inputs(1, 2, queries, 20, 4, 4, bias=40, keys=6, values=25)
    case |= {"is_causal": causal, "query_start": start}
    found = cases.outcome(fast, case)
    first = 20 - queries if start is None else start
    offsets = torch.arange(20) - torch.arange(queries)[:, None] - first
    seen = offsets <= 0 if causal else offsets == offsets
    for name, farthest in {"bias": 40, "key": 6, "value": 25}.items():
        rows = offsets.clamp(-farthest, farthest) + farthest
        unread = torch.ones(2 * farthest + 1, dtype=torch.bool)
        unread[rows[seen]] = False
        grad = found[f"gradient of {name}_table"]
        grad = grad if name == "bias" else grad.mT
        assert not grad[..., unread].any(), name


# --- the parts put together in other ways --------------------------------------------


@settings(max_examples=25)
@given(drawn=long_cases(most=200), few=st.sampled_from([1, 100, 1 << 20]))
def test_the_kernel_for_any_device_gives_the_same(drawn, few):
    tile, numbers_at_a_time, case = drawn
    with (
        divided(tile, numbers_at_a_time),
        patch.object(far, "kernel_for", lambda *_: Blockwise(few)),
    ):
        assert_exact(case)


def test_every_division_gives_the_same_numbers():
    case = cases.inputs(2, 3, 50, 40, 4, 4, bias=1, keys=2, values=3)
    wanted = wide_truth(case)
    for tile in TILES:
        for numbers_at_a_time in (1, 300):
            with divided(tile, numbers_at_a_time):
                cases.assert_same(cases.outcome(fast, case), wanted, 1e-10)


@pytest.mark.parametrize("causal", [False, True])
def test_halves_of_a_sequence_as_a_cache_would_see_them(causal):
    case = cases.inputs(1, 2, 260, 260, 4, 4, bias=1, keys=2, values=3)
    case["is_causal"] = causal
    whole = fast(**case)
    for first, last in ((0, 1), (0, 130), (130, 260), (259, 260)):
        part = {**case, "query": case["query"][:, :, first:last]}
        cases.assert_equal(fast(**part, query_start=first), whole[:, :, first:last])


def test_twice_gives_the_same_bits():
    case = cases.inputs(2, 2, 300, 300, 8, 8, dtype=torch.float32)
    case["mask"] = torch.arange(300)[None, None, None] > 40
    one, other = cases.outcome(fast, case), cases.outcome(fast, case)
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.usefixtures("tile")
def test_no_number_is_read_before_it_is_written():
    # In this mode new memory is NaN.
    case = cases.inputs(2, 2, 40, 50, 4, 4, bias=1, keys=2, values=3)
    torch.use_deterministic_algorithms(True)
    try:
        for options in ({}, {"is_causal": True}, {"query_start": -70}):
            assert_exact({**case, **options})
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_does_not_take_sums_back_to_half(dtype):
    def under_autocast(**case):
        with torch.autocast("cpu", torch.bfloat16):
            return fast(**case)

    case = cases.inputs(1, 2, 50, 50, 4, 4, bias=1, keys=2, values=3, dtype=dtype)
    wanted, found = cases.outcome(fast, case), cases.outcome(under_autocast, case)
    assert found["output"].dtype == dtype
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
