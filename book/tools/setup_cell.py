"""The first code cell of every chapter: its only home.

It finds ``relpos_lib`` beside the book, or installs it at the commit that the
notebook was published from. It never touches torch or numpy: the library comes
with ``--no-deps``, and anywidget needs nothing of either.
"""

from __future__ import annotations

from nbformat import NotebookNode

METADATA = {
    "tags": ["hide-input", "setup"],
    "mystnb": {
        "code_prompt_show": "Setup: find or install the library",
        "code_prompt_hide": "Setup: find or install the library",
    },
}

SOURCE = """\
import subprocess
import sys
from importlib.util import find_spec

REPOSITORY, COMMIT = "", ""  # filled in when the book is published
PIP = [sys.executable, "-m", "pip", "install", "--quiet"]
sys.path.append("..")  # in a clone, the library lies beside the book
found = find_spec("relpos_lib")
if not (found and found.origin):  # a folder without code has no origin
    assert REPOSITORY, "relpos_lib not found: open this in a clone of the book"
    source = f"relpos_lib @ git+{REPOSITORY}@{COMMIT}"
    subprocess.run([*PIP, "--no-deps", source], check=True)
if not find_spec("anywidget"):
    subprocess.run([*PIP, "anywidget"], check=True)
if "google.colab" in sys.modules:
    sys.modules["google.colab"].output.enable_custom_widget_manager()\
"""


def stamped(repository: str, commit: str) -> str:
    """The cell as it is published: it knows where its library comes from."""
    empty, filled = '"", ""', f'"{repository}", "{commit}"'
    if SOURCE.count(empty) != 1:
        raise AssertionError("the setup cell must hold its two constants once")
    return SOURCE.replace(empty, filled)


def is_setup(cell: NotebookNode) -> bool:
    """Whether the cell carries the tag of the setup cell."""
    return "setup" in cell.metadata.get("tags", [])
