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
from concurrent.futures.process import BrokenProcessPool
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

    >>> [(run.scheme, run.seed) for run in grid(scheme=["none", "alibi"], seed=[0, 1])]
    [('none', 0), ('alibi', 0), ('none', 1), ('alibi', 1)]
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
        What became of them. A run that fails does not stop the others. Ctrl-C and
        SIGTERM stop those under way at their next step; a second one kills them.
    """
    wanted = list({run.key: run for run in runs}.values())
    missing = [run for run in wanted if not files(run, folder).record.exists()]
    finished, failed, was_stopped = 0, dict[str, str](), False
    context = multiprocessing.get_context("spawn")
    # No lock, which a process that is killed could hold for ever.
    must_stop = context.RawValue("b", 0)
    others = set(multiprocessing.active_children())
    with (
        ProcessPoolExecutor(
            max_workers=jobs,
            mp_context=context,
            initializer=_prepare_worker,
            initargs=(threads, must_stop),
        ) as pool,
        tqdm(total=len(missing), unit="run", file=sys.stderr) as bar,
        _sigterm_as_interrupt(),
    ):
        try:
            with _deaf_workers():
                futures: dict[Future[Any], Run] = {
                    pool.submit(_train, run, folder, device): run for run in missing
                }
            for future in as_completed(futures):
                run, error = futures[future], future.exception()
                if error is None:
                    finished += 1
                else:
                    failed[run.key] = _told(error)
                bar.update()
                bar.set_postfix_str(f"{run.label} seed {run.seed}")
        except KeyboardInterrupt:
            was_stopped = True
            must_stop.value = 1
            try:
                pool.shutdown(wait=True, cancel_futures=True)
            except KeyboardInterrupt:
                for worker in set(multiprocessing.active_children()) - others:
                    worker.kill()
    return Outcome(finished, len(wanted) - len(missing), failed, was_stopped)


def _told(error: BaseException) -> str:
    if isinstance(error, BrokenProcessPool):
        return "a process died, perhaps for lack of memory; the same command goes on"
    return f"{type(error).__name__}: {error}"


def _train(run: Run, folder: Path, device: str) -> None:
    """One run in a worker; its record is on disk, so nothing is sent back."""
    if _must_stop():  # what was handed out already cannot be called back
        raise Stopped
    if not files(run, folder).record.exists():  # another sweep may have been here
        train_run(run, folder, device=device, show_progress=False, stop=_must_stop)


_told_to_stop: Any = None  # in a worker: a number that the sweep can change


def _must_stop() -> bool:
    return _told_to_stop is not None and bool(_told_to_stop.value)


def _prepare_worker(threads: int, must_stop: Any) -> None:
    global _told_to_stop
    _told_to_stop = must_stop
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it is not inherited
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _deaf_workers() -> Iterator[None]:
    """Processes that start here ignore Ctrl-C from the beginning.

    A terminal sends it to all of them, but the sweep tells them itself.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
