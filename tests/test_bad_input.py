"""Every wrong argument is refused by its name, with what it got and what it needs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import relpos_lib
from relpos_lib import (
    AdditiveBias,
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
    alibi_slopes,
    clip_table,
    relative_attention,
    relative_offsets,
    sinusoidal_encoding,
    t5_bucket,
    table_rows,
)
from tests import cases

NO_INTEGERS = [1.5, "3", None, True, np.float32(2), torch.tensor(2), [2]]


def refused(error, name, got, function, *args, **options):
    """Check that a call is refused and its message names the argument and the value."""
    with pytest.raises(error) as caught:
        function(*args, **options)
    message = str(caught.value)
    assert re.match(rf"{name} (must|needs)|{name} or ", message), message
    assert str(got) in message, message
    return message


def integer_cases():
    """Every integer argument: name, the smallest it may be, a call that takes it."""
    x = torch.zeros(1, 3, 4)
    scores = torch.zeros(2, 3, 3)
    shaw = RelativeMultiHeadAttention(4, 2, 3)
    embedding = RelativePositionEmbedding(3, 4)
    attention = cases.inputs(dtype=torch.float32)
    yield from [
        ("q_len", 1, relative_offsets),
        ("k_len", 1, lambda n: relative_offsets(2, n)),
        ("query_start", None, lambda n: relative_offsets(2, query_start=n)),
        ("q_len", 1, lambda n: table_rows(n, 3, 1)),
        ("k_len", 1, lambda n: table_rows(3, n, 1)),
        ("max_distance", 0, lambda n: table_rows(3, 3, n)),
        ("query_start", None, lambda n: table_rows(3, 3, 1, query_start=n)),
        ("max_distance", 0, lambda n: clip_table(torch.zeros(3, 1), n)),
        ("length", 1, lambda n: sinusoidal_encoding(n, 4)),
        ("d_model", 1, lambda n: sinusoidal_encoding(3, n)),
        ("start", None, lambda n: sinusoidal_encoding(3, 4, start=n)),
        ("d_model", 1, SinusoidalEncoding),
        ("start", None, lambda n: SinusoidalEncoding(4)(x, n)),
        ("d_model", 1, LearnedAbsoluteEncoding),
        ("max_len", 1, lambda n: LearnedAbsoluteEncoding(4, n)),
        ("start", 0, lambda n: LearnedAbsoluteEncoding(4)(x, n)),
        ("num_heads", 1, lambda n: AdditiveBias(n, 3)),
        ("max_distance", 0, lambda n: AdditiveBias(2, n)),
        ("num_buckets", 4, lambda n: T5BucketBias(2, n)),
        ("max_distance", 9, lambda n: T5BucketBias(2, 32, n)),
        ("num_buckets", 4, lambda n: t5_bucket(torch.arange(3), n)),
        ("num_buckets", 2, lambda n: t5_bucket(torch.arange(3), n, 128, False)),
        ("max_distance", 9, lambda n: t5_bucket(torch.arange(3), 32, n)),
        ("max_distance", 17, lambda n: t5_bucket(torch.arange(3), 32, n, False)),
        ("num_heads", 1, alibi_slopes),
        ("num_heads", 1, lambda n: ContentGatedBiasRPE(n, 4)),
        ("head_dim", 1, lambda n: ContentGatedBiasRPE(2, n)),
        ("max_len", 1, lambda n: ContentGatedBiasRPE(2, 4, n)),
        ("max_relative_positions", 0, lambda n: RelativePositionEmbedding(n, 4)),
        ("embedding_dim", 1, lambda n: RelativePositionEmbedding(3, n)),
        ("num_heads", 1, lambda n: RelativePositionEmbedding(3, 4, num_heads=n)),
        (
            "max_future_positions",
            0,
            lambda n: RelativePositionEmbedding(3, 4, max_future_positions=n),
        ),
        ("max_distance", 0, embedding.table),
        ("length", 1, embedding),
        ("k_len", 1, lambda n: embedding(3, n)),
        ("d_model", 1, lambda n: RelativeMultiHeadAttention(n, 1)),
        ("num_heads", 1, lambda n: RelativeMultiHeadAttention(4, n)),
        ("max_relative_positions", 0, lambda n: RelativeMultiHeadAttention(4, 2, n)),
        (
            "max_future_positions",
            0,
            lambda n: RelativeMultiHeadAttention(4, 2, max_future_positions=n),
        ),
        ("max_distance", 0, shaw.tables),
        ("query_start", None, lambda n: shaw(x, x, x, query_start=n)),
        ("d_model", 1, lambda n: RPETransformerBlock(n, 1)),
        ("num_heads", 1, lambda n: RPETransformerBlock(4, n)),
        ("max_len", 1, lambda n: RPETransformerBlock(4, 2, n)),
        ("query_start", None, lambda n: relative_attention(**attention, query_start=n)),
        ("query_start", None, lambda n: ALiBi(2)(scores, query_start=n)),
        ("max_distance", 0, ALiBi(2).tables),
        ("num_heads", 1, ALiBi),
    ]
    for scheme in (SimpleBiasRPE, GatedBiasRPE, DirectionalBiasRPE):
        yield "num_heads", 1, scheme
        yield "max_len", 1, lambda n, scheme=scheme: scheme(2, n)
        yield "max_distance", 0, scheme(2).tables
        yield (
            "query_start",
            None,
            lambda n, scheme=scheme: scheme(2)(scores, query_start=n),
        )
    yield "num_heads", 1, MultiplicativeBiasRPE
    yield "max_len", 1, lambda n: MultiplicativeBiasRPE(2, n)


# Arguments where these values mean something else.
MAY_BE_NONE = {"k_len", "query_start", "max_distance", "max_future_positions"}
MAY_BE_NONE |= {"num_heads"}
MAY_BE_SEVERAL = {"max_relative_positions", "max_future_positions"}


@pytest.mark.parametrize(("name", "minimum", "call"), list(integer_cases()))
def test_integers(name, minimum, call):
    for value in NO_INTEGERS:
        if value is None and name in MAY_BE_NONE:
            continue
        if isinstance(value, (list, str)) and name in MAY_BE_SEVERAL:
            continue
        refused(TypeError, name, type(value).__name__, call, value)
    if minimum is not None:
        refused(ValueError, name, f"got {minimum - 1}", call, minimum - 1)
        message = refused(ValueError, name, f"got {-7}", call, -7)
        assert f"at least {minimum}" in message


def test_numbers():
    attention = cases.inputs(dtype=torch.float32)
    for name in ("dropout_p", "scale"):
        for value in ("a", None, True, torch.tensor(0.5), [0.1]):
            if value is None and name == "scale":
                continue
            refused(
                TypeError,
                name,
                type(value).__name__,
                lambda v, name=name: relative_attention(**attention, **{name: v}),
                value,
            )
    nan, inf = float("nan"), float("inf")
    for p in (-0.1, 1.1, nan, inf):
        refused(
            ValueError, "dropout_p", p, relative_attention, **attention, dropout_p=p
        )
        refused(ValueError, "dropout", p, RPETransformerBlock, 4, 2, dropout=p)
    for scale in (nan, inf, -inf):
        refused(
            ValueError, "scale", scale, relative_attention, **attention, scale=scale
        )
    for base in (1, 0.5, 0, -3, nan, inf):
        refused(ValueError, "base", base, sinusoidal_encoding, 3, 4, base=base)
        refused(ValueError, "base", base, SinusoidalEncoding, 4, base=base)
    for value in ("a", None, True):
        kind = type(value).__name__
        refused(TypeError, "base", kind, sinusoidal_encoding, 3, 4, base=value)
        refused(TypeError, "base", kind, SinusoidalEncoding, 4, base=value)
        refused(TypeError, "dropout", kind, RPETransformerBlock, 4, 2, dropout=value)


def test_flags_and_names():
    attention = cases.inputs(dtype=torch.float32)
    for value in (1, None, "yes", torch.tensor(True)):
        kind = type(value).__name__
        refused(
            TypeError,
            "is_causal",
            kind,
            relative_attention,
            **attention,
            is_causal=value,
        )
    for value in ("flash", "Gather", "", None, 3, ["loop"]):
        message = refused(
            ValueError,
            "backend",
            repr(value),
            relative_attention,
            **attention,
            backend=value,
        )
        assert "auto, loop, gather" in message


def test_dtypes():
    for dtype in ("float32", torch.int64, torch.complex64, float):
        refused(TypeError, "dtype", dtype, sinusoidal_encoding, 3, 4, dtype=dtype)


@pytest.mark.parametrize("name", cases.TENSORS)
def test_tensors_of_the_function(name):
    case = cases.inputs(2, 3, 5, 7, 11, 13, dtype=torch.float32)
    good = case[name]

    def call(value):
        return relative_attention(**{**case, name: value})

    for value in (good.numpy(), good.tolist(), 3):
        refused(TypeError, name, type(value).__name__, call, value)
    for dtype in (torch.int64, torch.bool, torch.complex64):
        refused(TypeError, name, dtype, call, good.to(dtype))
    shapes = [(), (5,), good.shape[1:], (1, *good.shape), (*good.shape[:-1], 4)]
    if name == "query":
        shapes = shapes[:4]  # another width is the key's fault
    if name == "value":
        shapes = shapes[:4]  # a value may have any width
    if name in ("key_table", "value_table"):
        shapes += [(4, *good.shape), (good.shape[0] - 1, good.shape[1])]
        shapes.remove((1, *good.shape))
    for shape in shapes:
        message = refused(ValueError, name, "got", call, torch.zeros(shape))
        assert str(tuple(shape)) in message or "odd" in message
    if name in ("query", "key", "value"):
        for axis in range(4):
            empty = torch.zeros([0 if n == axis else 2 for n in range(4)])
            refused(ValueError, name, tuple(empty.shape), call, empty)
    if name != "query":
        refused(ValueError, name, "meta", call, good.to("meta"))


@pytest.mark.parametrize("name", ["key", "value"])
def test_tensors_that_do_not_fit_one_another(name):
    case = cases.inputs(2, 3, 5, 7, 11, 13, dtype=torch.float32)
    wrong = {"key": (0, 1, 3), "value": (0, 1, 2)}[name]
    for axis in wrong:
        shape = list(case[name].shape)
        shape[axis] += 1
        refused(
            ValueError,
            name,
            tuple(shape),
            relative_attention,
            **{**case, name: torch.zeros(shape)},
        )
    for dtype in (torch.float64, torch.bfloat16):
        message = refused(
            TypeError,
            name,
            dtype,
            relative_attention,
            **{**case, name: case[name].to(dtype)},
        )
        assert "torch.float32" in message


@pytest.mark.parametrize("name", ["bias_table", "key_table", "value_table"])
@pytest.mark.parametrize("rows", [0, 2, 8])
def test_tables_with_an_even_number_of_rows(name, rows):
    case = cases.inputs(2, 3, 5, 7, 11, 13)
    shape = {
        "bias_table": (3, rows),
        "key_table": (rows, 11),
        "value_table": (rows, 13),
    }[name]
    call = {**case, name: torch.zeros(shape)}
    message = refused(ValueError, name, rows, relative_attention, **call)
    assert "odd" in message
    if name != "bias_table":
        call = {**case, name: torch.zeros(3, *shape)}
        refused(ValueError, name, rows, relative_attention, **call)


def test_tables_to_clip():
    refused(TypeError, "table", "list", clip_table, [[1.0]], 2)
    refused(TypeError, "table", "ndarray", clip_table, np.zeros((3, 1)), 2)
    refused(ValueError, "table", (3,), clip_table, torch.zeros(3), 2)
    refused(ValueError, "table", "got 4", clip_table, torch.zeros(4, 1), 2)
    refused(ValueError, "table", "got 0", clip_table, torch.zeros(0, 1), 2)


def test_offsets_to_put_into_buckets():
    for value in ([1, 2], 3, np.arange(3)):
        found = getattr(value, "dtype", type(value).__name__)
        refused(TypeError, "offsets", found, t5_bucket, value)
    for dtype in (torch.int32, torch.float32, torch.bool):
        refused(TypeError, "offsets", dtype, t5_bucket, torch.zeros(3, dtype=dtype))
    refused(ValueError, "num_buckets", 7, t5_bucket, torch.arange(3), 7)
    refused(ValueError, "num_buckets", 7, T5BucketBias, 2, 7)


SCORERS = {
    "simple": SimpleBiasRPE(2, 4),
    "gated": GatedBiasRPE(2, 4),
    "directional": DirectionalBiasRPE(2, 4),
    "t5": T5BucketBias(2, 8, 5),
    "alibi": ALiBi(2),
    "multiplicative": MultiplicativeBiasRPE(2, 4),
    "content": lambda s: ContentGatedBiasRPE(2, 4, 3)(s, torch.zeros(2, 3, 4)),
}


@pytest.mark.parametrize("module", SCORERS.values(), ids=SCORERS)
def test_scores(module):
    for value in ([[1.0]], np.zeros((2, 3, 3), np.float32), 3):
        refused(TypeError, "scores", type(value).__name__, module, value)
    for dtype in (torch.int64, torch.bool, torch.complex64):
        refused(TypeError, "scores", dtype, module, torch.zeros(2, 3, 3, dtype=dtype))
    for shape in [(), (3,), (3, 3), (3, 3, 3), (2, 3, 3, 3), (2, 0, 3), (2, 3, 0)]:
        refused(ValueError, "scores", tuple(shape), module, torch.zeros(shape))


def test_queries_of_the_content_gate():
    module, scores = ContentGatedBiasRPE(2, 4, 3), torch.zeros(1, 2, 3, 3)
    for shape in [(1, 2, 3, 5), (2, 3, 4), (1, 2, 4, 4), (1, 1, 3, 4)]:
        refused(ValueError, "query", shape, module, scores, torch.zeros(shape))
    refused(TypeError, "query", "list", module, scores, [1.0])
    refused(
        TypeError, "query", torch.int64, module, scores, torch.zeros(1, 2, 3, 4).long()
    )


@pytest.mark.parametrize("module", [SinusoidalEncoding(4), LearnedAbsoluteEncoding(4)])
def test_sequences_to_encode(module):
    for shape in [(), (4,), (3, 5), (2, 4, 3), (2, 0, 4), (0, 4)]:
        refused(ValueError, "x", tuple(shape), module, torch.zeros(shape))
    refused(TypeError, "x", "list", module, [[0.0] * 4])
    refused(TypeError, "x", torch.int64, module, torch.zeros(3, 4).long())


def module_calls():
    shaw, x = RelativeMultiHeadAttention(4, 2, 3), torch.zeros(2, 3, 4)
    yield "x", RPETransformerBlock(4, 2)
    yield "q", lambda value: shaw(value, x, x)
    yield "k", lambda value: shaw(x, value, value)
    yield "v", lambda value: shaw(x, x, value)


@pytest.mark.parametrize(("name", "call"), list(module_calls()))
def test_inputs_of_modules(name, call):
    for shape in [(), (4,), (3, 4), (2, 3, 5), (1, 2, 3, 4), (2, 0, 4), (0, 3, 4)]:
        refused(ValueError, name, tuple(shape), call, torch.zeros(shape))
    refused(TypeError, name, "list", call, [[0.0]])
    for dtype in (torch.int64, torch.float64, torch.bfloat16):
        refused(TypeError, name, dtype, call, torch.zeros(2, 3, 4, dtype=dtype))
    refused(ValueError, name, "meta", call, torch.zeros(2, 3, 4, device="meta"))


def test_inputs_of_shaw_that_do_not_fit_one_another():
    module, x = RelativeMultiHeadAttention(4, 2, 3), torch.zeros(2, 3, 4)
    other = torch.zeros(5, 3, 4)
    refused(ValueError, "k", 5, module, x, other, other)
    refused(ValueError, "v", (2, 7, 4), module, x, x, torch.zeros(2, 7, 4))
    refused(ValueError, "v", (5, 3, 4), module, x, x, other)


def test_widths_that_the_heads_do_not_divide():
    for make in (RelativeMultiHeadAttention, RPETransformerBlock):
        message = refused(ValueError, "d_model", "num_heads=3", make, 8, 3)
        assert "d_model=8" in message


def test_distances_per_head():
    def shaw(**options):
        return RelativeMultiHeadAttention(4, 2, **options)

    for several in ([1], [1, 2, 3], ()):
        got = len(several) or "none"
        for name in ("max_relative_positions", "max_future_positions"):
            refused(ValueError, name, f"got {got}", shaw, **{name: several})
    for name in ("max_relative_positions", "max_future_positions"):
        refused(ValueError, name, -1, shaw, **{name: [1, -1]})
        refused(TypeError, name, "float", shaw, **{name: [1, 2.0]})
    refused(
        ValueError,
        "max_relative_positions",
        "got 2",
        RelativePositionEmbedding,
        [1, 2],
        4,
        num_heads=3,
    )
    refused(
        ValueError,
        "max_relative_positions",
        "got none",
        RelativePositionEmbedding,
        [],
        4,
    )
    refused(
        ValueError,
        "max_future_positions",
        "got 3",
        RelativePositionEmbedding,
        [1, 2],
        4,
        max_future_positions=[1, 2, 3],
    )
    for name in ("max_relative_positions", "max_future_positions"):
        with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
            shaw(**{name: "3"})
    for value, error in ((-1, ValueError), (1.5, TypeError), ([1, 2, 3], ValueError)):
        refused(error, "max_value_positions", "got", shaw, max_value_positions=value)


def test_shaw_without_keys_and_values():
    message = refused(
        ValueError,
        "keys",
        "",
        RelativeMultiHeadAttention,
        4,
        2,
        keys=False,
        values=False,
    )
    assert "relative_attention without tables" in message


def test_bad_input_is_found_before_any_work(monkeypatch):
    def no_work(*_):
        raise AssertionError("work was done")

    monkeypatch.setattr(relpos_lib.attention.gather, "attention", no_work)
    case = cases.inputs(dtype=torch.float32)
    for wrong in (
        {"mask": torch.zeros(5, 11)},
        {"mask": torch.full((5, 11), 2)},
        {"dropout_p": 2.0},
        {"scale": float("nan")},
        {"query_start": 0.5},
        {"is_causal": 1},
        {"backend": "none"},
        {"value_table": torch.zeros(2, 17)},
    ):
        with pytest.raises((TypeError, ValueError)):
            relative_attention(**{**case, **wrong})
