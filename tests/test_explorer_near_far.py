"""Near and far explorer, Python side: traits, division, costs, picture."""

import io
import json
import math
from importlib.resources import files

import numpy as np
import pytest
import torch
from matplotlib import image as images
from torch.utils.flop_counter import FlopCounterMode
from traitlets import TraitError

from relpos_lib.attention import relative_attention
from relpos_lib.backends.near_far import operator
from relpos_lib.bench import peers
from relpos_lib.bench.cases import Problem
from relpos_lib.explorers import NearFarExplorer
from relpos_lib.explorers.near_far import shades_of, with_prefix
from tests.explorers import check_link, check_output, check_range, nothing_sent

H, L, D, K, T = 3, 53, 7, 5, 11
FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def explorer(**options):
    sizes = {"length": L, "max_distance": K, "leaf": T, "num_heads": H, "head_width": D}
    return NearFarExplorer(**(sizes | options))


@pytest.mark.parametrize(
    ("trait", "good", "bad", "needs"),
    [
        ("length", (8, 8192, 100), (7, 8193, 64.0), "from 8 to 8192"),
        ("max_distance", (1, 1024), (0, 1025, True), "from 1 to 1024"),
        ("leaf", (1, 512), (0, 513, "8"), "from 1 to 512"),
        ("causal", (True,), (1, None), "True or False"),
    ],
)
def test_traits_take_their_range_and_refuse_the_rest(trait, good, bad, needs):
    check_range(explorer(), trait, good, bad, needs)


def test_construction_refuses_wrong_values_before_anything_is_sent():
    wrong = {"num_heads": 65, "head_width": 0, "length": 7, "leaf": 513}
    with nothing_sent():
        for name, value in wrong.items():
            with pytest.raises(TraitError, match=name):
                NearFarExplorer(**{name: value})
    with pytest.raises(TraitError, match="num_heads"):
        explorer().num_heads = 2


def test_controls_can_be_observed_and_linked():
    kept = check_link(explorer(), explorer(), "length", np.int64(100))
    assert kept == 100
    assert type(kept) is int


@pytest.mark.parametrize("length", [8, 100, 129, 777])
@pytest.mark.parametrize("distance", [1, 16, 1024])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths_are_those_of_the_operator(length, distance, causal):
    """At the library's own tile, what is shown is what it does."""
    figure = NearFarExplorer(length=length, max_distance=distance, causal=causal)
    tensors = [torch.zeros(1, length, 2)] * 3
    table = torch.zeros(1, (distance if causal else 2 * distance) + 1, 2)
    problem = operator._problem(
        (*tensors, None, table, None, None), distance, causal, 0, 1.0
    )
    assert figure.lengths() == problem.lengths


def problem_of(causal):
    """Random inputs, (1, H, L, D), and Shaw's tables."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, H, L, D).unbind()
    tables = {name: torch.randn(2 * K + 1, D) for name in ("key_table", "value_table")}
    return Problem(query, key, value, tables, query, causal)


def fused_multiplications(query, key, value, *args, out_val=None, **kwargs):
    """Floating-point operations of the fused kernel, from its shapes."""
    batch, heads, queries, width = query
    return 4 * batch * heads * queries * key[2] * width


def multiplications_in_place(into, x, y, out_val=None, **kwargs):
    """Floating-point operations of a product that is added to a tensor."""
    return 2 * math.prod(x) * y[2]


def multiplications(run):
    """Multiplications in all matrix products of a call."""
    custom = {
        FUSED: fused_multiplications,
        torch.ops.aten.baddbmm_: multiplications_in_place,
    }
    counter = FlopCounterMode(display=False, custom_mapping=custom)
    with counter:
        run()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("causal", [False, True])
def test_multiplications_of_the_dense_forms_are_those_that_torch_counts(causal):
    costs, problem = explorer(causal=causal).costs(), problem_of(causal)
    usual = multiplications(lambda: peers.usual_shaw(problem))
    assert usual == costs["usual"].multiplications
    gather = multiplications(
        lambda: relative_attention(
            *problem.inputs, **problem.tables, is_causal=causal, backend="gather"
        )
    )
    assert gather == costs["gather"].multiplications
    plain = costs["plain"].multiplications
    visible = L * (L + 1) // 2 if causal else L * L
    assert plain == 2 * H * visible * D


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("distance", [1, K])
def test_multiplications_of_near_and_far_are_those_that_torch_counts(
    monkeypatch, causal, distance
):
    monkeypatch.setattr(operator, "TILE", T)
    figure = explorer(causal=causal, max_distance=distance)
    query, key, value = (x[0] for x in problem_of(causal).inputs)
    rows = (distance if causal else 2 * distance) + 1
    tables = torch.randn(2, 1, rows, D).unbind()
    arguments = (query, key, value, None, *tables, None, distance, causal, 0, 1.0)
    counted = multiplications(lambda: operator.near_far._init_fn(*arguments))
    merged = sum(one.queries * one.number for one in figure.rectangles())
    bands = sum(
        one.number * one.queries * (one.queries + figure.lengths().near - 1)
        for one in figure.tiles()
    )
    outside = round(bands - figure.near_share() * L**2)  # zeros instead of keys
    counted += H * (merged - 2 * outside) * D
    assert counted == figure.costs()["near_far"].multiplications


def test_costs_are_those_of_the_chapter():
    """Its count by hand, of the sizes that the figure begins with."""
    figure = NearFarExplorer()
    costs = figure.costs()
    assert (figure.num_heads, figure.head_width) == (8, 64)
    assert (figure.length, figure.max_distance, figure.leaf) == (2048, 16, 128)
    assert costs["plain"].multiplications == 2 * 8 * 2048 * 2048 * 64
    assert costs["usual"].multiplications == 2 * costs["plain"].multiplications
    by_rows = costs["plain"].multiplications + 2 * 8 * 2048 * 33 * 64
    assert costs["gather"].multiplications == by_rows
    scores = 4 * 8 * 2048 * 2048
    assert costs["usual"].bytes - scores == 2 * 4 * 2048 * 2048 * 64
    assert costs["gather"].bytes - scores == 4 * 8 * 2048 * 33
    assert costs["plain"].bytes == 0
    shares = [NearFarExplorer(length=n).near_share() for n in (512, 8192)]
    assert shares == pytest.approx([158 / 512, 158 / 8192], rel=0.06)


def test_bytes_are_near_the_measured_peaks():
    """Programs hold some copies at once, and never less than what is counted."""
    text = files("relpos_lib").joinpath("results/bench-cpu.json").read_text()
    names = {"usual-shaw": "usual", "gather": "gather", "near_far": "near_far"}
    seen = set()
    for key, case in json.loads(text)["cases"].items():
        shown = case["workload"] == "shaw" and case["direction"] == "forward"
        if not shown or case["dtype"] != "float32" or not 512 <= case["length"] <= 8192:
            continue
        figure = NearFarExplorer(
            length=case["length"],
            max_distance=case["max_distance"],
            causal=case["causal"],
        )
        for name, own in names.items():
            if name in case["cells"]:
                seen.add(name)
                peak = case["cells"][name]["peak_bytes"]
                assert 0.9 < peak / figure.costs()[own].bytes < 5, (name, key)
    assert seen == set(names)


def test_numbers_with_prefixes():
    assert [with_prefix(x) for x in (0, 7, 999, 1000, 99_949)] == [
        "0 ",
        "7 ",
        "999 ",
        "1.00 k",
        "99.9 k",
    ]
    assert with_prefix(999_500) == "1.00 M"
    assert with_prefix(36_507_222_016) == "36.5 G"
    assert with_prefix(4.4e12) == "4.40 T"


def test_the_sentence_says_what_is_shown():
    figure = NearFarExplorer(length=64, max_distance=4, leaf=8, causal=True)
    assert figure.describe() == (
        "Near and far explorer: 64 tokens, maximum distance 4, tiles of 8 queries, "
        "causal: 7 far rectangles in 5 calls, 16.6% of all pairs in near tiles."
    )
    everything = NearFarExplorer(length=8, max_distance=9)
    assert "0 far rectangles in 0 calls, 100.0% of all pairs" in repr(everything)
    assert "0.01% of all pairs" in repr(
        NearFarExplorer(length=8192, max_distance=1, leaf=1)
    )


@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"length": 8192, "leaf": 1}, {"length": 8}]
)
def test_output_has_view_picture_and_a_stable_sentence(options):
    check_output(lambda: NearFarExplorer(**options))


def test_the_picture_shows_every_kind_of_part():
    figure = NearFarExplorer(length=64, max_distance=4, leaf=8)
    pixels = images.imread(io.BytesIO(figure.picture()))[..., :3].reshape(-1, 3)
    shades = shades_of(figure.rectangles())
    assert set(shades) == {32, 16, 8, 0}
    for shade in shades.values():
        near = np.abs(pixels - np.array(shade[:3])).max(axis=1) < 0.01
        assert near.sum() > 500
