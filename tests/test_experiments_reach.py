"""How far trained models reach: gaps, and the file of results."""

import math

import pytest
import torch

from relpos_lib.experiments import cli
from relpos_lib.experiments import reach as module
from relpos_lib.experiments.build import build
from relpos_lib.experiments.cli import main
from relpos_lib.experiments.reach import gap, reach, reached
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.trainer import train_run
from relpos_lib.records import ResultsError, load

SMALL = {
    "steps": 2,
    "width": 16,
    "heads": 2,
    "batch": 4,
    "longest": 16,
    "test_lengths": (16, 32),
}


def test_reach_lies_between_the_lengths_around_it():
    assert reached({16: 1.0, 32: 1.0, 64: 0.75}) == 64.0
    assert reached({16: 1.0, 64: 0.5}) == pytest.approx(32.0)
    assert reached({16: 1.0, 64: 0.9}) == 64.0
    assert reached({16: 0.7, 64: 0.9}) is None


def test_gap_of_a_bias_is_read_off_its_table():
    run = Run(scheme="bias", **SMALL)
    model = build(run)
    with torch.no_grad():
        for layer in model.layers:
            layer.rpe.bias.zero_()
            layer.rpe.bias[3, 0] = 5.0  # head 1: 5 above the far keys
            layer.rpe.bias[0, 1] = 2.0  # head 2: nothing above the far keys
    assert gap(run, model, 0) == pytest.approx(2.5)
    assert gap(run, model, 1) == pytest.approx(2.5)


def test_gap_of_shaw_follows_the_query():
    run = Run(scheme="shaw", **SMALL)
    model = build(run)
    layer = model.layers[0]
    with torch.no_grad():
        layer.wq.weight.zero_()
        layer.wq.bias.fill_(1.0)
        (table,) = layer.rpe.keys.parameters()  # (2K+1, D)
        table.zero_()
        table[5] = 3.0
    assert gap(run, model, 0) == pytest.approx(3.0 * 8 / math.sqrt(8))


@pytest.mark.parametrize("scheme", ["none", "rotary", "shaw-values"])
def test_without_a_table_for_scores_there_is_no_gap(scheme):
    run = Run(scheme=scheme, **SMALL)
    with pytest.raises(ValueError, match="table"):
        gap(run, build(run), 0)


def test_what_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FALLEN", 0.0)
    monkeypatch.setattr(module, "FAR", (64,))
    bias, shaw, code = (
        [Run(scheme=scheme, seed=seed, **SMALL) for seed in (0, 1)]
        for scheme in ("bias", "shaw", "sinusoidal")
    )
    for run in (*bias, *shaw, *code):
        train_run(run, tmp_path, device="cpu", show_progress=False)
    found = reach([*bias, *shaw], code, tmp_path)
    assert set(found["groups"]) == {"bias-K4-lr0_003", "shaw-K4-lr0_003"}
    own = found["groups"]["shaw-K4-lr0_003"]
    assert list(own["accuracy"]) == ["16", "32", "64"]
    assert len(own["reach"]) == len(own["gap"]["each"]) == 2
    assert len(own["gap_of_layers"]) == 2
    assert list(found["places"]["sinusoidal-lr0_003"]["accuracy"])[-1] == "56"


def test_missing_runs_are_named(tmp_path):
    with pytest.raises(ResultsError, match="missing"):
        reach([Run(scheme="bias", **SMALL)], [], tmp_path)


def test_the_command_keeps_the_result(tmp_path, monkeypatch, capsys):
    kept = {"version": 1, "groups": {"bias": {"gap": {"mean": 1.0}, "reach": [30.0]}}}
    monkeypatch.setattr(cli, "finished", lambda *plan: [])
    monkeypatch.setattr(cli, "reach", lambda *runs: kept)
    words = ["reach", "--out", str(tmp_path), "--write", str(tmp_path)]
    assert main(words) == 0
    assert "gap  1.00, reach [30.0]" in capsys.readouterr().out
    assert load(tmp_path / "experiments-reach.json") == kept
