"""The API page describes every public name."""

import re

import pytest

import relpos_lib
from book.tools.repository import ROOT

PAGE = (ROOT / "book" / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", relpos_lib.__all__)
def test_every_public_name_is_described(name):
    assert re.search(rf"^\.\. auto(?:class|function):: {name}$", PAGE, re.MULTILINE)
