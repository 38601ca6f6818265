"""The first cell of a chapter, on machines that lack one thing or another."""

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from book.tools import setup_cell

REPOSITORY, COMMIT = "https://github.com/owner/name", "0123abc"
STAMPED = setup_cell.stamped(REPOSITORY, COMMIT)


@pytest.fixture
def run(monkeypatch):
    """Run the cell where some packages are absent; return the commands it gave."""

    def run(source, absent=()):
        commands = []
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name: None if name in absent else ModuleSpec(name, None, origin="x"),
        )
        monkeypatch.setattr(
            subprocess, "run", lambda command, check: commands.append((command, check))
        )
        monkeypatch.setattr(sys, "path", list(sys.path))
        exec(source, {})
        return commands

    return run


@pytest.mark.parametrize("source", [setup_cell.SOURCE, STAMPED])
def test_installs_nothing_where_all_is_there(run, source, capsys):
    assert run(source) == []
    assert capsys.readouterr().out == ""


def test_installs_the_library_alone_at_its_own_commit(run):
    [(command, check)] = run(STAMPED, absent=["relpos_lib"])
    assert check
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command
    assert command[-1] == f"relpos_lib @ git+{REPOSITORY}@{COMMIT}"


def test_installs_the_widget_package_if_it_is_missing(run):
    [(command, check)] = run(STAMPED, absent=["anywidget"])
    assert check
    assert command[-1] == "anywidget"


def test_never_names_torch_or_numpy_nor_upgrades(run):
    for command, _ in run(STAMPED, absent=["relpos_lib", "anywidget"]):
        words = " ".join(command[1:])
        assert not {"torch", "numpy", "--upgrade", "-U", "ipywidgets"} & {*command}
        assert "torch" not in words
        assert "numpy" not in words


def test_says_what_to_do_where_nothing_can_be_installed(run):
    with pytest.raises(AssertionError, match="clone of the book"):
        run(setup_cell.SOURCE, absent=["relpos_lib"])


def run_beside(tmp_path, files):
    """Run the cell in a bare Python: only the folder above the notebook has files."""
    for name in ("anywidget.py", *files):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    book = tmp_path / "book"
    book.mkdir()
    script = setup_cell.SOURCE + "\nimport relpos_lib; print(relpos_lib.__name__)"
    command = [sys.executable, "-I", "-S", "-c", script]
    return subprocess.run(
        command, cwd=book, capture_output=True, text=True, check=False
    )


def test_finds_a_library_beside_the_book(tmp_path):
    done = run_beside(tmp_path, ["relpos_lib/__init__.py"])
    assert (done.returncode, done.stdout) == (0, "relpos_lib\n"), done.stderr


def test_a_folder_without_code_is_no_library(tmp_path):
    done = run_beside(tmp_path, ["relpos_lib/notes.txt"])
    assert done.returncode == 1
    assert "relpos_lib not found" in done.stderr


def test_asks_colab_to_show_the_figures(run, monkeypatch):
    asked = []
    colab = ModuleType("google.colab")
    colab.output = SimpleNamespace(
        enable_custom_widget_manager=lambda: asked.append(True)
    )
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    run(STAMPED)
    assert asked == [True]


def test_the_cell_is_short_and_narrow():
    lines = [line for line in STAMPED.splitlines() if line.strip()]
    assert len(lines) <= 15
    assert max(map(len, setup_cell.SOURCE.splitlines())) <= 79
