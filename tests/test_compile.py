"""torch.compile: few graphs over many lengths, and the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from relpos_lib import (
    ALiBi,
    ContentGatedBiasRPE,
    DirectionalBiasRPE,
    GatedBiasRPE,
    LearnedAbsoluteEncoding,
    MultiplicativeBiasRPE,
    RelativeMultiHeadAttention,
    RelativePositionEmbedding,
    RPETransformerBlock,
    SimpleBiasRPE,
    SinusoidalEncoding,
    T5BucketBias,
    relative_attention,
    sinusoidal_encoding,
)
from tests import cases
from tests.cases import numbers

LENGTHS = range(8, 23)
MOST_GRAPHS = 3


@pytest.fixture(autouse=True)
def _forget_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def same_at_all_lengths(function, make_arguments, lengths=LENGTHS):
    """Compile once, call at every length; few graphs, no break, the same numbers."""
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    for length in lengths:
        arguments, options = make_arguments(length)
        torch.testing.assert_close(
            compiled(*arguments, **options), function(*arguments, **options)
        )
    assert 1 <= counter.frame_count <= MOST_GRAPHS


def sequence(length, width=6):
    return torch.randn(2, length, width)


def lower_triangle(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


OPTIONS = {
    "plain": lambda n: {},
    "causal": lambda n: {"is_causal": True},
    "mask": lambda n: {"mask": lower_triangle(n)},
    "padding": lambda n: {"mask": torch.arange(n)[None, None, None] > 2},
    "integers": lambda n: {"mask": lower_triangle(n).int()},
    "both": lambda n: {"mask": lower_triangle(n), "is_causal": True},
}


@pytest.mark.parametrize("name", ["plain", "both"])
def test_the_block(name):
    block = RPETransformerBlock(6, 2, 5).eval()
    same_at_all_lengths(block, lambda n: ((sequence(n),), OPTIONS[name](n)))


@pytest.mark.parametrize("name", ["causal", "padding"])
def test_shaw(name):
    module = RelativeMultiHeadAttention(6, 2, 5)
    same_at_all_lengths(module, lambda n: ((sequence(n),) * 3, OPTIONS[name](n)))


def test_shaw_with_a_k_per_head():
    module = RelativeMultiHeadAttention(6, 2, [2, 5], max_future_positions=[0, 3])
    same_at_all_lengths(module, lambda n: ((sequence(n),) * 3, {"is_causal": True}))


def test_shaw_with_debug():
    module = RelativeMultiHeadAttention(6, 2, 5)
    same_at_all_lengths(module, lambda n: ((sequence(n),) * 3, {"debug": True}))


@pytest.mark.parametrize("name", OPTIONS)
def test_the_function(name):
    def make(n):
        case = cases.inputs(2, 3, n, n, 5, 7, dtype=torch.float32)
        return (), {**case, **OPTIONS[name](n)}

    same_at_all_lengths(relative_attention, make)


def test_the_function_in_half_precision():
    def make(n):
        case = cases.inputs(2, 3, n, n, 5, 7, dtype=torch.bfloat16)
        return (), {**case, "mask": lower_triangle(n)}

    same_at_all_lengths(relative_attention, make)


def test_decoding_with_a_growing_cache():
    def make(n):
        return (), cases.inputs(2, 3, 1, n, 5, 7, dtype=torch.float32)

    same_at_all_lengths(relative_attention, make)


def test_shaw_decoding_with_a_growing_cache():
    module = RelativeMultiHeadAttention(6, 2, 5)

    def make(n):
        x = sequence(n)
        return (x[:, -1:], x, x), {"is_causal": True}

    same_at_all_lengths(module, make)


def test_decoding_over_a_preallocated_cache():
    case = cases.inputs(2, 3, 1, 32, 5, 7, dtype=torch.float32)

    def make(n):
        return (), {**case, "query_start": n, "is_causal": True}

    same_at_all_lengths(relative_attention, make)


BIASES = {
    "simple": lambda: SimpleBiasRPE(3, 5),
    "gated": lambda: GatedBiasRPE(3, 5),
    "directional": lambda: DirectionalBiasRPE(3, 5),
    "t5": lambda: T5BucketBias(3, 8, 12),
    "alibi": lambda: ALiBi(3),
    "multiplicative": lambda: MultiplicativeBiasRPE(3, 5),
}


@pytest.mark.parametrize("make", BIASES.values(), ids=BIASES)
def test_biases(make):
    same_at_all_lengths(make(), lambda n: ((torch.randn(2, 3, n, n),), {}))


def test_the_content_gate():
    module = ContentGatedBiasRPE(3, 5, 4)
    torch.nn.init.normal_(module.update)
    same_at_all_lengths(
        module, lambda n: ((torch.randn(2, 3, n, n), torch.randn(2, 3, n, 5)), {})
    )


@pytest.mark.parametrize("name", ["simple", "t5", "alibi"])
def test_tables_of_biases_through_the_function(name):
    module = BIASES[name]()

    def function(query, key, value):
        return relative_attention(query, key, value, **module.tables(40))

    same_at_all_lengths(function, lambda n: (torch.randn(3, 2, 3, n, 5).unbind(), {}))


def test_absolute_codes():
    same_at_all_lengths(SinusoidalEncoding(6), lambda n: ((sequence(n),), {}))
    same_at_all_lengths(SinusoidalEncoding(6), lambda n: ((sequence(1),), {"start": n}))
    same_at_all_lengths(
        LearnedAbsoluteEncoding(6, 40), lambda n: ((sequence(n),), {"start": n - 8})
    )
    same_at_all_lengths(sinusoidal_encoding, lambda n: ((n, 6), {}))


def test_vectors_of_pairs():
    same_at_all_lengths(RelativePositionEmbedding(4, 3), lambda n: ((n,), {}))


# --- through the compiler's own autograd and decompositions --------------------------


@pytest.mark.parametrize("name", ["padding", "both"])
def test_numbers_and_gradients_of_the_function(name):
    compiled = torch.compile(
        relative_attention, backend="aot_eager", fullgraph=True, dynamic=True
    )
    for length in (5, 7, 11):
        case = {**cases.inputs(2, 3, length, length, 5, 7), **OPTIONS[name](length)}
        cases.assert_same(
            cases.outcome(compiled, case),
            cases.outcome(relative_attention, case),
            1e-10,
        )


@pytest.mark.parametrize("module", ["shaw", "block"])
def test_numbers_and_gradients_of_modules(module):
    if module == "shaw":
        model = RelativeMultiHeadAttention(6, 2, 3).double()
        call = lambda m, x: m(x, x, x, is_causal=True)  # noqa: E731
    else:
        model = RPETransformerBlock(6, 2, 3, dropout=0.0).double()
        torch.nn.init.normal_(model.rpe.bias)
        call = lambda m, x: m(x, is_causal=True)  # noqa: E731
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    parameters = list(model.parameters())
    for length in (5, 7, 11):
        x = numbers(2, length, 6, seed=1)
        found, wanted = call(compiled, x), call(model, x)
        cases.assert_equal(found.detach(), wanted.detach())
        direction = numbers(*wanted.shape, seed=2)
        for one, other in zip(
            torch.autograd.grad(found, parameters, direction),
            torch.autograd.grad(wanted, parameters, direction),
            strict=True,
        ):
            assert (one - other).abs().max() < 1e-10


def test_under_autocast():
    model = RelativeMultiHeadAttention(6, 2, 3)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    x = sequence(7)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = compiled(x, x, x), model(x, x, x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted)


def test_bad_input_is_refused_inside_a_compiled_function_too():
    compiled = torch.compile(relative_attention, backend="eager")
    case = cases.inputs(dtype=torch.float32)
    case["mask"] = torch.zeros(5, 11)
    with pytest.raises(TypeError, match="mask must be bool"):
        compiled(**case)
