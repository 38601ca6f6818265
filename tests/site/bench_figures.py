"""Time slider steps of the figures in a browser: ``make bench-figures``.

A figure is made with N queries and keys; each of its sliders then goes through its
whole range and back, twice, and is timed the second time. Three times are taken of a
step: the handler alone; the frame, from the input event to the end of style, layout and
painting; and how long the page's main thread was busy with both, which other programs
on the machine do not make longer (but the measuring adds about 1 ms). No test: numbers
depend on the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from conftest import CHROMIUM_FLAGS
from figure_pages import html_of
from playwright.sync_api import Page, sync_playwright

from book.tools.browser import find_chromium
from book.tools.repository import ROOT
from relpos_lib import explorers
from relpos_lib.bias import GatedBiasRPE, SimpleBiasRPE
from relpos_lib.explorers._base import Explorer
from relpos_lib.records import RESULTS, VERSION, machine, save
from relpos_lib.shaw import RelativeMultiHeadAttention

LIMITS = {64: 16, 256: 50}
HEADS, HEAD_WIDTH = 4, 16
STEPS = 60
ADDRESS = "http://figures.test/"

# One step in one frame: [handler, handler and drawing], in milliseconds.
STEP = """([trait, value]) => new Promise((resolve) => {
  const input = document.querySelector(`.rp-figure input[id^="rp-${trait}-"]`);
  const { port1, port2 } = new MessageChannel();
  requestAnimationFrame(() => {
    const start = performance.now();
    input.value = value;
    input.dispatchEvent(new Event("input"));
    const handled = performance.now() - start;
    // Messages wait until the frame is drawn.
    port1.onmessage = () => resolve([handled, performance.now() - start]);
    port2.postMessage(null);
  });
})"""
ENDS = """(trait) => {
  const input = document.querySelector(`.rp-figure input[id^="rp-${trait}-"]`);
  return [Number(input.min), Number(input.max)];
}"""


class Case(NamedTuple):
    """A figure and how it is moved.

    Attributes:
        make: a figure of N queries and keys, or of what it has in their place.
        traits: the controls to move; the page finds each slider by its trait's name.
        largest: the largest N that the figure can have.
    """

    make: Callable[[int], Explorer]
    traits: tuple[str, ...]
    largest: int = max(LIMITS)


def heads_of(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys, each (H, N, D)."""
    query, key = torch.randn(2, HEADS, size, HEAD_WIDTH)
    return query, key


def index_matrix(size: int) -> Explorer:
    """As long as its sliders go."""
    return explorers.IndexMatrixExplorer(
        max_length=size, query_length=size, key_length=size, view="offset"
    )


def attention_map(size: int, view: str = "weights") -> Explorer:
    """Shaw with keys and values, K as large as the length."""
    width = HEADS * HEAD_WIDTH
    module = RelativeMultiHeadAttention(width, HEADS, size - 1)
    x = torch.randn(size, width)
    return explorers.AttentionMapExplorer.from_shaw(module, x, view=view)


def bias_curve(size: int) -> Explorer:
    """Learned curves of every head."""
    return explorers.BiasCurveExplorer(
        *heads_of(size), learned=SimpleBiasRPE(HEADS, size), heads_shown=HEADS
    )


def gates(size: int) -> Explorer:
    """Two settings of every head."""
    return explorers.GateExplorer(GatedBiasRPE(HEADS, size), *heads_of(size))


def sinusoid(size: int) -> Explorer:
    """As many dimensions as positions."""
    return explorers.SinusoidExplorer(length=size, width=size)


def near_far(size: int) -> Explorer:
    """Its length, moved last, goes further than N."""
    return explorers.NearFarExplorer(length=size)


def trained_model(size: int) -> Explorer:
    """The scheme that takes longest, at lengths up to N."""
    return explorers.TrainedModelExplorer(["shaw"], length=size, max_length=size)


# Name: a case. More figures, more lines.
MAP_TRAITS = ("max_distance", "length", "heads_shown")
FIGURES = {
    "index matrix": Case(
        index_matrix, ("query_length", "key_length", "max_distance"), largest=64
    ),
    "sinusoid": Case(sinusoid, ("position", "offset", "dimension", "base"), largest=64),
    "bias curve": Case(bias_curve, ("max_distance", "head", "heads_shown")),
    "gate": Case(gates, ("head",)),
    "attention map": Case(attention_map, MAP_TRAITS),
    "attention map, all steps": Case(partial(attention_map, view="steps"), MAP_TRAITS),
    "near and far": Case(near_far, ("max_distance", "leaf", "length")),
    "trained model": Case(trained_model, ("length",)),
}


def stops(low: int, high: int) -> list[int]:
    """Places of a slider on its way through the range and back."""
    count = min(STEPS // 2, max(high - low + 1, 2))
    there = [low + round((high - low) * k / (count - 1)) for k in range(count)]
    return (there + there[::-1])[1:-1] * (STEPS // (2 * count))


def spread(times: list[float]) -> dict[str, float]:
    """Median and 95th percentile, in milliseconds."""
    last = statistics.quantiles(times, n=20, method="inclusive")[-1]
    return {"median": round(statistics.median(times), 2), "p95": round(last, 2)}


def serve(page: Page, html: str) -> None:
    """Answer the page and the book's own files; nothing else is asked for."""

    def answer(route) -> None:
        name = route.request.url.removeprefix(ADDRESS)
        if name == "":
            route.fulfill(body=html, content_type="text/html")
        else:
            route.fulfill(path=ROOT / name.removeprefix("source/"))

    page.route("**/*", answer)
    page.goto(ADDRESS)
    page.wait_for_selector(".rp-figure")


def busy_clock(page: Page) -> Callable[[], float]:
    """A clock of the page's main thread, in milliseconds, that runs while it works."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        found = {metric["name"]: metric["value"] for metric in metrics}
        return 1000 * found["TaskDuration"]

    return busy


def measure(page: Page, case: Case, size: int) -> list[dict[str, object]]:
    """One record for each trait."""
    torch.manual_seed(0)
    serve(page, html_of([case.make(size)]))
    busy = busy_clock(page)

    def step(trait: str, value: int) -> tuple[float, float, float]:
        start = busy()
        handler, frame = page.evaluate(STEP, [trait, value])
        return handler, frame, busy() - start

    records = []
    for trait in case.traits:
        low, high = page.evaluate(ENDS, trait)
        values = stops(low, high)
        for value in values:  # once to warm up: a page just opened is still busy
            step(trait, value)
        times = zip(*[step(trait, value) for value in values], strict=True)
        named = zip(("handler_ms", "frame_ms", "busy_ms"), times, strict=True)
        records.append(
            {"trait": trait, "steps": len(values)}
            | {name: spread(list(one)) for name, one in named}
        )
        step(trait, high)
    return records


def main() -> None:
    """Measure the figures and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures", nargs="*", default=list(FIGURES), choices=FIGURES)
    parser.add_argument("--out", type=Path, default=RESULTS / "figures.json")
    options = parser.parse_args()
    records = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=CHROMIUM_FLAGS
        )
        about = {**machine("cpu"), "browser": f"Chromium {browser.version}"}
        about["processors"] = os.cpu_count()
        begin, others = time.monotonic(), os.getloadavg()[0]
        for name in options.figures:
            for size in LIMITS:
                if size > FIGURES[name].largest:
                    continue
                page = browser.new_page(viewport={"width": 1000, "height": 900})
                for record in measure(page, FIGURES[name], size):
                    records.append({"figure": name, "N": size, **record})
                    times = [record[time]["p95"] for time in ("frame_ms", "busy_ms")]
                    print(f"{name:24} N={size:3} {record['trait']:14}", *times)
                page.close()
        browser.close()
    save(
        options.out,
        {
            "version": VERSION,
            "machine": about,
            "load_before": round(others, 2),
            "seconds": round(time.monotonic() - begin),
            "heads": HEADS,
            "limits_ms": {str(size): limit for size, limit in LIMITS.items()},
            "figures": records,
        },
    )


if __name__ == "__main__":
    main()
