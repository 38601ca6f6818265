"""Attention to the far keys of one side: plain attention, merged by log-sum-exp.

All far keys of a side read the same row of every table. In the scores that row is one
number per query, ``c_i``, the same for all these keys: it cannot change how they share
their weight, only how much they get against the other keys. So the far keys are plain
attention, and ``c_i`` is added to their log-sum-exp afterwards.

Two groups of keys with averages ``o1, o2`` and log-sum-exps ``l1, l2`` together have
the log-sum-exp ``log(exp(l1) + exp(l2))`` and the average
``o1 + sigmoid(l2 - l1) * (o2 - o1)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from relpos_lib.backends.near_far.cuda_kernels import cuda_kernel_for
from relpos_lib.backends.near_far.kernels import (
    Attended,
    Gradients,
    Kernel,
    kernel_for,
)
from relpos_lib.backends.near_far.problem import Problem
from relpos_lib.backends.near_far.quadtree import Rectangles, far_rectangles
from relpos_lib.backends.scratch import Scratch


def far_attention(problem: Problem, is_past: bool) -> Attended:
    """Attention of every query to its far keys of one side, without any table.

    Returns:
        The output, (N, Q, D), 0 for a query without far keys; and log-sum-exp, (N, Q),
        -inf also for a head whose bias hides the side.
    """
    sides = _of_side(problem, is_past)
    merged = _empty(problem, sides)
    kernel, query, key, value = _kernel(problem)
    for one in sides:
        found = kernel.forward(
            of_queries(query, one),
            of_keys(key, one),
            of_keys(value, one),
            _hidden(problem, one),
            problem.scale,
        )
        so_far = Attended(*(of_queries(x, one) for x in merged))
        if one.is_first:
            so_far.out.copy_(found.out)
            so_far.logsumexp.copy_(found.logsumexp)
        else:
            merge(so_far, Attended(found.out.to(so_far.out.dtype), found.logsumexp))
    if (hides := problem.hides_far_keys(is_past)) is not None:
        merged.logsumexp.masked_fill_(hides, -torch.inf)
    return merged


def merge(into: Attended, other: Attended) -> None:
    """Add the keys of another group to a result, in place.

    >>> one = Attended(torch.tensor([[2.0]]), torch.tensor([0.0]))
    >>> merge(one, Attended(torch.tensor([[8.0]]), torch.tensor([2.0]).log()))
    >>> one.out, one.logsumexp.exp()
    (tensor([[6.]]), tensor([3.]))
    """
    share = torch.sigmoid(other.logsumexp - into.logsumexp)
    share.masked_fill_(other.logsumexp == -torch.inf, 0)
    into.out.lerp_(other.out, share[..., None])
    torch.logaddexp(into.logsumexp, other.logsumexp, out=into.logsumexp)


def add_far_gradients(
    problem: Problem, gradients: Gradients, grad: Tensor, whole: Attended
) -> None:
    """Add what the far keys contribute, in place.

    With ``c`` what the tables add to a score of a side and ``r`` what they add to a
    value there, the gradient of a score is
    ``exp(score + c - logsumexp) * (grad · (value + r) - grad · out)``: a kernel's own,
    if it is handed ``logsumexp - c`` and ``out - r``.

    Args:
        problem: what was attended to.
        gradients: of query, key and value; changed.
        grad: gradient of the output, (N, Q, D).
        whole: the result over all keys.
    """
    kernel, query, key, value = _kernel(problem)
    grad, memory = grad.to(query.dtype), Scratch(whole.out)
    for is_past in (True, False):
        if not (sides := _of_side(problem, is_past)):
            continue
        given = _without_tables(problem, whole, is_past, memory)
        given = given._replace(out=given.out.to(query.dtype))
        for one in sides:
            found = kernel.backward(
                of_queries(grad, one),
                of_queries(query, one),
                of_keys(key, one),
                of_keys(value, one),
                Attended(*(of_queries(x, one) for x in given)),
                _hidden(problem, one),
                problem.scale,
            )
            of_queries(gradients.query, one).add_(found.query)
            of_keys(gradients.key, one).add_(found.key)
            of_keys(gradients.value, one).add_(found.value)


def of_queries(x: Tensor, one: Rectangles) -> Tensor:
    """The queries of every rectangle, a view: (N, number, queries, …)."""
    return _strided(x, one, one.first_query, one.queries)


def of_keys(x: Tensor, one: Rectangles) -> Tensor:
    """The keys of every rectangle, a view: (N, number, keys, …)."""
    return _strided(x, one, one.first_key, one.keys)


def _without_tables(
    problem: Problem, whole: Attended, is_past: bool, memory: Scratch
) -> Attended:
    """``out - r`` and ``logsumexp - c`` of a side, inf where it has no weight."""
    logsumexp = whole.logsumexp - problem.far_score(is_past)
    unseen = (whole.logsumexp == -torch.inf) | logsumexp.isnan()
    out, vector = whole.out, problem.far_vector(is_past)
    if vector is not None:
        out = torch.sub(out, vector, out=memory.numbers(*out.shape))
    return Attended(out, logsumexp.masked_fill(unseen, torch.inf))


def _empty(problem: Problem, sides: list[Rectangles]) -> Attended:
    """A result to be filled in, of nothing for the queries that no rectangle has."""
    like = problem.query
    out, logsumexp = like.new_empty(like.shape), like.new_empty(like.shape[:2])
    firsts = [one for one in sides if one.is_first]
    start = min((one.first_query for one in firsts), default=0)
    stop = max((one.first_query + one.queries for one in firsts), default=0)
    for rest in (slice(start), slice(stop, None)):
        out[:, rest] = 0
        logsumexp[:, rest] = -torch.inf
    return Attended(out, logsumexp)


def _kernel(problem: Problem) -> tuple[Kernel, Tensor, Tensor, Tensor]:
    """A kernel, and query, key and value in the precision that it takes.

    CUDA kernels take half precision as it is and sum in float32; others would not.
    """
    kernel = cuda_kernel_for(problem.given[0], problem.hidden is not None)
    if kernel is not None:
        return kernel, *problem.given
    query = problem.given[0].to(problem.key.dtype)
    return kernel_for(query.device.type), query, problem.key, problem.value


def _of_side(problem: Problem, is_past: bool) -> list[Rectangles]:
    if not problem.has_far_keys(is_past):
        return []
    every = far_rectangles(problem.lengths)
    return [one for one in every if one.is_past == is_past]


def _hidden(problem: Problem, one: Rectangles) -> Tensor | None:
    return None if problem.hidden is None else of_keys(problem.hidden, one)[:, :, None]


def _strided(x: Tensor, one: Rectangles, first: int, rows: int) -> Tensor:
    batch, row, *rest = x.stride()
    return x.as_strided(
        (x.shape[0], one.number, rows, *x.shape[2:]),
        (batch, one.step * row, row, *rest),
        x.storage_offset() + first * row,
    )
