"""What holds for every check: the form of an answer, gaps, errors, stolen answers."""

import math
import sys

import numpy as np
import pytest
import torch

from relpos_lib.exercises import bias, gated_bias, shaw, sinusoidal
from relpos_lib.exercises.report import exercise, expect_equal
from tests import test_exercises_bias as ch2
from tests import test_exercises_choosing as ch7
from tests import test_exercises_fast as ch5
from tests import test_exercises_gated_bias as ch3
from tests import test_exercises_longer as ch6
from tests import test_exercises_shaw as ch4
from tests import test_exercises_sinusoidal as ch1

RIGHT = [
    *ch1.CASES,
    (bias.check_rows, ch2.table_rows),
    (bias.check_repaired_rows, ch2.square_rows),
    (bias.check_alibi_table, ch2.right_table),
    (bias.check_gap, lambda n, share: torch.tensor(ch2.right_gap(n, share))),
    (gated_bias.check_fold, ch3.fold_into_table),
    (gated_bias.check_gradients, ch3.right_gradients),
    (gated_bias.check_content_strength, ch3.right_strength),
    (gated_bias.check_directional_table, ch3.right_table),
    *ch4.RIGHT,
    *ch5.RIGHT,
    *ch6.RIGHT,
    *ch7.RIGHT,
]
IDS = [check.__name__ for check, _ in RIGHT]
every_check = pytest.mark.parametrize(("check", "answer"), RIGHT, ids=IDS)


def verdict(capsys, check, answer):
    check(answer)
    name, said = capsys.readouterr().out.strip().split(": ", 1)
    assert name == check.__name__
    return said


def changed(result, change):
    """An answer with every tensor in it changed."""
    if isinstance(result, (int, float)):
        result = torch.tensor(result)
    if isinstance(result, torch.Tensor):
        return change(result)
    return type(result)(changed(part, change) for part in result)


FORMS = {
    "double": torch.Tensor.double,
    "with a gradient": lambda x: x.double().requires_grad_(),
    "list": torch.Tensor.tolist,
    "array": lambda x: x.detach().numpy(),
    "mirrored array": lambda x: np.flip(np.flip(x.detach().numpy()).copy()),
}


@every_check
@pytest.mark.parametrize("form", FORMS)
def test_a_right_answer_may_have_any_form(capsys, check, answer, form):
    def formed(*given):
        result = answer(*given)
        if check is shaw.check_decode_step:  # its cache goes on to the next step
            return FORMS[form](result[0]), result[1]
        return changed(result, FORMS[form])

    assert verdict(capsys, check, formed) == "correct"


def test_a_cache_may_be_more_precise(capsys):
    def decode(query, key, value, cache, window, tables):
        wide = {name: table.double() for name, table in tables.items()}
        now = (query.double(), key.double(), value.double())
        return ch4.decode_step(*now, cache, window, wide)

    assert verdict(capsys, shaw.check_decode_step, decode) == "correct"


@every_check
@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: x * math.nan,
        lambda x: x + math.inf,
        lambda x: x.to(torch.complex64),
        lambda x: x.detach().numpy() + 1j,
        lambda x: "text",
        lambda x: [[1.0], [1.0, 2.0]],
    ],
)
def test_what_is_no_real_number_is_refused(capsys, check, answer, spoil):
    said = verdict(capsys, check, lambda *given: changed(answer(*given), spoil))
    assert said.startswith("not yet: ")
    assert "your code raised" not in said


def test_a_single_nan_is_refused(capsys):
    def almost(ahead, width):
        matrix = ch1.rotation(ahead, width)
        matrix[-1, -1] = math.nan
        return matrix

    said = verdict(capsys, sinusoidal.check_look_ahead, almost)
    assert said == "not yet: the matrix holds infinity or NaN"


def taken_apart(given):
    """Every tensor among the arguments, in dictionaries and tuples too."""
    for part in given:
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, (tuple, list, dict)):
            yield from taken_apart(part.values() if isinstance(part, dict) else part)


@every_check
def test_the_reader_may_change_what_is_given(capsys, check, answer):
    """What the reader does with the arguments afterwards makes nothing wrong."""

    def careless(*given):
        result = changed(answer(*given), torch.clone)
        for tensor in taken_apart(given):
            tensor.fill_(7)
        return result

    assert verdict(capsys, check, careless) == "correct"


@every_check
def test_no_answer_is_made_right_by_changing_what_is_given(capsys, check, answer):
    """Zeros would be right, in most exercises, if the arguments were zero."""

    def cheat(*given):
        right = answer(*given)
        for tensor in taken_apart(given):
            tensor.zero_()
        return changed(right, torch.zeros_like)

    assert verdict(capsys, check, cheat).startswith("not yet: ")


@exercise
def check_anything(answer):
    """A check that only calls."""
    expect_equal("it", answer(), 1)


GAP = ...
USES_OF_A_GAP = [
    lambda: ... + 1,
    lambda: -...,
    lambda: GAP(),
    lambda: GAP[0],
    lambda: ....sin(),
    lambda: list(...),
    lambda: len(...),
    lambda: round(...),
    lambda: float(...),
    lambda: math.log(...),
    lambda: torch.ones(2) @ ...,
    lambda: torch.ones(2) * ...,
    lambda: torch.cat([..., torch.ones(2)]),
    lambda: torch.stack([torch.ones(2), ...]),
    lambda: torch.sigmoid(...),
    lambda: torch.tensor([1.0, ...]),
    lambda: torch.as_tensor(...),
    lambda: torch.ones(2).__setitem__(0, ...),
    lambda: torch.einsum("i,i->", torch.ones(2), ...),
    lambda: torch.ones(2).reshape(...),
    lambda: torch.ones(2).gather(0, ...),
    lambda: np.ones(2) * ...,
    lambda: np.exp(...),
    lambda: [..., 1],
    lambda: [[1, 2], [3, ...]],
]


@pytest.mark.parametrize("answer", USES_OF_A_GAP)
def test_a_gap_that_is_used_is_not_attempted(capsys, answer):
    assert verdict(capsys, check_anything, answer) == "not attempted yet"


@pytest.mark.parametrize(
    "answer",
    [
        lambda: torch.einsum("i->i", torch.ones(2, 2)),
        lambda: torch.einsum("i->...", torch.ones(2, 2)),
        lambda: torch.einsum("i.j->i", torch.ones(2, 2)),
        lambda: torch.einsum("......->", torch.ones(2, 2)),
        lambda: np.einsum("i->i", np.ones((2, 2))),
        lambda: torch.ones(2)[..., ..., "x"],
        lambda: np.ones(2)["x"],
        lambda: np.ones(2)[..., ...],
    ],
)
def test_an_error_about_three_dots_is_an_error(capsys, answer):
    said = verdict(capsys, check_anything, answer)
    assert said.startswith("not yet: your code raised ")


class Mute(Exception):  # noqa: N818
    """An error that cannot be written."""

    def __str__(self):
        raise RuntimeError("no words")


def mute():
    raise Mute


@pytest.mark.parametrize(
    ("answer", "name"),
    [(mute, "Mute"), (sys.exit, "SystemExit"), (lambda: 1 / 0, "ZeroDivisionError")],
)
def test_no_error_escapes(capsys, answer, name):
    said = verdict(capsys, check_anything, answer)
    assert said.startswith(f"not yet: your code raised {name}:")


def test_the_reader_can_interrupt():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_anything(interrupted)
