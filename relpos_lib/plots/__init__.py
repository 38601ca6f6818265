"""Every static figure of the book, as functions that return a matplotlib figure."""

from relpos_lib.plots.common import curves, matrices

__all__ = ["curves", "matrices"]
