"""The address of the repository, wherever it may be written."""

import subprocess

import pytest

from book.tools.repository import colab_address, repository_address, web_address

EXPECTED = "https://github.com/owner/na.me"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/owner/na.me",
        "https://github.com/owner/na.me.git",
        "https://github.com/owner/na.me/",
        "https://token@github.com/owner/na.me.git",
        "git@github.com:owner/na.me.git",
        "ssh://git@github.com/owner/na.me.git",
        "ssh://git@github.com:22/owner/na.me",
        " https://github.com/owner/na.me\n",
    ],
)
def test_every_form_of_a_remote(url):
    assert web_address(url) == EXPECTED


@pytest.mark.parametrize(
    "url", [None, "", "../somewhere.git", "/srv/x/y", "file:///a/b"]
)
def test_what_is_no_web_address(url):
    assert web_address(url) is None


def configure(root, url):
    (root / "_config.yml").write_text(f'repository: {{url: "{url}"}}\n')


def clone(root, url):
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    command = ["git", "-C", str(root), "remote", "add", "origin", url]
    subprocess.run(command, check=True)


def test_the_settings_win_over_the_workflow_and_the_remote(tmp_path):
    clone(tmp_path, "git@github.com:third/c.git")
    assert repository_address(tmp_path, {}) == "https://github.com/third/c"
    environ = {"GITHUB_REPOSITORY": "second/b"}
    assert repository_address(tmp_path, environ) == "https://github.com/second/b"
    configure(tmp_path, "https://github.com/first/a")
    assert repository_address(tmp_path, environ) == "https://github.com/first/a"
    configure(tmp_path, "")
    assert repository_address(tmp_path, environ) == "https://github.com/second/b"


def test_nothing_is_known(tmp_path):
    assert repository_address(tmp_path, {}) is None
    clone(tmp_path, "/srv/mirror.git")
    assert repository_address(tmp_path, {}) is None


def test_colab_opens_the_published_notebook():
    assert colab_address(EXPECTED, "04-shaw.ipynb") == (
        "https://colab.research.google.com/github/owner/na.me/blob/colab/04-shaw.ipynb"
    )


@pytest.mark.parametrize("repository", [None, "https://gitlab.com/owner/name"])
def test_colab_opens_nothing_from_elsewhere(repository):
    assert colab_address(repository, "04-shaw.ipynb") is None
