"""Sweeps train what is missing, stop cleanly, and their reports say what was found."""

from __future__ import annotations

import itertools
import json
import math
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relpos_lib.experiments import measuring, report, sweep
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.plans import PLANS
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.spread import compare, spread
from relpos_lib.experiments.sweep import grid
from relpos_lib.records import VERSION, ResultsError, save

TINY = {
    "width": [8],
    "heads": [2],
    "layers": [1],
    "batch": [6],
    "steps": [2],
    "longest": [9],
    "test_lengths": [(8, 16)],
}


class Inline(Executor):
    """Does everything at once, in this process."""

    def __init__(self, **_):
        pass

    def submit(self, function, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def inline(monkeypatch):
    monkeypatch.setattr(sweep, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(measuring, "TOKENS", 512)


def swept(runs, folder):
    return sweep.sweep(runs, folder, device="cpu")


# What is trained


def test_a_grid_holds_every_combination_with_the_seeds_outermost():
    runs = grid(scheme=["none", "bias"], seed=[3, 4], lr=[0.1, 0.2])
    assert [(run.seed, run.scheme, run.lr) for run in runs] == [
        *itertools.product([3, 4], ["none", "bias"], [0.1, 0.2])
    ]
    assert grid() == [Run()]
    assert grid(seed=[]) == []
    with pytest.raises(ValueError, match="scheme must be one of"):
        grid(scheme=["none", "magic"])


def test_what_is_finished_is_not_trained_again(inline, tmp_path, monkeypatch):
    runs = grid(scheme=["none", "alibi"], seed=[0, 1], **TINY)
    assert swept(runs[:2], tmp_path) == (2, 0, {}, False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 4
    # The same run twice counts once.
    assert swept([*runs, *runs], tmp_path) == (2, 2, {}, False)
    assert len([*tmp_path.glob("*.json")]) == 4
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert swept(runs, tmp_path) == (0, 4, {}, False)


def test_a_run_that_another_sweep_has_finished_is_left_alone(tmp_path, monkeypatch):
    (run,) = grid(**TINY)
    save(files(run, tmp_path).record, {"version": VERSION})
    monkeypatch.setattr(sweep, "train_run", lambda *_, **__: pytest.fail("trained"))
    sweep._train(run, tmp_path, "cpu")


def test_a_run_that_fails_does_not_stop_the_others(inline, tmp_path, monkeypatch):
    runs = grid(scheme=["none", "alibi", "t5"], **TINY)
    original = sweep.train_run

    def failing(run, *rest, **more):
        if run.scheme == "alibi":
            raise FloatingPointError("the loss is nan")
        return original(run, *rest, **more)

    monkeypatch.setattr(sweep, "train_run", failing)
    failed = {runs[1].key: "FloatingPointError: the loss is nan"}
    assert swept(runs, tmp_path) == (2, 0, failed, False)


def test_after_a_stop_no_run_begins(inline, tmp_path, monkeypatch):
    runs = grid(seed=range(4), **TINY)

    def interrupted(futures):
        yield next(iter(futures))
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "as_completed", interrupted)
    assert swept(runs, tmp_path) == (1, 0, {}, True)
    monkeypatch.setattr(sweep, "_told_to_stop", type("Number", (), {"value": 1}))
    with pytest.raises(sweep.Stopped):
        sweep._train(Run(), tmp_path, "cpu")


def test_a_process_that_dies_is_told_of():
    told = sweep._told(sweep.BrokenProcessPool("abruptly"))
    assert "lack of memory" in told


def test_a_killed_sweep_ends_its_processes_and_goes_on_later(inline, tmp_path):
    runs = grid(**TINY | {"steps": [2, 250]})
    words = ["--steps", "2", "250", "--test-lengths", "8", "16", "--device", "cpu"]
    for name in ("width", "heads", "layers", "batch", "longest"):
        words += [f"--{name}", str(*TINY[name])]
    command = [sys.executable, "-m", "relpos_lib.experiments", "sweep", *words]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path)],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    seen = b""
    while b" 1/2 " not in seen:  # the bar: one run is finished, the other begins
        read = process.stderr.read(1)
        assert read, seen.decode()
        seen += read
    process.send_signal(signal.SIGTERM)
    # Until all processes that could write have ended, workers too.
    output, errors = process.communicate()
    assert process.returncode == 130
    assert output == b""
    message = "1 runs finished, 0 were known, 0 failed\nstopped; the same command goes"
    assert message in errors.decode()
    assert "Traceback" not in errors.decode()
    assert [files(run, tmp_path).record.exists() for run in runs] == [True, False]
    assert not [*tmp_path.glob("*.part")]
    assert swept(runs, tmp_path) == (1, 1, {}, False)
    assert files(runs[1], tmp_path).record.exists()


# What is reported


def keep(folder, run, accuracy, curve=(2.5, 2.0), **more):
    """A record as training would leave it."""
    metrics = {"accuracy": dict(zip(map(str, run.test_lengths), accuracy, strict=True))}
    if run.task == "text":
        metrics = dict.fromkeys(("non_overlapping", "sliding"), metrics["accuracy"])
    record = {
        "version": VERSION,
        "run": run.as_dict(),
        "label": run.label,
        "machine": {"device": "cpu"},
        "text": "abc" if run.task == "text" else None,
        "parameters": 17,
        "curve": list(curve),
        "metrics": metrics,
        "seconds": 1.5,
    }
    save(files(run, folder).record, record | more)
    return record | more


def two_by_three(folder):
    runs = grid(seed=[0, 1, 2], scheme=["none", "bias"], test_lengths=[(8, 16)])
    numbers = np.random.default_rng(0).random((len(runs), 2))
    for run, accuracy in zip(runs, numbers.tolist(), strict=True):
        keep(folder, run, accuracy)
    return runs, numbers


def test_a_summary_holds_what_numpy_computes(tmp_path):
    runs, numbers = two_by_three(tmp_path)
    found = report.summary("mine", runs, tmp_path)
    assert found["plan"] == "mine"
    assert found["seconds"] == 9
    assert found["machine"] == {"device": "cpu"}
    assert found["text"] is None
    assert "scheme" not in found["common"]
    assert "seed" not in found["common"]
    assert found["common"]["lr"] == 3e-3
    assert [*found["groups"]] == ["none", "bias-K4"]
    for start, group in enumerate(found["groups"].values()):
        assert group["seeds"] == [0, 1, 2]
        for column, length in enumerate(("8", "16")):
            own, cell = numbers[start::2, column], group["accuracy"][length]
            assert cell["each"] == pytest.approx(own.tolist(), abs=1e-5)
            assert cell["mean"] == pytest.approx(own.mean(), abs=1e-5)
            assert cell["std"] == pytest.approx(own.std(ddof=1), abs=1e-5)
            assert (cell["low"], cell["high"]) == (min(cell["each"]), max(cell["each"]))
    json.dumps(found)


def test_one_seed_has_no_spread():
    assert spread([0.123456])["std"] == 0.0
    assert spread([0.123456])["each"] == [0.12346]


def test_missing_runs_are_named_with_the_command_that_trains_them(tmp_path):
    runs, _ = two_by_three(tmp_path)
    files(runs[1], tmp_path).record.unlink()
    with pytest.raises(ResultsError, match="1 of 6 runs of 'mine' are missing") as told:
        report.summary("mine", runs, tmp_path)
    assert f"experiments sweep mine --out {tmp_path}`" in str(told.value)


@pytest.mark.parametrize("name", ["machine", "text"])
def test_runs_of_different_machines_or_texts_are_not_mixed(name, tmp_path):
    fields = {"task": ["text"], "is_causal": [True], "test_lengths": [(8,)]}
    first, second = grid(seed=[0, 1], **fields)
    keep(tmp_path, first, [9.0])
    keep(tmp_path, second, [9.0], **{name: "other"})
    with pytest.raises(ResultsError, match=f"must have the same {name}.*other"):
        report.summary("mine", [first, second], tmp_path)


def test_a_table_shows_mean_spread_and_number_of_seeds(tmp_path):
    runs, numbers = two_by_three(tmp_path)
    groups = report.groups(runs, report.records(runs, tmp_path))
    head, none, bias = report.table(groups, "accuracy").splitlines()
    assert head.split() == ["L=8", "L=16", "seeds"]
    own = numbers[0::2]
    cells = [
        word
        for n in range(2)
        for word in (f"{own[:, n].mean():.3f}", f"±{own[:, n].std(ddof=1):.3f}")
    ]
    assert none.split() == ["none", *cells, "3"]
    assert bias.startswith("bias-K4 ")
    assert len({len(line) for line in (head, none, bias)}) == 1
    assert report.table(groups, "sliding") == ""


def test_a_single_seed_shows_no_spread(tmp_path):
    run = Run(test_lengths=(8,))
    keep(tmp_path, run, [0.25])
    groups = report.groups([run], report.records([run], tmp_path))
    head, row = report.table(groups, "accuracy").splitlines()
    assert row.split()[1:] == ["0.250", "1"]
    assert len(head) == len(row)


def test_runs_of_any_kind_are_told_apart(tmp_path):
    runs = [
        Run(),
        Run(test_lengths=(8,)),
        Run(lr=0.01),
        Run(window=4),
        Run(steps=1_000_001),
        Run(steps=1_000_002),
        Run(max_distance=(1, 2, 3, 4)),
        Run(task="copy", is_causal=True),
        Run(task="text", is_causal=True),
        Run(stop_below=0.25, precision="bfloat16", init="zero"),
    ]
    found = [keep(tmp_path, run, [0.5] * len(run.test_lengths)) for run in runs]
    groups = report.groups(runs, found)
    assert len(groups) == len(runs)
    assert all(set(name).isdisjoint(" ./=") for name in groups)
    for metric in report.METRICS:
        assert report.table(groups, metric)


@pytest.mark.parametrize("plan", PLANS)
def test_settings_of_a_prepared_sweep_have_names_of_their_own(plan, tmp_path):
    runs = PLANS[plan].runs
    assert len({run.key for run in runs}) == len(runs)
    found = [keep(tmp_path, run, [0.5] * len(run.test_lengths)) for run in runs]
    groups = report.summary(plan, runs, tmp_path)["groups"]
    settings = {json.dumps(run.as_dict() | {"seed": None}) for run in runs}
    assert len(groups) == len(settings)
    assert sum(len(group["seeds"]) for group in groups.values()) == len(found)
    # The prose finds numbers by names that are joined by dots.
    assert all(set(name).isdisjoint(" ./=") for name in groups)
    seeds = {tuple(group["seeds"]) for group in groups.values()}
    assert len(seeds) == 1, "settings are compared with the same seeds"


def test_learning_is_when_the_mean_loss_has_halved():
    bound = math.log(16) / 2
    curve = [bound + 1] * 30 + [bound - 1] * 30
    record = {"run": Run().as_dict(), "curve": curve}
    # From step 30 + n on, n of the last 20 steps are below: more than half.
    assert report.learned_at(record) == 41
    assert report.learned_at(record | {"curve": curve[:40]}) is None
    assert report.learned_at(record | {"curve": [0.0] * 19}) is None
    assert report.learned_at(record | {"curve": [0.0] * 20}) == 20


# Who is better


def share_as_extreme(first, second):
    """Share of all ways to deal out the values whose means differ as much."""
    both = np.array([*first, *second])
    wanted = abs(both[: len(first)].mean() - both[len(first) :].mean())
    differences = [
        abs(both[list(chosen)].mean() - np.delete(both, chosen).mean())
        for chosen in itertools.combinations(range(len(both)), len(first))
    ]
    return np.mean(np.array(differences) >= wanted - 1e-12)


@given(
    first=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    second=st.lists(st.integers(5, 25), min_size=1, max_size=5),
)
def test_a_difference_counts_if_few_ways_to_deal_out_the_seeds_give_it(first, second):
    verdict = compare(first, second)
    if share_as_extreme(first, second) >= 0.05:
        assert verdict == "tie"
    else:
        assert verdict == ("higher" if np.mean(first) > np.mean(second) else "lower")
    flipped = {"higher": "lower", "lower": "higher", "tie": "tie"}
    assert compare(second, first) == flipped[verdict]


def test_few_seeds_show_nothing():
    assert compare([1.0] * 3, [0.0] * 3) == "tie"
    assert compare([1.0] * 4, [0.0] * 4) == "higher"
    assert compare([0.0] * 5, [1.0] * 5) == "lower"
    assert compare([0.5] * 5, [0.5] * 5) == "tie"
