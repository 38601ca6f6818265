"""The site is rebuilt when, and only when, something that it shows has changed."""

import shutil

import pytest

from book.tools import build, install

FILES = {
    "_config.yml": "repository: {url: ''}",
    "_toc.yml": "root: book/index",
    "requirements.txt": "torch",
    "pyproject.toml": "[project]",
    "book/index.md": "# One",
    "book/_static/figures.js": "1;",
    "relpos_lib/offsets.py": "K = 1",
    "relpos_lib/explorers/core.js": "2;",
    "README.md": "not part of the site",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for variable in ("GITHUB_REPOSITORY", "GITHUB_SHA"):
        monkeypatch.delenv(variable, raising=False)
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_changed_file_is_seen_if_the_site_shows_it(tree, name):
    before = build.fingerprint(tree)
    assert build.fingerprint(tree) == before
    (tree / name).write_text(FILES[name] + "\n")
    assert (build.fingerprint(tree) == before) == (name == "README.md")


def test_a_new_and_a_renamed_file_are_seen(tree):
    seen = {build.fingerprint(tree)}
    (tree / "book" / "new.md").write_text("")
    seen.add(build.fingerprint(tree))
    (tree / "book" / "new.md").rename(tree / "book" / "other.md")
    seen.add(build.fingerprint(tree))
    assert len(seen) == 3


def test_what_python_leaves_behind_is_not_seen(tree):
    before = build.fingerprint(tree)
    cache = tree / "relpos_lib" / "__pycache__"
    cache.mkdir()
    (cache / "offsets.pyc").write_text("")
    assert build.fingerprint(tree) == before


def test_another_address_gives_other_buttons(tree, monkeypatch):
    before = build.fingerprint(tree)
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    assert build.fingerprint(tree) != before


def test_another_commit_gives_other_downloads(tree, monkeypatch):
    before = build.fingerprint(tree)
    monkeypatch.setenv("GITHUB_SHA", "0123abc")
    assert build.fingerprint(tree) != before


def test_names_above_the_sources_do_not_matter(tree):
    inner = tree / "__pycache__" / "copy"
    inner.mkdir(parents=True)
    for name in build.SOURCES:
        shutil.move(tree / name, inner / name)
    assert len(list(build.source_files(inner))) == len(FILES) - 1


@pytest.fixture
def site(tree, monkeypatch):
    """A site that was just built, but for its content."""
    output = tree / "_build"
    monkeypatch.setattr(build, "SITE", output / "html")
    monkeypatch.setattr(build, "STAMP", output / "built")
    for name in ("index.html", "book/01-one.html", "_static/figures.js"):
        path = output / "html" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    build.put_stamp(build.fingerprint())
    return output / "html"


def test_a_whole_site_is_fresh(site):
    assert build.is_fresh()


@pytest.mark.parametrize(
    "name", ["index.html", "book/01-one.html", "_static/figures.js"]
)
def test_a_site_without_one_of_its_files_is_not_fresh(site, name):
    (site / name).unlink()
    assert not build.is_fresh()


@pytest.mark.parametrize("stamp", ["", "old\nindex.html"])
def test_another_stamp_is_not_fresh(site, stamp):
    build.STAMP.write_text(stamp)
    assert not build.is_fresh()
    build.STAMP.write_text(build.fingerprint())
    assert not build.is_fresh()
    build.STAMP.unlink()
    assert not build.is_fresh()


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_changed_requirements_are_installed(tree, name):
    before = install.wanted(tree)
    assert install.wanted(tree) == before
    (tree / name).write_text("more")
    assert install.wanted(tree) != before


def test_the_build_tells_which_notebook_it_executes(capsys):
    lines = [
        "reading sources... [ 9%] book/01-one\n",
        "/some/where/book/01-one.ipynb: Executing notebook using local CWD [mystnb]\n",
        "/some/where/book/01-one.ipynb: Executed notebook in 3.0 seconds [mystnb]\n",
    ]
    build.report_progress(lines)
    assert capsys.readouterr().out == "  executing 01-one.ipynb\n"
