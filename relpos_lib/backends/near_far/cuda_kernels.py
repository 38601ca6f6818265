"""PyTorch's own fused kernels for CUDA devices, as kernels of this backend.

``Flash`` is the quickest and takes half precision only; ``Efficient`` takes float32 and
hidden keys too. Both sum in float32 and return a float32 log-sum-exp whatever they are
given; so half precision need not be widened for them. ``hidden`` must be one number a
key. Their operators have no public name, so what they demand is met here:

- rows of multiples of 16 bytes, each row at a multiple of 16 bytes;
- a scale above 0: ``Flash`` takes the largest score before it scales;
- log-sum-exp in one piece, for ``Efficient`` padded with inf to a multiple of 32;
- for ``Efficient`` an output that lies as it wrote it, (N, rows, M, D), and a bias of
  the queries' dtype for every pair, whose rows may be one and the same.

``torch.nn.attention.sdpa_kernel`` switches them on and off as it does for
``F.scaled_dot_product_attention``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.backends.near_far.kernels import Attended, Gradients, nothing_visible

BYTES = 16  # what a row of a tensor must be a multiple of
MOST_HEADS = 65_535  # a CUDA grid has no more along an axis
HALF = (torch.float16, torch.bfloat16)


class Request(NamedTuple):
    """What a kernel has to serve.

    Attributes:
        device_type: "cuda" for a device by NVIDIA.
        capability: of the device, (0, 0) for others.
        dtype: of query, key and value.
        heads: N.
        width: D.
        has_hidden: whether keys are hidden.
    """

    device_type: str
    capability: tuple[int, int]
    dtype: torch.dtype
    heads: int
    width: int
    has_hidden: bool


class CUDAKernel(ABC):
    """A fused CUDA operator and its backward pass: what both kinds share."""

    name: str  # of the operator

    def __init__(self) -> None:
        self._forward, self._backward = operators(self.name)

    @classmethod
    @abstractmethod
    def serves(cls, request: Request) -> bool:
        """Whether the operator is there, allowed and able."""

    @abstractmethod
    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        """Output and log-sum-exp from tensors the operator takes."""

    @abstractmethod
    def _differentiate(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        whole: Attended,
        bias: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value from tensors the operator takes."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor | None,
        scale: float,
    ) -> Attended:
        """Attend to one group."""
        query, scale, _ = _positive(query, scale)
        query, key, value = (aligned(x) for x in (query, key, value))
        out, logsumexp = self._attend(query, key, value, _bias(hidden, query), scale)
        if hidden is None:
            return Attended(out, logsumexp)
        nothing = nothing_visible(hidden)
        # Of such a query releases differ in what they say: 0, -inf or not a number.
        return Attended(
            out.masked_fill(nothing[..., None], 0),
            logsumexp.masked_fill(nothing, -torch.inf),
        )

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
        query, scale, sign = _positive(query, scale)
        query, key, value, grad = (aligned(x) for x in (query, key, value, grad))
        found = Gradients(
            *self._differentiate(
                grad, query, key, value, whole, _bias(hidden, query), scale
            )
        )
        return found if sign == 1 else found._replace(query=sign * found.query)


class Flash(CUDAKernel):
    """Flash attention: half precision, no hidden keys, on Ampere and later."""

    name = "_scaled_dot_product_flash_attention"

    @classmethod
    def serves(cls, request: Request) -> bool:
        """Whether the operator is there, allowed and able."""
        return (
            _fits(request)
            and request.dtype in HALF
            and request.width <= 256
            and not request.has_hidden
            and request.capability >= (8, 0)
            and is_allowed("flash_sdp_enabled")
            and flash_is_built()
        )

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        found = self._forward(
            query,
            key,
            value,
            dropout_p=0.0,
            is_causal=False,
            return_debug_mask=False,
            scale=scale,
        )
        return found[0], found[1]

    def _differentiate(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        whole: Attended,
        bias: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        unread = _no_random_state(query)
        found: tuple[Tensor, Tensor, Tensor] = self._backward(
            grad,
            query,
            key,
            value,
            aligned(whole.out),
            whole.logsumexp.float().contiguous(),
            cum_seq_q=None,
            cum_seq_k=None,
            max_q=query.shape[2],
            max_k=key.shape[2],
            dropout_p=0.0,
            is_causal=False,
            philox_seed=unread,
            philox_offset=unread,
            scale=scale,
        )
        return found


class Efficient(CUDAKernel):
    """Memory-efficient attention: float32 as well, and hidden keys."""

    name = "_scaled_dot_product_efficient_attention"
    PIECE = 32  # of log-sum-exp, which the backward pass reads without a check

    @classmethod
    def serves(cls, request: Request) -> bool:
        """Whether the operator is there, allowed and able."""
        least = (8, 0) if request.dtype == torch.bfloat16 else (5, 0)
        return (
            _fits(request)
            and request.dtype in (torch.float32, *HALF)
            and request.capability >= least
            and is_allowed("mem_efficient_sdp_enabled")
            and has_operators(cls.name)
        )

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        found = self._forward(
            query,
            key,
            value,
            attn_bias=bias,
            compute_log_sumexp=True,
            dropout_p=0.0,
            is_causal=False,
            scale=scale,
        )
        return found[0], found[1][..., : query.shape[2]]

    def _differentiate(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        whole: Attended,
        bias: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        missing = -query.shape[2] % self.PIECE
        logsumexp = F.pad(whole.logsumexp.float(), (0, missing), value=math.inf)
        unread = _no_random_state(query)
        found = self._backward(
            grad,
            query,
            key,
            value,
            attn_bias=bias,
            out=whole.out.transpose(1, 2).contiguous().transpose(1, 2),
            logsumexp=logsumexp.contiguous(),
            philox_seed=unread,
            philox_offset=unread,
            dropout_p=0.0,
            grad_input_mask=[True, True, True, False],
            is_causal=False,
            scale=scale,
        )
        return found[0], found[1], found[2]


def cuda_kernel_for(query: Tensor, has_hidden: bool) -> CUDAKernel | None:
    """The fastest kernel for queries like these, or None if no kernel here serves.

    Args:
        query: (N, Q, D), as it was given: not widened.
        has_hidden: whether keys are hidden.

    Returns:
        A kernel that takes query, key and value as they were given.
    """
    return chosen(request_of(query, has_hidden))


def request_of(query: Tensor, has_hidden: bool) -> Request:
    """What a kernel for queries like these has to serve."""
    device_type, capability = query.device.type, (0, 0)
    if device_type == "cuda":
        if torch.version.hip is not None:
            device_type = "hip"  # goes by the same name, with other kernels
        else:
            capability = torch.cuda.get_device_capability(query.device)
    heads, _, width = query.shape
    return Request(device_type, capability, query.dtype, heads, width, has_hidden)


def chosen(request: Request) -> CUDAKernel | None:
    """The first kernel that serves a request."""
    for kernel in (Flash, Efficient):
        if kernel.serves(request):
            return kernel()
    return None


def rounded_width(width: int, device: torch.device) -> int:
    """The width of rows that kernels for a device take, at least the given one."""
    return width + -width % (BYTES // 2) if device.type == "cuda" else width


def operators(name: str) -> tuple[Any, Any]:
    """An operator of PyTorch and its backward pass; they may go with any release."""
    aten = torch.ops.aten
    return getattr(aten, name).default, getattr(aten, f"{name}_backward").default


def is_allowed(switch: str) -> bool:
    """Whether a switch of ``torch.backends.cuda`` is on, as it is unless turned off."""
    return bool(getattr(torch.backends.cuda, switch)())


def has_operators(name: str) -> bool:
    """Whether this PyTorch is built for CUDA and has an operator and its backward."""
    aten = torch.ops.aten
    return (
        torch.version.cuda is not None
        and hasattr(aten, name)
        and hasattr(aten, f"{name}_backward")
    )


def flash_is_built() -> bool:
    """Whether this PyTorch was built with flash attention."""
    return (
        has_operators(Flash.name) and torch.backends.cuda.is_flash_attention_available()
    )


def aligned(x: Tensor) -> Tensor:
    """The tensor, copied if its rows do not start where an operator reads them.

    >>> aligned(torch.empty(1, 1, 3, 9)[..., :8]).stride()
    (24, 24, 8, 1)
    """
    numbers = BYTES // x.element_size()
    *steps, one = x.stride()
    fits = one == 1 and not any(step % numbers for step in steps)
    return (
        x
        if fits and x.data_ptr() % BYTES == 0
        else x.clone(memory_format=torch.contiguous_format)
    )


def _fits(request: Request) -> bool:
    """What both operators need; numbers in rows are a multiple for half precision."""
    return (
        request.device_type == "cuda"
        and request.width % (BYTES // 2) == 0
        and request.heads <= MOST_HEADS
    )


def _positive(query: Tensor, scale: float) -> tuple[Tensor, float, int]:
    """Queries and a scale above 0 with the same scores, and the sign moved over."""
    if scale > 0:
        return query, scale, 1
    sign = -1 if scale < 0 else 0
    return sign * query, -scale if sign else 1.0, sign


def _bias(hidden: Tensor | None, query: Tensor) -> Tensor | None:
    """0 or -inf for every pair, (N, M, rows, keys), a view: all rows are one."""
    if hidden is None:
        return None
    keys = hidden.shape[-1]
    # One more row than needed may be read, so that each begins at a multiple of 16.
    padded = F.pad(hidden.to(query.dtype), (0, -keys % 16)).contiguous()
    return padded[..., :keys].expand(*query.shape[:3], keys)


def _no_random_state(query: Tensor) -> Tensor:
    """In the place of the generator's state, which only dropout reads."""
    return query.new_empty(2, dtype=torch.int64)
