"""Keys and values of the tokens so far, for decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relpos_lib._checks import check_floating, check_integer


class KeyValueCache:
    """The keys and values that one attention layer has seen, kept for the next tokens.

    A token's key and value do not depend on where its reader stands, so they are
    computed once. A new token then costs ``O(S * D + K * D)``: its query meets the S
    keys so far, and the tables. Offsets are counted from the last key, so nothing else
    has to be remembered.

    Every layer needs a cache of its own. The first keys and values decide B, H, both
    widths, dtype and device. Gradients are not kept, since slots are written over:
    tensors that need one are refused.

    Args:
        capacity: the most tokens it may ever hold, at least 1, with room for all of
            them from the first on, which ``torch.compile`` needs to make few graphs;
            without it there is no limit, and the room doubles whenever it is full.

    Raises:
        TypeError: if ``capacity`` is no integer.
        ValueError: if ``capacity`` is below 1.

    >>> from relpos_lib import relative_attention
    >>> q, k, v = torch.randn(3, 1, 2, 5, 4).unbind()
    >>> cache, steps = KeyValueCache(), []
    >>> for t in range(5):
    ...     now = slice(t, t + 1)
    ...     keys, values = cache.append(k[:, :, now], v[:, :, now])
    ...     steps.append(relative_attention(q[:, :, now], keys, values))
    >>> full = relative_attention(q, k, v, is_causal=True)
    >>> torch.allclose(torch.cat(steps, dim=2), full, atol=1e-6)
    True
    >>> cache
    KeyValueCache(length=5, capacity=None)
    """

    _length: int
    _keys: Tensor | None  # (B, H, slots, D), the first S of them filled
    _values: Tensor | None

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None:
            check_integer("capacity", capacity, 1)
        self._capacity = capacity
        self.reset()

    @property
    def length(self) -> int:
        """S, how many tokens are held."""
        return self._length

    @property
    def capacity(self) -> int | None:
        """The most tokens that may be held; None if there is no limit."""
        return self._capacity

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Hold new tokens behind the others, and hand out all.

        Args:
            key: (B, H, new, D), keys of the new tokens.
            value: (B, H, new, Dv), their values.

        Returns:
            All keys, (B, H, S, D), and all values, (B, H, S, Dv), new ones included:
            views of the cache, valid until it is shortened.

        Raises:
            TypeError: if an argument is no floating-point tensor, or of another dtype
                than what is held.
            ValueError: if an argument has another shape or device than what is held,
                needs a gradient, or finds no room.
        """
        _check_new(key, value)
        _check_like("key", key, self._keys)
        _check_like("value", value, self._values)
        _check_room(key.shape[2], self._length, self._capacity)
        now = slice(self._length, self._length + key.shape[2])
        room = now.stop if self._capacity is None else self._capacity
        self._keys = _with_room(self._keys, key, room)
        self._values = _with_room(self._values, value, room)
        self._keys[:, :, now], self._values[:, :, now] = key, value
        self._length = now.stop
        return self._keys[:, :, : now.stop], self._values[:, :, : now.stop]

    def truncate(self, length: int) -> None:
        """Forget all tokens but the first ones, and keep the room.

        Args:
            length: how many to keep, from 0 to :attr:`length`.

        Raises:
            TypeError: if ``length`` is no integer.
            ValueError: if ``length`` is out of its range.
        """
        check_integer("length", length, 0)
        if length > self._length:
            raise ValueError(
                f"length must be at most {self._length}, the tokens held, got {length}"
            )
        self._length = length

    def reset(self) -> None:
        """Forget everything, so that the next tokens may have any shape and dtype."""
        self._length, self._keys, self._values = 0, None, None

    def __repr__(self) -> str:
        return f"KeyValueCache(length={self._length}, capacity={self._capacity})"


def length_with_cache(
    cache: KeyValueCache | None, shape: Sequence[int], device: torch.device
) -> int:
    """S, once a cache has taken keys of shape (B, H, new, D); refuse a wrong cache.

    Modules call this before they project anything. Without a cache S is new.
    """
    batch, heads, new, width = shape
    if cache is None:
        return new
    if not isinstance(cache, KeyValueCache):
        raise TypeError(f"cache must be a KeyValueCache, got {type(cache).__name__}")
    held = cache._keys
    if held is not None:
        if (*held.shape[:2], held.shape[3]) != (batch, heads, width):
            raise ValueError(
                f"cache must hold keys ({batch}, {heads}, S, {width}) to fit the "
                f"input, got {(*held.shape[:2], cache.length, held.shape[3])}"
            )
        if held.device != device:
            raise ValueError(
                f"cache must be on the device of the input, {device}, got {held.device}"
            )
    _check_room(new, cache.length, cache.capacity)
    return cache.length + new


def _check_new(key: Tensor, value: Tensor) -> None:
    """Refuse keys and values that don't fit one another or that nobody could cache."""
    for name, tensor in (("key", key), ("value", value)):
        check_floating(name, tensor)
        if tensor.dim() != 4 or 0 in tensor.shape:
            raise ValueError(
                f"{name} must have shape (B, H, new, D) with no empty axis, "
                f"got {tuple(tensor.shape)}"
            )
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise ValueError(
                f"{name} must need no gradient, which a cache does not keep: decode "
                "under torch.no_grad() or detach it, got requires_grad=True"
            )
    batch, heads, new, _ = key.shape
    if value.shape[:3] != (batch, heads, new):
        raise ValueError(
            f"value must have shape ({batch}, {heads}, {new}, Dv) to fit key, "
            f"got {tuple(value.shape)}"
        )
    if value.dtype != key.dtype:
        raise TypeError(
            f"value must have the dtype of key, {key.dtype}, got {value.dtype}"
        )
    if value.device != key.device:
        raise ValueError(
            f"value must be on the device of key, {key.device}, got {value.device}"
        )


def _check_like(name: str, new: Tensor, held: Tensor | None) -> None:
    """Refuse new tokens unlike those that are held, if there are any."""
    if held is None:
        return
    batch, heads, _, width = held.shape
    if (*new.shape[:2], new.shape[3]) != (batch, heads, width):
        raise ValueError(
            f"{name} must have shape ({batch}, {heads}, new, {width}) to fit the "
            f"cache, got {tuple(new.shape)}"
        )
    if new.dtype != held.dtype:
        raise TypeError(
            f"{name} must have the dtype of the cache, {held.dtype}, got {new.dtype}"
        )
    if new.device != held.device:
        raise ValueError(
            f"{name} must be on the device of the cache, {held.device}, "
            f"got {new.device}"
        )


def _check_room(new: int, length: int, capacity: int | None) -> None:
    if capacity is not None and length + new > capacity:
        raise ValueError(
            f"cache must have room for {new} more, got a capacity of {capacity} with "
            f"{length} held"
        )


def _with_room(slots: Tensor | None, new: Tensor, room: int) -> Tensor:
    """The slots (B, H, at least room, D); if there are too few, twice as many."""
    if slots is not None and slots.shape[2] >= room:
        return slots
    batch, heads, _, width = new.shape
    held = 0 if slots is None else slots.shape[2]
    # Slots made in inference mode could not be written to outside of it.
    with torch.inference_mode(False):
        more = new.new_zeros(batch, heads, max(room, 2 * held), width)
        if slots is not None:
            more[:, :, :held] = slots
    return more
