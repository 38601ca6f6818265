"""What the run with Colab's versions compares; the run itself is `make test-colab`."""

import re
import sys

import nbformat.v4 as v4
import pytest
from packaging.requirements import Requirement

from book.tools import colab, setup_cell
from book.tools.notebooks import chapters, read
from book.tools.repository import ROOT


def chapter(said="a\n", mimes=("text/plain", "image/png"), views=(), models=()):
    """A chapter of two cells, the second of which says and shows something."""
    data = dict.fromkeys(mimes, "x")
    outputs = [
        v4.new_output("stream", text=said),
        v4.new_output("display_data", data=data),
        *(
            v4.new_output("display_data", data={colab.VIEW: {"model_id": model}})
            for model in views
        ),
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
    stored, ran = chapter(), chapter(views=["a"], models=["a"])
    ran.cells[0].outputs = [v4.new_output("stream", text="unpacked")]
    assert list(colab.problems(ran, stored)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        chapter(said="b\n"),
        chapter(mimes=["text/plain"]),
        chapter(models=["a"]),
        chapter(views=["a"], models=["a", "b"]),
    ],
)
def test_other_words_lost_pictures_and_lost_figures_are_found(wrong):
    assert len(list(colab.problems(wrong, chapter()))) == 1


def test_every_chapter_equals_itself():
    for path in chapters():
        assert list(colab.problems(read(path), read(path))) == []


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
