"""The address of the public repository: its only home."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
COLAB = "https://colab.research.google.com/github"
COLAB_BRANCH = "colab"
# git@host:owner/name.git, ssh://git@host/owner/name and https://host/owner/name
REMOTE = re.compile(
    r"(?:ssh://)?(?:[\w.-]+@|https?://(?:[^/@]+@)?)"
    r"(?P<host>[\w.-]+)(?::\d+/|[:/])(?P<path>[\w.-]+/[\w.-]+?)(?:\.git)?/?"
)


def repository_address(
    root: Path = ROOT, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Address like ``https://github.com/owner/name``, or None if there is none.

    The first that says something wins: ``repository.url`` in ``_config.yml``, the
    variable ``GITHUB_REPOSITORY`` (set by GitHub's workflows), the remote ``origin``.
    """
    name = environ.get("GITHUB_REPOSITORY")
    return (
        web_address(configured_url(root))
        or (web_address(f"https://github.com/{name}") if name else None)
        or web_address(origin_url(root))
    )


def colab_address(repository: str | None, notebook: str) -> str | None:
    """Address that opens a published notebook (a file name) in Colab, or None."""
    host = "https://github.com/"
    if repository is None or not repository.startswith(host):
        return None
    owner_and_name = repository.removeprefix(host)
    return f"{COLAB}/{owner_and_name}/blob/{COLAB_BRANCH}/{notebook}"


def web_address(url: str | None) -> str | None:
    """Web address of a git remote; None for a folder or anything else."""
    match = REMOTE.fullmatch((url or "").strip())
    return f"https://{match['host']}/{match['path']}" if match else None


def configured_url(root: Path) -> str | None:
    """``repository.url`` of the book's settings."""
    config = root / "_config.yml"
    if not config.is_file():
        return None
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
    return (settings.get("repository") or {}).get("url")


def origin_url(root: Path) -> str | None:
    """Address of the git remote ``origin``, if this is a clone."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "config", "--get", "remote.origin.url"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None
