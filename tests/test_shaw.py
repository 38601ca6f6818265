"""Shaw's vectors: which rows are stored, who reads them, and what debug shows."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch

from relpos_lib import (
    RelativeMultiHeadAttention,
    RelativePositionEmbedding,
    relative_attention,
)
from tests import cases, reference
from tests.cases import numbers

WIDTH, HEADS, LONG = 6, 3, 11
VARIANTS = {
    "shared": {},
    "keys only": {"values": False},
    "values only": {"keys": False},
    "per head": {"per_head": True},
    "a K per head": {"max_relative_positions": [0, 2, 20]},
    "another K to the future": {"max_future_positions": 1},
    "no future": {"max_future_positions": 0},
    "no past": {"max_relative_positions": 0, "max_future_positions": 5},
    "a K per head and side": {
        "max_relative_positions": (1, 2, 3),
        "max_future_positions": (3, 0, 5),
    },
    "values farther than keys": {"max_value_positions": 9},
    "a K per head for values alone": {"max_value_positions": [1, 0, 4]},
    "K = 0": {"max_relative_positions": 0},
}
each_variant = pytest.mark.parametrize("name", VARIANTS)


def make(name, width=WIDTH):
    options = {"max_relative_positions": 3, **VARIANTS[name]}
    module = RelativeMultiHeadAttention(width, HEADS, **options).double()
    for n, parameter in enumerate(module.parameters()):
        parameter.data = numbers(*parameter.shape, seed=n)
    return module


def vectors(embedding, past, future, offset, head):
    """The vector of an offset, read from the rows as they are stored."""
    rows = embedding.embedding.weight
    if isinstance(past, int):
        past = [past]
    if isinstance(future, int):
        future = [future] * len(past)
    if len(past) < len(future):
        past = past * len(future)
    sizes = [p + f + 1 for p, f in zip(past, future, strict=True)]
    if len(sizes) == 1 and len(rows) == HEADS * sizes[0]:  # a table per head
        sizes, past, future = sizes * HEADS, past * HEADS, future * HEADS
    assert len(rows) == sum(sizes)
    own = 0 if len(sizes) == 1 else head
    own_rows = rows[sum(sizes[:own]) : sum(sizes[: own + 1])]
    return own_rows[past[own] + min(max(offset, -past[own]), future[own])]


def sides(name):
    """K to the past and to the future, of keys and of values."""
    options = {"max_relative_positions": 3, **VARIANTS[name]}
    past = options["max_relative_positions"]
    keys = past, options.get("max_future_positions", past)
    values = options.get("max_value_positions")
    return keys, (keys if values is None else (values, values))


# --- the table -----------------------------------------------------------------------


@each_variant
def test_every_head_reads_its_own_rows_and_then_its_edges(name):
    module = make(name)
    embeddings = (
        module.relative_positions_embeddings_k,
        module.relative_positions_embeddings_v,
    )
    for embedding, (past, future) in zip(embeddings, sides(name), strict=True):
        if embedding is None:
            continue
        table = embedding.table(25)
        for h in range(HEADS):
            own = table if table.dim() == 2 else table[h]
            for row, offset in enumerate(range(-25, 26)):
                wanted = vectors(embedding, past, future, offset, h)
                assert torch.equal(own[row], wanted)


@each_variant
def test_only_rows_that_can_be_read_are_stored(name):
    module = make(name)
    x = numbers(1, 50, WIDTH, seed=1)
    (module(x, x, x) * numbers(1, 50, WIDTH, seed=2)).sum().backward()
    for side in ("k", "v"):
        embedding = getattr(module, f"relative_positions_embeddings_{side}")
        if embedding is None:
            continue
        grad = embedding.embedding.weight.grad
        if side == "k" and len(grad) == 1:
            continue  # one vector for all keys: softmax takes its part away
        unread = ~grad.any(1)
        if name == "a K per head" and side == "k":
            unread[0] = False  # the head with K = 0, for the same reason
        assert not unread.any()


def test_shared_tables_have_one_row_an_offset():
    embedding = RelativePositionEmbedding(4, 5)
    assert embedding.embedding.weight.shape == (9, 5)
    assert torch.equal(embedding.table(), embedding.embedding.weight)
    assert embedding.max_distance == 4


def test_tables_per_head_stand_one_below_the_other():
    embedding = RelativePositionEmbedding(2, 7, num_heads=3)
    assert embedding.embedding.weight.shape == (15, 7)
    assert embedding.table().shape == (3, 5, 7)
    assert torch.equal(embedding.table().flatten(0, 1), embedding.embedding.weight)
    uneven = RelativePositionEmbedding([1, 0], 7, max_future_positions=[2, 5])
    assert uneven.embedding.weight.shape == (4 + 6, 7)
    assert uneven.table().shape == (2, 11, 7)
    assert uneven.max_distance == 5


def test_the_table_can_be_read_at_every_distance():
    embedding = RelativePositionEmbedding([1, 4], 3, max_future_positions=[2, 0])
    widest = embedding.table(9)
    for distance in range(9):
        found = embedding.table(distance)
        assert torch.equal(found, widest[:, 9 - distance : 10 + distance])


def test_rows_start_xavier_uniform_head_by_head():
    for distance, width in ((4, 64), (60, 16), (0, 3)):
        rows = 2 * distance + 1
        bound = math.sqrt(6 / (rows + width))
        weight = RelativePositionEmbedding(distance, width).embedding.weight
        assert weight.abs().max() <= bound
        if weight.numel() > 500:
            assert weight.abs().max() > 0.97 * bound
            spread = bound / math.sqrt(3)
            assert weight.std().item() == pytest.approx(spread, rel=0.1)
    heads = RelativePositionEmbedding([2, 200], 64)
    near, far = heads.embedding.weight.split([5, 401])
    assert near.abs().max() > math.sqrt(6 / (401 + 64))
    assert near.abs().max() <= math.sqrt(6 / (5 + 64))
    assert far.abs().max() <= math.sqrt(6 / (401 + 64))


def test_resetting_fills_the_rows_again_and_keeps_the_parameter():
    embedding = RelativePositionEmbedding(3, 5)
    weight, before = embedding.embedding.weight, embedding.embedding.weight.clone()
    embedding.reset_parameters()
    assert embedding.embedding.weight is weight
    assert not torch.equal(weight, before)


def test_forward_is_one_vector_a_pair():
    embedding = RelativePositionEmbedding(2, 5)
    out = embedding(7)
    assert out.shape == (7, 7, 5)
    table = embedding.table()
    for i in range(7):
        for j in range(7):
            assert torch.equal(out[i, j], reference.entry(table, j - i))
    last = embedding(3, 7)
    assert torch.equal(last, out[-3:])
    assert torch.equal(embedding(1, 7), out[-1:])


def test_forward_with_a_table_per_head():
    embedding = RelativePositionEmbedding([1, 3], 5)
    out = embedding(4, 7)
    assert out.shape == (2, 4, 7, 5)
    for h in range(2):
        own = embedding.table()[h]
        assert torch.equal(out[h, 0, 0], reference.entry(own, -3))
        assert torch.equal(out[h, 3, 6], reference.entry(own, 0))


def test_forward_trains_the_rows():
    embedding = RelativePositionEmbedding(1, 5)
    embedding(4).sum().backward()
    # Of 16 pairs 6 lie to the left, 4 on the diagonal and 6 to the right.
    assert embedding.embedding.weight.grad[:, 0].tolist() == [6.0, 4.0, 6.0]


# --- the attention -------------------------------------------------------------------


def by_hand(module, name, q, k, v, **options):
    """The module's output from its weights, through the double loop."""
    keys, values = sides(name)
    tables = {}
    for side, distances in (("k", keys), ("v", values)):
        embedding = getattr(module, f"relative_positions_embeddings_{side}")
        if embedding is not None:
            rows = [
                [vectors(embedding, *distances, o, h) for o in range(-25, 26)]
                for h in range(HEADS)
            ]
            table = torch.stack([torch.stack(row) for row in rows])
            tables["key_table" if side == "k" else "value_table"] = table

    def project(linear, x):
        return x @ linear.weight.T + linear.bias

    heads = [
        reference.parted(project(linear, x), HEADS)
        for linear, x in ((module.wq, q), (module.wk, k), (module.wv, v))
    ]
    out = reference.attention(*heads, **tables, **options)
    return project(module.wo, reference.joined(out))


@each_variant
@pytest.mark.parametrize("is_causal", [False, True])
def test_output_and_gradients_equal_the_double_loop(name, is_causal):
    module = make(name)
    q, k, v = (numbers(2, n, WIDTH, seed=n) for n in (5, 7, 7))
    v = v.flip(0)
    mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    mask[1, :, 2] = False
    options = {"mask": mask, "is_causal": is_causal}
    found = module(q, k, v, **options)
    wanted = by_hand(module, name, q, k, v, **options)
    cases.assert_equal(found.detach(), wanted.detach())
    parameters = dict(module.named_parameters())
    direction = numbers(*found.shape, seed=3)
    for label, one, other in zip(
        parameters,
        torch.autograd.grad(found, list(parameters.values()), direction),
        torch.autograd.grad(wanted, list(parameters.values()), direction),
        strict=True,
    ):
        assert (one - other).abs().max() <= 1e-10 * max(1.0, other.abs().max()), label


@each_variant
def test_debug_shows_what_the_model_computes(name):
    module = make(name)
    q, k = numbers(2, 5, WIDTH, seed=1), numbers(2, 7, WIDTH, seed=2)
    mask = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    mask[3] = False
    out, seen = module(q, k, k, mask=mask, debug=True)
    assert set(seen) == {"content_scores", "positional_scores", "attention_weights"}
    assert all(tensor.shape == (2, HEADS, 5, 7) for tensor in seen.values())
    assert torch.equal(out, module(q, k, k, mask=mask))
    heads_q = reference.parted(module.wq(q), HEADS)
    heads_k = reference.parted(module.wk(k), HEADS)
    cases.assert_equal(seen["content_scores"], heads_q @ heads_k.mT)
    embedding = module.relative_positions_embeddings_k
    if embedding is None:
        assert not seen["positional_scores"].any()
    else:
        dense = embedding(5, 7)  # (Q, S, D) or (H, Q, S, D)
        wanted = torch.einsum(
            "bhid,...hijd->bhij", heads_q, dense.expand(HEADS, 5, 7, WIDTH // HEADS)
        )
        cases.assert_equal(seen["positional_scores"], wanted)
    scores = (seen["content_scores"] + seen["positional_scores"]) / math.sqrt(
        WIDTH // HEADS
    )
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0)
    cases.assert_equal(seen["attention_weights"], weights)
    assert not seen["attention_weights"][:, :, 3].any()


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"query_start": 1}])
def test_debug_output_equals_the_output_and_trains_the_same(options):
    module, x = make("shared"), numbers(2, 5, WIDTH, seed=1)
    parameters = list(module.parameters())
    out = module(x, x, x, **options)
    shown, seen = module(x, x, x, debug=True, **options)
    assert torch.equal(out, shown)
    for one, other in zip(
        torch.autograd.grad(out.sum(), parameters),
        torch.autograd.grad(shown.sum(), parameters),
        strict=True,
    ):
        cases.assert_equal(one, other)
    assert seen["attention_weights"].sum(-1).allclose(torch.ones(()).double())


def test_debug_under_autocast_shows_the_same_computation():
    module = RelativeMultiHeadAttention(WIDTH, HEADS, 3)
    x = torch.randn(2, 5, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x, x, x)
        shown, seen = module(x, x, x, debug=True)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, shown)
    assert all(tensor.dtype == torch.float32 for tensor in seen.values())


def test_the_names_readers_know():
    module = RelativeMultiHeadAttention(d_model=8, num_heads=2)
    assert set(dict(module.named_parameters())) == {
        "wq.weight",
        "wq.bias",
        "wk.weight",
        "wk.bias",
        "wv.weight",
        "wv.bias",
        "wo.weight",
        "wo.bias",
        "relative_positions_embeddings_k.embedding.weight",
        "relative_positions_embeddings_v.embedding.weight",
    }
    assert module.relative_positions_embeddings_k.embedding.weight.shape == (129, 4)
    tables = module.tables()
    assert set(tables) == {"key_table", "value_table"}
    assert set(make("keys only").tables()) == {"key_table"}
    assert set(make("values only").tables()) == {"value_table"}


@each_variant
def test_tables_run_through_the_function(name):
    module, x = make(name), numbers(2, 7, WIDTH, seed=1)
    heads = [
        reference.parted(linear(x), HEADS)
        for linear in (module.wq, module.wk, module.wv)
    ]
    for tables in (module.tables(), module.tables(12)):
        attended = relative_attention(*heads, **tables)
        cases.assert_equal(module.wo(reference.joined(attended)), module(x, x, x))


def test_nothing_that_depends_on_a_length_is_stored():
    module, other = make("shared"), make("shared")
    for parameter in other.parameters():
        parameter.data.zero_()
    x = numbers(1, 16, WIDTH, seed=1)
    short = module(x[:, :8], x[:, :8], x[:, :8])
    assert set(module.state_dict()) == {n for n, _ in module.named_parameters()}
    assert not list(module.buffers())
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x, x, x), module(x, x, x))
    assert torch.equal(other(x[:, :8], x[:, :8], x[:, :8]), short)


@each_variant
def test_copies_and_pickles_work(name):
    module, x = make(name), numbers(1, 5, WIDTH, seed=1)
    wanted = module(x, x, x)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(x, x, x), wanted)
        next(twin.parameters()).data.zero_()
        assert torch.equal(module(x, x, x), wanted)


@each_variant
def test_only_the_tables_may_train(name):
    module, x = make(name), numbers(2, LONG, WIDTH, seed=1)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    trainable = [
        embedding.embedding.weight.requires_grad_()
        for embedding in (
            module.relative_positions_embeddings_k,
            module.relative_positions_embeddings_v,
        )
        if embedding is not None
    ]
    (module(x, x, x) * numbers(2, LONG, WIDTH, seed=2)).sum().backward()
    assert all(weight.grad.isfinite().all() for weight in trainable)
    assert trainable[-1].grad.any()


@each_variant
def test_modules_cast_or_moved_keep_working(name):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        module, x = make(name).to(dtype), numbers(2, 5, WIDTH, seed=1, dtype=dtype)
        assert module(x, x, x).dtype == dtype
    module, x = make(name).to("meta"), numbers(2, 5, WIDTH, seed=1).to("meta")
    out, seen = module(x, x, x, debug=True)
    assert out.device.type == "meta"
    assert seen["attention_weights"].shape == (2, HEADS, 5, 5)


def test_made_on_another_device_from_the_start():
    with torch.device("meta"):
        module = RelativeMultiHeadAttention(8, 2, [1, 3])
        out = module(*[torch.zeros(1, 3, 8)] * 3)
    assert out.device.type == "meta"
    here = module.to_empty(device="cpu")
    for parameter in here.parameters():
        torch.nn.init.zeros_(parameter)
    assert here(*[torch.zeros(1, 3, 8)] * 3).shape == (1, 3, 8)
    embedding = RelativePositionEmbedding(2, 3).to("meta")
    assert embedding(4).device.type == "meta"


def test_half_modules_lose_no_more_than_rounding():
    for dtype in (torch.float16, torch.bfloat16):
        module, x = make("shared").to(dtype), numbers(2, 5, WIDTH, seed=1, dtype=dtype)
        wide = copy.deepcopy(module).double()
        wanted = wide(x.double(), x.double(), x.double())
        error = (module(x, x, x).double() - wanted).abs().max().item()
        # Rounded after each of: projection, attention, output projection.
        assert error <= 12 * cases.one_ulp(wanted, dtype)


def test_cross_attention_is_the_function_without_tables():
    module = make("shared")
    q, k = numbers(2, 5, WIDTH, seed=1), numbers(2, 9, WIDTH, seed=2)
    heads = [
        reference.parted(linear(x), HEADS)
        for linear, x in ((module.wq, q), (module.wk, k), (module.wv, k))
    ]
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    shuffled = [heads[0], heads[1][:, :, order], heads[2][:, :, order]]
    cases.assert_equal(relative_attention(*shuffled), relative_attention(*heads))
