"""Create ``.venv`` and install what the book needs; skip it if nothing changed.

Run by the system's Python, so only the standard library may be imported here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / "installed"
NEEDS = ("requirements.txt", "pyproject.toml")
OLDEST = (3, 11)


def wanted(root: Path = ROOT) -> str:
    """Hash of everything that decides what is installed."""
    digest = hashlib.sha256(f"{root}\n{sys.version}".encode())
    for name in NEEDS:
        digest.update((root / name).read_bytes())
    return digest.hexdigest()


def python() -> Path:
    """The interpreter inside ``.venv``."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def main() -> int:
    """Install unless the stamp says that it was done."""
    if sys.version_info < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        found = sys.version.split()[0]
        print(f"Python {oldest} or newer is needed, this is {found}: {sys.executable}")
        print("Name another one like this: make book PYTHON=python3.12")
        return 1
    if STAMP.is_file() and STAMP.read_text() == wanted() and python().is_file():
        return 0
    STAMP.unlink(missing_ok=True)
    if not python().is_file():
        print(f"Creating {VENV.name} with Python {sys.version.split()[0]}")
        venv.create(VENV, with_pip=True)
    print("Installing requirements.txt and relpos_lib")
    pip = [str(python()), "-m", "pip", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "-r", "requirements.txt", "-e", "."], cwd=ROOT, check=False
    )
    if done.returncode == 0:
        silence_kernels()
        STAMP.write_text(wanted())
    return done.returncode


def silence_kernels() -> None:
    """Keep kernels from warning, once a notebook, about talking to this machine."""
    folder = VENV / "etc" / "ipython"
    folder.mkdir(parents=True, exist_ok=True)
    settings = 'get_config().IPKernelApp.log_level = "ERROR"\n'
    (folder / "ipython_kernel_config.py").write_text(settings)


if __name__ == "__main__":
    sys.exit(main())
