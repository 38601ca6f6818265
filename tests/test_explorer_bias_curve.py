"""Python side of the bias curve explorer: the curve as a trait, numbers, picture."""

import json
import math

import numpy as np
import pytest
import torch
from traitlets import TraitError

from relpos_lib.attention import relative_attention
from relpos_lib.bias import ALiBi, SimpleBiasRPE, t5_bucket
from relpos_lib.explorers import BiasCurveExplorer
from relpos_lib.offsets import table_offsets
from tests.explorers import check_link, check_picture, check_range, nothing_sent

H, Q, S, D = 3, 7, 11, 5
REACH = 10
ROWS = 2 * REACH + 1


def content():
    torch.manual_seed(0)
    return torch.randn(H, Q, D), torch.randn(H, S, D)


def explorer(**options):
    return BiasCurveExplorer(*content(), **options)


def random_curve(hidden=0.0):
    torch.manual_seed(1)
    curve = torch.randn(H, ROWS).clamp(-4, 4)
    return curve.masked_fill(torch.rand(H, ROWS) < hidden, -math.inf)


# The curve


def test_python_reads_what_was_drawn_and_sets_it():
    figure = explorer()
    assert figure.curve == ((0.0,) * ROWS,) * H
    drawn = [[None, *[1.5] * (ROWS - 1)]] * H  # as the page sends it
    figure.set_state({"curve": drawn})
    assert figure.curve == ((-math.inf, *[1.5] * (ROWS - 1)),) * H
    for same in (random_curve(), random_curve().numpy(), random_curve().tolist()):
        figure.curve = same
        assert figure.curve == tuple(map(tuple, random_curve().double().tolist()))


def test_hidden_offsets_are_null_for_the_page():
    figure = explorer(curve=random_curve(hidden=0.3))
    state = json.loads(json.dumps(figure.get_state(), default=str, allow_nan=False))
    rows = [[-math.inf if x is None else x for x in row] for row in state["curve"]]
    assert rows == [list(row) for row in figure.curve]
    assert any(None in row for row in state["curve"])


def set_one(value):
    curve = torch.zeros(H, ROWS, dtype=torch.float64)
    curve[1, 4] = value
    return curve


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        (torch.zeros(H, ROWS + 1), f"got shape ({H}, {ROWS + 1})"),
        (torch.zeros(H - 1, ROWS), f"got shape ({H - 1}, {ROWS})"),
        (torch.zeros(ROWS), f"got shape ({ROWS},)"),
        (set_one(math.nan), "got nan"),
        (set_one(math.inf), "got inf"),
        (set_one(5.01), "got 5.01"),
        (set_one(-5.01), "got -5.01"),
        ([[0.0] * ROWS] * (H - 1) + [[0.0]], "got [["),
        ([["a"] * ROWS] * H, "got [["),
        ("flat", "got flat"),
        (None, "got None"),
    ],
)
def test_another_curve_is_refused(bad, got):
    figure = explorer()
    before = figure.curve
    with pytest.raises(TraitError) as error:
        figure.curve = bad
    assert "curve of BiasCurveExplorer must have shape (3, 21)" in str(error.value)
    assert "from -5 to 5, or -inf to hide" in str(error.value)
    assert got in str(error.value)
    assert figure.curve == before


def test_a_wrong_message_of_the_page_is_refused_too():
    figure = explorer()
    for sent in ([[None]], [["1"] * ROWS] * H, 3, None):
        with pytest.raises(TraitError, match="curve of BiasCurveExplorer"):
            figure.set_state({"curve": sent})


def test_the_range_holds_what_is_given_and_every_preset():
    assert explorer().limit == 5  # T5's last bucket, 4.2 below zero, rounded up
    wide = explorer(curve=torch.full((H, ROWS), -37.0))
    assert wide.limit == 40
    learned = explorer(learned=torch.full((H, 3), 11.0))
    assert learned.limit == 15
    for name in learned.preset_names:
        learned.fill(name)


# The other traits


@pytest.mark.parametrize(
    ("trait", "good", "bad", "needs"),
    [
        ("max_distance", (0, REACH), (-1, REACH + 1, 2.0), f"from 0 to {REACH}"),
        ("head", (1, H), (0, H + 1, "1"), f"from 1 to {H}"),
        ("heads_shown", (1, H), (0, H + 1), f"from 1 to {H}"),
        ("causal", (True, False), (0, None), "True or False"),
        ("content", (True, False), (1, "no"), "True or False"),
    ],
)
def test_traits_take_their_range_and_refuse_the_rest(trait, good, bad, needs):
    check_range(explorer(), trait, good, bad, needs)


def test_curves_can_be_observed_and_linked():
    other = explorer()
    other.fill("local window")
    assert check_link(explorer(), explorer(), "curve", other.curve) == other.curve


# Presets


def test_presets_are_the_library_s_tables():
    figure = explorer(learned=SimpleBiasRPE(H, 4))
    assert figure.preset_names == (
        "flat",
        "learned",
        "T5 buckets",
        "ALiBi",
        "local window",
    )
    figure.fill("ALiBi", 2)
    expected = ALiBi(H).tables(REACH)["bias_table"][1]
    torch.testing.assert_close(figure.table()[1], expected.double())
    figure.fill("local window", 3)
    near = table_offsets(REACH).abs() <= 2
    assert (figure.table()[2] == 0).tolist() == near.tolist()
    assert (figure.table()[2] == -math.inf).tolist() == (~near).tolist()
    figure.fill("flat")
    assert figure.curve[0] == (0.0,) * ROWS


def test_t5_preset_shares_numbers_where_t5_shares_buckets():
    figure = explorer()
    figure.fill("T5 buckets")
    buckets = t5_bucket(table_offsets(REACH), num_buckets=16, max_distance=REACH)
    by_bucket = {}
    for bucket, bias in zip(buckets.tolist(), figure.curve[0], strict=True):
        by_bucket.setdefault(bucket, set()).add(bias)
    assert all(len(biases) == 1 for biases in by_bucket.values())
    assert len(set().union(*by_bucket.values())) > 8


@pytest.mark.parametrize("max_len", [3, 11, 40])
def test_the_learned_table_is_clipped_or_trimmed(max_len):
    torch.manual_seed(2)
    rpe = SimpleBiasRPE(H, max_len)
    offsets = table_offsets(REACH)
    expected = rpe.bias_at(offsets).detach()
    table = rpe.tables()["bias_table"]
    for learned in (rpe, table):
        figure = explorer(learned=learned)
        torch.testing.assert_close(figure.table(), expected.double())


def test_the_page_gets_the_presets():
    figure = explorer()
    sent = np.frombuffer(figure.get_state()["_presets"], "<f4").reshape(-1, H, ROWS)
    for name, rows in zip(figure.preset_names, sent, strict=True):
        for head in range(H):
            figure.fill(name, head + 1)
        torch.testing.assert_close(figure.table().float(), torch.tensor(rows))


def test_unknown_presets_and_heads_are_refused():
    figure = explorer()
    with pytest.raises(ValueError, match="preset must be one of flat, T5 buckets"):
        figure.fill("learned")
    with pytest.raises(ValueError, match="head must be from 1 to 3, got 4"):
        figure.fill("flat", 4)


@pytest.mark.parametrize(
    ("learned", "error", "message"),
    [
        (torch.zeros(H, 4), ValueError, r"learned must have shape \(3, 2K\+1\)"),
        (torch.zeros(2, 5), ValueError, r"learned must have shape \(3, 2K\+1\)"),
        (torch.full((H, 5), math.nan), ValueError, "learned must hold finite numbers"),
        (torch.zeros(H, 5).long(), TypeError, "learned must be a floating-point"),
        ([[0.0]], TypeError, "learned must be a tensor or an additive scheme"),
    ],
)
def test_wrong_learned_tables_are_refused(learned, error, message):
    with pytest.raises(error, match=message):
        explorer(learned=learned)


# Numbers


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("distance", [0, 2, REACH])
@pytest.mark.parametrize("hidden", [0.0, 0.4])
def test_maps_are_attention_with_this_table(causal, distance, hidden):
    curve = random_curve(hidden)
    figure = explorer(curve=curve, max_distance=distance, causal=causal)
    query, key = (tensor.double()[None] for tensor in content())
    middle = curve[:, REACH - distance : REACH + distance + 1].double()
    assert torch.equal(figure.table(), middle)
    eye = torch.eye(S).double().expand(1, H, S, S)
    expected = relative_attention(
        query, key, eye, bias_table=middle, is_causal=causal, backend="loop"
    )[0]
    maps = figure.maps()
    torch.testing.assert_close(maps["weights"], expected)
    assert torch.equal(maps["score"], maps["content"] + maps["position"])
    torch.testing.assert_close(maps["content"], (query @ key.mT)[0] / D**0.5)


def test_without_content_only_the_bias_is_left():
    torch.manual_seed(3)
    curve = torch.randn(2, 9).clamp(-4, 4)
    bare = BiasCurveExplorer(num_heads=2, length=5, curve=curve)
    query, key = torch.randn(2, 2, 5, 3)
    off = BiasCurveExplorer(query, key, curve=curve, content=False)
    for figure in (bare, off):
        maps = figure.maps()
        assert torch.equal(maps["score"], maps["position"])
        assert torch.equal(maps["weights"], bare.maps()["weights"])


def test_a_query_that_sees_nothing_has_weights_zero():
    figure = explorer(curve=torch.full((H, ROWS), -math.inf))
    assert not figure.maps()["weights"].any()


def test_values_are_what_is_shown():
    figure = explorer(curve=random_curve(0.3), heads_shown=2, head=3, causal=True)
    assert figure.shown_heads() == [1, 3]
    values, maps = figure.values(), figure.maps()
    masked = ~figure.allowed()
    hidden = masked | (maps["position"] == -math.inf)
    assert torch.equal(values["weights"].isnan(), masked.expand(2, Q, S))
    assert torch.equal(values["score"].isnan(), hidden[[0, 2]])
    shown = ~hidden[[0, 2]]
    assert torch.equal(values["score"][shown], maps["score"][[0, 2]][shown])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda q, k: BiasCurveExplorer(q), "query and key must be given together"),
        (lambda q, k: BiasCurveExplorer(q, k[:2]), "key must have shape"),
        (lambda q, k: BiasCurveExplorer(q[0, 0], k), "query must have shape"),
        (lambda q, k: BiasCurveExplorer(length=0), "length must be at least 1"),
        (lambda q, k: BiasCurveExplorer(num_heads=0), "num_heads must be at least 1"),
    ],
)
def test_content_that_does_not_fit_is_refused(make, message):
    with nothing_sent(), pytest.raises(ValueError, match=message):
        make(*content())


@pytest.mark.parametrize("sizes", [{"length": 257}, {"num_heads": 17}])
def test_too_much_to_show_is_refused(sizes):
    with pytest.raises(TraitError, match="of BiasCurveExplorer must be a whole number"):
        BiasCurveExplorer(**sizes)


# Where no widget can live


def test_the_sentence_and_the_picture_follow_the_state():
    figure = explorer(curve=random_curve(0.2), head=2)
    best = int(torch.tensor(figure.curve[1]).argmax()) - REACH
    assert (
        f"head 2 of 3 is drawn, its highest bias is {max(figure.curve[1]):.2f} at "
        in (figure.describe())
    )
    assert f"offset {best};" in repr(figure)
    one = figure.picture()
    check_picture(one, figure.picture(), least=400)
    figure.fill("ALiBi", 2)
    assert figure.picture() != one


def test_a_single_position_can_be_shown():
    figure = BiasCurveExplorer(num_heads=1, length=1)
    assert figure.curve == ((0.0,),)
    assert "its bias is 0.00 everywhere; 1 queries" in figure.describe()
    assert figure.maps()["weights"].tolist() == [[[1.0]]]
    figure.curve = [[-math.inf]]
    assert figure.maps()["weights"].tolist() == [[[0.0]]]
    assert figure.picture()
    assert "every offset is hidden; 1 queries" in figure.describe()
