"""What is published: the same chapters, each with the address of its library."""

import nbformat
import nbformat.v4 as v4
import pytest

from book.tools import publish, setup_cell


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
