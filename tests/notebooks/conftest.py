"""The chapters, as parameters of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from book.tools.notebooks import chapters, read


def pytest_generate_tests(metafunc):
    if "path" in metafunc.fixturenames:
        paths = chapters()
        metafunc.parametrize("path", paths, ids=[path.stem for path in paths])


@pytest.fixture
def notebook(path: Path):
    """A committed chapter, as it lies on disk."""
    return read(path)
