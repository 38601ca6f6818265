"""Many runs, several at a time; what is finished is never run again."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from relpos_lib.experiments.folder import files
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.trainer import Stopped, train_run


class Outcome(NamedTuple):
    """What became of the runs of a sweep.

    Attributes:
        finished: how many were trained now.
        known: how many had been finished before.
        failed: what went wrong, by the key of the run.
        was_stopped: whether the sweep was asked to stop.
    """

    finished: int
    known: int
    failed: dict[str, str]
    was_stopped: bool


def grid(**choices: Sequence[Any]) -> list[Run]:
    """Every combination of the given fields of :class:`Run`, seeds outermost.

    With seeds outermost a sweep that is stopped early has all schemes with few seeds
    rather than few schemes with all.

    >>> [run.key[:16] for run in grid(scheme=["none", "alibi"], seed=[0])]
    ['switch-none-s0-d', 'switch-alibi-s0-']
    """
    names = sorted(choices, key=lambda name: name != "seed")
    combinations = itertools.product(*(choices[name] for name in names))
    return [Run(**dict(zip(names, values, strict=True))) for values in combinations]


def sweep(
    runs: Iterable[Run],
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    device: str = "auto",
) -> Outcome:
    """Train all runs that have no record yet.

    Args:
        runs: what to train; the same run twice counts once.
        folder: where the files of the runs are kept.
        jobs: how many run at the same time, each in a process of its own.
        threads: processor threads of each.
        device: what Fabric calls an accelerator.

    Returns:
        What became of them. A run that fails does not stop the others.
    """
    wanted = list({run.key: run for run in runs}.values())
    missing = [run for run in wanted if not files(run, folder).record.exists()]
    finished, failed = 0, dict[str, str]()
    with (
        ProcessPoolExecutor(
            max_workers=jobs,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare_worker,
            initargs=(threads,),
        ) as pool,
        tqdm(total=len(missing), unit="run", file=sys.stderr) as bar,
        _sigterm_as_interrupt(),
    ):
        futures: dict[Future[Any], Run] = {
            pool.submit(_train, run, folder, device): run for run in missing
        }
        try:
            for future in as_completed(futures):
                run, error = futures[future], future.exception()
                if error is None:
                    finished += 1
                elif not isinstance(error, Stopped):
                    failed[run.key] = f"{type(error).__name__}: {error}"
                bar.set_postfix_str(f"{run.label} seed {run.seed}")
                bar.update()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()  # SIGTERM: it leaves a checkpoint
            return Outcome(finished, len(wanted) - len(missing), failed, True)
    return Outcome(finished, len(wanted) - len(missing), failed, False)


def _train(run: Run, folder: Path, device: str) -> None:
    """One run in a worker; its record is on disk, so nothing is sent back."""
    train_run(run, folder, device=device, show_progress=False)


def _prepare_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    # Between two runs Ctrl-C is the business of the sweep.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
