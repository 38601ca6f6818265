"""Build the site: a clean build if anything changed, nothing otherwise."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from book.tools.portable import PORTABLE, write_portable
from book.tools.repository import (
    PASSING,
    ROOT,
    published_commit,
    repository_address,
)

OUTPUT = ROOT / "_build"
SITE = OUTPUT / "html"
INDEX = SITE / "index.html"
STAMP = OUTPUT / "built"
SOURCES = (
    "book",
    "relpos_lib",
    "_config.yml",
    "_toc.yml",
    "requirements.txt",
    "pyproject.toml",
)
EXECUTING = re.compile(r"([\w.-]+\.ipynb): Executing notebook")


def source_files(root: Path = ROOT) -> Iterator[Path]:
    """Every file that the site is made of, in a fixed order."""
    for name in SOURCES:
        path = root / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            # Below the root only: what lies above it has nothing to do with us.
            if file.is_file() and not PASSING & {*file.relative_to(root).parts}:
                yield file


def fingerprint(root: Path = ROOT) -> str:
    """Hash of the sources, the Python and the addresses that go into the site."""
    address, commit = repository_address(root), published_commit()
    digest = hashlib.sha256(f"{sys.version}{address}{commit}".encode())
    for file in source_files(root):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(root)}\0{content}\n".encode())
    return digest.hexdigest()


def is_fresh() -> bool:
    """Whether the site on disk was built from the sources on disk, and is whole."""
    if not STAMP.is_file():
        return False
    built, *files = STAMP.read_text(encoding="utf-8").split("\n")
    whole = bool(files) and all((SITE / name).is_file() for name in files)
    return whole and built == fingerprint()


def put_stamp(built: str) -> None:
    """Write down which sources the site was built from and which files it has."""
    files = (path for path in SITE.rglob("*") if path.is_file())
    names = sorted(path.relative_to(SITE).as_posix() for path in files)
    STAMP.write_text("\n".join([built, *names]), encoding="utf-8")


def build() -> int:
    """Run Jupyter Book from nothing, warnings as errors; its exit status."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    before = fingerprint()
    jupyter_book = str(Path(sys.executable).with_name("jupyter-book"))
    command = [jupyter_book, "build", "."]
    options = ["-W", "-n", "--keep-going"]
    # The kernel of this environment, not one that the user has elsewhere.
    environ = {**os.environ, "JUPYTER_PREFER_ENV_PATH": "1", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        report_progress(running.stdout)
    if running.returncode == 0:
        (SITE / ".nojekyll").touch()
        put_stamp(before)
    return running.returncode


def report_progress(lines: Iterable[str]) -> None:
    """Say which notebook is being executed; problems come on the other stream."""
    for line in lines:
        if found := EXECUTING.search(line):
            print(f"  executing {found[1]}", flush=True)


def main() -> int:
    """Build if needed and print where the site is."""
    if not is_fresh():
        print("Building the book: every notebook is executed", flush=True)
        if status := build():
            print("The book was not built: see the messages above.", file=sys.stderr)
            return status
    write_portable(SITE / PORTABLE)  # a new commit changes these, but no page
    print(f"The book is here: {INDEX}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
