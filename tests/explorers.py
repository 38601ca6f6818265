"""What the Python side of every figure is tested for."""

from __future__ import annotations

import base64
import io
from contextlib import contextmanager

import ipywidgets
import pytest
from matplotlib import image as images
from traitlets import TraitError


def check_range(figure, trait, good, bad, needs):
    """A trait takes the good values; what else it is given changes nothing.

    The error names the trait, the value and what it ``needs``.
    """
    for value in good:
        setattr(figure, trait, value)
        assert getattr(figure, trait) == value
    for value in bad:
        with pytest.raises(TraitError) as error:
            setattr(figure, trait, value)
        for part in (f"{trait} of {type(figure).__name__}", repr(value), needs):
            assert part in str(error.value)
        assert getattr(figure, trait) == good[-1]


def check_link(first, second, trait, value):
    """A trait can be observed, and linked in the page; returns the value it keeps."""
    seen = []
    first.observe(lambda change: seen.append(change["new"]), trait)
    link = ipywidgets.jslink((first, trait), (second, trait))
    assert link.source == (first, trait)
    assert link.target == (second, trait)
    setattr(first, trait, value)
    kept = getattr(first, trait)
    assert seen == [kept]
    return kept


@contextmanager
def nothing_sent():
    """No figure is opened to the page meanwhile."""
    before = set(ipywidgets.Widget.get_manager_state()["state"])
    yield
    assert set(ipywidgets.Widget.get_manager_state()["state"]) == before


def check_picture(png, again, most=90_000, least=200):
    """A picture is the same when drawn again, small as a file, and of some size."""
    assert png == again
    assert len(png) < most
    assert min(images.imread(io.BytesIO(png)).shape[:2]) > least


def check_output(make, most=90_000):
    """Where no widget can live there are a small picture and a stable sentence."""
    data, again = (make()._repr_mimebundle_()[0] for _ in range(2))
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert data["text/plain"] == again["text/plain"] == repr(make())
    assert "0x" not in data["text/plain"]
    check_picture(
        *(base64.b64decode(output["image/png"]) for output in (data, again)), most
    )
