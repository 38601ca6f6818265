"""Execute every chapter with the versions that Colab has, installed and portable.

``python -m book.tools.colab [PYTHON]``, or ``make test-colab``. The environment lies
in ``.venv-colab``; the notebooks run in empty folders, so nothing of the repository
can help them. Colab itself is not here: its page, its bridge between widgets and
kernel and its GPUs remain untested.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from book.tools import setup_cell
from book.tools.notebooks import CELL_TIMEOUT, WIDGET_PREFIX, chapters, read
from book.tools.portable import library, portable
from book.tools.repository import ROOT

VENV = ROOT / ".venv-colab"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed"
LIBRARY = VENV / "library"  # the installed package, apart: portable notebooks lack it
KERNEL = "colab"
VERSIONS = ROOT / "book" / "tools" / "colab-requirements.txt"
PROJECT = ("pyproject.toml", "README.md", "LICENSE", "relpos_lib")
FITTING = ("3.11", "3.12")  # the last is Colab's; its IPython is older than 3.13
VIEW = f"{WIDGET_PREFIX}-view+json"
STATE = f"{WIDGET_PREFIX}-state+json"


def torch_line() -> str:
    """The requirement that the book itself has on torch."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def version_of(python: str) -> str:
    """Version of a Python, like 3.12; empty if there is none."""
    ask = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run(
            [python, "-c", ask], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()


def install(python: str) -> None:
    """Create the environment unless it is there already; put today's library in."""
    versions = VERSIONS.read_text(encoding="utf-8")
    wanted = f"{version_of(python)}\n{ROOT}\n{torch_line()}\n{versions}"
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet"]
    if not (STAMP.is_file() and STAMP.read_text() == digest):
        print(f"Creating {VENV.name} with the versions of Colab", flush=True)
        subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=True)
        subprocess.run([*pip, torch_line(), "-r", str(VERSIONS)], check=True)
        kernel = [str(PYTHON), "-m", "ipykernel", "install", "--sys-prefix"]
        subprocess.run(
            [*kernel, "--name", KERNEL], check=True, stdout=subprocess.DEVNULL
        )
        STAMP.write_text(digest)
    # Its first import would say that it looks for fonts, in a chapter.
    subprocess.run([str(PYTHON), "-c", "import matplotlib.font_manager"], check=True)
    shutil.rmtree(LIBRARY, ignore_errors=True)
    with tempfile.TemporaryDirectory() as copy:  # a build leaves files behind
        for name in PROJECT:
            put = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            put(ROOT / name, Path(copy, name))
        into = ["--no-deps", "--target", str(LIBRARY)]
        subprocess.run([*pip, *into, copy], check=True)


def versions() -> dict[str, str]:
    """Every package of the environment, with its version."""
    command = [str(PYTHON), "-m", "pip", "list", "--format", "json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return {each["name"]: each["version"] for each in json.loads(listed.stdout)}


def executed(notebook: NotebookNode, with_library: bool) -> NotebookNode:
    """Run a notebook in the environment, from an empty folder."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if with_library:
        environ["PYTHONPATH"] = str(LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            kernel_name=KERNEL,
            timeout=CELL_TIMEOUT,
            resources={"metadata": {"path": folder}},
            coalesce_streams=True,
        ).execute(env=environ)
    return notebook


def told(notebook: NotebookNode) -> dict[str, list[str]]:
    """What each code cell but the first says and shows, without what may differ."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return {
        cell.id: [line for output in cell.outputs for line in shown(output)]
        for cell in cells
        if not setup_cell.is_setup(cell)
    }


def shown(output: NotebookNode) -> Iterator[str]:
    """The text of an output, and the kinds of pictures beside it."""
    if output.output_type == "stream":
        yield output.text
    for mime, content in sorted(output.get("data", {}).items()):
        if not mime.startswith(WIDGET_PREFIX):
            yield mime if mime.startswith("image/") else f"{mime}: {content}"


def problems(notebook: NotebookNode, stored: NotebookNode) -> Iterator[str]:
    """What differs from the committed chapter, and figures that did not come alive."""
    before, now = told(stored), told(notebook)
    for cell in before:
        if before[cell] != now.get(cell):
            yield f"{cell} says {now.get(cell)}, not {before[cell]}"
    widgets = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    figures = {key for key, each in widgets.items() if "_esm" in each["state"]}
    for cell in notebook.cells:
        for data in (output.get("data", {}) for output in cell.get("outputs", [])):
            if is_still(data) and data.get(VIEW, {}).get("model_id") not in figures:
                yield f"{cell.id} shows no live figure: {data['text/plain']}"


def is_still(data: NotebookNode) -> bool:
    """Whether an output has the still form of a figure: words and more than words."""
    words = data.get("text/plain", "")
    return len(data) > 1 and not words.startswith("<Figure size")  # a plain picture


def checked(
    path: Path, notebook: NotebookNode, stored: NotebookNode, installed: bool
) -> bool:
    """Execute one notebook and print how it went."""
    kind, start = "installed" if installed else "portable", time.monotonic()
    try:
        found = list(problems(executed(notebook, installed), stored))
    except CellExecutionError as error:
        found = [str(error)]
    verdict = "FAILED" if found else "ok"
    seconds = time.monotonic() - start
    print(f"  {kind:9} {path.stem:22} {verdict:6} {seconds:5.0f} s", flush=True)
    print("".join(f"    {each}\n" for each in found), end="")
    return not found


def main() -> int:
    """Execute everything; nothing may fail, and no version may have changed."""
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    if version_of(python) not in FITTING:
        print(f"Colab's packages need Python {' or '.join(FITTING)}; name one:")
        print("make test-colab COLAB_PYTHON=python3.12")
        return 1
    install(python)
    os.environ["JUPYTER_PATH"] = str(VENV / "share" / "jupyter")  # has the kernel
    before, carried, good = versions(), library(), True
    names = ("torch", "numpy", "ipython", "ipywidgets", "anywidget")
    told = ", ".join(f"{name} {before[name]}" for name in names)
    print(f"Python {version_of(python)}, {told}", flush=True)
    for path in chapters():
        stored = read(path)
        good &= checked(path, read(path), stored, installed=True)
        good &= checked(path, portable(path, carried), stored, installed=False)
    if versions() != before:
        good = False
        print("FAILED: a notebook changed the versions of the environment")
    print("Every chapter runs with Colab's versions." if good else "Not all is well.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
