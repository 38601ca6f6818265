"""Join what a cell printed as it was printed.

A kernel sends printed text in pieces, which may end inside a line. myst-nb would start
a new line after each piece; nbclient can join them first, if it is asked to.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.execute import direct
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    direct.single_nb_execution = partial(single_nb_execution, coalesce_streams=True)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
