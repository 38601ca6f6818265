"""The length plot's Python side: traits, numbers, sentence and picture."""

import json

import pytest
from traitlets import TraitError

from relpos_lib.experiments.spread import spread
from relpos_lib.explorers import LengthPlotExplorer
from relpos_lib.records import RESULTS, result
from tests.explorers import check_link, check_picture, nothing_sent

LENGTHS = (16, 32, 64)


def summary(metric="accuracy", **more):
    """Three made-up settings; the last one lacks the greatest length."""
    means = {"none": (0.1, 0.1, 0.1), "shaw-K4": (1, 0.9, 0.8), "bias-K4": (1, 0.6)}
    groups = {
        name: {
            "label": name.replace("-K", " K="),
            metric: {
                str(length): spread([mean - 0.05, mean + 0.05])
                for length, mean in zip(LENGTHS, values, strict=False)
            },
        }
        for name, values in means.items()
    }
    return {"common": {"longest": 32}, "groups": groups} | more


def explorer(**options):
    return LengthPlotExplorer.from_results(summary(), **options)


def test_numbers_are_those_of_the_summary():
    one = explorer()
    assert one.names == ("none", "shaw-K4", "bias-K4")
    assert one.lengths == LENGTHS
    assert one.values()["shaw-K4"] == {16: 1.0, 32: 0.9, 64: 0.8}
    assert one.values()["bias-K4"] == {16: 1.0, 32: 0.6}
    one.shown = ["none"]
    assert list(one.values()) == ["none"]


def test_the_page_gets_everything_and_no_nan():
    state = explorer(shown=["none"]).get_state()
    data = json.loads(json.dumps(state["_data"], allow_nan=False))
    assert data["lengths"] == list(LENGTHS)
    assert data["trained"] == 32
    assert [line["label"] for line in data["lines"]] == ["none", "shaw K=4", "bias K=4"]
    assert data["lines"][2]["mean"] == [1.0, 0.6, None]
    assert data["lines"][1]["low"] == [0.95, 0.85, 0.75]
    assert list(state["shown"]) == ["none"]


def test_shown_lines_keep_their_order_and_unknown_ones_are_refused():
    one = explorer()
    assert one.shown == one.names
    one.shown = ["bias-K4", "none", "none"]
    assert one.shown == ("none", "bias-K4")
    for wrong, told in ((["none", "rotary"], "'rotary'"), ("none", "'none'"), (1, "1")):
        with pytest.raises(TraitError) as error:
            one.shown = wrong
        for part in ("shown", "none, shaw-K4, bias-K4", told):
            assert part in str(error.value)
    assert one.shown == ("none", "bias-K4")
    one.shown = ()
    assert one.values() == {}
    with pytest.raises(TraitError, match=r"spread .* True or False, got 1"):
        one.spread = 1


def test_the_data_stay_and_the_controls_can_be_observed_and_linked():
    one, other = explorer(), explorer()
    with pytest.raises(TraitError, match="metric"):
        one.metric = "sliding"
    assert check_link(one, other, "shown", ["none"]) == ("none",)


def test_refused_before_anything_is_sent():
    with nothing_sent():
        few = {"mean": 0.5, "low": 0.4, "high": 0.6}
        for lines, error, told in (
            ({}, ValueError, "at least one line"),
            ({"a": {}}, ValueError, "at least one line"),
            ({"a": {"32": few}}, TypeError, "lengths must be integers, got '32'"),
            ({"a": {True: few}}, TypeError, "lengths must be integers, got True"),
            ({"a": {0: few}}, ValueError, "lengths must be at least 1, got 0"),
            ({"a": {8: {"mean": 0.5}}}, ValueError, "mean, low, high .* at 8 in 'a'"),
            ({"a": {8: 0.5}}, ValueError, "must hold mean, low, high .* got 0.5 at 8"),
            ({"a": {8: few | {"low": float("nan")}}}, ValueError, "finite .* got nan"),
        ):
            with pytest.raises(error, match=told):
                LengthPlotExplorer(lines)
        with pytest.raises(TraitError, match=r"shown .* got 'b'"):
            LengthPlotExplorer({"a": {8: few}}, shown=["b"])
        with pytest.raises(ValueError, match="at least one line"):
            LengthPlotExplorer.from_results(summary(), metric="sliding")
        with pytest.raises(TraitError, match=r"metric .* got 'loss'"):
            LengthPlotExplorer.from_results(summary("loss"), metric="loss")
        with pytest.raises(TypeError, match=r"summary must be .* got 'length'"):
            LengthPlotExplorer.from_results("length")


def test_labels_that_do_not_tell_lines_apart_give_way_to_names():
    twins = summary()
    for group in twins["groups"].values():
        group["label"] = "bias K=4"
    data = LengthPlotExplorer.from_results(twins).get_state()["_data"]
    assert [line["label"] for line in data["lines"]] == ["none", "shaw-K4", "bias-K4"]


def test_the_scale_does_not_depend_on_what_is_shown():
    assert explorer(shown=["none"])._range() == (0.0, 1.0)
    one = LengthPlotExplorer.from_results(summary("sliding"), "sliding", shown=[])
    assert one._range() == (0.0, 1.5)


def test_without_a_common_training_length_none_is_marked():
    one = LengthPlotExplorer.from_results(summary(common={}))
    assert one.get_state()["_data"]["trained"] is None


def test_the_sentence_says_what_is_shown():
    assert repr(explorer(shown=["bias-K4", "shaw-K4"])) == (
        "Length plot explorer: share of right answers by length for 2 of 3 settings; "
        "at length 64: shaw K=4 0.800."
    )
    assert repr(explorer(shown=[])).endswith("for 0 of 3 settings.")


@pytest.mark.parametrize("options", [{}, {"shown": []}, {"spread": False}])
def test_the_picture_is_small_and_always_the_same(options):
    check_picture(explorer(**options).picture(), explorer(**options).picture())


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in RESULTS.glob("exp*.json"))
)
def test_every_committed_summary_can_be_shown(name):
    found = result(name)
    metrics = {metric for group in found["groups"].values() for metric in group}
    for metric in metrics & {"accuracy", "non_overlapping", "sliding"}:
        one = LengthPlotExplorer.from_results(found, metric)
        assert set(one.names) <= set(found["groups"])
        first = one.names[0]
        for length, mean in one.values()[first].items():
            assert mean == found["groups"][first][metric][str(length)]["mean"]
