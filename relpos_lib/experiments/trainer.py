"""Training one run with Lightning Fabric: any device, one process or many.

A run writes three files named after it: its record (JSON), its weights (safetensors)
and, until it is finished, a checkpoint to go on from.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from lightning_fabric import Fabric
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from relpos_lib.experiments.build import build
from relpos_lib.experiments.data import training_batch
from relpos_lib.experiments.folder import files
from relpos_lib.experiments.measuring import measured
from relpos_lib.experiments.run import SMOOTHED, Run
from relpos_lib.experiments.tasks import IGNORED, TASKS
from relpos_lib.experiments.text import text
from relpos_lib.records import VERSION, ResultsError, machine, part_of, save

WARM_UP = 0.05  # share of the steps
MOST_GRADIENT = 1.0  # norm of all gradients together
# A launcher passes a Ctrl-C on that the terminal has sent already: seconds in which
# both are one.
ONE_STOP = 1.0
FABRIC_PRECISION = {"float32": "32-true", "bfloat16": "bf16-mixed"}


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """Training was asked to stop and left a checkpoint to go on from."""


def train_run(
    run: Run,
    folder: Path,
    *,
    device: str = "auto",
    save_every: int = 200,
    show_progress: bool = True,
    stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Train and measure a run, or go on with it, and keep the result.

    Under ``torchrun`` or SLURM every process calls this; each takes its share of every
    batch, and the first one writes. Ctrl-C and SIGTERM stop it cleanly; a second one
    ends it at once.

    Args:
        run: what to train.
        folder: where its files are kept.
        device: "auto", "cpu", "cuda" or what else Fabric calls an accelerator.
        save_every: steps from one checkpoint to the next, at least 1.
        show_progress: whether a bar is drawn on stderr.
        stop: asked at every step whether to stop; then no signal is watched.

    Returns:
        The record: "run", "machine", "curve" (a loss a step), "metrics" and more.

    Raises:
        Stopped: if it was asked to stop.
        ValueError: if the batch has fewer sequences than there are processes, or the
            checkpoint cannot be read.
        FloatingPointError: if the loss is no longer finite.
    """
    kept, started = files(run, folder), time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    fabric = Fabric(
        accelerator=device,
        precision=FABRIC_PRECISION[run.precision],  # type: ignore[arg-type]
        **_processes(),  # type: ignore[arg-type]
    )
    fabric.launch()
    if run.batch < fabric.world_size:
        raise ValueError(
            f"batch must be at least the number of processes, {fabric.world_size}, "
            f"got {run.batch}"
        )
    training = Training(run, fabric)
    if kept.checkpoint.exists():
        training.load(kept.checkpoint)
    with stop_signals() if stop is None else nullcontext(stop) as must_stop:
        steps = tqdm(
            range(training.step, run.steps),
            desc=f"{run.label} seed {run.seed}",
            initial=training.step,
            total=run.steps,
            disable=not (show_progress and fabric.is_global_zero),
        )
        for step in steps:
            if training.has_learned():  # asked here, or a resumed run went too far
                break
            training.advance()
            if training.wants_stop(must_stop()):
                training.save(kept.checkpoint)
                raise Stopped(f"stopped after {training.step} of {run.steps} steps")
            if (step + 1) % save_every == 0:
                training.save(kept.checkpoint)
        training.save(kept.checkpoint)  # measuring may be stopped, too
    metrics = measured(run, training.plain_model(), fabric.device)
    record = {
        "version": VERSION,
        "run": run.as_dict(),
        "label": run.label,
        "machine": machine(fabric.device.type) | {"processes": fabric.world_size},
        "text": text().fingerprint if TASKS[run.task].answers is None else None,
        "parameters": sum(p.numel() for p in training.plain_model().parameters()),
        "curve": training.curve,
        "metrics": metrics,
        "seconds": round(time.perf_counter() - started, 2),
    }
    if fabric.is_global_zero:
        _write_weights(training.plain_model(), kept.weights)
        save(kept.record, record)
        kept.checkpoint.unlink(missing_ok=True)
    fabric.barrier()
    return record


class Training:
    """A run under way: its model, its optimizer, and how far it is.

    Args:
        run: what to train.
        fabric: launched.
    """

    def __init__(self, run: Run, fabric: Fabric) -> None:
        self.run, self.fabric = run, fabric
        model = build(run)
        optimizer = torch.optim.AdamW(model.parameters(), lr=run.lr, fused=True)
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.step, self.curve = 0, list[float]()

    def advance(self) -> None:
        """Make one step on this process's share of its batch."""
        symbols, answers = training_batch(self.run, self.step)
        asked = int((answers != IGNORED).sum())
        rank, processes = self.fabric.global_rank, self.fabric.world_size
        symbols, answers = (
            rows[rank::processes].to(self.fabric.device) for rows in (symbols, answers)
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.run.lr * schedule(self.step, self.run.steps)
        logits = self.model(symbols)
        loss = (
            F.cross_entropy(
                logits.flatten(0, 1).float(),
                answers.flatten(),
                ignore_index=IGNORED,
                reduction="sum",
            )
            / max(asked, 1)  # few short sequences may ask for nothing
        )
        self.optimizer.zero_grad()
        # Processes average their gradients, but each holds a part of the sum.
        self.fabric.backward(loss * processes)
        total = self.fabric.all_reduce(loss.detach(), reduce_op="sum")
        assert isinstance(total, Tensor)
        norm = self.fabric.clip_gradients(
            self.model,
            self.optimizer,
            max_norm=MOST_GRADIENT,
            error_if_nonfinite=False,  # that would not tell what may help
        )
        self._refuse("loss", total)
        self._refuse("norm of the gradient", norm)
        self.optimizer.step()
        self.step += 1
        self.curve.append(float(total))

    def _refuse(self, name: str, number: Any) -> None:
        if not math.isfinite(number):
            raise FloatingPointError(
                f"the {name} is {float(number)} at step {self.step + 1} of "
                f"{self.run.key}; a smaller lr than {self.run.lr} may help"
            )

    def has_learned(self) -> bool:
        """Whether the loss has fallen as far as the run asks for."""
        bound, last = self.run.stop_below, self.curve[-SMOOTHED:]
        if bound is None or len(last) < SMOOTHED:
            return False
        return statistics.fmean(last) < bound

    def wants_stop(self, asked: bool) -> bool:
        """Whether any process was asked to stop, so that all stop at one step."""
        if self.fabric.world_size == 1:
            return asked
        votes = self.fabric.all_reduce(
            torch.tensor(float(asked), device=self.fabric.device), reduce_op="sum"
        )
        return bool(votes)

    def save(self, path: Path) -> None:
        """Write a checkpoint such that a crash leaves the old one or the new one."""
        unfinished = part_of(path)
        self.fabric.save(unfinished, self._state())
        if self.fabric.is_global_zero:
            os.replace(unfinished, path)
        self.fabric.barrier()

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            ResultsError: if it is damaged or of another run.
        """
        state = self._state()
        try:
            self.fabric.load(path, state)
        except Exception as error:  # a damaged file makes torch raise nearly anything
            raise ResultsError(
                f"the checkpoint {path} cannot be read; without it the run begins anew"
            ) from error
        self.step, self.curve = state["step"], state["curve"]

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "step": self.step,
            "curve": self.curve,
        }

    def plain_model(self) -> nn.Module:
        """The model as it was built, trained."""
        module: nn.Module = self.model.module
        return getattr(module, "module", module)  # within DistributedDataParallel


def schedule(step: int, steps: int) -> float:
    """Share of the peak learning rate at a step: up for a short while, then down.

    >>> [round(schedule(step, 40), 2) for step in (0, 1, 2, 21, 39)]
    [0.5, 1.0, 1.0, 0.5, 0.03]
    """
    warm_up = max(1, math.ceil(WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return (steps - step) / (steps - warm_up)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Tells whether Ctrl-C or SIGTERM came, in place of dying; a second one kills."""
    asked_at = math.inf

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        now = time.monotonic()
        if now - asked_at > ONE_STOP:
            raise KeyboardInterrupt
        asked_at = min(asked_at, now)

    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, ask) for number in watched}
    try:
        yield lambda: asked_at < math.inf
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _processes() -> dict[str, int]:
    """How many processes the launcher has started, in Fabric's words."""
    env = os.environ
    if "LOCAL_WORLD_SIZE" in env and "WORLD_SIZE" in env:  # torchrun
        local, everyone = int(env["LOCAL_WORLD_SIZE"]), int(env["WORLD_SIZE"])
        return {"devices": local, "num_nodes": everyone // local}
    if "SLURM_NTASKS" in env and "SLURM_PROCID" in env and "SLURM_NNODES" in env:
        nodes = int(env["SLURM_NNODES"])
        return {"devices": int(env["SLURM_NTASKS"]) // nodes, "num_nodes": nodes}
    return {"devices": 1}


def _write_weights(model: nn.Module, path: Path) -> None:
    unfinished = part_of(path)
    tensors = {name: t.detach().cpu() for name, t in model.state_dict().items()}
    save_file(tensors, unfinished)
    os.replace(unfinished, path)
