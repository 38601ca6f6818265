"""Length plot explorer: results by length, a line a setting, lines to choose from."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import traitlets

from relpos_lib.explorers._base import Explorer, Word, YesNo, fixed
from relpos_lib.explorers._bundle import bundle
from relpos_lib.explorers._picture import blank_picture, png_of, round_up
from relpos_lib.explorers._traits import TraitType
from relpos_lib.plots.common import COLOURS, MARKERS
from relpos_lib.plots.experiments import Y_LABELS

NUMBERS = ("mean", "low", "high")
Numbers = dict[int, dict[str, float]]


class Lines(TraitType[tuple[str, ...], Any]):
    """Synchronised names of some of the figure's lines, in their own order."""

    def __init__(self, **options: Any) -> None:
        super().__init__((), **options)
        self.tag(sync=True)

    def validate(self, obj: Any, value: object) -> tuple[str, ...]:
        """Refuse anything but a collection of known names, naming the trait."""
        known = obj.names
        if isinstance(value, (list, tuple, set, frozenset)):
            strange = [name for name in value if name not in known]
            if not strange:
                return tuple(name for name in known if name in value)
            value = strange[0]
        raise traitlets.TraitError(
            f"{self.name} of {type(obj).__name__} must hold some of "
            f"{', '.join(known)}, got {value!r}"
        )


class LengthPlotExplorer(Explorer):
    """A result by length for several settings, each over several seeds.

    The reader chooses the lines, sees the spread over the seeds as a band, and reads
    the numbers of all lines at one length. Mostly made by :meth:`from_results`.

    Args:
        lines: name of a setting → length → "mean", "low" and "high" over the seeds. A
            setting may lack some of the lengths.
        labels: what to call a setting; its name if not given.
        metric: "accuracy", "non_overlapping" or "sliding".
        trained: longest training length, to be marked; none if not given.
        shown: names of the lines that are shown; all if not given.
        spread: whether bands from the lowest to the highest seed are drawn.

    Raises:
        TypeError: if a length is no integer or a number is no number.
        ValueError: if there are no lines, a length is below 1, or a number is missing
            or not finite.
        traitlets.TraitError: if a value is not one of those allowed, now or when it is
            set.

    >>> few = {"mean": 0.5, "low": 0.4, "high": 0.6}
    >>> explorer = LengthPlotExplorer({"a": {32: few}, "b": {32: few, 64: few}})
    >>> explorer.shown = ["b"]
    >>> explorer.values()
    {'b': {32: 0.5, 64: 0.5}}
    """

    _esm = bundle("length_plot.js")

    metric = fixed(Word, *Y_LABELS)
    _data = fixed(traitlets.Dict)
    shown = Lines()
    spread = YesNo()

    def __init__(
        self,
        lines: Mapping[str, Mapping[int, Mapping[str, float]]],
        *,
        labels: Mapping[str, str] | None = None,
        metric: str = "accuracy",
        trained: int | None = None,
        shown: Collection[str] | None = None,
        spread: bool = True,
    ) -> None:
        self._lines = _checked(lines)
        self._labels = {name: (labels or {}).get(name, name) for name in self._lines}
        self._trained = trained
        self._fix(metric=metric)
        self._fix(_data=self._for_the_page())
        super().__init__(
            shown=self.names if shown is None else shown,
            spread=spread,
        )

    @classmethod
    def from_results(
        cls,
        summary: Mapping[str, Any],
        metric: str = "accuracy",
        *,
        shown: Collection[str] | None = None,
        spread: bool = True,
    ) -> LengthPlotExplorer:
        """The settings of a file of results of ``relpos_lib.experiments``.

        Args:
            summary: the file, loaded, such as ``result("experiments-length")``.
            metric: as of the class.
            shown: as of the class.
            spread: as of the class.

        Returns:
            The figure, with the settings that have such a metric.

        Raises:
            TypeError: if the summary is no mapping.
            ValueError: if no setting has such a metric.
            traitlets.TraitError: if a value is not one of those allowed.
        """
        if not isinstance(summary, Mapping):
            raise TypeError(
                "summary must be a loaded file of results, such as "
                f'relpos_lib.records.result("experiments-length"), got {summary!r}'
            )
        groups = {
            name: group for name, group in summary["groups"].items() if metric in group
        }
        labels = {name: group.get("label", name) for name, group in groups.items()}
        if len(set(labels.values())) < len(labels):  # more than the label differs
            labels = {}
        return cls(
            {
                name: {
                    int(length): {part: numbers[part] for part in NUMBERS}
                    for length, numbers in group[metric].items()
                }
                for name, group in groups.items()
            },
            labels=labels,
            metric=metric,
            trained=summary.get("common", {}).get("longest"),
            shown=shown,
            spread=spread,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all lines, in their order."""
        return tuple(self._lines)

    @property
    def lengths(self) -> tuple[int, ...]:
        """All lengths at which a line has a number, ascending."""
        return tuple(sorted({n for line in self._lines.values() for n in line}))

    def values(self) -> dict[str, dict[int, float]]:
        """What is shown now: name of a line → length → mean over the seeds."""
        return {
            name: {n: numbers["mean"] for n, numbers in self._lines[name].items()}
            for name in self.shown
        }

    def _range(self) -> tuple[float, float]:
        """Ends of the y axis; they do not depend on which lines are shown."""
        if self.metric == "accuracy":
            return 0.0, 1.0
        everything = [
            numbers[part]
            for line in self._lines.values()
            for numbers in line.values()
            for part in NUMBERS
        ]
        return min(0.0, math.floor(min(everything))), round_up(max(everything))

    def _for_the_page(self) -> dict[str, Any]:
        """What the page needs; a number that a line lacks is None."""
        return {
            "lengths": list(self.lengths),
            "trained": self._trained,
            "yLabel": Y_LABELS[self.metric],
            "yRange": list(self._range()),
            "lines": [
                {
                    "name": name,
                    "label": self._labels[name],
                    **{
                        part: [line.get(n, {}).get(part) for n in self.lengths]
                        for part in NUMBERS
                    },
                }
                for name, line in self._lines.items()
            ],
        }

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        last = self.lengths[-1]
        ends = [
            f"{self._labels[name]} {self._lines[name][last]['mean']:.3f}"
            for name in self.shown
            if last in self._lines[name]
        ]
        found = f"; at length {last}: {', '.join(ends)}" if ends else ""
        return (
            f"Length plot explorer: {Y_LABELS[self.metric]} by length for "
            f"{len(self.shown)} of {len(self.names)} settings{found}."
        )

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        figure = blank_picture(7.2, 3.8)
        ax = figure.subplots()
        for k, name in enumerate(self.shown):
            line = dict(sorted(self._lines[name].items()))
            x, colour = list(line), COLOURS[k % len(COLOURS)]
            mean, low, high = ([n[part] for n in line.values()] for part in NUMBERS)
            marker = MARKERS[(k + k // len(COLOURS)) % len(MARKERS)]
            ax.plot(x, mean, color=colour, marker=marker, label=self._labels[name])
            if self.spread:
                ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        if self._trained is not None:
            ax.axvline(self._trained, color="#888888", linestyle="--", linewidth=1)
        ax.set_xscale("log", base=2)
        ax.set_xticks(self.lengths, [str(n) for n in self.lengths])
        bottom, top = self._range()
        ends = (bottom, top + 0.03 * (top - bottom))  # whole markers at the upper end
        ax.set(xlabel="length L", ylabel=Y_LABELS[self.metric], ylim=ends)
        if self.shown:
            ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        return png_of(figure)


def _checked(
    lines: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> dict[str, Numbers]:
    """Plain copies of the numbers, after all checks."""
    kept: dict[str, Numbers] = {}
    for name, line in lines.items():
        kept[name] = {}
        for length, numbers in line.items():
            if isinstance(length, bool) or not isinstance(length, int):
                raise TypeError(f"lengths must be integers, got {length!r}")
            if length < 1:
                raise ValueError(f"lengths must be at least 1, got {length}")
            if not isinstance(numbers, Mapping) or not set(NUMBERS) <= set(numbers):
                raise ValueError(
                    f"lines must hold {', '.join(NUMBERS)} at each length, "
                    f"got {numbers!r} at {length} in {name!r}"
                )
            kept[name][length] = {part: float(numbers[part]) for part in NUMBERS}
            strange = [x for x in kept[name][length].values() if not math.isfinite(x)]
            if strange:
                raise ValueError(
                    f"lines must hold finite numbers, got {strange[0]} in {name!r}"
                )
    if not any(kept.values()):
        raise ValueError("lines must hold at least one line with a number, got none")
    return kept
