"""Notebooks that carry their library: whole, checked, and runnable on their own."""

import base64
import importlib.metadata
import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePath
from types import ModuleType, SimpleNamespace

import nbformat
import pytest
import tomllib

from book.tools import portable as tool
from book.tools import setup_cell
from book.tools.notebooks import chapters, executed, read
from book.tools.repository import ROOT

MAX_BYTES = 1_500_000
ONE_CHAPTER = ROOT / "book" / "01-sinusoidal.ipynb"  # the quickest
# What a machine without this repository has: the packages, and not the library.
FORGET = f"""\
import sys
from importlib.util import find_spec
sys.path[:] = [folder for folder in sys.path if not folder.startswith({str(ROOT)!r})
               or "site-packages" in folder]
sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in repr(each)]
sys.path_importer_cache.clear()
print(find_spec("relpos_lib"))\
"""
SHOW_FIGURE = """\
from relpos_lib.explorers import IndexMatrixExplorer
IndexMatrixExplorer()\
"""
SAY_WHERE = """\
import relpos_lib
from pathlib import Path
print(Path(relpos_lib.__file__).parents[1], end="")\
"""
VIEW = "application/vnd.jupyter.widget-view+json"
SMALL = {
    "relpos_lib/__init__.py": "VALUE = 7\n",
    "relpos_lib/explorers/figure.js": "export default 1;\n",
    "relpos_lib/results/bench.json": '{"a": 1}',
    "relpos_lib/__pycache__/old.pyc": "left behind",
    "pyproject.toml": '[project]\nversion = "1.2.3"\n'
    '[project.optional-dependencies]\nbook = ["matplotlib>=3", "any-widget"]\n',
}


@pytest.fixture(scope="module")
def carried():
    return tool.library()


@pytest.fixture
def small(tmp_path):
    """A library of three files, in a folder that is no clone."""
    for name, content in SMALL.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tool.library(tmp_path / "root")


def names_in(carried):
    packed = zlib.decompress(base64.b64decode(carried.text))
    return zipfile.ZipFile(io.BytesIO(packed)).namelist()


def test_it_carries_what_would_be_installed(carried):
    """Every module and all package data, and nothing else."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["relpos_lib"]
    names = names_in(carried)
    for name in names:
        inside = PurePath(name).relative_to("relpos_lib")
        assert inside.suffix == ".py" or any(map(inside.match, patterns)), name
    for pattern in ["**/*.py", *patterns]:
        for path in (ROOT / "relpos_lib").glob(pattern):
            assert path.relative_to(ROOT).as_posix() in names


def test_the_same_files_give_the_same_bytes(carried, small, tmp_path):
    assert tool.packed() == tool.packed()
    (tmp_path / "root/relpos_lib/__init__.py").touch()
    assert tool.library(tmp_path / "root") == small
    (tmp_path / "root/relpos_lib/__init__.py").write_text("VALUE = 8\n")
    assert tool.library(tmp_path / "root").digest != small.digest


def test_it_says_what_it_carries(small):
    names = ["relpos_lib/" + n for n in ("__init__.py", "explorers/figure.js")]
    assert names_in(small) == [*names, "relpos_lib/results/bench.json"]
    assert (small.version, small.commit, small.files) == ("1.2.3", None, 3)
    assert small.needs == ("numpy", "matplotlib", "any-widget")
    told = tool.note(replace(small, commit="0123abc"))
    for part in ("1.2.3", "commit 0123abc", "3 files", small.digest, "matplotlib"):
        assert part in told
    assert "of no commit" in tool.note(small)


@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_only_the_setup_cell_differs_from_the_chapter(carried, path):
    made, stored = tool.portable(path, carried), read(path)
    nbformat.validate(made)
    assert len(nbformat.writes(made)) < MAX_BYTES
    told = [cell for cell in made.cells if cell.id == f"{path.stem}-library"]
    assert [carried.digest in cell.source for cell in told] == [True]
    kept = [cell for cell in made.cells if cell not in told]
    for new, old in zip(kept, stored.cells, strict=True):
        if setup_cell.is_setup(old):
            assert made.cells.index(told[0]) + 1 == made.cells.index(new)
            assert setup_cell.is_setup(new)
            assert new.source == tool.setup_source(carried)
        else:
            assert new == old
    assert made.metadata.relpos_lib == carried.about


def test_it_names_no_address_and_no_folder_of_this_machine(carried):
    source = tool.setup_source(carried).replace(carried.text, "")
    assert "http" not in source
    assert "git+" not in source
    assert str(ROOT) not in source
    for line in source.splitlines():
        assert len(line) <= 88 or line.startswith("print(")


def test_a_chapter_without_its_setup_cell_is_refused(small, tmp_path):
    path = tmp_path / "01-one.ipynb"
    nbformat.write(nbformat.v4.new_notebook(), path)
    with pytest.raises(ValueError, match="one setup cell"):
        tool.portable(path, small)


def test_files_are_written_once(monkeypatch, tmp_path, carried):
    monkeypatch.setattr(tool, "library", lambda: carried)
    monkeypatch.setattr(tool, "chapters", lambda: [ONE_CHAPTER])
    [path] = tool.write_portable(tmp_path / "out")
    assert read(path).metadata.relpos_lib.sha256 == carried.digest
    before = path.stat().st_mtime_ns
    tool.write_portable(tmp_path / "out")
    assert path.stat().st_mtime_ns == before


def test_the_command_says_where_they_are(monkeypatch, tmp_path, capsys, carried):
    monkeypatch.setattr(tool, "library", lambda: carried)
    monkeypatch.setattr(sys, "argv", ["portable", str(tmp_path)])
    assert tool.main() == 0
    said = capsys.readouterr().out
    assert [path.name in said for path in chapters()] == [True] * len(chapters())
    assert carried.digest in said
    assert str(tmp_path) in said


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run a setup cell where some packages are absent; return pip's arguments."""

    def run(source, absent=()):
        commands = []

        def find_spec(name):
            return None if name in absent else ModuleSpec(name, None)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.9")
        monkeypatch.setattr(
            subprocess, "run", lambda command, check: commands.append(command[1:])
        )
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.delitem(sys.modules, "relpos_lib", raising=False)
        exec(source, {})
        return commands

    return run


def test_it_unpacks_the_library_before_all_others(run, small, tmp_path, capsys):
    assert run(tool.setup_source(small)) == []
    folder = Path(sys.path[0])
    assert folder.is_relative_to(tmp_path)
    assert (folder / "relpos_lib/__init__.py").read_text() == "VALUE = 7\n"
    assert (folder / "relpos_lib/results/bench.json").is_file()
    assert capsys.readouterr().out.startswith("relpos_lib 1.2.3, of no commit: ")


def changed(text):
    """The text with one character changed, at its start, its end and in between."""
    for place in {0, 1, *range(2, len(text), len(text) // 40), len(text) - 1}:
        other = "B" if text[place] == "A" else "A"
        yield text[:place] + other + text[place + 1 :]


def test_it_refuses_a_library_with_a_changed_byte(run, small, tmp_path):
    source = tool.setup_source(small)
    wrong = [*changed(small.text), small.text[:-1], small.text + "=", ""]
    for text in wrong:
        with pytest.raises(ImportError, match="was changed or cut off") as caught:
            run(source.replace(small.text, text))
        assert len(str(caught.value)) < 200
    assert list(tmp_path.glob("relpos_lib-*")) == []


def test_errors_do_not_print_the_library(small):
    """Python shows the lines around an error: the long one stands elsewhere."""
    lines = tool.setup_source(small).splitlines()
    [long] = [i for i, line in enumerate(lines) if small.text in line]
    first = min(i for i, line in enumerate(lines) if "raise " in line)
    assert first - long > 10


def test_it_refuses_to_mix_with_another_library(run, small, monkeypatch):
    source, other = tool.setup_source(small), ModuleType("relpos_lib")
    for name in ("find_spec", "delitem"):
        monkeypatch.setattr(monkeypatch, name, lambda *a, **k: None, raising=False)
    other.__file__ = "/elsewhere/relpos_lib/__init__.py"
    monkeypatch.setitem(sys.modules, "relpos_lib", other)
    with pytest.raises(ImportError, match="Restart the kernel"):
        run(source)
    other.__file__ = f"/t/relpos_lib-{small.digest[:12]}-x/relpos_lib/__init__.py"
    before = list(sys.path)
    run(source)
    assert sys.path == before


@pytest.mark.parametrize(
    ("absent", "expected"),
    [
        ([], []),
        (["any_widget"], ["any-widget", "torch==9.9", "numpy==9.9"]),
        (["matplotlib", "numpy"], ["numpy", "matplotlib", "torch==9.9"]),
    ],
)
def test_it_installs_what_is_missing_and_moves_nothing(run, small, absent, expected):
    commands = run(tool.setup_source(small), absent)
    pip = ["-m", "pip", "install", "--quiet"]
    assert commands == ([[*pip, *expected]] if expected else [])


def test_it_asks_colab_to_show_the_figures(run, small, monkeypatch):
    asked, colab = [], ModuleType("google.colab")
    colab.output = SimpleNamespace(
        enable_custom_widget_manager=lambda: asked.append(True)
    )
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    run(tool.setup_source(small))
    assert asked == [True]


def test_a_portable_notebook_runs_where_there_is_no_repository(carried, tmp_path):
    notebook = tool.portable(ONE_CHAPTER, carried)
    new = nbformat.v4.new_code_cell
    notebook.cells.insert(0, new(FORGET))
    notebook.cells += [new(SHOW_FIGURE), new(SAY_WHERE)]
    first, *_, figure, where = executed(notebook, tmp_path).cells
    assert first.outputs[0].text == "None\n"
    assert set(figure.outputs[0].data) >= {VIEW, "image/png", "text/plain"}
    place = Path(where.outputs[0].text)
    assert place.name.startswith(f"relpos_lib-{carried.digest[:12]}-")
    assert place.parent == Path(tempfile.gettempdir())
