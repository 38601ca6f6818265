"""Whether backends compute what the definition says, output and gradients.

The reference is the gather form in float64, itself tested against the loop; it goes
through a few queries at a time, so that its memory stays small. Up to a length all
queries are compared. Beyond it some are, and the gradient of the output is zero at the
others: then the gradients of keys, values and tables are sums over those queries alone,
and are compared whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from relpos_lib.attention import relative_attention
from relpos_lib.bench.cases import Case, Problem, Setting, problem_of
from relpos_lib.bench.contenders import PLAIN, Contender
from relpos_lib.bench.measure import rounded
from relpos_lib.bench.predict import Limits, first_guess

WHOLE_UP_TO = 2048
SAMPLED_ROWS = 16
ROWS_AT_ONCE = 256
# Largest error over the largest entry: one rounding of a float32 sum, and some
# roundings of weights that are multiplied in half precision.
TOLERANCES = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}

Found = dict[str, Tensor]
Rows = list[tuple[int, int]]


class Checked(NamedTuple):
    """A problem with a mask, and the queries that are compared.

    Attributes:
        problem: its upstream gradient is zero at all other queries.
        mask: (B, 1, 1, L), True = may attend.
        rows: ranges of queries.
    """

    problem: Problem
    mask: Tensor
    rows: Rows

    def compared(self, tensor: Tensor) -> Tensor:
        """The compared queries of a (B, H, L, D) tensor."""
        return torch.cat([tensor[:, :, a:b] for a, b in self.rows], dim=2)


def check(
    case: Case,
    setting: Setting,
    contenders: Mapping[str, Contender],
    limits: Limits,
    tell: Callable[[str], object] = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Errors of our backends in a case with a padding mask, as records of the results.

    Plain attention without tables stands beside them, with the error that it has
    itself.

    Args:
        case: what to compute, forward and backward.
        setting: device and sizes.
        contenders: those that are ours take part, and "plain".
        limits: what a pass may be predicted to need.
        tell: is called with what is done next.

    Yields:
        One record a backend: errors, or why there are none.
    """
    case = case._replace(backward=True)
    checked = with_mask(problem_of(case, setting))
    tell(f"check {case.key}: reference")
    truth = reference(checked)
    for name, contender in contenders.items():
        if name != PLAIN and not contender.ours:
            continue
        tell(f"check {case.key}: {name}")
        record = {"contender": name, **case.described()}
        record["rows"] = sum(b - a for a, b in checked.rows)
        reason = limits.refuse(first_guess(contender, case, setting))
        if reason is not None:
            yield {**record, "skipped": reason}
            continue
        yield {**record, **_errors_or_reason(name, checked, truth, case.dtype)}


def with_mask(problem: Problem) -> Checked:
    """The problem with a padding mask, and its gradient at the compared queries."""
    length = problem.query.shape[2]
    device = problem.query.device
    places = torch.arange(length, device=device)
    mask = (places < max(1, length * 7 // 8)) & ((places % 5 != 3) | (places == 0))
    rows = compared_rows(length)
    if len(rows) == 1:
        upstream = problem.upstream
    else:
        upstream = torch.zeros_like(problem.upstream)
        for a, b in rows:
            upstream[:, :, a:b] = problem.upstream[:, :, a:b]
    batch = problem.query.shape[0]
    return Checked(
        problem._replace(upstream=upstream),
        mask.expand(batch, 1, 1, length),
        rows,
    )


def compared_rows(length: int) -> Rows:
    """All queries as one range, or single ones: both ends and some between.

    >>> compared_rows(5)
    [(0, 5)]
    >>> len(compared_rows(4096))
    16
    """
    if length <= WHOLE_UP_TO:
        return [(0, length)]
    step = (length - 1) / (SAMPLED_ROWS - 1)
    places = sorted({round(n * step) for n in range(SAMPLED_ROWS)})
    return [(place, place + 1) for place in places]


def reference(checked: Checked) -> Found:
    """Output and gradients in float64, of the compared queries."""
    problem = _wide(checked.problem)
    outputs = []
    for start, stop in _pieces(checked.rows):
        out = relative_attention(
            problem.query[:, :, start:stop],
            problem.key,
            problem.value,
            **problem.tables,  # type: ignore[arg-type]
            mask=checked.mask,
            is_causal=problem.causal,
            query_start=start,
            backend="gather",
        )
        torch.autograd.backward(out, problem.upstream[:, :, start:stop])
        outputs.append(out.detach())
    found = {"output": torch.cat(outputs, dim=2)}
    for name, leaf in _named(problem).items():
        if leaf.grad is not None:
            found[f"gradient of {name}"] = leaf.grad
    found["gradient of query"] = checked.compared(found["gradient of query"])
    return found


def outcome(name: str, checked: Checked) -> Found:
    """Output and gradients of a backend, or of plain attention without the tables."""
    problem = checked.problem
    leaves = {n: t for n, t in _named(problem).items() if t.requires_grad}
    if name == PLAIN:
        leaves = {n: leaves[n] for n in ("query", "key", "value")}
        visible = checked.mask
        if problem.causal:
            square = (problem.query.shape[2],) * 2
            visible = visible & torch.ones(square, device=visible.device).tril().bool()
        out = F.scaled_dot_product_attention(*problem.inputs, attn_mask=visible)
    else:
        out = relative_attention(
            *problem.inputs,
            **problem.tables,  # type: ignore[arg-type]
            mask=checked.mask,
            is_causal=problem.causal,
            backend=name,
        )
    grads = torch.autograd.grad(out, list(leaves.values()), problem.upstream)
    found = {"output": checked.compared(out.detach())}
    found |= {f"gradient of {n}": grad for n, grad in zip(leaves, grads, strict=True)}
    found["gradient of query"] = checked.compared(found["gradient of query"])
    return found


def errors(found: Found, truth: Found) -> dict[str, float]:
    """Largest error of each tensor over its largest true entry.

    >>> errors({"output": torch.tensor([1.0, 4.5])}, {"output": torch.tensor([1, 4.0])})
    {'output': 0.125}
    """
    return {
        name: rounded(
            ((tensor.double() - truth[name]).abs().max() / truth[name].abs().max())
            .nan_to_num(torch.inf)
            .item()
        )
        for name, tensor in found.items()
    }


def _errors_or_reason(
    name: str, checked: Checked, truth: Found, dtype: str
) -> dict[str, Any]:
    if name == PLAIN:
        without = checked._replace(problem=checked.problem._replace(tables={}))
        truth = reference(without)
    try:
        off = errors(outcome(name, checked), truth)
    except (ValueError, NotImplementedError) as refusal:
        return {"not_served": str(refusal).splitlines()[0]}
    except Exception as error:  # one failure must not end the run
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    tolerance = TOLERANCES[dtype]
    holds = max(off.values()) <= tolerance
    return {"errors": off, "tolerance": tolerance, "holds": holds}


def _wide(problem: Problem) -> Problem:
    """The same numbers in float64, with gradients of their own."""

    def leaf(tensor: Tensor) -> Tensor:
        return tensor.detach().double().requires_grad_(tensor.requires_grad)

    return Problem(
        leaf(problem.query),
        leaf(problem.key),
        leaf(problem.value),
        {name: leaf(table) for name, table in problem.tables.items()},
        leaf(problem.upstream),
        problem.causal,
    )


def _named(problem: Problem) -> dict[str, Tensor]:
    query, key, value = problem.inputs
    return {"query": query, "key": key, "value": value, **problem.tables}


def _pieces(rows: Rows) -> Iterator[tuple[int, int]]:
    """The same queries in ranges that are short enough for the reference."""
    for start, stop in rows:
        for a in range(start, stop, ROWS_AT_ONCE):
            yield a, min(a + ROWS_AT_ONCE, stop)
