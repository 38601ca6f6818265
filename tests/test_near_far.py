"""The near_far backend: equal to gather at every length, and nothing of size Q x S."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from relpos_lib import relative_attention
from relpos_lib.backends.near_far import operator
from tests import cases
from tests.cases import numbers


def fast(**case: Any) -> torch.Tensor:
    return relative_attention(**case, backend="near_far")


def gather(**case: Any) -> torch.Tensor:
    return relative_attention(**case, backend="gather")


def wide_truth(case: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Output and gradients of gather in float64."""
    wide = {name: tensor.double() for name, tensor in cases.tensors_of(case).items()}
    return cases.outcome(gather, {**case, **wide})


@pytest.mark.parametrize("side", ["past", "future"])
@pytest.mark.parametrize("heads", [[1], [0, 2], [0, 1, 2]], ids=str)
def test_a_bias_may_hide_a_whole_far_side_of_some_heads_only(side, heads, monkeypatch):
    monkeypatch.setattr(operator, "TILE", 4)
    case = cases.inputs(2, 3, 21, 21, 4, 4, bias=3, keys=2, values=1)
    case["bias_table"][heads, 0 if side == "past" else -1] = -torch.inf
    cases.assert_same(cases.outcome(fast, case), wide_truth(case), 1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", ["rows first", "width first", "expanded"])
def test_the_compiler_is_told_the_right_strides(layout, causal):
    query = {
        "rows first": numbers(30, 2, 4, seed=1).transpose(0, 1),
        "width first": numbers(2, 4, 30, seed=1).mT,
        "expanded": numbers(30, 4, seed=1)[None].expand(2, 30, 4),
    }[layout].requires_grad_()
    rows = 4 if causal else 7
    tables = (
        numbers(2, rows, seed=2).requires_grad_(),
        numbers(1, rows, 4, seed=3).requires_grad_(),
        numbers(2, rows, 4, seed=4).requires_grad_(),
    )
    hidden = torch.zeros(2, 30).double()
    torch.library.opcheck(
        operator.near_far, (query, query, query, *tables, hidden, 3, causal, 0, 0.5)
    )


# A bias of -1e9 is a common way to hide, and ALiBi's falls without end.
FAR_ROWS = [-1e4, -1e9, -1e30, torch.finfo(torch.float32).min]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("far", FAR_ROWS)
@pytest.mark.parametrize("side", ["past", "future"])
def test_a_far_row_of_any_size_takes_no_precision_from_the_near_ones(side, far, causal):
    case = cases.inputs(
        1, 2, 150, 150, 4, 4, bias=3, keys=None, values=2, dtype=torch.float32
    )
    case["bias_table"][:, 0 if side == "past" else -1] = far
    case["is_causal"] = causal
    cases.assert_same(cases.outcome(fast, case), wide_truth(case), 1e-5)
