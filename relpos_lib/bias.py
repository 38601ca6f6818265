"""Additive biases: a number for every head and offset, added to the scores.

Every scheme here is one method, :meth:`AdditiveBias.bias_at`, that says what a head
adds at a given offset. The base class turns it into a table for
:func:`relpos_lib.relative_attention` and into a module that adds it to scores.
Two schemes at the end are no tables, because what they add depends on the scores or on
the query; they work on scores alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from relpos_lib._checks import check_floating, check_integer
from relpos_lib.offsets import farthest_offset, table_offsets, table_rows
from relpos_lib.tables import Tables


class AdditiveBias(nn.Module):
    """Base of the schemes that add ``b[h, offset]`` to the score of head h.

    A scheme says its two numbers here and overrides :meth:`bias_at`.

    Args:
        num_heads: H, at least 1.
        max_distance: K, at least 0, the distance beyond which the bias is constant;
            None if there is none.

    Raises:
        TypeError: if an argument is no integer.
        ValueError: if an argument is out of its range.
    """

    def __init__(self, num_heads: int, max_distance: int | None) -> None:
        super().__init__()
        check_integer("num_heads", num_heads, 1)
        if max_distance is not None:
            check_integer("max_distance", max_distance, 0)
        self.num_heads = num_heads
        self.max_distance = max_distance

    def bias_at(self, offsets: Tensor) -> Tensor:
        """Bias of every head at the given offsets.

        Args:
            offsets: (R,), int64.

        Returns:
            The biases, (H, R).
        """
        raise NotImplementedError

    def tables(self, max_distance: int | None = None) -> Tables:
        """Tables of this scheme, as keyword arguments of ``relative_attention``.

        Args:
            max_distance: K of the table, at least 0; the scheme's own if not given.

        Returns:
            ``{"bias_table": (H, 2K+1)}``.

        Raises:
            TypeError: if ``max_distance`` is no integer.
            ValueError: if it is below 0, or missing where the scheme has no own K.
        """
        distance = self.max_distance if max_distance is None else max_distance
        if distance is None:
            raise ValueError(
                f"max_distance must be given, since {type(self).__name__} tells every "
                "distance apart; the longest length minus one is always enough"
            )
        offsets = table_offsets(distance, device=self._device())
        return {"bias_table": self.bias_at(offsets)}

    def forward(self, scores: Tensor, query_start: int | None = None) -> Tensor:
        """``scores[…, h, i, j] + b[h, j - (query_start + i)]``.

        Args:
            scores: (…, H, Q, S), already divided by sqrt(D).
            query_start: position of the first query; ``S - Q`` if not given.

        Returns:
            A tensor like ``scores``.

        Raises:
            TypeError: if ``scores`` is no floating-point tensor.
            ValueError: if ``scores`` has fewer than three axes, an empty one or other
                heads.
        """
        bias = self.dense(scores, query_start)
        return (scores + bias).to(scores.dtype)

    def dense(self, scores: Tensor, query_start: int | None = None) -> Tensor:
        """The bias of every pair that ``scores`` holds, (H, Q, S)."""
        _check_scores(scores, self.num_heads)
        q_len, k_len = scores.shape[-2:]
        distance = self.max_distance
        if distance is None:
            distance = farthest_offset(q_len, k_len, query_start)
        table = self.tables(distance)["bias_table"].to(scores.device)
        rows = table_rows(
            q_len, k_len, distance, query_start=query_start, device=scores.device
        )
        return table[:, rows]

    def extra_repr(self) -> str:
        """What tells this scheme from another of its kind, for ``print``."""
        return f"num_heads={self.num_heads}, max_distance={self.max_distance}"

    def _device(self) -> torch.device | None:
        tensor = next(iter([*self.parameters(), *self.buffers()]), None)
        return None if tensor is None else tensor.device


class SimpleBiasRPE(AdditiveBias):
    """A learned number for every head and offset.

    ``b[h, offset] = bias[clip(offset, -K, K) + K, h]`` with ``K = max_len - 1``

    The centre row is always row K, at every length. An index that adds ``L - 1``
    instead reads other rows for the same offset as soon as ``L < max_len``.

    Args:
        num_heads: H, at least 1.
        max_len: ``K + 1``, at least 1; farther offsets read the edge rows.

    Attributes:
        bias: the table, (2 * max_len - 1, H), at first uniform in [-0.1, 0.1].

    Raises:
        TypeError: if an argument is no integer.
        ValueError: if an argument is below 1.

    Source:
        Raffel et al. 2020, section 2.1, without the buckets; Liu et al. 2021 (Swin),
        section 3.2.

    >>> rpe = SimpleBiasRPE(num_heads=2, max_len=4)
    >>> rpe(torch.zeros(1, 2, 3, 5)).shape
    torch.Size([1, 2, 3, 5])
    >>> rpe.tables()["bias_table"].shape
    torch.Size([2, 7])
    """

    def __init__(self, num_heads: int, max_len: int = 512) -> None:
        check_integer("max_len", max_len, 1)
        super().__init__(num_heads, max_len - 1)
        table = torch.empty(2 * max_len - 1, num_heads).uniform_(-0.1, 0.1)
        self.bias = nn.Parameter(table)

    def bias_at(self, offsets: Tensor) -> Tensor:
        """``bias[clip(offset, -K, K) + K, h]``, (H, R)."""
        return _read_learned(self.bias, offsets)


class GatedBiasRPE(AdditiveBias):
    """A learned table that each head can turn up or down.

    ``b[h, offset] = sigmoid(gate[h]) * exp(logit_scale[h]) * bias[offset + K, h]``

    The product is again a table, so a gate changes how the model learns, not what it
    can express. The table starts at zero, so at the first step it gets a gradient and
    the gate gets none.

    Args:
        num_heads: H, at least 1.
        max_len: ``K + 1``, at least 1; farther offsets read the edge rows.
        scale: whether each head has a scale beside its gate.

    Attributes:
        bias: the table, (2 * max_len - 1, H), at first zero.
        gate: (H,), at first one, so that the gate stands at 0.731.
        logit_scale: (H,), at first zero, or None.

    Raises:
        TypeError: if ``num_heads`` or ``max_len`` is no integer.
        ValueError: if ``num_heads`` or ``max_len`` is below 1.

    >>> rpe = GatedBiasRPE(num_heads=2, max_len=4)
    >>> rpe.strength()
    tensor([0.7311, 0.7311], grad_fn=<MulBackward0>)
    """

    def __init__(self, num_heads: int, max_len: int = 512, scale: bool = True) -> None:
        check_integer("max_len", max_len, 1)
        super().__init__(num_heads, max_len - 1)
        self.bias = nn.Parameter(torch.zeros(2 * max_len - 1, num_heads))
        self.gate = nn.Parameter(torch.ones(num_heads))
        self.logit_scale = nn.Parameter(torch.zeros(num_heads)) if scale else None

    def strength(self) -> Tensor:
        """What each head multiplies its table with, (H,)."""
        if self.logit_scale is None:
            return self.gate.sigmoid()
        return self.gate.sigmoid() * self.logit_scale.exp()

    def bias_at(self, offsets: Tensor) -> Tensor:
        """``sigmoid(gate) * exp(logit_scale) * bias[offset + K]``, (H, R)."""
        return self.strength()[:, None] * _read_learned(self.bias, offsets)


class DirectionalBiasRPE(AdditiveBias):
    """A bias that is the sum of a distance part and a direction part.

    ``b[h, offset] = distance[min(|offset|, K), h] + direction[offset > 0, h]``, the
    second term only where the offset is not zero.

    It has about half the numbers of a full table; the price is that a head cannot have
    two different shapes to its left and to its right, only two different levels.

    Args:
        num_heads: H, at least 1.
        max_len: ``K + 1``, at least 1; farther offsets read the last distance.

    Attributes:
        distance: (max_len, H), at first uniform in [-0.1, 0.1].
        direction: (2, H), backward then forward, at first zero.

    Raises:
        TypeError: if an argument is no integer.
        ValueError: if an argument is below 1.

    >>> rpe = DirectionalBiasRPE(num_heads=2, max_len=4)
    >>> sum(p.numel() for p in rpe.parameters())
    12
    """

    def __init__(self, num_heads: int, max_len: int = 512) -> None:
        check_integer("max_len", max_len, 1)
        super().__init__(num_heads, max_len - 1)
        self.distance = nn.Parameter(
            torch.empty(max_len, num_heads).uniform_(-0.1, 0.1)
        )
        self.direction = nn.Parameter(torch.zeros(2, num_heads))

    def bias_at(self, offsets: Tensor) -> Tensor:
        """``distance[min(|offset|, K)] + direction[offset > 0]``, (H, R)."""
        distance = self.distance[offsets.abs().clamp(max=len(self.distance) - 1)]
        direction = self.direction[(offsets > 0).long()]
        return (distance + direction * (offsets != 0)[:, None]).T


class T5BucketBias(AdditiveBias):
    """T5's bias: near offsets have a number each, far ones share a bucket.

    ``b[h, offset] = bias[bucket(offset), h]``, see :func:`t5_bucket`. If bidirectional,
    bucket ``num_buckets / 2`` would be a future offset of zero and is never read; it is
    kept so that T5's own weights fit.

    Args:
        num_heads: H, at least 1.
        num_buckets: number of buckets; even, and at least 4, if bidirectional, else at
            least 2.
        max_distance: K; from here on all distances share the last bucket. More than
            the number of distances that have a bucket of their own.
        bidirectional: whether the future has buckets too; if not, it shares bucket 0.

    Attributes:
        bias: (num_buckets, H), at first uniform in [-0.1, 0.1].

    Raises:
        TypeError: if a number is no integer.
        ValueError: if a number is out of its range.

    Source:
        Raffel et al. 2020, section 2.1.

    >>> T5BucketBias(num_heads=2).tables()["bias_table"].shape
    torch.Size([2, 257])
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        t5_bucket(
            torch.zeros(1, dtype=torch.long), num_buckets, max_distance, bidirectional
        )
        super().__init__(num_heads, max_distance)
        self.num_buckets = num_buckets
        self.last_bucket_from = max_distance
        self.bidirectional = bidirectional
        table = torch.empty(num_buckets, num_heads).uniform_(-0.1, 0.1)
        self.bias = nn.Parameter(table)

    def extra_repr(self) -> str:
        """What tells this scheme from another of its kind, for ``print``."""
        return (
            f"{super().extra_repr()}, num_buckets={self.num_buckets}, "
            f"bidirectional={self.bidirectional}"
        )

    def bias_at(self, offsets: Tensor) -> Tensor:
        """``bias[bucket(offset)]``, (H, R)."""
        buckets = t5_bucket(
            offsets, self.num_buckets, self.last_bucket_from, self.bidirectional
        )
        return self.bias[buckets].T


class ALiBi(AdditiveBias):
    """A fixed penalty that grows with the distance, steeper in some heads.

    ``b[h, offset] = -slope[h] * |offset|``, see :func:`alibi_slopes`.

    The paper's model is causal; without a causal mask the penalty is symmetric.
    Nothing is learned and every distance is told apart, so :meth:`tables` needs a
    ``max_distance``.

    Args:
        num_heads: H, at least 1.

    Raises:
        TypeError: if ``num_heads`` is no integer.
        ValueError: if ``num_heads`` is below 1.

    Source:
        Press et al. 2022, section 3.

    >>> ALiBi(num_heads=2).tables(max_distance=2)["bias_table"]
    tensor([[-0.1250, -0.0625, -0.0000, -0.0625, -0.1250],
            [-0.0078, -0.0039, -0.0000, -0.0039, -0.0078]])
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads, None)
        # Nothing is stored; this only follows the module to its device.
        self.register_buffer("_device_of", torch.empty(0), persistent=False)

    def bias_at(self, offsets: Tensor) -> Tensor:
        """``-slope * |offset|``, (H, R)."""
        slopes = alibi_slopes(self.num_heads, device=offsets.device)
        return -slopes[:, None] * offsets.abs()


class MultiplicativeBiasRPE(nn.Module):
    """A gated bias that multiplies the score and is then added to it.

    ``out[h, i, j] = scores[h, i, j] + scores[h, i, j] * b[h, j - i]``, with the b of
    :class:`GatedBiasRPE`. What is added depends on the score, so there is no table that
    could be added in its place. Mask after it: a score of -inf may change its sign.

    Args:
        num_heads: H, at least 1.
        max_len: ``K + 1``, at least 1; farther offsets read the edge rows.
        scale: whether each head has a scale beside its gate.

    Attributes:
        factor: the :class:`GatedBiasRPE` that holds b.

    Raises:
        TypeError: if ``num_heads`` or ``max_len`` is no integer.
        ValueError: if ``num_heads`` or ``max_len`` is below 1.

    >>> rpe = MultiplicativeBiasRPE(num_heads=1, max_len=2)
    >>> torch.nn.init.ones_(rpe.factor.bias).shape
    torch.Size([3, 1])
    >>> rpe(torch.full((1, 1, 1), 2.0)).detach()  # 2 + 2 * 0.7311
    tensor([[[3.4621]]])
    """

    def __init__(self, num_heads: int, max_len: int = 512, scale: bool = True) -> None:
        super().__init__()
        self.factor = GatedBiasRPE(num_heads, max_len, scale)

    def forward(self, scores: Tensor, query_start: int | None = None) -> Tensor:
        """``scores * (1 + b)``.

        Args:
            scores: (…, H, Q, S), already divided by sqrt(D).
            query_start: position of the first query; ``S - Q`` if not given.

        Returns:
            A tensor like ``scores``.

        Raises:
            TypeError: if ``scores`` is no floating-point tensor.
            ValueError: if ``scores`` has fewer than three axes, an empty one or other
                heads.
        """
        factor = 1 + self.factor.dense(scores, query_start)
        return (scores * factor).to(scores.dtype)


class ContentGatedBiasRPE(nn.Module):
    """A bias whose gates look at the query, so that one table is read in many ways.

    ``u = sigmoid(q_i · update[h])``, ``r = sigmoid(q_i · reset[h])``,
    ``out[h, i, j] = scores[h, i, j] + (1 + u + (1 - u) * scale[h] * r) * b[h, j - i]``

    Unlike the gate of :class:`GatedBiasRPE`, this one is not a reparameterisation of a
    table.

    Args:
        num_heads: H, at least 1.
        head_dim: D, at least 1.
        max_len: ``K + 1``, at least 1; farther offsets read the edge rows.

    Attributes:
        rpe: the :class:`SimpleBiasRPE` that holds b.
        update, reset: (H, D), at first zero.
        scale: (H,), at first one.

    Raises:
        TypeError: if an argument is no integer.
        ValueError: if an argument is below 1.

    Source:
        Chen et al. 2022 (WavLM), section 3.1, here with gates of its own in each head.

    >>> rpe = ContentGatedBiasRPE(num_heads=2, head_dim=3, max_len=4)
    >>> rpe(torch.zeros(1, 2, 5, 5), torch.zeros(1, 2, 5, 3)).shape
    torch.Size([1, 2, 5, 5])
    """

    def __init__(self, num_heads: int, head_dim: int, max_len: int = 512) -> None:
        super().__init__()
        check_integer("head_dim", head_dim, 1)
        self.rpe = SimpleBiasRPE(num_heads, max_len)
        self.update = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.reset = nn.Parameter(torch.zeros(num_heads, head_dim))
        self.scale = nn.Parameter(torch.ones(num_heads))

    def strength(self, query: Tensor) -> Tensor:
        """What each query multiplies the table with, (…, H, Q)."""
        update = (query * self.update[:, None]).sum(-1).sigmoid()
        reset = (query * self.reset[:, None]).sum(-1).sigmoid()
        return 1 + update + (1 - update) * self.scale[:, None] * reset

    def forward(
        self, scores: Tensor, query: Tensor, query_start: int | None = None
    ) -> Tensor:
        """``scores + strength(query) * b``.

        Args:
            scores: (…, H, Q, S), already divided by sqrt(D).
            query: (…, H, Q, D), the queries that made the scores.
            query_start: position of the first query; ``S - Q`` if not given.

        Returns:
            A tensor like ``scores``.

        Raises:
            TypeError: if an argument is no floating-point tensor.
            ValueError: if the shapes don't fit together.
        """
        bias = self.rpe.dense(scores, query_start)
        check_floating("query", query)
        wanted = (*scores.shape[:-1], self.update.shape[-1])
        if query.shape != wanted:
            raise ValueError(
                f"query must have shape {tuple(wanted)} to fit the scores, "
                f"got {tuple(query.shape)}"
            )
        strength = self.strength(query.to(self.update.dtype))
        return (scores + strength[..., None] * bias).to(scores.dtype)


def t5_bucket(
    offsets: Tensor,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Tensor:
    """T5's bucket of each offset.

    Of the n buckets of a direction the first ``e = n // 2`` hold one distance each;
    distance d beyond them falls into bucket
    ``e + floor(log(d / e) / log(max_distance / e) * (n - e))``, at most ``n - 1``. The
    edges are compared as integers, so no rounding can move one.

    Args:
        offsets: any shape, int64, key position - query position.
        num_buckets: number of buckets; even, and at least 4, if bidirectional, else at
            least 2.
        max_distance: distance from which on all fall into the last bucket, more than e.
        bidirectional: whether the future has the second half of the buckets; if not,
            it falls into bucket 0.

    Returns:
        The buckets, int64, of the shape of ``offsets``.

    Raises:
        TypeError: if ``offsets`` is no int64 tensor or a number is no integer.
        ValueError: if a number is out of its range.

    Source:
        Raffel et al. 2020, section 2.1.

    >>> t5_bucket(torch.tensor([-128, -8, -7, 0, 7, 8, 128]))
    tensor([15,  8,  7,  0, 23, 24, 31])
    """
    if not isinstance(offsets, Tensor) or offsets.dtype != torch.long:
        found = getattr(offsets, "dtype", type(offsets).__name__)
        raise TypeError(f"offsets must be an int64 tensor, got {found}")
    check_integer("num_buckets", num_buckets, 4 if bidirectional else 2)
    if bidirectional and num_buckets % 2:
        raise ValueError(
            f"num_buckets must be even if bidirectional, got {num_buckets}"
        )
    one_way = num_buckets // 2 if bidirectional else num_buckets
    exact = one_way // 2
    check_integer("max_distance", max_distance, exact + 1)
    edges = _log_edges(exact, one_way - exact, max_distance)
    distance = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
    far = torch.bucketize(
        distance, torch.tensor(edges, device=offsets.device), right=True
    )
    bucket = torch.where(distance < exact, distance, exact - 1 + far)
    if bidirectional:
        bucket = bucket + one_way * (offsets > 0)
    return bucket


def alibi_slopes(num_heads: int, *, device: torch.device | str | None = None) -> Tensor:
    """ALiBi's slope of each head, for any number of heads.

    ``slope[h] = 2 ** (-8 * (h + 1) / H)`` if H is a power of two. If not, the slopes of
    the next lower power of two n come first, then every other slope of 2n.

    Args:
        num_heads: H, at least 1.
        device: where to make the result.

    Returns:
        The slopes, (H,), float32.

    Raises:
        TypeError: if ``num_heads`` is no integer.
        ValueError: if ``num_heads`` is below 1.

    Source:
        Press et al. 2022, section 3, and its published code for other head counts.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    >>> alibi_slopes(3)
    tensor([0.0625, 0.0039, 0.2500])
    """
    check_integer("num_heads", num_heads, 1)
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2 ** (-4 * (h + 1) / power) for h in range(0, 2 * power, 2)]
    slopes += between[: num_heads - power]
    return torch.tensor(slopes, device=device, dtype=torch.float32)


def _log_edges(exact: int, buckets: int, max_distance: int) -> list[int]:
    """Smallest distance of each of the logarithmic buckets."""
    edges = []
    distance = exact
    for step in range(buckets):
        # distance**n * e**t >= max**t * e**n is the formula of t5_bucket, as integers.
        bound = max_distance**step * exact**buckets
        while distance**buckets * exact**step < bound:
            distance += 1
        edges.append(distance)
    return edges


def _read_learned(table: Tensor, offsets: Tensor) -> Tensor:
    """Rows of a learned (2K+1, H) table at clipped offsets, as (H, R)."""
    centre = len(table) // 2
    return table[offsets.clamp(-centre, centre) + centre].T


def _check_scores(scores: object, num_heads: int) -> None:
    check_floating("scores", scores)
    assert isinstance(scores, Tensor)
    if scores.dim() < 3 or scores.shape[-3] != num_heads or 0 in scores.shape[-2:]:
        raise ValueError(
            f"scores must have shape (..., {num_heads}, Q, S) with Q and S at least 1, "
            f"got {tuple(scores.shape)}"
        )
