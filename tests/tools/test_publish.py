"""What is published: the same chapters, each knowing where its library is."""

from types import SimpleNamespace

import nbformat
import nbformat.v4 as v4
import pytest
import yaml

from book._ext import site
from book.tools import build, publish, setup_cell
from book.tools.portable import PORTABLE
from book.tools.repository import COLAB_BRANCH, ROOT


def write(path, cells):
    nbformat.write(v4.new_notebook(cells=cells), path)
    return path


def test_only_the_setup_cell_changes(tmp_path):
    setup = v4.new_code_cell(setup_cell.SOURCE, metadata=setup_cell.METADATA)
    cells = [v4.new_markdown_cell("# One"), setup, v4.new_code_cell("1 + 1")]
    path = write(tmp_path / "01-one.ipynb", cells)
    content = publish.stamped(path, "https://github.com/owner/name", "0123abc")
    published = nbformat.reads(content, as_version=4)
    changed = [
        (new.source, old.source)
        for new, old in zip(published.cells, cells, strict=True)
        if new.source != old.source
    ]
    [(new, old)] = changed
    line = 'REPOSITORY, COMMIT = "https://github.com/owner/name", "0123abc"'
    assert line in new
    assert old == setup_cell.SOURCE


def test_a_chapter_without_its_setup_cell_is_refused(tmp_path):
    path = write(tmp_path / "01-one.ipynb", [v4.new_code_cell("1 + 1")])
    with pytest.raises(ValueError, match="one setup cell"):
        publish.stamped(path, "https://github.com/owner/name", "0123abc")


@pytest.fixture
def download(tmp_path):
    """A notebook that the site offers to download."""
    path = tmp_path / "_sources" / "book" / "01-one.ipynb"
    path.parent.mkdir(parents=True)
    setup = v4.new_code_cell(setup_cell.SOURCE, metadata=setup_cell.METADATA)
    return write(path, [setup])


@pytest.mark.parametrize(
    ("repository", "commit", "constants"),
    [
        ("https://github.com/o/n", "0123abc", '"https://github.com/o/n", "0123abc"'),
        ("https://github.com/o/n", None, '"", ""'),
        (None, "0123abc", '"", ""'),
    ],
)
def test_a_published_site_offers_stamped_notebooks(
    tmp_path, monkeypatch, download, repository, commit, constants
):
    monkeypatch.setattr(site, "repository_address", lambda: repository)
    monkeypatch.setattr(site, "published_commit", lambda: commit)
    builder = SimpleNamespace(format="html")
    site.stamp_downloads(SimpleNamespace(outdir=tmp_path, builder=builder), None)
    [cell] = nbformat.read(download, as_version=4).cells
    assert f"REPOSITORY, COMMIT = {constants}" in cell.source


def test_the_workflow_pushes_the_notebooks_of_the_tested_site():
    jobs = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())["jobs"]
    [kept] = [
        each for each in jobs["test"]["steps"] if "upload" in each.get("uses", "")
    ]
    steps = jobs["colab"]["steps"]
    [fetched] = [each for each in steps if "download" in each.get("uses", "")]
    assert kept["with"]["path"] == str(build.SITE.relative_to(ROOT))
    assert fetched["with"]["name"] == kept["with"]["name"]
    [push] = [each["run"] for each in steps if "git push" in each.get("run", "")]
    assert push.startswith(f"cd {fetched['with']['path']}/{PORTABLE}\n")
    assert push.rstrip().endswith(f" {COLAB_BRANCH}")


def test_the_site_holds_the_portable_notebooks(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(site, "write_portable", made.append)
    for kind in ("html", "latex"):
        builder = SimpleNamespace(format=kind)
        site.add_portable(SimpleNamespace(outdir=tmp_path, builder=builder), None)
    assert made == [tmp_path / PORTABLE]
