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
