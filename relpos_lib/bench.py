"""What relative attention costs, as a ratio to attention without positions.

``python -m relpos_lib.bench`` times Shaw's keys and values and an additive bias against
``scaled_dot_product_attention`` of the same q, k and v, in one process and in turn, so
that a busy machine slows all of them alike. Ratios are medians over rounds with their
range; absolute times say more about the machine than about the code.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.attention import relative_attention

HEADS, WIDTH, MAX_DISTANCE = 8, 64, 16
PLAIN = "plain"

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def contenders() -> dict[str, Attend]:
    """What is timed, by name; the first is what the others are compared with."""
    rows = 2 * MAX_DISTANCE + 1
    keys, values = torch.randn(2, rows, WIDTH).requires_grad_().unbind()
    bias = torch.randn(HEADS, rows, requires_grad=True)
    return {
        PLAIN: F.scaled_dot_product_attention,
        "bias": lambda q, k, v: relative_attention(q, k, v, bias_table=bias),
        "Shaw": lambda q, k, v: relative_attention(
            q, k, v, key_table=keys, value_table=values
        ),
    }


def seconds(attend: Attend, inputs: list[Tensor], backward: bool) -> float:
    """Time of one call, with its backward pass or without gradients."""
    start = time.perf_counter()
    with torch.set_grad_enabled(backward):
        out = attend(*inputs)
        if backward:
            out.sum().backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - start


def ratios(length: int, rounds: int, backward: bool) -> dict[str, list[float]]:
    """Time of each contender over that of plain attention, round by round."""
    torch.manual_seed(0)
    inputs = [
        torch.randn(1, HEADS, length, WIDTH, requires_grad=backward) for _ in range(3)
    ]
    timed = contenders()
    found: dict[str, list[float]] = {name: [] for name in timed if name != PLAIN}
    for number in range(rounds + 1):
        times = {name: seconds(f, inputs, backward) for name, f in timed.items()}
        if number > 0:  # the first round warms up
            for name, ratio in found.items():
                ratio.append(times[name] / times[PLAIN])
    return found


def at_least_one(text: str) -> int:
    """A positive integer of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def main() -> None:
    """Print the table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--lengths", type=at_least_one, nargs="+", default=[128, 256, 512, 1024, 2048]
    )
    parser.add_argument("--rounds", type=at_least_one, default=7)
    options = parser.parse_args()
    print(
        f"B=1 H={HEADS} D={WIDTH} K={MAX_DISTANCE}, float32, CPU, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"median of {options.rounds} rounds [lowest, highest]"
    )
    for length in options.lengths:
        for backward in (False, True):
            what = "forward+backward" if backward else "forward"
            for name, found in ratios(length, options.rounds, backward).items():
                low, middle, high = min(found), statistics.median(found), max(found)
                print(
                    f"L={length:<6}{what:18}{name:6}"
                    f"{middle:7.2f}x plain  [{low:.2f}, {high:.2f}]",
                    flush=True,
                )


if __name__ == "__main__":
    main()
