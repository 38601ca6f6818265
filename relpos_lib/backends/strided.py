"""Additive bias of any table, read through a strided view: no matrix, no clipping.

With the queries in reverse order, the bias of query i' and key j is number i' + j of a
vector of Q + S - 1 numbers. That is a view of the vector with steps (1, 1): a mask of
size Q x S that takes the memory of one line, and a fused kernel reads it as any other.

A kernel gives no gradient to its mask. If the table is trained, the backward pass is
done densely, some queries at a time, and sums the gradients of the scores along the
diagonals.

A mask of keys is added to some queries at a time. What the view cannot do is left to
the near_far backend: tables of vectors, other masks and dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor

from relpos_lib.backends.inputs import Inputs
from relpos_lib.backends.near_far.attention import attention as by_parts
from relpos_lib.backends.near_far.attention import hidden_keys, padded
from relpos_lib.backends.near_far.attention import serves as serves_rest
from relpos_lib.backends.near_far.kernels import (
    Attended,
    exp_of_any,
    kernel_for,
    least_score,
)
from relpos_lib.backends.scratch import Scratch
from relpos_lib.offsets import own_distance

NUMBERS = 1 << 18  # how many scores are differentiated at a time
ROWS = 128  # how many queries are masked, and at least differentiated, at a time
CAUSAL_ROWS = 512  # how many queries share a rectangle of keys if causal

Block = tuple[slice, slice, slice]  # of the batch, the heads and the queries


def attention(inputs: Inputs) -> Tensor:
    """Attention with a bias through a strided view, (B, H, Q, Dv)."""
    if not serves(inputs):
        return by_parts(inputs)
    wide = inputs.widened()
    width = max(wide.query.shape[3], wide.value.shape[3])
    query, key, value = (padded(x, width) for x in (wide.query, wide.key, wide.value))
    out: Tensor = strided(
        query.flip(-2),
        key,
        value,
        _line(wide),
        hidden_keys(wide),
        wide.query_start,
        wide.is_causal,
        wide.scale,
    )[0]
    out = out[..., : wide.value.shape[3]].flip(-2)
    return out.to(inputs.query.dtype)


def serves(inputs: Inputs) -> bool:
    """Whether the view can do it: a bias and at most a mask of keys."""
    return (
        inputs.bias_table is not None
        and inputs.key_table is None
        and inputs.value_table is None
        and serves_rest(inputs)
    )


def _line(inputs: Inputs) -> Tensor:
    """The bias of every offset there is, leftmost first, (H, Q + S - 1).

    With ``is_causal``, offsets to the right are -inf.
    """
    table = inputs.bias_table
    assert table is not None
    queries, keys = inputs.query.shape[2], inputs.key.shape[2]
    leftmost = -(inputs.query_start + queries - 1)
    offsets = torch.arange(queries + keys - 1, device=table.device) + leftmost
    distance = own_distance("bias_table", table.shape[1])
    line = table.index_select(1, offsets.clamp(-distance, distance) + distance)
    return line.masked_fill(offsets > 0, -torch.inf) if inputs.is_causal else line


@torch.library.custom_op("relpos_lib::strided", mutates_args=())
def strided(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    line: Tensor,
    hidden: Tensor | None,
    query_start: int,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Attention with a line of biases, and the log-sum-exp of its scores.

    Args:
        query: (B, H, Q, D), in reverse order.
        key: (B, H, S, D).
        value: (B, H, S, D).
        line: (H, Q + S - 1); query i' and key j read number i' + j.
        hidden: 0 for a visible and -inf for a hidden key, (B, H, 1, S); or None.
        query_start: position of the first query, which stands last.
        is_causal: whether the line hides keys to the right, so that most can be left
            out of the work.
        scale: factor of the content scores.

    Returns:
        The output, (B, H, Q, D), and log-sum-exp, (B, H, Q), in reverse order too.
    """
    kernel = kernel_for(query.device.type)
    whole = Attended(query.new_zeros(query.shape), query.new_zeros(query.shape[:3]))
    for at, keys in _blocks(query, key, hidden, query_start, is_causal):
        found = kernel.forward(
            query[at],
            key[at[0], :, :keys],
            value[at[0], :, :keys],
            _biases(line, hidden, at, keys),
            scale,
        )
        whole.out[at] = found.out
        # Where nothing is visible, +inf makes all weights of the backward pass 0.
        nothing = found.logsumexp == -torch.inf
        whole.logsumexp[at] = found.logsumexp.masked_fill(nothing, torch.inf)
    return whole.out, whole.logsumexp


@strided.register_fake
def _(query: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), query.new_empty(query.shape[:3])


@torch.library.custom_op("relpos_lib::strided_backward", mutates_args=())
def strided_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    line: Tensor,
    hidden: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    query_start: int,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, by the kernel where it is fast."""
    grad = grad.contiguous()
    if _reaches_tiny_weights(line):
        of_all = (grad, query, key, value, line, hidden, out, logsumexp)
        return _dense_backward(*of_all, query_start, is_causal, scale)[:3]
    kernel = kernel_for(query.device.type)
    d_query, d_key, d_value = (x.new_zeros(x.shape) for x in (query, key, value))
    for at, keys in _blocks(query, key, hidden, query_start, is_causal):
        parts = kernel.backward(
            grad[at],
            query[at],
            key[at[0], :, :keys],
            value[at[0], :, :keys],
            Attended(out[at], logsumexp[at]),
            _biases(line, hidden, at, keys),
            scale,
        )
        d_query[at] = parts.query
        d_key[at[0], :, :keys] += parts.key
        d_value[at[0], :, :keys] += parts.value
    return d_query, d_key, d_value


@strided_backward.register_fake
def _(grad: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (x.new_empty(x.shape) for x in others[:3])
    return query, key, value


@torch.library.custom_op("relpos_lib::strided_backward_line", mutates_args=())
def strided_backward_line(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    line: Tensor,
    hidden: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    query_start: int,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and of the line of biases."""
    of_all = (grad, query, key, value, line, hidden, out, logsumexp)
    return _dense_backward(*of_all, query_start, is_causal, scale)


@strided_backward_line.register_fake
def _(grad: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value, line = (x.new_empty(x.shape) for x in others[:4])
    return query, key, value, line


def _reaches_tiny_weights(line: Tensor) -> bool:
    """Whether biases lie so far apart that weights underflow, which slows a kernel."""
    lowest = line.masked_fill(line == -torch.inf, torch.inf).amin()
    return bool(line.amax() - lowest > -math.log(torch.finfo(line.dtype).tiny))


def _dense_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    line: Tensor,
    hidden: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    query_start: int,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and line, some queries of some heads at a time."""
    d_query, d_key, d_value, d_line = (
        x.new_zeros(x.shape) for x in (query, key, value, line)
    )
    mean = (grad * out).sum(-1)
    spread = _reaches_tiny_weights(line)
    underflows = spread or hidden is not None or is_causal
    step = max(ROWS, NUMBERS // (2 * key.shape[2]))
    work = (Scratch(query), Scratch(query))
    for rows, keys in _rows(query, key, query_start, is_causal, step):
        at_once = 1 if spread else max(1, NUMBERS // (step * keys))
        for b in range(query.shape[0]):
            for first in range(0, query.shape[1], at_once):
                heads = slice(first, first + at_once)
                block = (b, heads, rows)
                seen = slice(0, keys)
                if spread:
                    low = logsumexp[block].amin() + least_score(line.dtype)
                    low -= abs(scale) * _longest(query[block]) * _longest(key[b, first])
                    seen = _above(line[first], rows, keys, low)
                bias = _view(line[heads], rows, seen)
                if hidden is not None:
                    bias = bias + hidden[b, heads, :, seen]
                first_bias = rows.start + seen.start
                pairs = rows.stop - rows.start + seen.stop - seen.start - 1
                _add_dense_gradients(
                    query[block],
                    grad[block],
                    mean[block],
                    logsumexp[block],
                    key[b, heads, seen],
                    value[b, heads, seen],
                    bias,
                    scale,
                    exp_of_any if underflows else torch.exp_,
                    (
                        d_query[block],
                        d_key[b, heads, seen],
                        d_value[b, heads, seen],
                        d_line[heads, first_bias : first_bias + pairs],
                    ),
                    work,
                )
    return d_query, d_key, d_value, d_line


def _longest(vectors: Tensor) -> Tensor:
    """The largest norm: no product of two vectors exceeds that of their norms."""
    longest: Tensor = torch.linalg.vector_norm(vectors, dim=-1).amax()
    return longest


def _above(line: Tensor, rows: slice, keys: int, low: Tensor) -> slice:
    """The first keys, less those at the ends whose biases are all below a number."""
    pairs = rows.stop - rows.start + keys - 1
    # Not >=: what is not a number must be seen.
    below = line[rows.start : rows.start + pairs] < low
    (above,) = (~below).nonzero(as_tuple=True)
    if len(above) == 0:
        return slice(0, 0)
    leftmost = int(above[0]) - (rows.stop - rows.start - 1)
    return slice(max(leftmost, 0), min(int(above[-1]) + 1, keys))


def _add_dense_gradients(
    query: Tensor,
    grad: Tensor,
    mean: Tensor,
    logsumexp: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    scale: float,
    exp: Callable[[Tensor], Tensor],
    gradients: tuple[Tensor, Tensor, Tensor, Tensor],
    work: tuple[Scratch, Scratch],
) -> None:
    """Add the gradients of (n, T, D) queries, their keys and values, and n lines."""
    d_query, d_key, d_value, d_line = gradients
    heads, rows = query.shape[:2]
    keys = key.shape[1]
    scores = work[0].numbers(heads, rows, keys)
    torch.baddbmm(bias, query, key.mT, alpha=scale, out=scores)
    weights = exp(scores.sub_(logsumexp[..., None]))
    # T zeros after each row: read with one number less a row, columns are diagonals.
    pitch = keys + rows
    padded = work[1].numbers(heads, rows, pitch)
    padded[..., keys:] = 0
    d_scores = padded[..., :keys]
    torch.bmm(grad, value.mT, out=d_scores)
    d_scores.sub_(mean[..., None]).mul_(weights)
    diagonals = padded.as_strided(
        (heads, rows, pitch - 1), (rows * pitch, pitch - 1, 1)
    )
    d_query.baddbmm_(d_scores, key, alpha=scale)
    d_key.baddbmm_(d_scores.mT, query, alpha=scale)
    d_value.baddbmm_(weights.mT, grad)
    d_line += diagonals.sum(1)


def _view(line: Tensor, rows: slice, keys: slice) -> Tensor:
    """Biases of some reversed queries and some keys, a view, (H, T, keys)."""
    pitch, one = line.stride()
    size = (len(line), rows.stop - rows.start, keys.stop - keys.start)
    first = line.storage_offset() + (rows.start + keys.start) * one
    return line.as_strided(size, (pitch, one, one), first)


def _biases(line: Tensor, hidden: Tensor | None, at: Block, keys: int) -> Tensor:
    """What is added to the scores of a block, (1, H, T, keys)."""
    bias = _view(line, at[2], slice(0, keys))[None]
    return bias if hidden is None else bias + hidden[at[0], :, :, :keys]


def _blocks(
    query: Tensor,
    key: Tensor,
    hidden: Tensor | None,
    query_start: int,
    is_causal: bool,
) -> Iterator[tuple[Block, int]]:
    """Which queries go to the kernel at a time, and how many keys they may see."""
    if hidden is not None:  # the sum of bias and mask is no view
        rows, batches = ROWS, [slice(b, b + 1) for b in range(query.shape[0])]
    else:
        rows = CAUSAL_ROWS if is_causal else query.shape[2]
        batches = [slice(None)]
    for batch in batches:
        for some, keys in _rows(query, key, query_start, is_causal, rows):
            yield (batch, slice(None), some), keys


def _rows(
    query: Tensor, key: Tensor, query_start: int, is_causal: bool, rows: int
) -> Iterator[tuple[slice, int]]:
    """Some reversed queries at a time, and how many keys they may see."""
    queries, keys = query.shape[2], key.shape[2]
    for first in range(0, queries, rows):
        last = min(first + rows, queries)
        seen = query_start + queries - first if is_causal else keys
        if (seen := min(seen, keys)) > 0:
            yield slice(first, last), seen


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:5], *output)
    ctx.options = inputs[5:]


def _differentiate(ctx: Any, grad: Tensor, unused: Any) -> tuple[Tensor | None, ...]:
    run = strided_backward_line if ctx.needs_input_grad[3] else strided_backward
    found = run(grad, *ctx.saved_tensors, *ctx.options)
    nothing = (None,) * (8 - len(found))
    return (*found, *nothing)


def _refuse(ctx: Any, *unused: Any) -> NoReturn:
    raise NotImplementedError(
        'the "strided" backend has no second derivatives; use backend="gather" for them'
    )


strided.register_autograd(_differentiate, setup_context=_save)
strided_backward.register_autograd(_refuse)
strided_backward_line.register_autograd(_refuse)
