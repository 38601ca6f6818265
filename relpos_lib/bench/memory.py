"""How much memory a call needs at its worst moment, above what it leaves behind.

What a call returns (the output, the gradients) is not counted, nor is what was there
before it. On a CPU the profiler reports every allocation and release of PyTorch's
allocator, those inside operators too, and their running sum has a maximum; scratch
space that a math library takes from the system by itself is not seen. On CUDA the
allocator keeps that maximum.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(run: Callable[[], object], device: str) -> int:
    """Largest memory in use during a call, less what is in use after it.

    Args:
        run: the call; what it returns is held until the end.
        device: where it allocates, "cpu" or "cuda".

    Returns:
        The bytes, at least 0.

    >>> x = torch.ones(1000)
    >>> peak_bytes(lambda: x.neg().neg(), "cpu")  # 4000 bytes on the way, 4000 left
    4000
    """
    if torch.device(device).type == "cuda":
        return _peak_on_cuda(run)
    return _peak_on_cpu(run)


def above_the_end(moves: Iterable[int]) -> int:
    """How far the running sum rises above its last value; allocations are positive.

    >>> above_the_end([4, 3, -4])
    4
    """
    sums = list(accumulate(moves, initial=0))
    return max(sums) - sums[-1]


def _peak_on_cpu(run: Callable[[], object]) -> int:
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _silent():
        profiler.start()
    try:
        kept = run()
    finally:
        with _silent():
            profiler.stop()
    del kept
    results: Any = profiler.profiler  # its types do not know what an event holds
    moves = [
        (event.start_ns(), event.nbytes())
        for event in results.kineto_results.events()
        if event.name() == "[memory]"
    ]
    moves.sort(key=lambda move: move[0])
    return above_the_end(size for _, size in moves)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing on stderr: the profiler tells it whenever it starts and stops."""
    before = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(nowhere)
        os.close(before)


def _peak_on_cuda(run: Callable[[], object]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    kept = run()
    torch.cuda.synchronize()
    above = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    del kept
    return above
