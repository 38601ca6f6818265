"""Held-back tails: what they weigh, how much is beyond K, and the file of results."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from relpos_lib import SimpleBiasRPE
from relpos_lib.experiments import measuring
from relpos_lib.experiments.build import build
from relpos_lib.experiments.dilution import REPAIRS, CappedTail, WatchedTail, dilution
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.trainer import train_run
from relpos_lib.records import ResultsError, load
from tests import cases

LONGEST = 9
SMALL = {
    "scheme": "bias",
    "max_distance": 3,
    "width": 8,
    "heads": 2,
    "layers": 1,
    "batch": 6,
    "steps": 2,
    "longest": LONGEST,
    "test_lengths": (8, 16),
}


@pytest.fixture(autouse=True)
def _measure_little(monkeypatch):
    monkeypatch.setattr(measuring, "TOKENS", 512)


def bias_of(max_distance=3, heads=2):
    rpe = SimpleBiasRPE(heads, max_distance + 1).double()
    with torch.no_grad():
        rpe.bias.copy_(cases.numbers(*rpe.bias.shape, seed=0))
    return rpe


@torch.no_grad()
@pytest.mark.parametrize("together", [False, True])
def test_a_capped_tail_is_lowered_by_how_much_too_long_it_is(together):
    rpe, length, most = bias_of(), 11, 2
    scores = cases.numbers(1, 2, length, length, seed=1)
    wanted = torch.zeros_like(scores)
    for h, i, j in itertools.product(range(2), range(length), range(length)):
        offset = j - i
        before, after = max(0, i - 2), max(0, length - i - 3)
        own = before if offset < 0 else after
        number = before + after if together else own
        far = abs(offset) >= 3
        lower = math.log(min(number, most) / number) if far else 0.0
        bias = rpe.bias[max(-3, min(3, offset)) + 3, h]
        wanted[0, h, i, j] = scores[0, h, i, j] + bias + lower
    found = CappedTail(rpe, most, together=together).placed(scores, scores)
    cases.assert_equal(found, wanted, 1e-7)  # what is added is float32


@torch.no_grad()
@pytest.mark.parametrize("length", [5, 9, 40])
@pytest.mark.parametrize("together", [False, True])
def test_a_capped_tail_of_equal_scores_weighs_as_much_as_so_many_keys(length, together):
    rpe = SimpleBiasRPE(1, max_len=3)  # K = 2
    rpe.bias.zero_()
    scores = torch.zeros(1, 1, length, length)
    weights = CappedTail(rpe, 4, together=together).placed(scores, scores).exp()
    for i, row in enumerate(weights[0, 0]):
        offsets = torch.arange(length) - i
        sides = [offsets <= -2, offsets >= 2]
        for tail in [sides[0] | sides[1]] if together else sides:
            assert float(row[tail].sum()) == pytest.approx(min(4, int(tail.sum())))
        assert bool((row[offsets.abs() < 2] == 1).all())


def test_a_tail_cannot_be_capped_to_nothing():
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        CappedTail(bias_of(), 0)


@torch.no_grad()
def test_the_share_of_weight_beyond_k_is_counted():
    rpe = bias_of()
    scores = cases.numbers(1, 2, 11, 11, seed=1)
    watched = WatchedTail(rpe)
    found = watched.placed(scores, scores)
    cases.assert_equal(found, rpe(scores))
    weights, total = found.softmax(-1), 0.0
    for h, i, j in itertools.product(range(2), range(11), range(11)):
        if abs(j - i) >= 3:
            total += weights[0, h, i, j].item()
    assert watched.share == pytest.approx(total / 22)


@torch.no_grad()
@pytest.mark.parametrize(
    ("repair", "unharmed"),
    [
        ("as_trained", LONGEST),
        ("window", LONGEST),
        ("half_window", LONGEST // 2 + 1),  # no two keys are farther apart
        ("capped_tail", LONGEST),
        ("capped_tails", LONGEST),
    ],
)
def test_a_repair_changes_long_inputs_only(repair, unharmed):
    run = Run(**SMALL)
    plain, repaired = build(run), build(run)
    for layer in repaired.layers:
        REPAIRS[repair](run, layer)
    generator = torch.Generator().manual_seed(0)
    for length in (unharmed, 2 * LONGEST):
        symbols = torch.randint(plain.num_symbols, (2, length), generator=generator)
        is_same = torch.allclose(repaired(symbols), plain(symbols), atol=1e-5)
        assert is_same == (length == unharmed or repair == "as_trained")


def test_what_is_kept(tmp_path):
    runs = [Run(seed=seed, **SMALL) for seed in (0, 1)]
    for run in runs:
        train_run(run, tmp_path, device="cpu", show_progress=False)
    found = dilution(runs, tmp_path)
    assert found["common"] == {"longest": LONGEST, "max_distance": 3}
    assert list(found["groups"]) == list(REPAIRS)
    by_repair = {name: group["accuracy"] for name, group in found["groups"].items()}
    for length in ("8", "16"):
        kept = [
            load(files(run, tmp_path).record)["metrics"]["accuracy"][length]
            for run in runs
        ]
        assert by_repair["as_trained"][length]["each"] == pytest.approx(kept, abs=1e-5)
    for name in ("window", "capped_tail", "capped_tails"):
        assert by_repair[name]["8"] == by_repair["as_trained"]["8"]
    assert [*found["tail_share"]] == ["layer_1"]
    shares = found["tail_share"]["layer_1"]
    assert 0 < shares["8"]["low"] <= shares["16"]["high"] < 1


def test_dilution_refuses_other_schemes_and_missing_weights(tmp_path):
    with pytest.raises(ValueError, match=r"scheme must be 'bias' or .*, got 'none'"):
        dilution([Run(scheme="none")], tmp_path)
    with pytest.raises(ResultsError, match=r"the weights .* are missing"):
        dilution([Run(scheme="bias")], tmp_path)
