"""PyTorch's CUDA attention operators, computed densely: for tests without a GPU.

Each takes its arguments by the schema of the real operator, checks what its CUDA code
demands of them, and leaves traps where it may: not-a-number in memory that is not read,
numbers of its own for queries that see nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from relpos_lib.backends.near_far.cuda_kernels import HALF

aten = torch.ops.aten


def bound(operator: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Arguments by the names of an operator's schema; its checks are run on the way."""
    found = {}
    arguments = operator._schema.arguments
    assert len(args) <= sum(not one.kwarg_only for one in arguments)
    for at, one in enumerate(arguments):
        if at < len(args):
            assert one.name not in options, f"{one.name} is given twice"
            found[one.name] = args[at]
        elif one.name in options:
            found[one.name] = options[one.name]
        else:
            assert one.has_default_value(), f"{one.name} is missing"
            found[one.name] = one.default_value
    unknown = options.keys() - found.keys()
    assert not unknown, f"{operator} knows no {unknown}"
    # The real operator on tensors without numbers refuses wrong types and shapes.
    meta = {
        name: x.to("meta") if isinstance(x, Tensor) else x for name, x in found.items()
    }
    names = [one.name for one in arguments if not one.kwarg_only]
    operator(
        *(meta[name] for name in names),
        **{name: x for name, x in meta.items() if name not in names},
    )
    return found


def check_rows(*tensors: Tensor) -> None:
    """Rows in one piece, each at a multiple of 16 bytes."""
    for x in tensors:
        step = 16 // x.element_size()
        assert x.stride(-1) == 1
        assert x.shape[-1] % step == 0
        assert x.data_ptr() % 16 == 0
        pairs = zip(x.shape[:-1], x.stride()[:-1], strict=True)
        assert all(stride % step == 0 for size, stride in pairs if size > 1)


def scores_of(given: dict[str, Any], bias: Tensor | None) -> Tensor:
    """Scaled scores in the width of the operator's sums, (B, H, Q, S)."""
    wide = torch.float32
    scores = given["scale"] * (given["query"].to(wide) @ given["key"].to(wide).mT)
    return scores if bias is None else scores + bias.to(wide)


def attended(given: dict[str, Any], bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp; 0 and 0 for a query that sees nothing."""
    scores = scores_of(given, bias)
    unseen = (scores == -torch.inf).all(-1)
    logsumexp = scores.logsumexp(-1).masked_fill(unseen, 0)
    out = (scores - logsumexp[..., None]).exp() @ given["value"].float()
    return out.to(given["query"].dtype), logsumexp


def gradients(given: dict[str, Any], grad: Tensor, bias: Tensor | None) -> list[Tensor]:
    """Gradients of query, key and value, from the log-sum-exp that was given."""
    query, key, value, out = (
        given[name].float() for name in ("query", "key", "value", "out")
    )
    grad = grad.float()
    rows = query.shape[2]
    weights = (scores_of(given, bias) - given["logsumexp"][..., :rows, None]).exp()
    mean = (grad * out).sum(-1, keepdim=True)
    d_scores = given["scale"] * weights * (grad @ value.mT - mean)
    found = d_scores @ key, d_scores.mT @ query, weights.mT @ grad
    return [x.to(given["query"].dtype) for x in found]


class DenseFlash:
    """What ``_scaled_dot_product_flash_attention`` computes and demands."""

    def __init__(self) -> None:
        self.calls = 0

    def forward(self, *args: Any, **options: Any) -> tuple[Any, ...]:
        given = bound(aten._scaled_dot_product_flash_attention.default, args, options)
        self._check(given)
        assert not given["return_debug_mask"]
        out, logsumexp = attended(given, None)
        state = torch.zeros(2, dtype=torch.uint64)
        rows, keys = given["query"].shape[2], given["key"].shape[2]
        return out, logsumexp, None, None, rows, keys, state, state[0], out.new_empty(0)

    def backward(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        name = "_scaled_dot_product_flash_attention_backward"
        given = bound(getattr(aten, name).default, args, options)
        self._check(given)
        query, grad = given["query"], given["grad_out"]
        assert grad.dtype == given["out"].dtype == query.dtype
        assert grad.shape == given["out"].shape == query.shape
        check_rows(grad, given["out"])
        assert given["cum_seq_q"] is given["cum_seq_k"] is None
        assert given["max_q"] == query.shape[2]
        assert given["max_k"] == given["key"].shape[2]
        assert given["logsumexp"].shape == query.shape[:3]
        assert given["logsumexp"].is_contiguous()
        assert given["logsumexp"].dtype == torch.float32
        return tuple(gradients(given, grad, None))

    def _check(self, given: dict[str, Any]) -> None:
        self.calls += 1
        query, key, value = (given[name] for name in ("query", "key", "value"))
        assert query.dtype in HALF
        assert query.dtype == key.dtype == value.dtype
        check_rows(query, key, value)
        assert query.shape[3] == value.shape[3] <= 256
        assert given["dropout_p"] == 0
        assert not given["is_causal"]
        assert given["scale"] > 0, "scores are compared before they are scaled"


class DenseEfficient:
    """What ``_scaled_dot_product_efficient_attention`` computes and demands."""

    def __init__(self) -> None:
        self.calls = 0

    def forward(self, *args: Any, **options: Any) -> tuple[Tensor, ...]:
        name = "_scaled_dot_product_efficient_attention"
        given = bound(getattr(aten, name).default, args, options)
        self._check(given)
        assert given["compute_log_sumexp"]
        out, logsumexp = attended(given, given["attn_bias"])
        missing = -logsumexp.shape[2] % 32
        logsumexp = torch.nn.functional.pad(logsumexp, (0, missing), value=math.inf)
        seed = torch.zeros((), dtype=torch.int64)
        return as_written(out), logsumexp, seed, seed

    def backward(self, *args: Any, **options: Any) -> tuple[Tensor | None, ...]:
        name = "_scaled_dot_product_efficient_attention_backward"
        given = bound(getattr(aten, name).default, args, options)
        self._check(given)
        query, grad, out = (given[name] for name in ("query", "grad_out_", "out"))
        assert grad.dtype == out.dtype == query.dtype
        assert grad.shape == out.shape == query.shape
        assert out.transpose(1, 2).is_contiguous()
        check_rows(out)
        logsumexp = given["logsumexp"]
        assert logsumexp.dtype == torch.float32
        assert logsumexp.shape[2] % 32 == 0
        assert logsumexp.is_contiguous()
        assert (logsumexp[..., query.shape[2] :] == torch.inf).all()
        assert given["grad_input_mask"] == [True, True, True, False]
        found = gradients(given, grad, given["attn_bias"])
        return (*map(as_written, found), None)

    def _check(self, given: dict[str, Any]) -> None:
        self.calls += 1
        query, key, value = (given[name] for name in ("query", "key", "value"))
        assert query.dtype in (torch.float32, *HALF)
        assert query.dtype == key.dtype == value.dtype
        check_rows(query, key, value)
        assert given["dropout_p"] == 0
        assert not given["is_causal"]
        assert given["scale"] > 0
        if (bias := given["attn_bias"]) is not None:
            assert bias.dtype == query.dtype
            assert bias.shape == (*query.shape[:3], key.shape[2])
            assert bias.stride(3) == 1 or bias.shape[3] == 1
            pairs = zip(bias.shape[:3], bias.stride()[:3], strict=True)
            assert all(stride % 8 == 0 for size, stride in pairs if size > 1)
            assert bias.data_ptr() % 16 == 0


def as_written(x: Tensor) -> Tensor:
    """The tensor as the operator lays it out: (B, Q, H, D) in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
