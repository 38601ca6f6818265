"""The address of the repository, wherever it may be written, and its commit."""

import subprocess

import pytest

from book.tools.repository import (
    colab_address,
    library_commit,
    repository_address,
    web_address,
)

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
        "HTTPS://github.com/owner/na.me",
        "http://GitHub.com/owner/na.me",
        "https://www.github.com/owner/na.me",
        "https://github.com:443/owner/na.me.git",
        "https://user:pass@github.com/owner/na.me.git",
        "git://github.com/owner/na.me.git",
        "git@github.com:/owner/na.me.git",
        "git@GitHub.com:owner/na.me.git",
        "github.com:owner/na.me.git",
        "ssh://github.com/owner/na.me.git",
        "ssh://git@ssh.github.com:443/owner/na.me.git",
    ],
)
def test_every_form_of_a_remote(url):
    assert web_address(url) == EXPECTED


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://git.org:8443/owner/name.git", "https://git.org:8443/owner/name"),
        ("http://localhost:3000/owner/name", "http://localhost:3000/owner/name"),
        ("ssh://git@git.org:2222/owner/name.git", "https://git.org/owner/name"),
        ("git@gitlab.com:group/sub/name.git", "https://gitlab.com/group/sub/name"),
        ("https://gitlab.com/group/sub/name", "https://gitlab.com/group/sub/name"),
        (
            "ssh://git@altssh.gitlab.com:443/group/name.git",
            "https://gitlab.com/group/name",
        ),
    ],
)
def test_remotes_elsewhere(url, address):
    assert web_address(url) == address
    assert colab_address(web_address(url), "04-shaw.ipynb") is None


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "../somewhere.git",
        "/srv/x/y",
        "C:/x/y",
        "file:///a/b",
        "file://github.com/owner/name",
        "git@github-work:owner/name",
        "git@github.com-work:owner/name.git",
        "ssh://git@github-work/owner/name",
        "https://github.com/owner",
        "https://github.com/owner/name/tree/main",
        "https://github.com/owner/../name",
        "https://github.com:port/owner/name",
        'https://a"b/owner/name',
        "https:///owner/name",
    ],
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


@pytest.mark.parametrize(
    "settings",
    [
        "repository: {url: [a, b]}",
        "repository: {url: 5}",
        "repository: {url: owner/name}",
        "repository: {url: 'git@github-work:owner/name'}",
        "repository: https://github.com/owner/name",
        "repository: [url]",
        "just text",
    ],
)
def test_an_unusable_setting_is_refused(tmp_path, settings):
    (tmp_path / "_config.yml").write_text(settings)
    with pytest.raises(ValueError, match=r"^_config\.yml: "):
        repository_address(tmp_path, {"GITHUB_REPOSITORY": "second/b"})


@pytest.mark.parametrize("settings", ["", "title: x", "repository:", "repository: {}"])
def test_a_missing_setting_is_none(tmp_path, settings):
    (tmp_path / "_config.yml").write_text(settings)
    assert repository_address(tmp_path, {}) is None


def test_a_copy_inside_another_clone_has_no_address(tmp_path):
    clone(tmp_path, "https://github.com/somebody/else")
    copy = tmp_path / "copy"
    copy.mkdir()
    assert repository_address(copy, {}) is None


def test_a_link_to_a_clone_has_its_address(tmp_path):
    clone(tmp_path / "real", "https://github.com/owner/name")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert repository_address(tmp_path / "link", {}) == "https://github.com/owner/name"


def test_an_abbreviation_of_git_is_written_out(tmp_path):
    clone(tmp_path, "gh:owner/name")
    key = "url.https://github.com/.insteadOf"
    subprocess.run(["git", "-C", str(tmp_path), "config", key, "gh:"], check=True)
    assert repository_address(tmp_path, {}) == "https://github.com/owner/name"


def test_without_git_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert repository_address(tmp_path, {}) is None


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


@pytest.fixture
def committed(tmp_path, monkeypatch):
    """A clone with one commit, in a folder; git as a stranger would have it."""
    monkeypatch.delenv("GITHUB_SHA", raising=False)
    clone(tmp_path, "/srv/mirror.git")
    (tmp_path / "relpos_lib").mkdir()
    (tmp_path / "relpos_lib" / "offsets.py").write_text("K = 1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "One"], check=True)
    return tmp_path


def test_the_commit_of_the_library_says_whether_it_was_changed(committed):
    commit = library_commit(committed)
    assert len(commit) == 40
    (committed / "notes.txt").write_text("not part of it")
    assert library_commit(committed) == commit
    (committed / "relpos_lib" / "offsets.py").write_text("K = 2")
    assert library_commit(committed) == f"{commit}-changed"


def test_the_workflow_names_the_commit(committed, monkeypatch):
    monkeypatch.setenv("GITHUB_SHA", "0123abc")
    assert library_commit(committed) == "0123abc"


def test_outside_a_clone_there_is_no_commit(committed):
    assert library_commit(committed / "relpos_lib") is None
