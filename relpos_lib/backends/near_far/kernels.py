"""Plain attention that tells its log-sum-exp: what the fast backend is made of.

A kernel attends from some queries to some keys and returns, beside the output, the
logarithm of the sum of the exponentials of each query's scores. With it, attention to
several groups of keys is merged exactly. Backward, a kernel is given the output and the
log-sum-exp over *all* groups and returns what one group adds to the gradients.

Tensors are (N, M, rows, D), with any strides; N and M are batch axes. ``hidden`` is
added to the scores: 0 for a visible and -inf for a hidden key, (N, M, 1, keys). It may
also be a number for every pair, (N, M, rows, keys); then no merging can follow, because
looking for queries that see nothing would cost as much as the attention.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Attended(NamedTuple):
    """Result of attention.

    Attributes:
        out: average of the values, (…, rows, D); 0 where no key is visible.
        logsumexp: (…, rows); -inf where a mask of keys leaves none visible.
    """

    out: Tensor
    logsumexp: Tensor


class Gradients(NamedTuple):
    """What one group adds to the gradients of query, key and value."""

    query: Tensor
    key: Tensor
    value: Tensor


class Kernel(Protocol):
    """Attention to one group of keys and its backward pass."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor | None,
        scale: float,
    ) -> Attended:
        """Attend to one group."""

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        whole: Attended,
        hidden: Tensor | None,
        scale: float,
    ) -> Gradients:
        """Gradients through one group, from the result over all of them.

        The group's weights are ``exp(score - whole.logsumexp)``, and the gradient of a
        score is ``weight * (grad · value - grad · whole.out)``.
        """


class FusedCPU:
    """PyTorch's own fused kernel for CPUs."""

    def __init__(self) -> None:
        forward, backward = _fused_cpu_operators()
        self._forward, self._backward = forward.default, backward.default

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor | None,
        scale: float,
    ) -> Attended:
        """Attend to one group."""
        out, logsumexp = self._forward(query, key, value, attn_mask=hidden, scale=scale)
        if hidden is not None and hidden.shape[2] == 1:
            # Of a query without visible keys the operator says 0, which would count.
            logsumexp = logsumexp.masked_fill(nothing_visible(hidden), -torch.inf)
        return Attended(out, logsumexp)

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        whole: Attended,
        hidden: Tensor | None,
        scale: float,
    ) -> Gradients:
        """Gradients through one group."""
        return Gradients(
            *self._backward(
                grad,
                query,
                key,
                value,
                *whole,
                0.0,
                False,
                attn_mask=hidden,
                scale=scale,
            )
        )


class Blockwise:
    """Some queries at a time, in plain PyTorch: for any device and dtype."""

    def __init__(self, numbers: int = 1 << 20) -> None:
        self.numbers = numbers  # how many scores are held at a time

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor | None,
        scale: float,
    ) -> Attended:
        """Attend to one group."""
        out = value.new_empty(*query.shape[:3], value.shape[3])
        logsumexp = query.new_empty(query.shape[:3])
        for rows in self._blocks(query, key):
            scores = _scores(query[:, :, rows], key, _of_rows(hidden, rows), scale)
            logsumexp[:, :, rows] = scores.logsumexp(-1)
            weights = _weights(scores, logsumexp[:, :, rows])
            out[:, :, rows] = weights @ value
        return Attended(out, logsumexp)

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        whole: Attended,
        hidden: Tensor | None,
        scale: float,
    ) -> Gradients:
        """Gradients through one group."""
        found = Gradients(*(torch.zeros_like(x) for x in (query, key, value)))
        for rows in self._blocks(query, key):
            q, g = query[:, :, rows], grad[:, :, rows]
            weights = _weights(
                _scores(q, key, _of_rows(hidden, rows), scale),
                whole.logsumexp[:, :, rows],
            )
            mean = (g * whole.out[:, :, rows]).sum(-1, keepdim=True)
            d_scores = scale * weights * (g @ value.mT - mean)
            found.query[:, :, rows] = d_scores @ key
            found.key.add_(d_scores.mT @ q)
            found.value.add_(weights.mT @ g)
        return found

    def _blocks(self, query: Tensor, key: Tensor) -> list[slice]:
        """Slices of the queries."""
        row = math.prod(query.shape[:2]) * key.shape[2]
        step = max(1, self.numbers // row)
        rows = query.shape[2]
        return [slice(first, first + step) for first in range(0, rows, step)]


def exp_of_any(scores: Tensor) -> Tensor:
    """``exp(score)`` in place, 0 for scores too low to matter beside a score of 0.

    The vector mathematics behind ``exp_`` is ten times slower where numbers underflow,
    -inf among them, and so are products with numbers near the smallest normal one.
    """
    least = least_score(scores.dtype)
    scores.clamp_min_(least).exp_()
    return torch.threshold_(scores, 2 * math.exp(least), 0)


def least_score(dtype: torch.dtype) -> float:
    """A score whose exponential is nothing beside that of a score of 0."""
    info = torch.finfo(dtype)
    return math.log(info.tiny / info.eps)


@lru_cache
def kernel_for(device_type: str) -> Kernel:
    """The fastest kernel that a type of device has."""
    if device_type == "cpu" and all(_fused_cpu_operators()):
        return FusedCPU()
    return Blockwise(numbers_for(1 << 20, device_type))


def numbers_for(numbers: int, device_type: str) -> int:
    """How many scores to work on at a time, from how many a CPU should.

    They stay in a CPU's cache. Elsewhere the time to start an operation is what is
    saved; 64 times as many are some hundred megabytes.

    >>> numbers_for(1 << 20, "cpu") == 1 << 20, numbers_for(1 << 20, "cuda") == 1 << 26
    (True, True)
    """
    return numbers if device_type == "cpu" else 64 * numbers


def nothing_visible(hidden: Tensor) -> Tensor:
    """Whether all keys of a group are hidden, (…, 1) from (…, 1, keys)."""
    return (hidden == -torch.inf).all(-1)


def _fused_cpu_operators() -> tuple[Any, Any]:
    """The operator and its backward pass, None where this PyTorch has none.

    They have no public name, so that they may go with any release.
    """
    name = "_scaled_dot_product_flash_attention_for_cpu"
    aten = torch.ops.aten
    return getattr(aten, name, None), getattr(aten, f"{name}_backward", None)


def _scores(query: Tensor, key: Tensor, hidden: Tensor | None, scale: float) -> Tensor:
    scores = scale * (query @ key.mT)
    return scores if hidden is None else scores + hidden


def _of_rows(hidden: Tensor | None, rows: slice) -> Tensor | None:
    if hidden is None or hidden.shape[2] == 1:
        return hidden
    return hidden[:, :, rows]


def _weights(scores: Tensor, logsumexp: Tensor) -> Tensor:
    """``exp(score - logsumexp)``; 0 where nothing is visible, overwriting scores."""
    logsumexp = logsumexp.masked_fill(logsumexp == -torch.inf, torch.inf)
    return scores.sub_(logsumexp[..., None]).exp_()
