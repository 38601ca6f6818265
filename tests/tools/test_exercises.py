"""Exercises are found whole, and a stub is its solution with gaps."""

import nbformat.v4 as v4
import pytest

from book.tools.exercises import ExerciseError, exercises, has_gaps, is_stub_of

STUB = "def twice(x):\n    y = ...  # x again\n    return x + y"
SOLUTION = "def twice(x):\n    y = x * 1\n    return (x + y)"


def cells(heading="### Exercise 1: twice", hint="Hint", tag="exercise-check"):
    return [
        v4.new_markdown_cell(
            f"{heading}\n\n<details><summary>{hint}</summary>\n\nAdd.\n\n</details>"
        ),
        v4.new_code_cell(STUB, metadata={"tags": ["exercise-stub"]}),
        v4.new_code_cell("check(twice)", metadata={"tags": [tag]}),
        v4.new_markdown_cell(
            "<details><summary>Solution</summary>\n\n"
            f"```python\n{SOLUTION}\n```\n\n</details>"
        ),
    ]


@pytest.mark.parametrize("kind", ["Exercise", "Step"])
def test_an_exercise_is_found_whole(kind):
    [found] = exercises(v4.new_notebook(cells=cells(f"### {kind} 1: twice")))
    assert (found.kind, found.number, found.title) == (kind, 1, "twice")
    assert (found.stub, found.check, found.solution) == (STUB, "check(twice)", SOLUTION)


@pytest.mark.parametrize(
    "broken",
    [
        cells(heading="### Something else"),
        cells(hint="Help"),
        cells(tag="other"),
        cells()[:3],
        [*cells(), v4.new_markdown_cell("### Exercise 2: no code")],
    ],
)
def test_an_incomplete_exercise_is_refused(broken):
    with pytest.raises(ExerciseError):
        exercises(v4.new_notebook(cells=broken))


@pytest.mark.parametrize(
    ("stub", "solution"),
    [
        (STUB, SOLUTION),
        ("def f(x):\n    ...\n    return y", "def f(x):\n    y = x\n    return y"),
        ("a = ... / 2", "a = (1 + 1) / 2"),
    ],
)
def test_a_stub_is_the_solution_with_gaps(stub, solution):
    assert has_gaps(stub)
    assert is_stub_of(stub, solution)
    assert not has_gaps(solution)


@pytest.mark.parametrize(
    "solution",
    [
        SOLUTION.replace("twice", "double"),
        SOLUTION.replace("x + y", "x - y"),
        SOLUTION + "\n\nz = 1",
    ],
)
def test_another_program_is_no_solution_of_the_stub(solution):
    assert not is_stub_of(STUB, solution)
