"""Training: the same twice, the same after a stop, the same with two processes."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from relpos_lib.experiments import accuracy, data, measuring, train, trainer
from relpos_lib.experiments.build import build
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.measuring import accuracy_of, measured, perplexity
from relpos_lib.experiments.model import TinyTransformer
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.schemes import SCHEMES
from relpos_lib.experiments.tasks import IGNORED, TASKS, delayed_copy
from relpos_lib.experiments.text import BEFORE, text
from relpos_lib.experiments.trainer import Stopped, schedule, stop_signals, train_run

CPU = torch.device("cpu")
TINY = {
    "width": 8,
    "heads": 2,
    "layers": 1,
    "batch": 6,
    "steps": 12,
    "shortest": 4,
    "longest": 9,
    "test_lengths": (8, 16),
}
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _measure_little(monkeypatch):
    monkeypatch.setattr(measuring, "TOKENS", 512)


def trained(folder, run=None, **more):
    return train_run(
        run or Run(**TINY), folder, device="cpu", show_progress=False, **more
    )


def but_seconds(record):
    return {name: value for name, value in record.items() if name != "seconds"}


def weights_of(folder, run=None):
    return load_file(files(run or Run(**TINY), folder).weights)


def assert_same_run(folder, other, run=None):
    """The same records, apart from the time, and the same weights, bit for bit."""
    first, again = (
        json.loads(files(run or Run(**TINY), place).record.read_text())
        for place in (folder, other)
    )
    assert but_seconds(first) == but_seconds(again)
    first, again = weights_of(folder, run), weights_of(other, run)
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "TOKENS", 512)
        trained(folder)
    return folder


# Once


def test_a_record_says_what_was_done(whole):
    run = Run(**TINY)
    record = json.loads(files(run, whole).record.read_text())
    assert record["run"] == run.as_dict()
    assert record["label"] == "shaw K=4"
    assert record["machine"]["torch"] == torch.__version__
    assert record["machine"]["processes"] == 1
    assert record["text"] is None
    assert record["parameters"] == sum(p.numel() for p in build(run).parameters())
    assert len(record["curve"]) == 12
    assert set(record["metrics"]["accuracy"]) == {"8", "16"}
    assert sorted(path.suffix for path in whole.iterdir()) == [".json", ".safetensors"]


def test_two_runs_of_one_seed_are_the_same(whole, tmp_path):
    torch.manual_seed(5)
    trained(tmp_path, save_every=5)
    assert_same_run(whole, tmp_path)
    other = Run(**TINY, seed=1)
    assert trained(tmp_path, other)["curve"] != trained(tmp_path)["curve"]


def test_the_curve_is_the_loss_of_each_step(whole):
    run = Run(**TINY)
    model = build(run)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for step in range(run.steps):
        symbols, answers = data.training_batch(run, step)
        loss = nn.functional.cross_entropy(
            model(symbols).mT, answers, ignore_index=IGNORED
        )
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # One step up, as 5 % of 12 is less than one, then down to nearly nothing.
        optimizer.param_groups[0]["lr"] = run.lr * (
            1 if step == 0 else (12 - step) / 11
        )
        optimizer.step()
        losses.append(loss.item())
    record = json.loads(files(run, whole).record.read_text())
    assert record["curve"] == pytest.approx(losses, abs=1e-5)


def test_the_loss_falls_and_the_task_is_learned(tmp_path):
    run = Run(**TINY | {"task": "shift", "steps": 150, "batch": 32, "lr": 0.02})
    record = trained(tmp_path, run)
    assert record["curve"][0] > math.log(16) - 0.5
    assert record["metrics"]["accuracy"]["8"] > 0.9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_and_its_weights_load(scheme, tmp_path):
    run = Run(**TINY | {"scheme": scheme, "steps": 2})
    record = trained(tmp_path, run)
    model = build(run)
    model.load_state_dict(weights_of(tmp_path, run))
    for length, found in record["metrics"]["accuracy"].items():
        assert accuracy_of(run, model, int(length), CPU) == found


def test_training_in_bfloat16_learns_and_keeps_wide_weights(tmp_path):
    run = Run(**TINY | {"precision": "bfloat16", "steps": 40, "lr": 0.02})
    curve = trained(tmp_path, run)["curve"]
    assert sum(curve[-10:]) < sum(curve[:10]) - 1
    assert {t.dtype for t in weights_of(tmp_path, run).values()} == {torch.float32}
    assert curve[:1] != trained(tmp_path / "wide", Run(**TINY))["curve"][:1]


def test_training_ends_early_when_the_task_is_learned(tmp_path):
    curve = trained(tmp_path / "all", Run(**TINY | {"steps": 60}))["curve"]
    means = {n: sum(curve[n - 20 : n]) / 20 for n in range(20, 61)}
    bound = means[30] + 1e-6
    stop = next(n for n, mean in means.items() if mean < bound)
    run = Run(**TINY | {"steps": 60, "stop_below": bound})
    record = trained(tmp_path, run, save_every=stop)
    assert record["curve"] == curve[:stop]
    assert not files(run, tmp_path).checkpoint.exists()


def test_a_run_that_was_stopped_when_it_had_learned_goes_no_further(tmp_path):
    run = Run(**TINY | {"steps": 60, "stop_below": 100.0})  # from step 20 on
    with pytest.raises(Stopped, match="after 20 of 60 steps"):
        trained(tmp_path, run, stop=after(20))
    assert len(trained(tmp_path, run)["curve"]) == 20


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path, monkeypatch):
    run = Run(**TINY)
    original = trainer.build

    def broken(run):
        model = original(run)
        with torch.no_grad():
            model.readout.bias[3] = math.nan
        return model

    monkeypatch.setattr(trainer, "build", broken)
    wanted = r"the loss is nan at step 1 of switch-.*a smaller lr than 0\.003"
    with pytest.raises(FloatingPointError, match=wanted):
        trained(tmp_path, run)
    assert not list(tmp_path.iterdir())


def test_a_gradient_that_is_not_finite_ends_the_run(tmp_path, monkeypatch):
    original = trainer.build

    def steep(run):
        model = original(run)
        model.readout.bias.register_hook(lambda grad: grad * math.inf)
        return model

    monkeypatch.setattr(trainer, "build", steep)
    with pytest.raises(
        FloatingPointError, match=r"norm of the gradient is .* at step 1 of"
    ):
        trained(tmp_path)


def test_a_batch_that_asks_for_nothing_teaches_nothing(tmp_path):
    lengths = {"shortest": 2, "longest": 2, "batch": 1, "steps": 3}
    record = trained(tmp_path, Run(**TINY | lengths | {"task": "recall", "seed": 1}))
    assert record["curve"] == [0.0] * 3


def test_the_learning_rate_goes_up_and_down():
    assert [schedule(step, 100) for step in (0, 4, 5, 99)] == [0.2, 1.0, 1.0, 1 / 95]
    assert schedule(0, 1) == 1.0
    assert schedule(52, 100) == pytest.approx(48 / 95)
    for steps in (1, 2, 7, 40, 1000):
        shares = [schedule(step, steps) for step in range(steps)]
        assert 0 < min(shares) <= max(shares) == 1
        top = shares.index(1.0)
        assert shares[:top] == sorted(shares[:top])
        assert shares[top:] == sorted(shares[top:], reverse=True)


# Stopped and gone on


def after(steps):
    """Says stop after so many steps."""
    asked = iter(range(1, steps + 1))
    return lambda: next(asked) == steps


def test_a_stopped_run_goes_on_as_if_nothing_had_been(whole, tmp_path):
    kept = files(Run(**TINY), tmp_path)
    for step in (1, 6, 5):
        with pytest.raises(Stopped, match="of 12 steps"):
            trained(tmp_path, stop=after(step))
        assert kept.checkpoint.exists()
        assert not kept.record.exists()
    # It stood at the last step; only measuring is left.
    assert len(trained(tmp_path)["curve"]) == 12
    assert_same_run(whole, tmp_path)
    assert not kept.checkpoint.exists()


def test_ctrl_c_and_sigterm_stop_at_the_next_step(whole, tmp_path, monkeypatch):
    advance = trainer.Training.advance
    numbers = {3: signal.SIGINT, 8: signal.SIGTERM}

    def interrupted(self):
        advance(self)
        if self.step in numbers:
            # Twice, as a terminal and a launcher would.
            os.kill(os.getpid(), numbers[self.step])
            os.kill(os.getpid(), numbers[self.step])

    monkeypatch.setattr(trainer.Training, "advance", interrupted)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for step in numbers:
        with pytest.raises(Stopped, match=f"stopped after {step} of 12 steps"):
            trained(tmp_path)
    after = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert after == before
    trained(tmp_path)
    assert_same_run(whole, tmp_path)


def test_a_second_signal_ends_it_at_once(monkeypatch):
    monkeypatch.setattr(trainer, "ONE_STOP", -1.0)
    with stop_signals() as asked:
        assert not asked()
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_that_was_interrupted_while_measuring_only_measures(
    whole, tmp_path, monkeypatch
):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "measured", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path)
    monkeypatch.setattr(trainer.Training, "advance", interrupted)
    trained(tmp_path)
    assert_same_run(whole, tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from relpos_lib.experiments import measuring, trainer
from relpos_lib.experiments.run import run_from

replace, number = os.replace, 0

def once_more(source, target):
    global number
    number += 1
    if number == 3:  # the third checkpoint is written, but not in place
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

trainer.os.replace = once_more
run = run_from(eval(sys.argv[1]))
trainer.train_run(run, Path(sys.argv[2]), device="cpu", save_every=2)
"""


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(whole, tmp_path):
    fields = Run(**TINY).as_dict()
    command = [sys.executable, "-c", KILLED, repr(fields), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    kept = files(Run(**TINY), tmp_path)
    assert torch.load(kept.checkpoint)["step"] == 4
    trained(tmp_path, save_every=100)
    assert_same_run(whole, tmp_path)


# Several processes


def test_two_processes_that_train_one_run_do_not_disturb_each_other(
    whole, tmp_path, monkeypatch
):
    def other_process():
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            trained(tmp_path, save_every=5)

    replace, others = os.replace, [other_process]

    def replace_later(source, target):
        if others:  # the other one trains while this one has written, not replaced
            others.pop()()
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_later)
    trained(tmp_path, save_every=5)
    assert_same_run(whole, tmp_path)
    assert not [*tmp_path.glob("*.part")]


def test_two_processes_compute_the_same_as_one(tmp_path):
    run = Run(**TINY | {"steps": 20, "batch": 7})  # shares of 4 and 3
    flags = []
    for name, value in TINY.items():
        words = [str(n) for n in (value if isinstance(value, tuple) else [value])]
        flags += [f"--{name.replace('_', '-')}", *words]
    flags += ["--steps", "20", "--batch", "7", "--device", "cpu"]
    launch = ["torch.distributed.run", "--nproc-per-node", "2"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command = [*launch, "-m", "relpos_lib.experiments", "run", *flags]
    done = subprocess.run(
        [sys.executable, "-m", *command, "--out", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(files(run, tmp_path).record.read_text())
    assert record["machine"]["processes"] == 2
    alone = trained(tmp_path / "alone", run)["curve"]
    assert len(record["curve"]) == len(alone) == 20
    assert record["curve"] == pytest.approx(alone, abs=1e-4)
    both = weights_of(tmp_path, run), weights_of(tmp_path / "alone", run)
    for name, tensor in both[0].items():
        # What has no gradient but rounding is moved by rounding.
        if not name.endswith("wk.bias"):
            torch.testing.assert_close(tensor, both[1][name], rtol=0, atol=1e-3)
    # Only one of them speaks.
    assert done.stdout.count("shaw-K4") == 1
    assert len(re.findall(r" 0%\|", done.stderr)) == 1  # as every bar begins


def test_a_batch_smaller_than_the_processes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer.Fabric, "world_size", 7)
    with pytest.raises(ValueError, match=r"batch must be at least .* 7, got 6"):
        trained(tmp_path)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, {"devices": 1}),
        (
            {"LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"},
            {"devices": 4, "num_nodes": 2},
        ),
        (
            {"SLURM_NTASKS": "6", "SLURM_PROCID": "0", "SLURM_NNODES": "3"},
            {"devices": 2, "num_nodes": 3},
        ),
    ],
    ids=["none", "torchrun", "slurm"],
)
def test_the_launcher_says_how_many_processes_there_are(
    environment, wanted, monkeypatch
):
    names = ("LOCAL_WORLD_SIZE", "WORLD_SIZE")
    for name in (*names, "SLURM_NTASKS", "SLURM_PROCID", "SLURM_NNODES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert trainer._processes() == wanted


# Measuring


class Blind(nn.Module):
    """Gives every symbol the same chance."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, symbols):
        return torch.zeros(*symbols.shape, self.number)


class Watching(nn.Module):
    """Foresees nothing, but remembers what it was shown."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, symbols):
        self.seen.append(symbols)
        return torch.zeros(*symbols.shape, 97)


@pytest.mark.parametrize("stride", [5, 64, 100])
def test_a_blind_model_is_as_perplexed_as_there_are_characters(stride, monkeypatch):
    assert perplexity(Blind(97), 100, stride, CPU) == pytest.approx(97)


@pytest.mark.parametrize(("length", "stride"), [(64, 64), (64, 16), (4096, 64)])
def test_every_character_is_predicted_once(length, stride, monkeypatch):
    # A model that knows how surprising each place is tells whether all count equally.
    characters = text().testing.long()
    surprise = torch.linspace(-3, 3, 97)

    def model(symbols):
        return surprise.expand(*symbols.shape, 97)

    predicted = characters[BEFORE + 1 : BEFORE + 1 + 512]
    wanted = math.exp(-surprise.log_softmax(0)[predicted].mean())
    assert perplexity(model, length, stride, CPU) == pytest.approx(wanted, rel=1e-5)


def test_windows_end_where_their_predictions_do():
    characters = text().testing.long()
    model = Watching()
    perplexity(model, 64, 16, CPU)
    rows = torch.cat(model.seen)
    assert len(rows) == 512 // 16
    for n, row in enumerate(rows):
        end = BEFORE + 16 * (n + 1)
        assert torch.equal(row, characters[end - 64 : end])


def test_a_model_that_copies_is_measured_by_what_it_copies():
    # Whoever says the last character again is right as often as characters repeat.
    characters = text().testing.long()

    def model(symbols):
        return 9.0 * nn.functional.one_hot(symbols, 97)

    pairs = characters[BEFORE : BEFORE + 513]
    repeats = int((pairs[1:] == pairs[:-1]).sum())
    total = math.log(math.exp(9) + 96)
    wanted = math.exp(total - 9 * repeats / 512)
    assert perplexity(model, 32, 32, CPU) == pytest.approx(wanted, rel=1e-5)


def test_text_is_measured_in_two_ways(tmp_path):
    fields = {"task": "text", "is_causal": True, "test_lengths": (16, 128)}
    run = Run(**TINY | fields | {"steps": 3})
    record = trained(tmp_path, run)
    assert record["text"] == text().fingerprint
    metrics = record["metrics"]
    assert {n: [*each] for n, each in metrics.items()} == {
        "non_overlapping": ["16", "128"],
        "sliding": ["16", "128"],
    }
    # Windows shorter than the stride cannot overlap.
    assert metrics["sliding"]["16"] == metrics["non_overlapping"]["16"]
    assert metrics["sliding"]["128"] != metrics["non_overlapping"]["128"]
    model = build(run)
    model.load_state_dict(weights_of(tmp_path, run))
    assert measured(run, model, CPU) == metrics


def test_accuracy_is_the_share_of_right_answers():
    run = Run(**TINY | {"task": "copy", "shortest": 6})

    def model(symbols):  # right in the first sequence, wrong in all others
        answers = TASKS["copy"].answers(symbols)
        answers[1:] += 1
        return nn.functional.one_hot(answers % 16, 16).float()

    assert len(data.test_batch(run, 16, 512)[0]) == 32
    assert accuracy_of(run, model, 16, CPU) == 1 / 32


def test_measuring_in_parts_is_measuring_at_once(monkeypatch):
    run = Run(**TINY)
    model = build(run)
    at_once = accuracy_of(run, model, 16, CPU)
    monkeypatch.setattr(measuring, "AT_ONCE", 50)
    assert accuracy_of(run, model, 16, CPU) == at_once


# As the chapters train


def test_chapters_train_and_measure_without_files():
    torch.manual_seed(0)
    model = TinyTransformer(5, d_model=8, num_heads=2, num_layers=1)
    losses = train(
        model, lambda x: delayed_copy(x, 0), lengths=(3, 5), steps=60, batch=8, lr=0.02
    )
    assert len(losses) == 60
    assert losses[-1] < 0.2 < losses[0]
    assert accuracy(model, lambda x: delayed_copy(x, 0), 7) > 0.95
    assert math.isnan(accuracy(model, lambda x: delayed_copy(x, 9), 7))
