"""Decoding with a cache: the numbers of full attention at the price of one token."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from relpos_lib import (
    KeyValueCache,
    RelativeMultiHeadAttention,
    RPETransformerBlock,
    relative_attention,
)
from tests import cases
from tests.cases import BACKENDS, numbers
from tests.test_bad_input import NO_INTEGERS, refused

WIDTH, HEADS = 6, 3
SHAW = {
    "shared": {},
    "per head": {"per_head": True},
    "keys": {"values": False},
    "values": {"keys": False},
    "uneven": {"max_future_positions": [0, 2, 1], "max_value_positions": 1},
    "K = 0": {"max_relative_positions": 0},
}
SPLITS = st.lists(st.integers(1, 5), min_size=1, max_size=5)


def filled(module):
    for n, parameter in enumerate(module.double().eval().parameters()):
        parameter.data = numbers(*parameter.shape, seed=n)
    return module


def shaw(**options):
    options = {"max_relative_positions": 2, **options}
    return filled(RelativeMultiHeadAttention(WIDTH, HEADS, **options))


def block(**options):
    return filled(RPETransformerBlock(WIDTH, HEADS, 3, **options))


def attend(module, x, **options):
    inputs = (x,) if isinstance(module, RPETransformerBlock) else (x, x, x)
    return module(*inputs, is_causal=True, **options)


def chunks(sizes):
    """Slices of a sequence, one behind the other."""
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def decoded(module, x, sizes, cache, mask=None):
    """Output over a sequence, read in chunks of these sizes."""
    steps = []
    for now in chunks(sizes):
        seen = {} if mask is None else {"mask": mask[..., now, : now.stop]}
        steps.append(attend(module, x[:, now], cache=cache, **seen))
    return torch.cat(steps, 1)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


# --- the numbers ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("per_head", [False, True])
@settings(max_examples=15)
@given(sizes=SPLITS, spare=st.one_of(st.none(), st.integers(0, 3)))
def test_the_function_over_a_cache_is_full_attention(backend, per_head, sizes, spare):
    length = sum(sizes)
    case = cases.inputs(
        2, 3, length, length, 5, 7, bias=1, keys=2, values=4, per_head=per_head
    )
    tables = {name: tensor for name, tensor in case.items() if "table" in name}
    whole = relative_attention(**case, is_causal=True, backend="gather")
    cache = KeyValueCache(None if spare is None else length + spare)
    steps = [
        relative_attention(
            case["query"][:, :, now],
            *cache.append(case["key"][:, :, now], case["value"][:, :, now]),
            **tables,
            is_causal=True,
            backend=backend,
        )
        for now in chunks(sizes)
    ]
    cases.assert_equal(torch.cat(steps, 2), whole)
    assert cache.length == length


@pytest.mark.parametrize("options", SHAW.values(), ids=SHAW)
@settings(max_examples=15)
@given(sizes=SPLITS, spare=st.one_of(st.none(), st.integers(0, 3)))
def test_shaw_in_chunks_is_shaw_at_once(options, sizes, spare):
    module, x = shaw(**options), numbers(2, sum(sizes), WIDTH, seed=1)
    cache = KeyValueCache(None if spare is None else sum(sizes) + spare)
    cases.assert_equal(decoded(module, x, sizes, cache), attend(module, x))


@settings(max_examples=30)
@given(sizes=SPLITS, spare=st.one_of(st.none(), st.integers(0, 3)))
def test_the_block_in_chunks_is_the_block_at_once(sizes, spare):
    module, x = block(), numbers(2, sum(sizes), WIDTH, seed=1)
    cache = KeyValueCache(None if spare is None else sum(sizes) + spare)
    cases.assert_equal(decoded(module, x, sizes, cache), attend(module, x))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [shaw, block])
def test_token_by_token_beyond_the_table_with_every_backend(make, backend):
    module, x = make(backend=backend), numbers(2, 11, WIDTH, seed=1)
    found = decoded(module, x, [1] * 11, KeyValueCache())
    cases.assert_equal(found, attend(make(), x))


@pytest.mark.parametrize("make", [shaw, block])
@settings(max_examples=20)
@given(data=st.data())
def test_a_mask_covers_all_keys_so_far(make, data):
    sizes = data.draw(SPLITS)
    length = sum(sizes)
    module, x = make(), numbers(2, length, WIDTH, seed=1)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    mask = torch.rand(2, 1, length, length, generator=generator) < 0.7
    found = decoded(module, x, sizes, KeyValueCache(), mask)
    cases.assert_equal(found, attend(module, x, mask=mask))


@pytest.mark.parametrize("make", [shaw, block])
def test_left_padding_of_a_prompt_changes_nothing(make):
    module, x = make(), numbers(2, 7, WIDTH, seed=1)
    longer = torch.cat([x[:, :2] * 100, x], 1)
    cache, steps = KeyValueCache(), []
    for now in chunks([4, 1, 1, 3]):
        padding = (torch.arange(now.stop) >= 2)[None, None, None]
        steps.append(attend(module, longer[:, now], mask=padding, cache=cache))
    cases.assert_equal(torch.cat(steps, 1)[:, 2:], attend(module, x))


def test_without_a_causal_mask_a_chunk_sees_all_of_itself():
    module, x = shaw(), numbers(2, 7, WIDTH, seed=1)
    cache = KeyValueCache()
    for now in chunks([3, 4]):
        new, seen = x[:, now], x[:, : now.stop]
        found = module(new, new, new, cache=cache)
        cases.assert_equal(found, module(new, seen, seen))


def test_fewer_queries_than_new_keys_stand_on_the_last_ones():
    module, x = shaw(), numbers(2, 7, WIDTH, seed=1)
    cache = KeyValueCache()
    attend(module, x[:, :3], cache=cache)
    found = module(x[:, 6:], x[:, 3:], x[:, 3:], cache=cache)
    cases.assert_equal(found, attend(module, x)[:, 6:])


def test_query_start_counts_from_the_first_token_held():
    module, x = shaw(), numbers(2, 7, WIDTH, seed=1)
    cache = KeyValueCache()
    attend(module, x[:, :3], cache=cache)
    new = x[:, 3:]
    found = module(new, new, new, is_causal=True, query_start=3, cache=cache)
    cases.assert_equal(found, attend(module, x)[:, 3:])


def test_debug_shows_the_scores_of_all_keys_so_far():
    module, x = shaw(), numbers(2, 7, WIDTH, seed=1)
    _, whole = module(x, x, x, debug=True, is_causal=True)
    cache = KeyValueCache()
    attend(module, x[:, :4], cache=cache)
    new = x[:, 4:]
    _, seen = module(new, new, new, debug=True, is_causal=True, cache=cache)
    for name, tensor in seen.items():
        cases.assert_equal(tensor, whole[name][:, :, 4:])


@settings(max_examples=15)
@given(sizes=SPLITS)
def test_a_model_of_two_blocks_has_two_caches(sizes):
    first, second = block(), block()
    second.rpe.bias.data.mul_(-2)
    x = numbers(2, sum(sizes), WIDTH, seed=1)
    caches, steps = [KeyValueCache(), KeyValueCache()], []
    for now in chunks(sizes):
        y = x[:, now]
        for layer, cache in zip((first, second), caches, strict=True):
            y = attend(layer, y, cache=cache)
        steps.append(y)
    wanted = attend(second, attend(first, x))
    cases.assert_equal(torch.cat(steps, 1), wanted)


# --- the cache itself ----------------------------------------------------------------


def pair(length, seed=1, dtype=torch.float32):
    """Keys and values of other widths, (2, 3, length, 5) and (2, 3, length, 7)."""
    key = numbers(2, 3, length, 5, seed=seed, dtype=dtype)
    return key, numbers(2, 3, length, 7, seed=seed + 1, dtype=dtype)


@settings(max_examples=30)
@given(sizes=SPLITS, capacity=st.sampled_from([None, 25, 40]))
def test_what_was_appended_is_handed_out_in_order(sizes, capacity):
    cache, held = KeyValueCache(capacity), []
    for n, size in enumerate(sizes):
        held.append(pair(size, seed=2 * n))
        keys, values = cache.append(*held[-1])
        assert torch.equal(keys, torch.cat([key for key, _ in held], 2))
        assert torch.equal(values, torch.cat([value for _, value in held], 2))
        assert cache.length == sum(sizes[: n + 1])
        assert cache.capacity == capacity


def test_with_a_capacity_the_memory_never_moves():
    cache, places = KeyValueCache(50), set()
    for n in range(50):
        keys, values = cache.append(*pair(1, seed=n))
        places.add((keys.data_ptr(), values.data_ptr()))
    assert len(places) == 1
    assert keys.untyped_storage().nbytes() == 2 * 3 * 50 * 5 * 4


def test_without_one_the_room_doubles():
    cache, places = KeyValueCache(), set()
    for n in range(100):
        keys, _ = cache.append(*pair(1, seed=n))
        places.add(keys.untyped_storage().nbytes())
        assert keys.untyped_storage().nbytes() <= 2 * (n + 1) * 2 * 3 * 5 * 4
    assert len(places) == 1 + math.ceil(math.log2(100))


def test_all_keys_are_views_that_cost_nothing():
    cache = KeyValueCache(9)
    keys, values = cache.append(*pair(4))
    more, _ = cache.append(*pair(2))
    assert keys.shape == (2, 3, 4, 5)
    assert values.shape == (2, 3, 4, 7)
    assert more.data_ptr() == keys.data_ptr()


def test_tokens_that_were_refused_can_be_taken_back():
    module, x = shaw(), numbers(2, 9, WIDTH, seed=1)
    cache = KeyValueCache(9)
    attend(module, x[:, :4], cache=cache)
    attend(module, x[:, :5] * 100, cache=cache)
    cache.truncate(4)
    assert cache.length == 4
    found = attend(module, x[:, 4:], cache=cache)
    cases.assert_equal(found, attend(module, x)[:, 4:])
    cache.truncate(0)
    cases.assert_equal(attend(module, x, cache=cache), attend(module, x))


def test_after_a_reset_other_shapes_and_dtypes_are_welcome():
    cache = KeyValueCache(4)
    cache.append(*pair(4))
    cache.reset()
    assert cache.length == 0
    assert cache.capacity == 4
    other = numbers(1, 2, 3, 4, seed=1).bfloat16()
    keys, _ = cache.append(other, other)
    assert torch.equal(keys, other)


def test_printing_tells_how_full_it_is():
    cache = KeyValueCache(8)
    cache.append(*pair(3))
    assert repr(cache) == "KeyValueCache(length=3, capacity=8)"


def test_copies_and_pickles_go_their_own_way():
    module, x = shaw(), numbers(2, 7, WIDTH, seed=1)
    cache = KeyValueCache(7)
    attend(module, x[:, :4], cache=cache)
    for twin in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        attend(module, x[:, :3] * 5, cache=twin)
        assert (cache.length, twin.length) == (4, 7)
    found = attend(module, x[:, 4:], cache=cache)
    cases.assert_equal(found, attend(module, x)[:, 4:])


def test_the_first_tokens_decide_dtype_and_device():
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        keys, values = KeyValueCache().append(*pair(2, dtype=dtype))
        assert keys.dtype == values.dtype == dtype
    key, value = (tensor.to("meta") for tensor in pair(2))
    assert KeyValueCache(5).append(key, value)[0].device.type == "meta"


def test_under_autocast_it_holds_what_the_projections_give():
    module, x = shaw().float(), numbers(2, 7, WIDTH, seed=1, dtype=torch.float32)
    cache = KeyValueCache()
    with torch.autocast("cpu", torch.bfloat16):
        found = decoded(module, x, [3, 1, 3], cache)
        wanted = attend(module, x)
    assert cache._keys.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("capacity", [None, 9])
def test_a_cache_filled_in_inference_mode_may_be_used_outside_of_it(capacity):
    module, x = shaw(), numbers(2, 9, WIDTH, seed=1)
    cache = KeyValueCache(capacity)
    with torch.inference_mode():
        first = attend(module, x[:, :4], cache=cache)
    second = attend(module, x[:, 4:8], cache=cache)
    with torch.inference_mode():
        third = attend(module, x[:, 8:], cache=cache)
    found = torch.cat([first, second, third], 1)
    cases.assert_equal(found, attend(module, x))


# --- what is refused -----------------------------------------------------------------


def test_capacities_and_lengths():
    for value in NO_INTEGERS:
        kind = type(value).__name__
        if value is not None:
            refused(TypeError, "capacity", kind, KeyValueCache, value)
        refused(TypeError, "length", kind, KeyValueCache().truncate, value)
    for value in (0, -7):
        refused(ValueError, "capacity", f"got {value}", KeyValueCache, value)
    cache = KeyValueCache()
    cache.append(*pair(3))
    refused(ValueError, "length", "got -1", cache.truncate, -1)
    message = refused(ValueError, "length", "got 4", cache.truncate, 4)
    assert "at most 3" in message
    cache.truncate(3)


def assert_untouched(cache, function):
    """Nothing is added to a cache where a call is refused."""
    length, held = cache.length, cache._keys
    before = None if held is None else held.clone()
    function()
    assert cache.length == length
    assert cache._keys is held
    assert held is None or torch.equal(held, before)


@pytest.mark.parametrize("filled", [False, True])
def test_keys_and_values_that_nobody_could_hold(filled):
    key, value = pair(2)
    cache = KeyValueCache(6)
    if filled:
        cache.append(*pair(4))

    def check():
        for name in ("key", "value"):
            good = {"key": key, "value": value}
            for bad in (good[name].numpy(), None, 3):
                call = {**good, name: bad}
                refused(TypeError, name, type(bad).__name__, cache.append, **call)
            for dtype in (torch.int64, torch.bool):
                call = {**good, name: good[name].to(dtype)}
                refused(TypeError, name, dtype, cache.append, **call)
            for shape in [(), (5,), (3, 2, 5), (1, 2, 3, 2, 5), (2, 3, 0, 5)]:
                call = {**good, name: torch.zeros(shape)}
                refused(ValueError, name, shape, cache.append, **call)
        for axis in range(3):
            shape = list(value.shape)
            shape[axis] += 1
            wrong = torch.zeros(shape)
            refused(ValueError, "value", tuple(shape), cache.append, key, wrong)
        refused(TypeError, "value", torch.float64, cache.append, key, value.double())
        refused(ValueError, "value", "meta", cache.append, key, value.to("meta"))

    assert_untouched(cache, check)


def test_tokens_unlike_those_that_are_held():
    cache = KeyValueCache(6)
    cache.append(*pair(4))
    key, value = pair(2)

    def check():
        for axis in (0, 1, 3):
            shape = list(key.shape)
            shape[axis] += 1
            wrong = torch.zeros(shape), torch.zeros(*shape[:3], 7)
            refused(ValueError, "key", tuple(shape), cache.append, *wrong)
        refused(ValueError, "value", (2, 3, 2, 5), cache.append, key, key)
        halves = key.half(), value.half()
        message = refused(TypeError, "key", torch.float16, cache.append, *halves)
        assert "torch.float32" in message
        away = key.to("meta"), value.to("meta")
        refused(ValueError, "key", "meta", cache.append, *away)
        message = refused(ValueError, "cache", "capacity of 6", cache.append, *pair(3))
        assert "4 held" in message

    assert_untouched(cache, check)
    cache.append(key, value)


def test_tensors_that_need_a_gradient():
    key, value = pair(2)
    cache = KeyValueCache()

    def check():
        with torch.enable_grad():
            for name in ("key", "value"):
                call = {"key": key, "value": value}
                call[name] = call[name].clone().requires_grad_()
                message = refused(ValueError, name, "", cache.append, **call)
                assert "torch.no_grad()" in message
            for make in (shaw, block):
                module, x = make(), numbers(2, 3, WIDTH, seed=1)
                with pytest.raises(ValueError, match=r"torch\.no_grad\(\)"):
                    attend(module, x, cache=cache)

    assert_untouched(cache, check)
    with torch.enable_grad():
        cache.append(key.requires_grad_().detach(), value)
    with torch.no_grad():
        keys, _ = cache.append(key, value)
    assert not keys.requires_grad


@pytest.mark.parametrize("make", [shaw, block])
def test_modules_refuse_a_wrong_cache_before_they_project(make):
    module, x = make(), numbers(2, 3, WIDTH, seed=1)
    fitting = KeyValueCache(6)
    attend(module, x, cache=fitting)
    calls = []
    for linear in (module.wq, module.wk, module.wv, module.wo):
        linear.register_forward_hook(lambda *_: calls.append(1))

    def call(cache, x=x, **options):
        return attend(module, x, cache=cache, **options)

    def check():
        for bad in ([], (x, x), 3, True):
            refused(TypeError, "cache", type(bad).__name__, call, bad)
        message = refused(ValueError, "cache", "6", call, fitting, torch.cat([x, x], 1))
        assert "room for 6 more" in message
        refused(ValueError, "cache", (2, 3, 3, 2), call, fitting, torch.cat([x, x]))
        for axis in (1, 3):  # of other heads, of another width
            shape = [2, 3, 2, 2]
            shape[axis] += 1
            other = KeyValueCache()
            other.append(torch.zeros(shape), torch.zeros(shape))
            refused(ValueError, "cache", tuple(shape), call, other)
        away = KeyValueCache()
        away.append(
            torch.zeros(2, 3, 2, 2).to("meta"), torch.zeros(2, 3, 2, 2).to("meta")
        )
        refused(ValueError, "cache", "meta", call, away)
        seen_before = torch.ones(3, 3, dtype=torch.bool)  # the new keys only
        refused(ValueError, "mask", (3, 6), call, fitting, mask=seen_before)

    assert_untouched(fitting, check)
    assert not calls


def test_a_cache_of_another_precision_is_refused_and_left_alone():
    module, x = shaw(), numbers(2, 3, WIDTH, seed=1)
    cache = KeyValueCache()
    attend(module, x, cache=cache)
    module.float()
    assert_untouched(
        cache,
        lambda: refused(TypeError, "key", "", attend, module, x.float(), cache=cache),
    )


# --- what one step costs -------------------------------------------------------------

# Not the loop, which is the definition and takes its time.
STEPPERS = ["auto", *(name for name in BACKENDS if name != "loop")]
LONG, FAR, STEP_WIDTH, STEP_HEADS = 2048, 64, 16, 2


class Made(TorchDispatchMode):
    """Counts the numbers that operations make; views make none."""

    def __init__(self):
        super().__init__()
        self.largest = self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        before = {id_of(leaf) for leaf in tree_leaves((args, kwargs))}
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and id_of(leaf) not in before:
                self.largest = max(self.largest, leaf.numel())
                self.total += leaf.numel()
        return out


def id_of(leaf):
    if not isinstance(leaf, torch.Tensor):
        return None
    return leaf.untyped_storage().data_ptr()


def step_of(make, length, far, backend):
    """A function that decodes one token over a cache, S counted with it."""
    if make == "shaw":
        module = RelativeMultiHeadAttention(
            STEP_WIDTH, STEP_HEADS, far, backend=backend
        )
    else:
        module = RPETransformerBlock(STEP_WIDTH, STEP_HEADS, far + 1, backend=backend)
    cache = KeyValueCache(length)
    past = torch.zeros(1, STEP_HEADS, length - 1, STEP_WIDTH // STEP_HEADS)
    cache.append(past, past)
    token = torch.randn(1, 1, STEP_WIDTH)
    return lambda: attend(module.eval(), token, cache=cache)


def made(*args):
    step = step_of(*args)
    with Made() as mode:
        step()
    return mode


def operations(*args):
    step = step_of(*args)
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


each_stepper = pytest.mark.parametrize("backend", STEPPERS)
each_kind = pytest.mark.parametrize("make", ["shaw", "block"])


@each_stepper
@each_kind
def test_one_step_makes_nothing_larger_than_the_cache_or_a_table(make, backend):
    cache, table = LONG * STEP_WIDTH, (2 * FAR + 1) * STEP_WIDTH
    found = made(make, LONG, FAR, backend)
    assert 0 < found.largest <= cache + table < LONG * LONG / 50
    assert found.total <= 8 * (cache + table)


@each_stepper
@each_kind
def test_twice_the_keys_or_rows_cost_twice_as_much(make, backend):
    """And do not multiply one another: what grows with S is the same for every K."""
    for count in (operations, lambda *args: made(*args).total):
        one, two, four = (count(make, n * LONG, FAR, backend) for n in (1, 2, 4))
        assert four - two <= 2.2 * (two - one)
        near, far, farther = (count(make, LONG, n * FAR, backend) for n in (1, 2, 4))
        assert farther - far <= 2.2 * (far - near)
        both = count(make, 2 * LONG, 2 * FAR, backend)
        assert both - one <= 1.1 * (two - one + far - near)


@pytest.mark.parametrize("backend", ["gather", "checkpoint"])
def test_operations_of_one_step_are_those_on_paper(backend):
    """Two for a product and its sum: projections, then keys and values, then rows."""
    for length in (LONG, 2 * LONG):
        for far in (FAR, 2 * FAR):
            projections = 4 * 2 * STEP_WIDTH**2
            pairs = 2 * 2 * length * STEP_WIDTH
            rows = 2 * 2 * (2 * far + 1) * STEP_WIDTH
            found = operations("shaw", length, far, backend)
            assert found == projections + pairs + rows
            assert operations("block", length, far, backend) == projections + pairs


def test_a_step_that_grows_the_cache_costs_no_more_than_a_copy():
    cache, (key, value) = KeyValueCache(), pair(LONG)
    cache.append(key, value)
    with Made() as mode:
        cache.append(*pair(1))
    assert mode.largest <= 2 * value.numel()


# --- compiled ------------------------------------------------------------------------


@pytest.mark.parametrize("make", [shaw, block])
def test_compiled_decoding_makes_few_graphs(make):
    torch._dynamo.reset()
    module, x = make(), numbers(2, 17, WIDTH, seed=1)
    counter = CompileCounter()
    compiled = torch.compile(attend, backend=counter, fullgraph=True)
    cache = KeyValueCache(20)
    steps = [compiled(module, x[:, t : t + 1], cache=cache) for t in range(17)]
    cases.assert_equal(torch.cat(steps, 1), attend(module, x))
    assert counter.frame_count <= 3
    assert cache.length == 17
    torch._dynamo.reset()
