"""The command teaches, refuses what cannot be, and says how it ended."""

from __future__ import annotations

import dataclasses
import json
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from relpos_lib.experiments import __main__ as command
from relpos_lib.experiments import cli, measuring, options, trainer
from relpos_lib.experiments.build import build
from relpos_lib.experiments.dilution import REPAIRS
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.plans import PLANS, Plan
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.schemes import SCHEMES
from relpos_lib.experiments.sweep import Outcome, grid
from relpos_lib.experiments.tasks import TASKS

FIELDS = {
    "width": 8,
    "heads": 2,
    "layers": 1,
    "batch": 6,
    "steps": 3,
    "longest": 9,
    "test_lengths": (8, 16),
}
SIZES = [
    word
    for name, value in FIELDS.items()
    for word in (f"--{name.replace('_', '-')}", *map(str, np.ravel(value)))
]
SIZES += ["--device", "cpu"]


@pytest.fixture(autouse=True)
def _measure_little(monkeypatch):
    monkeypatch.setattr(measuring, "TOKENS", 512)


def main(folder, *words):
    return cli.main([*words, "--out", str(folder)])


def run(folder, *words):
    return main(folder, "run", *SIZES, "--quiet", *words)


def finished(folder, **fields):
    """A finished run, as the command leaves it."""
    one = Run(**FIELDS | fields)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in fields.items()]
    assert run(folder, *words) == 0
    return one


@pytest.fixture
def small_plans(monkeypatch):
    """Two prepared sweeps of two runs each, in the place of the large ones."""
    lists = {name: [value] for name, value in FIELDS.items()}
    for name, scheme in (("length", "bias"), ("live", "shaw")):
        plan = Plan(f"about {name}", grid(seed=[0, 1], scheme=[scheme], **lists))
        monkeypatch.setitem(PLANS, name, plan)


# It teaches


def test_list_shows_all_there_is(capsys):
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  ")]
    assert shown == [*TASKS, *SCHEMES, *PLANS]
    assert any(f"({len(PLANS['length'].runs)} runs)" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "taught"),
    [
        (
            [],
            ["run --scheme shaw --max-distance 4", "Ctrl-C stops cleanly", "torchrun"],
        ),
        (["run"], ["shaw-keys", "default 4, for schemes that clip", "default 600"]),
        (["sweep"], ["what to combine", "prepared sweeps", "--jobs", "distance-text"]),
        (["report"], ["--write", "--plot", "--weights", "all that is in the folder"]),
    ],
    ids=["all", "run", "sweep", "report"],
)
def test_help_teaches(words, taught, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--help"])
    assert end.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in taught:
        assert text in shown


def test_every_field_of_a_run_is_an_option():
    assert set(options.HELP) == {field.name for field in dataclasses.fields(Run)}
    given = {
        "task": "copy",
        "scheme": "shaw",
        "max-distance": "2,4",
        "init": "zero",
        "window": "5",
        "seed": "1",
        "steps": "2",
        "batch": "3",
        "lr": "0.1",
        "shortest": "6",
        "longest": "7",
        "width": "8",
        "heads": "2",
        "layers": "1",
        "stop-below": "0.5",
        "precision": "bfloat16",
    }
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    words += ["--is-causal", "--test-lengths", "8", "9"]
    found = options.fields_of(options.parsed(["run", *words]))
    assert set(found) == set(options.HELP)
    found["test_lengths"] = tuple(found["test_lengths"])
    assert Run(**found).max_distance == (2, 4)
    assert options.fields_of(options.parsed(["run"])) == {}


# It refuses


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: COMMAND"),
        (["walk"], "invalid choice: 'walk'"),
        (["run", "--speed", "3"], "unrecognized arguments: --speed"),
        (["run", "--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["run", "--save-every", "0"], "argument --save-every: must be at least 1"),
        (["run", "--save-every", "x"], "--save-every: must be an integer, got 'x'"),
        (["run", "--max-distance", "2,x"], "one per head as 2,4,8,16, got '2,x'"),
        (["run", "--device", "abacus"], "argument --device: invalid choice: 'abacus'"),
        (["sweep", "--jobs", "0"], "argument --jobs: must be at least 1, got 0"),
        (["sweep", "lenght"], "must be one of length, gate, .*got 'lenght'"),
        (["sweep", "length", "--lr", "1"], "--lr: a prepared sweep has its own"),
        (["report", "magic"], "must be one of length, gate, .*got 'magic'"),
        (["report", "--write", "x"], "--write: which plan.* length, gate"),
        (["report", "--plot", "x"], "--plot: which plan.* length, gate"),
        (["report", "length", "--weights"], "--weights: it needs --write"),
    ],
)
def test_bad_words_are_refused(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert _found(message, told), told


def _found(pattern, text):
    """Whether the parts of a pattern come one after another, broken lines joined."""
    text, start = " ".join(text.split()), 0
    for part in pattern.split(".*"):
        start = text.find(part, start)
        if start < 0:
            return False
    return True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--task", "magic"], "run: task must be one of switch, .*got 'magic'"),
        (["run", "--scheme", "x"], "run: scheme must be one of none, .*got 'x'"),
        (["run", "--width", "10"], "run: width must be a multiple of heads"),
        (["run", "--task", "text"], "run: is_causal must be True for the task 'text'"),
        (
            ["run", "--task", "text", "--is-causal", "--test-lengths", "5000"],
            "run: test_lengths must be at most 4096 for the task 'text', got 5000",
        ),
        (["sweep", "--scheme", "none", "x"], "sweep: scheme must be one of none"),
        (
            ["sweep", "--scheme", "alibi", "--max-distance", "2"],
            "sweep: max_distance must be None for 'alibi'",
        ),
        (["report"], "report: --out: no finished run is in "),
        (["report", "init"], "report: 30 of 30 runs of 'init' are missing in "),
        (
            ["dilution"],
            "dilution: 5 of 5 runs of 'length' are missing in .*sweep length",
        ),
        (["reach"], "reach: 25 of 25 runs of 'length' are missing in .*sweep length"),
    ],
)
def test_what_cannot_be_is_told_without_a_traceback(words, message, tmp_path, capsys):
    assert main(tmp_path, *words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert _found(message, output.err), output.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("words", [["run"], ["sweep", "length"]], ids=" ".join)
def test_cuda_without_a_gpu_is_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--device", "cuda"])
    assert end.value.code == 2
    assert "torch finds no GPU" in capsys.readouterr().err


def test_a_folder_that_is_a_file_is_refused(tmp_path, capsys):
    path = tmp_path / "file"
    path.write_text("")
    assert run(path) == 2
    assert "file" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["lightning_fabric", "safetensors.torch", "tqdm"])
def test_what_is_not_installed_is_told_with_what_to_install(
    module, monkeypatch, capsys
):
    def missing():
        raise ModuleNotFoundError("no", name=module)

    monkeypatch.setattr(cli, "main", missing)
    assert command.run() == 2
    name = module.split(".")[0]
    told = f'{name} is not installed; pip install "relpos_lib[experiments]"\n'
    assert capsys.readouterr().err == told


def test_other_modules_that_are_missing_are_no_matter_of_installing(monkeypatch):
    def broken():
        raise ModuleNotFoundError("no", name="relpos_lib.magic")

    monkeypatch.setattr(cli, "main", broken)
    with pytest.raises(ModuleNotFoundError):
        command.run()


# It runs


def test_a_run_is_trained_once_and_shown_again(tmp_path, monkeypatch, capsys):
    one = finished(tmp_path)
    output = capsys.readouterr()
    assert output.out.splitlines()[0] == "accuracy"
    assert "shaw-K4" in output.out
    assert "%" not in output.err  # --quiet: no bar
    assert json.loads(files(one, tmp_path).record.read_text())["run"] == one.as_dict()
    monkeypatch.setattr(cli, "train_run", lambda *_, **__: pytest.fail("trained"))
    assert run(tmp_path) == 0
    again = capsys.readouterr()
    assert again.out == output.out
    assert "known from" in again.err


def test_only_the_first_process_speaks(tmp_path, monkeypatch, capsys):
    finished(tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(cli.rank_zero_only, "rank", 1)
    assert run(tmp_path) == 0
    assert capsys.readouterr() == ("", "")


def test_a_run_that_fails_ends_with_1(tmp_path, monkeypatch, capsys):
    def failing(*_, **__):
        raise FloatingPointError("the loss is nan")

    monkeypatch.setattr(cli, "train_run", failing)
    assert run(tmp_path) == 1
    assert capsys.readouterr().err == "run: the loss is nan\n"


def test_a_run_that_is_stopped_ends_with_130(tmp_path, monkeypatch, capsys):
    advance = trainer.Training.advance

    def interrupted(self):
        advance(self)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Training, "advance", interrupted)
        assert run(tmp_path) == 130
    told = capsys.readouterr().err
    assert "stopped after 1 of 3 steps; the same command goes on from here" in told
    assert run(tmp_path) == 0


def test_an_interrupt_at_any_other_time_ends_with_130(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "train_run", interrupted)
    assert run(tmp_path) == 130
    assert capsys.readouterr().err == "stopped; the same command goes on from here\n"


def trained_here(monkeypatch, failed=(), was_stopped=False):
    """Sweeps train in this process; some schemes fail."""

    def sweep(runs, folder, **more):
        assert more == {"jobs": 1, "threads": 1, "device": "cpu"}
        for one in runs:
            if one.scheme not in failed:
                trainer.train_run(one, folder, device="cpu", show_progress=False)
        told = {one.key: "no luck" for one in runs if one.scheme in failed}
        return Outcome(len(runs) - len(told), 0, told, was_stopped)

    monkeypatch.setattr(cli, "sweep", sweep)


def test_a_sweep_prints_its_table(tmp_path, monkeypatch, capsys):
    trained_here(monkeypatch)
    words = ["--scheme", "shaw", "alibi", "--seed", "0", "1"]
    assert main(tmp_path, "sweep", *SIZES, *words) == 0
    output = capsys.readouterr()
    assert "4 runs finished, 0 were known, 0 failed" in output.err
    rows = [line.split() for line in output.out.splitlines()[2:]]
    assert [(row[0], row[-1]) for row in rows] == [("shaw-K4", "2"), ("alibi", "2")]


def test_a_sweep_with_failures_ends_with_1_and_tells_each_reason_once(
    tmp_path, monkeypatch, capsys
):
    trained_here(monkeypatch, failed=["alibi"])
    words = ["--scheme", "alibi", "shaw", "--seed", "0", "1", "2"]
    assert main(tmp_path, "sweep", *SIZES, *words) == 1
    output = capsys.readouterr()
    assert "3 runs finished, 0 were known, 3 failed" in output.err
    assert output.err.count("no luck") == 1
    assert " and 2 more: no luck" in output.err
    assert "shaw-K4" in output.out
    trained_here(monkeypatch, failed=["none"])
    assert main(tmp_path, "sweep", *SIZES, "--scheme", "none") == 1
    assert capsys.readouterr().out == ""


def test_a_sweep_that_is_stopped_ends_with_130(tmp_path, monkeypatch, capsys):
    trained_here(monkeypatch, was_stopped=True)
    assert main(tmp_path, "sweep", *SIZES) == 130
    assert "stopped; the same command goes on from here" in capsys.readouterr().err


# It reports


def test_a_report_without_a_plan_shows_all_that_is_there(tmp_path, capsys):
    finished(tmp_path)
    finished(tmp_path, seed=1)
    finished(tmp_path, scheme="alibi", lr=0.01)
    capsys.readouterr()
    assert main(tmp_path, "report") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert sorted((row[0], row[-1]) for row in rows) == [
        ("alibi-lr0_01", "1"),
        ("shaw-K4-lr0_003", "2"),
    ]


def test_a_report_keeps_summary_weights_and_picture(tmp_path, small_plans, capsys):
    source, target = tmp_path / "runs", tmp_path / "results"
    for seed in (0, 1):
        one = finished(source, scheme="shaw", seed=seed)
    capsys.readouterr()
    words = ["--write", str(target), "--weights", "--plot", str(tmp_path / "drawn")]
    assert main(source, "report", "live", *words) == 0
    output = capsys.readouterr()
    assert output.out.startswith("live: about live\naccuracy\n")
    found = json.loads((target / "experiments-live.json").read_text())
    assert found["groups"]["shaw-K4"]["seeds"] == [0, 1]
    weights = load_file(target / "live-shaw.safetensors")
    trained = load_file(files(Run(**FIELDS), source).weights)
    build(one).load_state_dict(weights)
    for name, tensor in trained.items():
        torch.testing.assert_close(weights[name].float(), tensor, rtol=1e-3, atol=1e-6)
    picture = tmp_path / "drawn" / "live-accuracy.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in output.err


def test_dilution_is_kept(tmp_path, small_plans, capsys):
    for seed in (0, 1):
        finished(tmp_path, scheme="bias", seed=seed)
    capsys.readouterr()
    words = ["dilution", "--write", str(tmp_path / "results")]
    assert main(tmp_path, *words) == 0
    shown = capsys.readouterr().out
    assert "capped_tail" in shown
    assert "share of attention beyond K" in shown
    found = json.loads((tmp_path / "results/experiments-dilution.json").read_text())
    assert list(found["groups"]) == list(REPAIRS)


def test_a_record_that_cannot_be_read_is_told(tmp_path, capsys):
    one = finished(tmp_path)
    files(one, tmp_path).record.write_text("{}")
    assert main(tmp_path, "report") == 2
    assert "is no file of results of version" in capsys.readouterr().err


def test_a_record_without_all_its_fields_is_told(tmp_path, capsys):
    path = files(finished(tmp_path), tmp_path).record
    whole = json.loads(path.read_text())
    for name in ("run", "label", "curve", "metrics"):
        path.write_text(json.dumps({n: v for n, v in whole.items() if n != name}))
        for again in (lambda: main(tmp_path, "report"), lambda: run(tmp_path)):
            capsys.readouterr()
            assert again() == 2
            message = f"{path.name} is no record of a run: it has no {name}"
            assert message in capsys.readouterr().err


@pytest.mark.parametrize("size", [0, 11, 1000, -10])
def test_a_checkpoint_that_cannot_be_read_is_told(size, tmp_path, capsys):
    kept = files(Run(**FIELDS), tmp_path)
    with pytest.raises(trainer.Stopped):
        trainer.train_run(
            Run(**FIELDS),
            tmp_path,
            device="cpu",
            show_progress=False,
            stop=lambda: True,
        )
    kept.checkpoint.write_bytes(kept.checkpoint.read_bytes()[:size])
    assert run(tmp_path) == 2
    told = capsys.readouterr().err
    assert f"the checkpoint {kept.checkpoint} cannot be read; without it" in told
    kept.checkpoint.unlink()
    assert run(tmp_path) == 0
