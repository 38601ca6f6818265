"""What every interactive figure shares: traits that refuse wrong values, a picture."""

from __future__ import annotations

import base64
from collections.abc import Callable
from numbers import Integral
from typing import Any

import anywidget
import numpy as np
import torch
import traitlets
from numpy.typing import NDArray
from torch import Tensor

from relpos_lib.explorers._bundle import styles
from relpos_lib.explorers._traits import TraitType
from relpos_lib.offsets import relative_offsets

Limit = int | str


class WholeNumber(TraitType[int, int]):
    """A synchronised whole number in a range.

    Args:
        low: smallest value, or the name of the attribute that holds it.
        high: largest value, or the name of the attribute that holds it.
    """

    def __init__(self, low: Limit, high: Limit, **options: Any) -> None:
        super().__init__(0 if isinstance(low, str) else low, **options)
        self.low, self.high = low, high
        self.tag(sync=True)

    def validate(self, obj: Any, value: object) -> int:
        """Refuse what is no whole number of the range, naming trait and range.

        NumPy's whole numbers become plain ones: only those can be sent to the page.
        """
        low, high = (
            getattr(obj, limit) if isinstance(limit, str) else limit
            for limit in (self.low, self.high)
        )
        if isinstance(value, Integral) and not isinstance(value, bool):
            whole = int(value)
            if low <= whole <= high:
                return whole
        raise traitlets.TraitError(
            f"{self.name} of {type(obj).__name__} must be a whole number from "
            f"{low} to {high}, got {value!r}"
        )


class Numbers(TraitType[tuple[float, ...], Any]):
    """Synchronised numbers, one for each of a few things, in a range about zero.

    Args:
        count: name of the trait that holds how many numbers there are.
        limit: name of the trait that holds the largest absolute value.
    """

    def __init__(self, count: str, limit: str, **options: Any) -> None:
        super().__init__((), **options)
        self.count, self.limit = count, limit
        self.tag(sync=True)

    def validate(self, obj: Any, value: object) -> tuple[float, ...]:
        """Refuse another count, or a number out of range, naming trait and range."""
        count, limit = getattr(obj, self.count), getattr(obj, self.limit)
        array = numbers_of(value)
        if array is not None and array.shape == (count,):
            strange = array[~(abs(array) <= limit)]
            if not len(strange):
                return tuple(array.tolist())
            value = strange[0].item()
        raise traitlets.TraitError(
            f"{self.name} of {type(obj).__name__} must be {count} numbers from "
            f"{-limit:g} to {limit:g}, got {value!r}"
        )


def numbers_of(value: object) -> NDArray[np.float64] | None:
    """Real numbers of a tensor, array or nested list, or None if it holds others."""
    if isinstance(value, Tensor):
        value = value.detach().cpu().double().numpy()
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return array.astype(float) if array.dtype.kind in "iuf" else None


class Word(TraitType[str, str]):
    """A synchronised word out of a few.

    Args:
        words: the words it may be; the first is the one to begin with.
        among: name of the trait that lists the words, instead of ``words``.
    """

    def __init__(self, *words: str, among: str | None = None, **options: Any) -> None:
        super().__init__(words[0] if words else "", **options)
        self.words, self.among = words, among
        self.tag(sync=True)

    def validate(self, obj: Any, value: object) -> str:
        """Refuse any other word, naming the trait and the words it may be."""
        words = getattr(obj, self.among) if self.among else self.words
        if isinstance(value, str) and value in words:
            return value
        raise traitlets.TraitError(
            f"{self.name} of {type(obj).__name__} must be one of "
            f"{', '.join(words)}, got {value!r}"
        )


class YesNo(TraitType[bool, bool]):
    """A synchronised bool."""

    def __init__(self, **options: Any) -> None:
        super().__init__(False, **options)
        self.tag(sync=True)

    def validate(self, obj: Any, value: object) -> bool:
        """Refuse anything but True and False, naming the trait."""
        if isinstance(value, bool):
            return value
        raise traitlets.TraitError(
            f"{self.name} of {type(obj).__name__} must be True or False, got {value!r}"
        )


class Explorer(anywidget.AnyWidget):
    """Base of the interactive figures.

    A figure is an anywidget: its module draws and computes in the browser, with or
    without a kernel. Where no widget can be shown, its still form is: a picture.
    """

    _css = styles()
    # ipywidgets 7 would display itself by this method, without the static picture.
    _ipython_display_ = None

    def describe(self) -> str:
        """What the figure shows now, in one sentence."""
        raise NotImplementedError

    def picture(self) -> bytes:
        """The figure as it stands now, as a PNG drawn by matplotlib."""
        raise NotImplementedError

    def still(self) -> dict[str, str]:
        """What stands in the figure's place where it cannot live, by its MIME type."""
        return {"image/png": base64.b64encode(self.picture()).decode("ascii")}

    def __repr__(self) -> str:
        """The description: the same text every time, without an address."""
        return self.describe()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The live figure, its still form and a sentence for where it cannot live."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle or ({}, {})
        data["text/plain"] = self.describe()
        return data | self.still(), metadata

    def _fix(self, **values: Any) -> None:
        """Set traits that belong to the data and stay as they are.

        This is done before ``super().__init__()``, which opens the connection to the
        page: so the figure is sent whole, and a refused one is not sent at all.
        """
        for name, value in values.items():
            self.set_trait(name, value)


def fixed(trait: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A trait that is set once, at construction, and read by the front end."""
    return trait(*args, read_only=True, **options).tag(sync=True)


def allowed_pairs(q_len: int, k_len: int, causal: bool) -> Tensor:
    """Where a query may attend, (Q, S), bool."""
    if causal:
        return relative_offsets(q_len, k_len) <= 0
    return torch.ones(q_len, k_len, dtype=torch.bool)
