"""What the run with Colab's versions compares; the run itself is `make test-colab`."""

import re
import sys

import nbformat.v4 as v4
import pytest
from packaging.requirements import Requirement

from book.tools import colab, setup_cell
from book.tools.notebooks import chapters, read
from book.tools.repository import ROOT


def chapter(said="a\n", mimes=("text/plain", "image/png"), view=None, models=()):
    """A chapter of two cells, the second of which says something and shows two things.

    They are a plain picture and a figure; ``view`` is the model that draws the figure.
    """
    figure = {"text/plain": "Quiz: 0 of 4 right.", "text/html": "still"}
    live = {colab.VIEW: {"model_id": view}} if view else {}
    outputs = [
        v4.new_output("stream", text=said),
        v4.new_output("display_data", data=dict.fromkeys(mimes, "<Figure size 1x1>")),
        v4.new_output("display_data", data=figure | live),
    ]
    cells = [
        v4.new_code_cell("1", id="one", metadata=setup_cell.METADATA),
        v4.new_code_cell("2", id="two", outputs=outputs),
    ]
    made = v4.new_notebook(cells=cells)
    state = {"_esm": "export default 1"}
    saved = {model: {"model_name": "AnyModel", "state": state} for model in models}
    saved["layout"] = {"model_name": "LayoutModel", "state": {}}
    made.metadata["widgets"] = {colab.STATE: {"state": saved}}
    return made


def test_a_chapter_that_says_the_same_is_good():
    """It may make figures that it only computes with."""
    stored, ran = chapter(), chapter(view="a", models=["a", "b"])
    ran.cells[0].outputs = [v4.new_output("stream", text="unpacked")]
    assert list(colab.problems(ran, stored)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        chapter(said="b\n", view="a", models=["a"]),
        chapter(mimes=["text/plain"], view="a", models=["a"]),
        chapter(models=["a"]),
        chapter(view="layout", models=["a"]),
    ],
)
def test_other_words_lost_pictures_and_lost_figures_are_found(wrong):
    assert len(list(colab.problems(wrong, chapter()))) == 1


def test_every_chapter_says_the_same_as_itself_and_lacks_live_figures():
    for path in chapters():
        found = list(colab.problems(read(path), read(path)))
        assert found
        assert all("shows no live figure" in each for each in found)


def test_the_versions_are_exact_and_torch_is_that_of_the_book():
    lines = colab.VERSIONS.read_text(encoding="utf-8").splitlines()
    named = [Requirement(line) for line in lines if line and line[0] != "#"]
    assert {"ipython", "ipykernel", "ipywidgets"} <= {each.name for each in named}
    for each in [*named, Requirement(colab.torch_line())]:
        assert [one.operator for one in each.specifier] == ["=="]


def test_another_python_is_refused_before_anything_is_installed(monkeypatch, capsys):
    monkeypatch.setattr(colab, "install", lambda python: pytest.fail("installed"))
    monkeypatch.setattr(sys, "argv", ["colab", "no-such-python"])
    assert colab.main() == 1
    assert "COLAB_PYTHON" in capsys.readouterr().out
    here = "{}.{}".format(*sys.version_info)
    assert colab.version_of(sys.executable) == here


def test_no_trait_names_its_types_as_the_traitlets_of_colab_cannot():
    for path in (ROOT / "relpos_lib").rglob("*.py"):
        found = re.search(r"\btraitlets\.\w+\[", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name}: take TraitType from explorers/_traits.py"
