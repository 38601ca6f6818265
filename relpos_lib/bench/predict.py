"""How long and how large a cell will be, before it is tried.

What was measured at a smaller length of the same contender is extrapolated with the
square of the length, which is the worst that any of them does. Without that, seconds
come from the multiplications of plain attention, and bytes from what a contender is
known to keep.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from relpos_lib.bench.cases import DTYPES, Case, Setting
from relpos_lib.bench.contenders import Contender

# Multiplications and additions a second: modest, for any machine of its kind.
RATE = {"cpu": 5e10, "cuda": 2e13}
BACKWARD = 3.5  # the products of both passes over those of the first


class Prediction(NamedTuple):
    """What a cell is expected to need: seconds of one pass, and bytes at the most."""

    seconds: float
    bytes: float


class Limits(NamedTuple):
    """What a cell may need."""

    seconds: float = 30.0
    bytes: float = 8e9

    def refuse(self, predicted: Prediction) -> str | None:
        """Why a cell is skipped; None if it is not.

        >>> Limits().refuse(Prediction(seconds=2.0, bytes=1.7e10))
        'predicted to need 17 GB and 2 s, the limits are 8 GB and 30 s'
        """
        if predicted.bytes <= self.bytes and predicted.seconds <= self.seconds:
            return None
        return (
            f"predicted to need {predicted.bytes / 1e9:.3g} GB "
            f"and {predicted.seconds:.3g} s, "
            f"the limits are {self.bytes / 1e9:g} GB and {self.seconds:g} s"
        )


class History:
    """What was measured so far, to extrapolate from."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Case], dict[int, Prediction]] = defaultdict(dict)

    def add(self, name: str, case: Case, seconds: float, peak: float) -> None:
        """Remember what a contender needed for a case."""
        self._found[name, case._replace(length=0)][case.length] = Prediction(
            seconds, peak
        )

    def predict(self, contender: Contender, case: Case, setting: Setting) -> Prediction:
        """What a contender will need for a case."""
        known = self._found[contender.name, case._replace(length=0)]
        smaller = [length for length in known if length < case.length]
        if not smaller:
            return first_guess(contender, case, setting)
        growth = (case.length / max(smaller)) ** 2
        seconds, peak = known[max(smaller)]
        return Prediction(seconds * growth, peak * growth)


def first_guess(contender: Contender, case: Case, setting: Setting) -> Prediction:
    """What a contender will need for a case, from its formula alone."""
    pairs = setting.batch * setting.heads * case.length**2
    work = 4 * pairs * setting.width * (BACKWARD if case.backward else 1)
    kind = "cuda" if setting.device.startswith("cuda") else "cpu"
    size = max(4, DTYPES[case.dtype].itemsize)  # sums are kept in float32
    return Prediction(
        work / RATE[kind] * contender.slowness,
        contender.memory(case, setting) * size,
    )
