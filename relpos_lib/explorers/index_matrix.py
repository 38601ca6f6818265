"""Index matrix explorer: which row of the table does every pair read?"""

from __future__ import annotations

from torch import Tensor

from relpos_lib._checks import check_integer
from relpos_lib.explorers._base import (
    Explorer,
    WholeNumber,
    Word,
    YesNo,
    allowed_pairs,
    fixed,
)
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._picture import draw_panels
from relpos_lib.offsets import relative_offsets, table_rows

UNITS = {"offset": "offset", "clipped": "clipped offset", "row": "row of the table"}


class IndexMatrixExplorer(Explorer):
    """Offsets, clipped offsets and table rows of Q queries and S keys, with sliders.

    The table stands beside the matrix: pointing at one of its rows lights the pairs
    that read it, and pointing at a pair lights its row.

    Args:
        query_length: Q, from 1 to ``max_length``.
        key_length: S, from 1 to ``max_length``.
        max_distance: K, from 0 to ``max_length - 1``.
        causal: whether keys later than the query are masked.
        view: "offset", "clipped" or "row".
        max_length: where the sliders of the lengths end, from 2 to 64.

    Raises:
        traitlets.TraitError: if a value is out of its range, now or when it is set.

    >>> IndexMatrixExplorer(query_length=2, key_length=3, max_distance=1).values()
    tensor([[0, 1, 2],
            [0, 0, 1]])
    """

    _esm = bundle("index_matrix.js")

    max_length = fixed(WholeNumber, 2, 64)
    query_length = WholeNumber(1, "max_length")
    key_length = WholeNumber(1, "max_length")
    max_distance = WholeNumber(0, "_longest_distance")
    causal = YesNo()
    view = Word("row", "clipped", "offset")

    def __init__(
        self,
        *,
        query_length: int = 6,
        key_length: int = 6,
        max_distance: int = 3,
        causal: bool = False,
        view: str = "row",
        max_length: int = 40,
    ) -> None:
        self._fix(max_length=max_length)
        super().__init__(
            query_length=query_length,
            key_length=key_length,
            max_distance=max_distance,
            causal=causal,
            view=view,
        )

    @property
    def _longest_distance(self) -> int:
        return int(self.max_length) - 1

    def values(self) -> Tensor:
        """What the figure shows now, masked cells included.

        Returns:
            (Q, S), int64: offsets, clipped offsets or rows, as ``view`` says.
        """
        if self.view == "offset":
            return relative_offsets(self.query_length, self.key_length)
        rows = table_rows(self.query_length, self.key_length, self.max_distance)
        return rows if self.view == "row" else rows - self.max_distance

    def readers(self, row: int) -> Tensor:
        """Which pairs read a row of the table: what lights up when it is pointed at.

        Args:
            row: from 0 to 2K.

        Returns:
            (Q, S), bool; masked pairs read nothing.

        Raises:
            TypeError: if ``row`` is no integer.
            ValueError: if there is no such row.
        """
        check_integer("row", row, 0)
        last = 2 * self.max_distance
        if row > last:
            raise ValueError(f"row must be from 0 to {last}, got {row}")
        rows = table_rows(self.query_length, self.key_length, self.max_distance)
        return (rows == row) & self.allowed()

    def allowed(self) -> Tensor:
        """Where a query may attend, (Q, S), bool."""
        return allowed_pairs(self.query_length, self.key_length, self.causal)

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        return (
            f"Index matrix explorer: {UNITS[self.view]} of {self.query_length} queries "
            f"and {self.key_length} keys, maximum distance {self.max_distance}"
            f"{', causal' if self.causal else ''}."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        low, high = self._range()
        shown = self.values().double().masked_fill(~self.allowed(), float("nan"))
        title = f"K = {self.max_distance}"
        unit = UNITS[self.view]
        return draw_panels([shown.numpy()], [title], low, high, unit, numbers=True)

    def _range(self) -> tuple[int, int]:
        """Ends of the colour scale; signed views are symmetric about 0."""
        reach = max(self.query_length, self.key_length, 2) - 1
        if self.view == "row":
            return 0, max(2 * self.max_distance, 1)
        most = reach if self.view == "offset" else max(1, min(self.max_distance, reach))
        return -most, most
