"""Pictures of the experiments' results: a line a setting, its seeds in a band."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from relpos_lib.plots.common import curves

Y_LABELS = {
    "accuracy": "share of right answers",
    "non_overlapping": "perplexity per character",
    "sliding": "perplexity per character",
}


def by_length(
    summary: Mapping[str, Any],
    metric: str = "accuracy",
    *,
    only: Collection[str] | None = None,
    trained: int | None = None,
    title: Mapping[str, str] | None = None,
) -> Figure:
    """A metric by length, a line a setting, each with the range over its seeds.

    Args:
        summary: a file of results of ``relpos_lib.experiments``, loaded.
        metric: "accuracy", "non_overlapping" or "sliding".
        only: names of the settings to be drawn, in this order; all if not given.
        trained: longest training length, to be marked; that of the summary if not
            given.
        title: what to call a setting; its own name if not given.

    Returns:
        The figure.

    Raises:
        ValueError: if a setting is unknown or has no such metric.
    """
    groups = _chosen(summary["groups"], only, metric)
    lengths = [int(n) for n in next(iter(groups.values()))[metric]]
    named = title or {}
    lines = {
        named.get(name, name): _repeats(group[metric]) for name, group in groups.items()
    }
    if trained is None:
        trained = summary["common"].get("longest")
    return curves(
        lines,
        x=lengths,
        x_label="length L",
        y_label=Y_LABELS[metric],
        x_log2=True,
        y_limits=(0, 1.03) if metric == "accuracy" else None,
        mark_x=trained,
        mark_label="trained up to here" if trained is not None else "",
    )


def by_setting(
    summary: Mapping[str, Any],
    lines: Mapping[str, Sequence[str]],
    x: Sequence[float],
    *,
    x_label: str,
    length: int,
    metric: str = "accuracy",
    x_log2: bool = False,
) -> Figure:
    """A metric at one length by something that was varied.

    Args:
        summary: a file of results of ``relpos_lib.experiments``, loaded.
        lines: what to call a line → the names of its settings, one a point.
        x: what was varied, a number a point.
        x_label: what x is.
        length: at which length it was measured.
        metric: "accuracy", "non_overlapping" or "sliding".
        x_log2: whether x is on a logarithmic scale.

    Returns:
        The figure, with the range over the seeds.

    Raises:
        ValueError: if a setting is unknown or has no such metric.
    """
    drawn = {}
    for label, names in lines.items():
        groups = _chosen(summary["groups"], names, metric)
        each = [group[metric][str(length)]["each"] for group in groups.values()]
        drawn[label] = list(zip(*each, strict=True))
    return curves(
        drawn,
        x=x,
        x_label=x_label,
        y_label=f"{Y_LABELS[metric]} at length {length}",
        x_log2=x_log2,
        y_limits=(0, 1.03) if metric == "accuracy" else None,
    )


def _chosen(
    groups: Mapping[str, Any], only: Collection[str] | None, metric: str
) -> dict[str, Any]:
    names = list(groups) if only is None else list(only)
    for name in names:
        if name not in groups:
            raise ValueError(f"no setting {name!r} among {', '.join(groups)}")
        if metric not in groups[name]:
            raise ValueError(f"the setting {name!r} has no metric {metric!r}")
    return {name: groups[name] for name in names}


def _repeats(by_length: Mapping[str, Any]) -> list[Sequence[float]]:
    """From a spread a length to a list of lengths a seed."""
    return list(zip(*(cell["each"] for cell in by_length.values()), strict=True))
