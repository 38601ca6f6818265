"""What is published: the same chapters, each with the address of its library."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from types import SimpleNamespace

import nbformat
import nbformat.v4 as v4
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from book._ext import site
from book.tools import publish, setup_cell
from book.tools.repository import ROOT


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


def test_every_chapter_is_written(tmp_path, monkeypatch):
    setup = v4.new_code_cell(setup_cell.SOURCE, metadata=setup_cell.METADATA)
    paths = [write(tmp_path / f"0{n}-x.ipynb", [setup]) for n in (1, 2)]
    monkeypatch.setattr(publish, "chapters", lambda: paths)
    monkeypatch.setattr(publish, "repository_address", lambda: "https://github.com/o/n")
    monkeypatch.setattr("sys.argv", ["publish", str(tmp_path / "out"), "0123abc"])
    assert publish.main() == 0
    written = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in written] == [path.name for path in paths]
    assert all("https://github.com/o/n" in path.read_text() for path in written)


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


BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")

sys.meta_path.insert(0, Absent())
sys.argv[0] = "publish"
from book.tools.publish import main
sys.exit(main())
"""


def installed_by_the_workflow() -> set[str]:
    """The packages that its job for Colab names, and those that they need."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())
    steps = workflow["jobs"]["colab"]["steps"]
    [run] = [
        step["run"] for step in steps if "book.tools.publish" in step.get("run", "")
    ]
    pattern = re.search(r"grep -E '(.+?)' requirements\.txt", run)[1]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    waiting = [Requirement(line) for line in lines if re.search(pattern, line)]
    assert len(waiting) == pattern.count("|") + 1
    found: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        wanted_here = not wanted.marker or wanted.marker.evaluate({"extra": ""})
        if wanted_here and name not in found:
            found.add(name)
            waiting += map(Requirement, requires(name) or [])
    return found


def test_the_workflow_installs_what_publishing_needs(tmp_path):
    present = installed_by_the_workflow()
    absent = {
        module
        for module, names in packages_distributions().items()
        if not present & {canonicalize_name(name) for name in names}
    }
    assert {"torch", "PIL", "numpy"} <= absent
    done = subprocess.run(
        [sys.executable, "-c", BARE.format(absent=absent), str(tmp_path), "0123abc"],
        cwd=ROOT,
        env={"GITHUB_REPOSITORY": "owner/name"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "stamped 01-" in done.stdout
