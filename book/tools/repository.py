"""The repository: its folder, its commit and, its only home, its public address."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[2]
# What Python and Jupyter leave beside the sources
PASSING = {"__pycache__", ".ipynb_checkpoints"}
COLAB = "https://colab.research.google.com/github"
COLAB_BRANCH = "colab"
# host:owner/name, with or without a user: how git writes ssh://host/owner/name
SHORT = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):/?(?P<path>[^/].*)")
HOST = re.compile(r"[a-z0-9.-]+")
# Not an alias from somebody's settings of ssh, like github-work or github.com-work
DOMAIN = re.compile(r"([a-z0-9-]+\.)+[a-z]{2,}")
HOSTS = {"http": HOST, "https": HOST, "ssh": DOMAIN, "git": DOMAIN}
PATH = re.compile(r"\.?[\w-][\w.-]*(/\.?[\w-][\w.-]*)+", re.ASCII)
# Other names of a host whose pages have one name
SAME = {
    "www.github.com": "github.com",
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
}


def repository_address(
    root: Path = ROOT, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Address like ``https://github.com/owner/name``, or None if there is none.

    The first that says something wins: ``repository.url`` in ``_config.yml``, the
    variable ``GITHUB_REPOSITORY`` (set by GitHub's workflows), the remote ``origin``.
    """
    name = environ.get("GITHUB_REPOSITORY")
    return (
        configured_address(root)
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


def published_commit(environ: Mapping[str, str] = os.environ) -> str | None:
    """Commit that is being published, named by GitHub's workflows; None elsewhere."""
    return environ.get("GITHUB_SHA")


def library_commit(root: Path = ROOT) -> str | None:
    """Commit of the library and the chapters on disk; None outside a clone.

    Where something was changed since, it ends in "-changed".
    """
    if commit := published_commit():
        return commit
    if not is_clone(root):
        return None
    changed = git(root, "status", "--porcelain", "--", "relpos_lib", "book")
    commit = git(root, "rev-parse", "HEAD")
    return f"{commit}-changed" if commit and changed else commit


def web_address(url: str | None) -> str | None:
    """Web address of a git remote; None for a folder or anything else."""
    url = (url or "").strip()
    if short := SHORT.fullmatch(url):
        url = f"ssh://{short['host']}/{short['path']}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return None
    host, path = SAME.get(host, host), parts.path.strip("/").removesuffix(".git")
    known = HOSTS.get(parts.scheme)
    if known is None or not known.fullmatch(host) or not PATH.fullmatch(path):
        return None
    if host == "github.com":
        return f"https://{host}/{path}" if path.count("/") == 1 else None
    if known is DOMAIN:
        return f"https://{host}/{path}"  # the port was not that of the web
    return f"{parts.scheme}://{host}{port}/{path}"


def configured_address(root: Path) -> str | None:
    """Address from ``repository.url`` of the book's settings, None if it is empty."""
    config = root / "_config.yml"
    if not config.is_file():
        return None
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    for key in ("repository", "url"):
        if not isinstance(settings, (dict, type(None))):
            raise ValueError(f"{config.name}: no {key!r} can lie in {settings!r}")
        settings = (settings or {}).get(key)
    if settings is None or settings == "":
        return None
    address = web_address(settings) if isinstance(settings, str) else None
    if address is None:
        raise ValueError(
            f"{config.name}: repository.url is {settings!r}; write an address like "
            "https://github.com/owner/name, or leave it empty"
        )
    return address


def origin_url(root: Path) -> str | None:
    """Address of the remote ``origin``, if the root is a clone, not in another one."""
    return git(root, "remote", "get-url", "origin") if is_clone(root) else None


def is_clone(root: Path) -> bool:
    """Whether the root is the top of a clone, not a folder inside another one."""
    top = git(root, "rev-parse", "--show-toplevel")
    return top is not None and root.samefile(top)


def git(root: Path, *command: str) -> str | None:
    """What git says about a folder; None if it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *command],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None
