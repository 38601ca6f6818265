"""Find a Chromium for the tests of the site, or install one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Commands of the system's package managers, each a list of steps.
MANAGERS = {
    "apt-get": [["update"], ["install", "-y", "--no-install-recommends", "chromium"]],
    "dnf": [["install", "-y", "chromium"]],
    "pacman": [["-Sy", "--noconfirm", "chromium"]],
    "apk": [["add", "chromium"]],
}


def find_chromium() -> str | None:
    """Path of a Chromium that starts: ``$CHROMIUM``, the system's, Playwright's."""
    named = os.environ.get("CHROMIUM")
    on_path = (shutil.which(name) for name in NAMES)
    return next((path for path in (named, *on_path) if path and starts(path)), None)


def playwright_chromium() -> str | None:
    """Path of the Chromium that Playwright downloaded, if it did."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def starts(path: str) -> bool:
    """Whether the program tells its version (a stub of a package may not)."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def install_from_system() -> None:
    """Ask the first package manager found; failing is fine, others follow."""
    manager = next((name for name in MANAGERS if shutil.which(name)), None)
    if manager is None:
        return
    rights = [] if os.geteuid() == 0 else ["sudo", "-n"]
    for step in MANAGERS[manager]:
        print("Installing a browser:", manager, *step, flush=True)
        try:
            subprocess.run(
                [*rights, manager, *step],
                stdout=subprocess.DEVNULL,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                check=False,
            )
        except OSError:
            return


def main() -> int:
    """Make sure that the tests find a browser; say what to do if they cannot."""
    if find_chromium() or playwright_chromium():
        return 0
    install_from_system()
    if find_chromium():
        return 0
    download = [sys.executable, "-m", "playwright", "install", "chromium"]
    if subprocess.run(download, check=False).returncode == 0:
        return 0
    print("No browser: install Chromium, or name one: make test CHROMIUM=/path")
    return 1


if __name__ == "__main__":
    sys.exit(main())
