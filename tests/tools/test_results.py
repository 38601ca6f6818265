"""Numbers in the prose come from files of results, and from nowhere else."""

import json

import pytest

from book.tools.results import ResultError, fill_results


@pytest.fixture
def folder(tmp_path):
    data = {"shaw": [{"mean": 0.98765}], "steps": 600}
    (tmp_path / "switch.json").write_text(json.dumps(data))
    return tmp_path


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        ("switch.shaw.0.mean .2f", "0.99"),
        ("switch.shaw.0.mean .1%", "98.8%"),
        ("switch.steps", "600"),
    ],
)
def test_a_mark_is_filled_in_and_stays(folder, mark, value):
    text = f"It was <!-- result: {mark} -->old<!-- /result -->, we saw."
    filled = fill_results(text, folder)
    assert filled == text.replace("old", value)
    assert fill_results(filled, folder) == filled


@pytest.mark.parametrize("mark", ["shaw.0.mean .2q", "shaw .2f", "shaw.0.mean d"])
def test_a_wrong_format_is_named(folder, mark):
    text = f"a <!-- result: switch.{mark} -->1<!-- /result -->"
    keys, wanted = mark.split()
    with pytest.raises(ResultError) as caught:
        fill_results(text, folder)
    for part in ("switch.json", repr(keys), repr(wanted)):
        assert part in str(caught.value)


def test_other_text_is_left_alone(folder):
    text = "Nothing <!-- to --> fill.\n\n<!-- in -->"
    assert fill_results(text, folder) == text


@pytest.mark.parametrize(
    "text",
    [
        "a <!-- result: switch.nothing -->1<!-- /result -->",
        "a <!-- result: switch.shaw.1 -->1<!-- /result -->",
        "a <!-- result: other.steps -->1<!-- /result -->",
        "a <!-- result: switch.steps -->1",
        "a <!-- result switch.steps -->1<!-- /result -->",
        "<!-- result: switch.steps -->1<!-- /result --> starts the line",
    ],
)
def test_a_mark_that_cannot_be_filled_is_refused(folder, text):
    with pytest.raises(ResultError):
        fill_results(text, folder)
