"""The pictures of fast attention show what the division says."""

import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from relpos_lib.backends.near_far.quadtree import Lengths
from relpos_lib.palette import EMPTY
from relpos_lib.plots.fast import quadtree_picture, quadtree_regions

DIVISIONS = [
    Lengths(64, 64, 0, 4, False, 8),
    Lengths(64, 64, 0, 4, True, 8),
    Lengths(53, 37, -16, 3, False, 7),
    Lengths(29, 71, 42, 5, True, 11),
    Lengths(5, 5, 0, 1, False, 5),
]


@pytest.mark.parametrize("lengths", DIVISIONS)
def test_regions_cover_every_visible_pair_once(lengths):
    seen = torch.zeros(lengths.queries, lengths.keys, dtype=torch.int)
    far = torch.zeros_like(seen)
    for one in quadtree_regions(lengths):
        rows = slice(one.first_query, one.first_query + one.queries)
        columns = slice(one.first_key, one.first_key + one.keys)
        assert seen[rows, columns].shape == (one.queries, one.keys)
        seen[rows, columns] += 1
        far[rows, columns] += one.is_far
    places = torch.arange(lengths.queries)[:, None] + lengths.query_start
    offsets = torch.arange(lengths.keys) - places
    visible = offsets <= 0 if lengths.is_causal else torch.ones_like(seen) > 0
    assert (seen[visible] == 1).all()
    assert seen.max() == 1
    assert (offsets[far > 0].abs() >= lengths.max_distance).all()


def test_the_picture_has_a_patch_for_every_region():
    fig = quadtree_picture(*DIVISIONS[:2])
    assert [ax.get_title() for ax in fig.axes] == ["no mask", "causal"]
    for ax, lengths in zip(fig.axes, DIVISIONS, strict=False):
        drawn = {
            (patch.get_y(), patch.get_height(), patch.get_x(), patch.get_width())
            for patch in ax.patches
            if isinstance(patch, Rectangle)
        }
        assert drawn == {tuple(one[1:]) for one in quadtree_regions(lengths)}
        assert ax.get_facecolor() == to_rgba(EMPTY)
        assert ax.get_xlabel() == "key position j"
        assert ax.get_ylim() == (64, 0)
    assert fig.axes[0].get_ylabel() == "query position i"
    names = [text.get_text() for text in fig.legends[0].get_texts()]
    assert names[0] == "far, 32 queries"
    assert names[-2:] == ["near tile", "hidden"]


def test_far_rectangles_of_a_size_share_a_colour():
    (ax,) = quadtree_picture(DIVISIONS[0]).axes
    colours = {}
    for patch, one in zip(ax.patches, quadtree_regions(DIVISIONS[0]), strict=True):
        kind = one.queries if one.is_far else "near"
        colours.setdefault(kind, set()).add(patch.get_facecolor())
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)
