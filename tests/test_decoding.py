"""The last queries over all keys are the last rows of full attention."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from relpos_lib import (
    ALiBi,
    ContentGatedBiasRPE,
    DirectionalBiasRPE,
    GatedBiasRPE,
    MultiplicativeBiasRPE,
    RelativeMultiHeadAttention,
    RPETransformerBlock,
    SimpleBiasRPE,
    T5BucketBias,
    relative_attention,
)
from tests import cases
from tests.cases import BACKENDS, numbers

LENGTH = 7


def self_attention(length=LENGTH, distances=(2, 3, 5), **options):
    bias, keys, values = distances
    return cases.inputs(
        2, 3, length, length, 5, 11, bias=bias, keys=keys, values=values, **options
    )


def part(case, queries, keys=slice(None)):
    chosen = {**case, "query": case["query"][:, :, queries]}
    return {**chosen, **{n: case[n][:, :, keys] for n in ("key", "value")}}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("distances", [(2, 3, 5), (0, 0, 0), (9, 1, 0)], ids=str)
def test_last_queries_are_the_last_rows_at_every_split(backend, is_causal, distances):
    case = self_attention(distances=distances)
    whole = relative_attention(**case, is_causal=is_causal, backend=backend)
    for q_len in range(1, LENGTH + 1):
        last = relative_attention(
            **part(case, slice(LENGTH - q_len, None)),
            is_causal=is_causal,
            backend=backend,
        )
        cases.assert_equal(last, whole[:, :, LENGTH - q_len :])


@pytest.mark.parametrize("backend", BACKENDS)
def test_token_by_token_with_a_growing_cache(backend):
    case = self_attention()
    whole = relative_attention(**case, is_causal=True, backend=backend)
    steps = [
        relative_attention(**part(case, slice(t, t + 1), slice(t + 1)), backend=backend)
        for t in range(LENGTH)
    ]
    cases.assert_equal(torch.cat(steps, 2), whole)


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), spare=st.integers(0, 3)
)
def test_chunks_over_a_preallocated_cache(backend, sizes, spare):
    length = sum(sizes)
    case = self_attention(length)
    whole = relative_attention(**case, is_causal=True, backend="gather")
    cache = {n: torch.full_like(case[n], 1e30) for n in ("key", "value")}
    cache = {
        n: torch.cat([t, t[:, :, :1].repeat(1, 1, spare, 1)], 2)
        for n, t in cache.items()
    }
    start, chunks = 0, []
    for size in sizes:
        now = slice(start, start + size)
        for name, slots in cache.items():
            slots[:, :, now] = case[name][:, :, now]
        chunk = {**part(case, now), **cache}
        chunks.append(
            relative_attention(
                **chunk, is_causal=True, query_start=start, backend=backend
            )
        )
        start += size
    cases.assert_equal(torch.cat(chunks, 2), whole)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
def test_left_padding_changes_nothing(backend, is_causal):
    case = self_attention()
    whole = relative_attention(**case, is_causal=is_causal, backend=backend)
    for pad in range(1, 4):
        padded = dict(case)
        for name in ("query", "key", "value"):
            junk = numbers(*case[name].shape, seed=pad)[:, :, :pad] * 100
            padded[name] = torch.cat([junk, case[name]], 2)
        mask = torch.ones(1, 1, 1, LENGTH + pad, dtype=torch.bool)
        mask[..., :pad] = False
        out = relative_attention(
            **padded, mask=mask, is_causal=is_causal, backend=backend
        )
        cases.assert_equal(out[:, :, pad:], whole)
        # One row of the batch padded, the other not.
        one = torch.ones(2, 1, 1, LENGTH + pad, dtype=torch.bool)
        one[0, ..., :pad] = False
        out = relative_attention(
            **padded, mask=one, is_causal=is_causal, backend=backend
        )
        cases.assert_equal(out[0, :, pad:], whole[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shift", [1, 3])
def test_shifting_queries_and_keys_together_changes_nothing(backend, is_causal, shift):
    case = self_attention()
    whole = relative_attention(**case, is_causal=is_causal, backend=backend)
    shifted = dict(case)
    for name in ("key", "value"):
        hidden = torch.full_like(case[name][:, :, :shift], 50)
        shifted[name] = torch.cat([hidden, case[name]], 2)
    mask = torch.ones(LENGTH, LENGTH + shift, dtype=torch.bool)
    mask[:, :shift] = False
    out = relative_attention(
        **shifted, mask=mask, is_causal=is_causal, query_start=shift, backend=backend
    )
    cases.assert_equal(out, whole)


@pytest.mark.parametrize("backend", BACKENDS)
def test_right_padding_with_a_query_start_changes_nothing(backend):
    case = self_attention()
    whole = relative_attention(**case, backend=backend)
    longer = dict(case)
    for name in ("key", "value"):
        longer[name] = torch.cat([case[name], case[name][:, :, :2] * 9], 2)
    mask = (torch.arange(LENGTH + 2) < LENGTH)[None, None, None]
    out = relative_attention(**longer, mask=mask, query_start=0, backend=backend)
    cases.assert_equal(out, whole)


# --- the same through the modules ----------------------------------------------------


def shaw(**options):
    return RelativeMultiHeadAttention(6, 2, 3, **options).double()


SHAW = {
    "shared": {},
    "per head": {"per_head": True},
    "keys": {"values": False},
    "values": {"keys": False},
    "uneven": {"max_future_positions": [0, 2], "max_value_positions": 1},
}


@pytest.mark.parametrize("options", SHAW.values(), ids=SHAW)
@pytest.mark.parametrize("is_causal", [False, True])
def test_shaw_agrees_at_every_split(options, is_causal):
    module, x = shaw(**options), numbers(2, LENGTH, 6, seed=1)
    whole = module(x, x, x, is_causal=is_causal)
    for start in range(LENGTH):
        last = module(x[:, start:], x, x, is_causal=is_causal)
        cases.assert_equal(last, whole[:, start:])


@pytest.mark.parametrize("options", SHAW.values(), ids=SHAW)
def test_shaw_decodes_by_token_and_by_chunk(options):
    module, x = shaw(**options), numbers(2, LENGTH, 6, seed=1)
    whole = module(x, x, x, is_causal=True)
    steps = [
        module(x[:, t : t + 1], x[:, : t + 1], x[:, : t + 1]) for t in range(LENGTH)
    ]
    cases.assert_equal(torch.cat(steps, 1), whole)
    chunks = [
        module(x[:, a:b], x, x, is_causal=True, query_start=a)
        for a, b in itertools.pairwise([0, 3, 4, LENGTH])
    ]
    cases.assert_equal(torch.cat(chunks, 1), whole)


def test_shaw_ignores_left_padding_and_shifts():
    module, x = shaw(), numbers(2, LENGTH, 6, seed=1)
    whole = module(x, x, x)
    longer = torch.cat([x[:, :2] * 100, x], 1)
    mask = (torch.arange(LENGTH + 2) >= 2)[None, None, None]
    padded = module(longer, longer, longer, mask=mask)
    cases.assert_equal(padded[:, 2:], whole)
    shifted = module(x, longer, longer, mask=mask, query_start=2)
    cases.assert_equal(shifted, whole)


@pytest.mark.parametrize("is_causal", [False, True])
def test_block_ignores_left_padding(is_causal):
    block = RPETransformerBlock(6, 2, 4).double().eval()
    torch.nn.init.normal_(block.rpe.bias)
    x = numbers(2, LENGTH, 6, seed=1)
    whole = block(x, is_causal=is_causal)
    longer = torch.cat([x[:, :2] * 100, x], 1)
    mask = (torch.arange(LENGTH + 2) >= 2)[None, None, None]
    out = block(longer, mask=mask, is_causal=is_causal)
    cases.assert_equal(out[:, 2:], whole)


def test_a_causal_block_says_the_same_of_every_prefix():
    block, x = RPETransformerBlock(6, 2, 4).double().eval(), numbers(2, 7, 6, seed=1)
    torch.nn.init.normal_(block.rpe.bias)
    whole = block(x, is_causal=True)
    for length in range(1, LENGTH + 1):
        out = block(x[:, :length], is_causal=True)
        cases.assert_equal(out, whole[:, :length])


def scored(module):
    """A function of scores (2, 3, Q, S) and the query_start, with seeded weights."""
    module = module.double()
    for n, parameter in enumerate(module.parameters()):
        parameter.data = numbers(*parameter.shape, seed=n)
    if isinstance(module, ContentGatedBiasRPE):
        query = numbers(2, 3, 20, 5, seed=3)

        def function(scores, query_start=None, rows=slice(None)):
            chosen = query[:, :, :LENGTH][:, :, rows]
            return module(scores, chosen, query_start)

        return function
    return lambda scores, query_start=None, rows=None: module(scores, query_start)


SCORERS = [
    SimpleBiasRPE(3, 4),
    GatedBiasRPE(3, 4),
    GatedBiasRPE(3, 4, scale=False),
    DirectionalBiasRPE(3, 4),
    T5BucketBias(3, 8, 5),
    T5BucketBias(3, 7, 5, bidirectional=False),
    ALiBi(3),
    MultiplicativeBiasRPE(3, 4),
    ContentGatedBiasRPE(3, 5, 4),
]


@pytest.mark.parametrize("module", SCORERS, ids=lambda m: type(m).__name__)
def test_biases_agree_at_every_split_and_shift(module):
    function, scores = scored(module), numbers(2, 3, LENGTH, LENGTH, seed=5)
    whole = function(scores)
    assert not torch.equal(whole, scores)
    for start in range(LENGTH):
        rows = slice(start, None)
        cases.assert_equal(function(scores[:, :, rows], rows=rows), whole[:, :, rows])
    for start in range(LENGTH - 2):
        rows = slice(start, start + 3)
        chunk = function(scores[:, :, rows], query_start=start, rows=rows)
        cases.assert_equal(chunk, whole[:, :, rows])
    shifted = torch.cat([scores[..., :2] * 9, scores], -1)
    cases.assert_equal(function(shifted, query_start=2)[..., 2:], whole)


# --- what one step costs -------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.untyped_storage().nbytes() // 4)
        return out


def largest(function):
    with torch.no_grad(), LargestTensor() as mode:
        function()
    return mode.numel


LONG, HEADS, WIDTH, FAR = 2048, 2, 8, 64


@pytest.mark.parametrize("is_causal", [False, True])
def test_one_step_makes_nothing_larger_than_the_cache(is_causal):
    case = cases.inputs(
        1,
        HEADS,
        1,
        LONG,
        WIDTH,
        WIDTH,
        bias=FAR,
        keys=FAR,
        values=FAR,
        dtype=torch.float32,
    )
    cache = HEADS * LONG * WIDTH
    found = largest(lambda: relative_attention(**case, is_causal=is_causal))
    assert 0 < found <= cache


def test_one_step_of_shaw_makes_nothing_larger_than_the_cache():
    module = RelativeMultiHeadAttention(HEADS * WIDTH, HEADS, FAR)
    x = torch.randn(1, LONG, HEADS * WIDTH)
    found = largest(lambda: module(x[:, -1:], x, x))
    assert 0 < found <= x.numel()


@pytest.mark.parametrize("module", [SimpleBiasRPE(HEADS), ALiBi(HEADS)], ids=str)
def test_one_step_of_a_bias_makes_nothing_larger_than_its_table(module):
    scores = torch.randn(1, HEADS, 1, LONG)
    found = largest(lambda: module(scores))
    assert 0 < found <= HEADS * (2 * LONG - 1)


def test_full_attention_makes_no_tensor_of_pairs_and_width():
    case = cases.inputs(
        1, 2, 64, 64, 32, 32, bias=5, keys=5, values=5, dtype=torch.float32
    )
    assert largest(lambda: relative_attention(**case)) <= 2 * 64 * 64 * 2


def test_rows_that_no_pair_reads_cost_nothing():
    """A table for 1000 positions on either side, read by five tokens."""
    case = cases.inputs(q_len=5, k_len=5, bias=None, keys=1000, values=1000)
    case = {name: tensor.float() for name, tensor in case.items()}
    numel = largest(lambda: relative_attention(**case))
    assert numel <= max(tensor.numel() for tensor in case.values())
