"""What a scheme hands to attention: its tables, by the names of the arguments."""

from __future__ import annotations

from typing import TypedDict

from torch import Tensor


class Tables(TypedDict, total=False):
    """Keyword arguments of :func:`relpos_lib.relative_attention`; absent if unused.

    Attributes:
        bias_table: (H, 2K+1), added to the scores.
        key_table: (2K+1, D) or (H, 2K+1, D), added to the keys.
        value_table: (2K+1, D) or (H, 2K+1, D), added to the values.
    """

    bias_table: Tensor
    key_table: Tensor
    value_table: Tensor
