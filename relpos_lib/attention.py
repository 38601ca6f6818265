"""``relative_attention``: one function that turns tables into attention.

A relative scheme is a table over offsets. Which numbers the table holds is the scheme's
business, how attention is computed from it the backend's; here they meet and every
argument is checked.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from relpos_lib._checks import check_floating, check_number, is_autocasting
from relpos_lib.backends import checkpoint, flex, gather, loop, strided
from relpos_lib.backends.choice import Choice, choose
from relpos_lib.backends.inputs import Inputs
from relpos_lib.backends.near_far.attention import attention as by_parts
from relpos_lib.offsets import first_query, own_distance

BACKENDS: dict[str, Callable[[Inputs], Tensor]] = {
    "loop": loop.attention,
    "gather": gather.attention,
    "checkpoint": checkpoint.attention,
    "near_far": by_parts,
    "strided": strided.attention,
    "flex": flex.attention,
}


def relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias_table: Tensor | None = None,
    key_table: Tensor | None = None,
    value_table: Tensor | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    query_start: int | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """Attention with tables over offsets on the scores, the keys and the values.

    ``score_ij = scale * q_i · (k_j + key_table[row]) + bias_table[row]``,
    ``out_i = sum_j softmax_j(score_ij) * (v_j + value_table[row])``,
    ``row = clip(j - (query_start + i), -K, K) + K``, each table with its own K. Without
    tables this is plain attention.

    Half-precision inputs are summed in float32. A query that may attend to nothing
    gives exactly zero.

    Args:
        query: (B, H, Q, D).
        key: (B, H, S, D).
        value: (B, H, S, Dv); Dv is mostly D.
        bias_table: (H, 2K+1), added to the scaled scores; -inf hides its keys.
        key_table: (2K+1, D) or, one per head, (H, 2K+1, D).
        value_table: (2K+1, Dv) or, one per head, (H, 2K+1, Dv).
        mask: True where a query may attend; bool, or integers 0 and 1; (Q, S) or 4-D
            broadcastable to (B, H, Q, S). Write a padding mask (B, S) as
            ``mask[:, None, None, :]``: with B = Q it would be taken for (Q, S). Hidden
            keys and values must still be finite: fill a new cache with zeros.
        is_causal: whether a query sees only keys at or before its own position.
        query_start: position of the first query, any integer; ``S - Q`` if not given,
            which puts the last query on the last key.
        dropout_p: probability of dropping a weight, in [0, 1]; it always acts.
        scale: factor of content and position scores; ``1 / sqrt(D)`` if not given.
        backend: "auto", "gather", "checkpoint" (gather, computed again in the backward
            pass instead of kept for it), "near_far" (fast, nothing of size Q x S),
            "strided" (fast for an additive bias of any K; with anything else near_far),
            "flex" (FlexAttention: no value table, no dropout, trains on CUDA only) or
            "loop" (the definition, slow). Both fast ones leave to gather what they
            cannot do. For second derivatives name "gather": "auto" may take a fast one
            where the input is long, and they raise ``NotImplementedError``.

    Returns:
        The output, (B, H, Q, Dv), in the dtype of ``query``.

    Raises:
        TypeError: if an argument has the wrong type or dtype.
        ValueError: if an argument has the wrong shape, device or range, or the backend
            cannot do what is asked.

    Source:
        Shaw et al. 2018, equations 3 and 4; Raffel et al. 2020, section 2.1, for the
        bias.

    >>> q = k = v = torch.zeros(1, 1, 2, 1)
    >>> table = torch.tensor([[1.0], [2.0], [3.0]])  # offsets -1, 0 and 1
    >>> relative_attention(q, k, v, value_table=table).flatten()
    tensor([2.5000, 1.5000])
    """
    inputs = checked_inputs(
        query,
        key,
        value,
        bias_table=bias_table,
        key_table=key_table,
        value_table=value_table,
        mask=mask,
        is_causal=is_causal,
        query_start=query_start,
        dropout_p=dropout_p,
        scale=scale,
    )
    return attend(inputs, backend)


def choose_backend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias_table: Tensor | None = None,
    key_table: Tensor | None = None,
    value_table: Tensor | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    query_start: int | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Choice:
    """Which backend ``"auto"`` takes, and why.

    Args:
        query: (B, H, Q, D); this and all others as for ``relative_attention``.
        key: (B, H, S, D).
        value: (B, H, S, Dv).
        bias_table: (H, 2K+1) or None.
        key_table: (2K+1, D), (H, 2K+1, D) or None.
        value_table: (2K+1, Dv), (H, 2K+1, Dv) or None.
        mask: (Q, S), 4-D broadcastable to (B, H, Q, S), or None.
        is_causal: whether a query sees only keys at or before its own position.
        query_start: position of the first query; ``S - Q`` if not given.
        dropout_p: probability of dropping a weight, in [0, 1].
        scale: factor of content and position scores; ``1 / sqrt(D)`` if not given.

    Returns:
        A named pair of ``backend`` and ``reason``.

    Raises:
        TypeError: if an argument has the wrong type or dtype.
        ValueError: if an argument has the wrong shape, device or range.

    >>> q = k = v = torch.zeros(1, 1, 1000, 1)
    >>> choose_backend(q, k, v, key_table=torch.zeros(9, 1))
    Choice(backend='near_far', reason='most keys are farther than K = 4')
    """
    inputs = checked_inputs(
        query,
        key,
        value,
        bias_table=bias_table,
        key_table=key_table,
        value_table=value_table,
        mask=mask,
        is_causal=is_causal,
        query_start=query_start,
        dropout_p=dropout_p,
        scale=scale,
    )
    return choose(inputs)


def checked_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias_table: Tensor | None = None,
    key_table: Tensor | None = None,
    value_table: Tensor | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    query_start: int | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Inputs:
    """Arguments of :func:`relative_attention`, checked, for a backend."""
    _check_tensors(query, key, value)
    _check_table("bias_table", bias_table, query, None)
    _check_table("key_table", key_table, query, query.shape[3])
    _check_table("value_table", value_table, query, value.shape[3])
    shape = (*query.shape[:3], key.shape[2])
    mask, start = checked_visibility(shape, query.device, mask, is_causal, query_start)
    check_number("dropout_p", dropout_p, 0.0, 1.0)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[3])
    check_number("scale", scale, -sys.float_info.max, sys.float_info.max)
    return Inputs(
        query,
        key,
        value,
        bias_table,
        key_table,
        value_table,
        mask,
        is_causal,
        start,
        dropout_p,
        scale,
    )


def checked_visibility(
    shape: Sequence[int],
    device: torch.device,
    mask: Tensor | None = None,
    is_causal: bool = False,
    query_start: int | None = None,
) -> tuple[Tensor | None, int]:
    """What decides who sees whom: the mask, 4-D and bool, and the first position.

    ``shape`` is (B, H, Q, S). Modules call this before they project anything.
    """
    if not isinstance(is_causal, bool):
        raise TypeError(f"is_causal must be a bool, got {type(is_causal).__name__}")
    start = first_query(shape[2], shape[3], query_start)
    return _checked_mask(mask, shape, device), start


def attend(inputs: Inputs, backend: str = "auto") -> Tensor:
    """Relative attention of checked inputs, (B, H, Q, Dv)."""
    check_backend(backend)
    run = BACKENDS[choose(inputs).backend if backend == "auto" else backend]
    with full_precision(inputs.query.device):
        return run(inputs)


def check_backend(name: object) -> None:
    """Refuse anything but "auto" or the name of a backend."""
    if not isinstance(name, str) or name not in ("auto", *BACKENDS):
        known = ", ".join(["auto", *BACKENDS])
        raise ValueError(f"backend must be one of {known}, got {name!r}")


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """A context without autocast, which would take float32 sums back to half."""
    if is_autocasting(device):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_floating(name, tensor)
        if tensor.dim() != 4 or 0 in tensor.shape:
            raise ValueError(
                f"{name} must have shape (B, H, length, D) with no empty axis, "
                f"got {tuple(tensor.shape)}"
            )
        if tensor.dtype != query.dtype:
            raise TypeError(
                f"{name} must have the dtype of query, {query.dtype}, "
                f"got {tensor.dtype}"
            )
        if tensor.device != query.device:
            raise ValueError(
                f"{name} must be on the device of query, {query.device}, "
                f"got {tensor.device}"
            )
    batch, heads, _, width = query.shape
    if key.shape[:2] != (batch, heads) or key.shape[3] != width:
        raise ValueError(
            f"key must have shape ({batch}, {heads}, S, {width}) to fit query, "
            f"got {tuple(key.shape)}"
        )
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"value must have shape ({batch}, {heads}, {key.shape[2]}, Dv) to fit key, "
            f"got {tuple(value.shape)}"
        )


def _check_table(
    name: str, table: Tensor | None, query: Tensor, width: int | None
) -> None:
    """Refuse a table that does not fit; a width of None means (H, 2K+1)."""
    if table is None:
        return
    check_floating(name, table)
    heads = query.shape[1]
    if width is None:
        wanted = f"({heads}, 2K+1)"
        fits = table.dim() == 2 and table.shape[0] == heads
        rows = table.shape[-1] if table.dim() else 0
    else:
        wanted = f"(2K+1, {width}) or ({heads}, 2K+1, {width})"
        fits = table.dim() == 2 or (table.dim() == 3 and table.shape[0] == heads)
        fits = fits and table.shape[-1] == width
        rows = table.shape[-2] if table.dim() > 1 else 0
    if not fits:
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(table.shape)}")
    own_distance(name, rows)
    if table.device != query.device:
        raise ValueError(
            f"{name} must be on the device of query, {query.device}, got {table.device}"
        )


def _checked_mask(
    mask: Tensor | None, full: Sequence[int], device: torch.device
) -> Tensor | None:
    """The mask as a 4-D bool tensor, or a clear refusal; full is (B, H, Q, S)."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a tensor, got {type(mask).__name__}")
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(
            f"mask must be bool with True = may attend, got {mask.dtype}; turn an "
            "additive mask into one with mask == 0, a 1/0 mask with mask.bool()"
        )
    if mask.device != device:
        raise ValueError(
            f"mask must be on the device of the queries, {device}, got {mask.device}"
        )
    full = tuple(full)
    if mask.dim() == 2:
        fits = mask.shape == full[2:]
    else:
        # Not `have in (1, want)`: a compiler's symbolic sizes are never found by it.
        fits = mask.dim() == 4 and all(
            have == 1 or have == want
            for have, want in zip(mask.shape, full, strict=True)
        )
    if not fits:
        raise ValueError(
            f"mask must have shape {full[2:]} or be 4-D and broadcastable to {full}, "
            f"got {tuple(mask.shape)}; a padding mask (B, S) is mask[:, None, None, :]"
        )
    if mask.dtype != torch.bool:
        _check_zeros_and_ones(mask)
    return mask.bool().reshape((1,) * (4 - mask.dim()) + mask.shape)


def _check_zeros_and_ones(mask: Tensor) -> None:
    if torch.compiler.is_compiling() or mask.device.type == "meta":
        return  # values cannot be looked at there
    if not ((mask == 0) | (mask == 1)).all():
        raise ValueError(
            "mask must hold only 0 and 1 if it is no bool tensor, "
            f"got values from {mask.min().item()} to {mask.max().item()}"
        )
