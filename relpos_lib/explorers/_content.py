"""What figures of an additive bias share: queries and keys of a few heads, a mask."""

from __future__ import annotations

import traitlets
from torch import Tensor

from relpos_lib.explorers._base import (
    Explorer,
    WholeNumber,
    YesNo,
    allowed_pairs,
    fixed,
)
from relpos_lib.explorers._tensors import content_traits

MOST_HEADS, LONGEST = 16, 256


class ContentExplorer(Explorer):
    """Base of the figures that add a table to the content scores of every head."""

    num_heads = fixed(WholeNumber, 1, MOST_HEADS)
    query_length = fixed(WholeNumber, 1, LONGEST)
    key_length = fixed(WholeNumber, 1, LONGEST)
    head_width = fixed(WholeNumber, 1, 4096)
    table_distance = fixed(WholeNumber, 0, LONGEST)
    _query = fixed(traitlets.Bytes)
    _key = fixed(traitlets.Bytes)
    head = WholeNumber(1, "num_heads")
    causal = YesNo()

    def _take_content(self, query: Tensor, key: Tensor, table_distance: int) -> None:
        """Keep queries and keys, (H, length, D), and send them to the page."""
        self._query_heads, self._key_heads = query, key
        self._fix(table_distance=table_distance, **content_traits(query, key))

    def allowed(self) -> Tensor:
        """Where a query may attend by the mask alone, (Q, S), bool."""
        return allowed_pairs(self.query_length, self.key_length, self.causal)
