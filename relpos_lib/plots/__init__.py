"""Every static figure of the book, as functions that return a matplotlib figure."""

from relpos_lib.plots.bias import returned_offsets, tables_of_schemes
from relpos_lib.plots.choosing import by_choice
from relpos_lib.plots.claims import Effect, claimed_and_measured
from relpos_lib.plots.common import curves, matrices
from relpos_lib.plots.experiments import by_length
from relpos_lib.plots.fast import cost_by_length, quadtree_picture
from relpos_lib.plots.gated_bias import by_factor, by_offset, by_setting, by_side
from relpos_lib.plots.longer import by_place, reach_by_gap
from relpos_lib.plots.shaw import (
    accuracy_by_length,
    score_parts,
    scores_by_symbol,
    weights_and_bins,
)

__all__ = [
    "Effect",
    "accuracy_by_length",
    "by_choice",
    "by_factor",
    "by_length",
    "by_offset",
    "by_place",
    "by_setting",
    "by_side",
    "claimed_and_measured",
    "cost_by_length",
    "curves",
    "matrices",
    "quadtree_picture",
    "reach_by_gap",
    "returned_offsets",
    "score_parts",
    "scores_by_symbol",
    "tables_of_schemes",
    "weights_and_bins",
]
