"""The checks of the chapter on gates accept right answers and refuse wrong ones."""

import math

import pytest
import torch

from relpos_lib import ContentGatedBiasRPE, DirectionalBiasRPE
from relpos_lib.exercises.gated_bias import (
    check_content_strength,
    check_directional_table,
    check_fold,
    check_gradients,
)


def verdict(capsys, check, answer):
    check(answer)
    name, said = capsys.readouterr().out.strip().split(": ", 1)
    assert name == check.__name__
    return said


def strength(gate, scale):
    return torch.sigmoid(gate) * torch.exp(scale)


def fold_into_table(table, gate, scale):
    return 2 * strength(gate, scale) * table, 0 * gate, 0 * scale


def fold_into_scale(table, gate, scale):
    return table, 0 * gate, scale + math.log(2) + torch.sigmoid(gate).log()


@pytest.mark.parametrize("fold", [fold_into_table, fold_into_scale])
def test_every_way_of_folding_is_right(capsys, fold):
    assert verdict(capsys, check_fold, fold) == "correct"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda t, g, s: (..., ..., ...), "not attempted yet"),
        (lambda t, g, s: (t, 0 * g, ...), "not attempted yet"),
        (None, "not attempted yet"),
        (lambda t, g, s: (t, g, s), "not yet: the new gate must be zero"),
        (
            lambda t, g, s: (strength(g, s) * t, 0 * g, 0 * s),
            "not yet: the bias is half",
        ),
        (lambda t, g, s: (t, 0 * g, s), "not yet: the bias (head, row)"),
        (lambda t, g, s: (t.T, 0 * g, s), "not yet: the new table has shape"),
        (lambda t, g, s: strength(g, s) * t, "not yet: return 3 tensors"),
        (lambda t, g, s: (2 * strength(g, s) * t, 0, 0 * s), "not yet: the new gate"),
    ],
)
def test_other_ways_of_folding_are_not(capsys, answer, said):
    assert verdict(capsys, check_fold, answer).startswith(said)


def right_gradients(grad, table, gate, scale):
    of_scale = strength(gate, scale) * (grad.T * table).sum(0)
    of_table = strength(gate, scale) * grad.T
    return of_table, (1 - torch.sigmoid(gate)) * of_scale, of_scale


def test_right_gradients(capsys):
    assert verdict(capsys, check_gradients, right_gradients) == "correct"


def same_for_gate_and_scale(*given):
    of_table, _, of_scale = right_gradients(*given)
    return of_table, of_scale, of_scale


def gate_and_scale_swapped(*given):
    of_table, of_gate, of_scale = right_gradients(*given)
    return of_table, of_scale, of_gate


def without_strength(grad, table, gate, scale):
    return grad.T, *right_gradients(grad, table, gate, scale)[1:]


def summed_over_heads(grad, table, gate, scale):
    of_table, of_gate, of_scale = right_gradients(grad, table, gate, scale)
    return of_table, of_gate, of_scale.sum().expand_as(of_scale)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda *given: (..., ..., ...), "not attempted yet"),
        (same_for_gate_and_scale, "not yet: the gradient of gate equals"),
        (gate_and_scale_swapped, "not yet: the gradient of gate equals"),
        (without_strength, "not yet: the gradient of table"),
        (summed_over_heads, "not yet: the gradient of logit_scale"),
        (
            lambda grad, *rest: (grad, *right_gradients(grad, *rest)[1:]),
            "not yet: the gradient of table has shape",
        ),
    ],
)
def test_wrong_gradients(capsys, answer, said):
    assert verdict(capsys, check_gradients, answer).startswith(said)


def right_strength(query, update, reset, scale):
    rpe = ContentGatedBiasRPE(*update.shape)
    with torch.no_grad():
        rpe.update.copy_(update)
        rpe.reset.copy_(reset)
        rpe.scale.copy_(scale)
    return rpe.strength(query)


def test_right_strength(capsys):
    assert verdict(capsys, check_content_strength, right_strength) == "correct"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda *given: ..., "not attempted yet"),
        (lambda q, u, r, s: right_strength(q, r, u, s), "not yet: update and reset"),
        (lambda *given: right_strength(*given) - 1, "not yet: the table itself"),
        (
            lambda q, u, r, s: right_strength(q, u, r, torch.ones_like(s)),
            "not yet: the strength (head, query)",
        ),
        (lambda *given: right_strength(*given).T, "not yet: the strength has shape"),
    ],
)
def test_wrong_strength(capsys, answer, said):
    assert verdict(capsys, check_content_strength, answer).startswith(said)


def right_table(distance, direction):
    rpe = DirectionalBiasRPE(distance.shape[1], len(distance))
    with torch.no_grad():
        rpe.distance.copy_(distance)
        rpe.direction.copy_(direction)
    return rpe.tables()["bias_table"]


def with_a_direction_at_the_centre(distance, direction):
    table = right_table(distance, direction).clone()
    table[:, len(distance) - 1] += direction[1]
    return table


def test_right_table(capsys):
    assert verdict(capsys, check_directional_table, right_table) == "correct"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda distance, direction: torch.cat([..., distance[:1], ...]),
            "not attempted yet",
        ),
        (with_a_direction_at_the_centre, "not yet: offset 0 has a distance"),
        (lambda d, s: right_table(d, s.flip(0)), "not yet: left and right"),
        (lambda d, s: right_table(d, s).flip(1), "not yet: left and right"),
        (lambda d, s: right_table(d, 0 * s), "not yet: the table (head, row)"),
        (lambda d, s: right_table(d, s).T, "not yet: the table has shape"),
    ],
)
def test_wrong_table(capsys, answer, said):
    assert verdict(capsys, check_directional_table, answer).startswith(said)
