"""What the fast backend works on: heads flattened, tables cut to the rows it reads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relpos_lib.backends.near_far.quadtree import Lengths


class Problem(NamedTuple):
    """Attention of N = B·H heads with tables of R rows.

    The rows of a table are compact: one for all past far keys, one for every near
    offset and, unless causal, one for all future far keys. A table has as many heads
    as there are, or one for all.

    Attributes:
        query: (N, Q, D).
        key: (N, S, D).
        value: (N, S, D).
        given: the same three as they came: unscaled, perhaps in half precision.
        bias: (1 or H, R), finite; or None.
        gaps: where the bias is -inf, (1 or H, R); None if nowhere.
        key_table: (1 or H, R, D) or None.
        value_table: (1 or H, R, D) or None.
        hidden: 0 for a visible and -inf for a hidden key, (N, S); or None.
        lengths: which keys are far, which near.
        scale: factor of the content and position scores.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    given: tuple[Tensor, Tensor, Tensor]
    bias: Tensor | None
    gaps: Tensor | None
    key_table: Tensor | None
    value_table: Tensor | None
    hidden: Tensor | None
    lengths: Lengths
    scale: float

    def has_far_keys(self, is_past: bool) -> bool:
        """Whether a query may see far keys of a side at all."""
        if self.lengths.is_causal and not is_past:
            return False
        return self.gaps is None or not bool(self.gaps[:, _row(is_past)].all())

    def hides_keys(self) -> bool:
        """Whether some scores may be -inf."""
        masked = self.hidden is not None or self.gaps is not None
        return masked or self.lengths.is_causal

    def far_score(self, is_past: bool) -> Tensor:
        """What the tables add to the scores of the far keys of a side, (N, Q)."""
        row = _row(is_past)
        score = self.query.new_zeros(self.query.shape[:2])
        if self.key_table is not None:
            score = self._products(self.scale * self.key_table[:, row])
        if self.bias is not None:
            score = score + self._of_all_heads(self.bias[:, row, None])
        if (hides := self.hides_far_keys(is_past)) is not None:
            score = score.masked_fill(hides, -torch.inf)
        return score

    def hides_far_keys(self, is_past: bool) -> Tensor | None:
        """Which heads' bias hides the far keys of a side, (N, 1); None if none does."""
        if self.gaps is None:
            return None
        return self._of_all_heads(self.gaps[:, _row(is_past), None])

    def far_vector(self, is_past: bool) -> Tensor | None:
        """What a table adds to the values of the far keys of a side, (N, 1, D)."""
        if self.value_table is None:
            return None
        return self._of_all_heads(self.value_table[:, _row(is_past)])[:, None]

    def _products(self, vectors: Tensor) -> Tensor:
        """``query · vector`` for the vectors (1 or H, D) of the heads, (N, Q)."""
        if len(vectors) == 1:
            return self.query @ vectors[0]
        return (self.query @ self._of_all_heads(vectors)[..., None])[..., 0]

    def _of_all_heads(self, rows: Tensor) -> Tensor:
        """(1 or H, …) as (N, …)."""
        return rows.repeat(self.query.shape[0] // rows.shape[0], 1)


def _row(is_past: bool) -> int:
    return 0 if is_past else -1
