"""Checks of the steps to a module and to decoding with a cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from relpos_lib.attention import relative_attention
from relpos_lib.exercises.decoding import output_and_cache
from relpos_lib.exercises.implement.common import LEFT, visible_pairs
from relpos_lib.exercises.pairs import draw, expect_other_than
from relpos_lib.exercises.report import (
    exercise,
    expect,
    expect_equal,
    expect_given,
    numbers,
)


@exercise
def check_step_9(make_module: Callable[..., nn.Module]) -> None:
    """Whether the class ``ShawAttention(width, heads, max_distance, dropout)`` is one.

    Its ``forward(x, visible)`` is self-attention.
    """
    width, heads, distance = 12, 3, 2
    torch.manual_seed(0)
    module = make_module(width, heads, distance, 0.5)
    expect_given(module)
    expect(isinstance(module, nn.Module), "write a class that is an nn.Module")
    for name in ("key_table", "value_table"):
        _expect_table(module, name, (2 * distance + 1, width // heads))
    expect(
        not torch.equal(*(getattr(module, f"{one}_table") for one in ("key", "value"))),
        "key_table and value_table hold the same numbers: make two, and fill both",
    )
    for length in (1, 5, 9):
        x = draw((2, length, width))[0].float()
        visible = visible_pairs(2, length, length)
        with torch.no_grad():
            wanted = _self_attention(module, heads, x, visible)
            _expect_modes(module, x, visible)
            got = module.eval()(x.clone(), visible.clone())
        expect_equal(f"for L={length}, the output (b, i, e)", got, wanted, 1e-5)
    _expect_gradients(module, width)
    _expect_rate(make_module(width, heads, distance, 0.0), width)
    odd = {name for name, p in module.state_dict().items() if 9 in p.shape}
    expect(not odd, f"{sorted(odd)} depends on the length of the input: do not keep it")


@exercise
def check_step_10(decode_step: Callable[..., Any]) -> None:
    """Whether ``decode_step(module, x, cache)`` gives the rows of full attention."""
    torch.manual_seed(0)
    module = _Projections(12, heads=3, max_distance=2)
    batch, length, width = 2, 7, 12
    x = draw((batch, length, width))[0].float()
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    with torch.no_grad():
        full = _self_attention(module, 3, x, causal)
        for sizes in ((1,) * 7, (4, 1, 1, 1), (2, 3, 2)):
            empty = x.new_zeros(batch, 3, 0, width // 3)
            cache: Any = (empty, empty.clone())
            done = 0
            for new in sizes:
                case = f"cache of length {done} and {new} new"
                seen, now = x[:, : done + new], x[:, done : done + new]
                out, cache = output_and_cache(decode_step(module, now.clone(), cache))
                got = numbers(f"{case}: the output", out, (batch, new, width))
                _expect_cache(case, cache, module, seen, new)
                for wrong, hint in _wrong_steps(module, seen, new):
                    wanted = full[:, done : done + new].double()
                    expect_other_than(got, wanted, wrong.double(), f"{case}: {hint}")
                expect_equal(f"{case}: the output (b, i, e)", got, wanted, 1e-5)
                done += new


def _expect_table(module: nn.Module, name: str, shape: tuple[int, int]) -> None:
    table = getattr(module, name, None)
    expect_given(table)
    expect(isinstance(table, Tensor), f"{name} must be a tensor")
    assert isinstance(table, Tensor)
    expect(
        isinstance(table, nn.Parameter) and table.requires_grad,
        f"{name} is no nn.Parameter: an optimiser would never see it, and it would "
        "stay behind when the module is moved or saved",
    )
    has = tuple(table.shape)
    expect(
        has == shape,
        f"{name} has shape {has}, expected {shape}: 2K+1 rows, as wide as a head",
    )
    bound = math.sqrt(6 / sum(shape))
    most = float(table.detach().abs().max())
    expect(
        0.5 * bound < most <= bound,
        f"{name} should begin Xavier-uniform, between -{bound:.2f} and {bound:.2f}; "
        f"its largest entry is {most:.3g} (torch.empty holds whatever was in memory)",
    )


class _Projections(nn.Module):
    """What a step of decoding needs of a module with Shaw's vectors."""

    def __init__(self, width: int, heads: int, max_distance: int) -> None:
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width) for _ in range(4))
        shape = (2 * max_distance + 1, width // heads)
        self.key_table = nn.Parameter(torch.randn(shape))
        self.value_table = nn.Parameter(torch.randn(shape))


def _heads(module: Any, name: str, heads: int, x: Tensor) -> Tensor:
    """A projection, split into heads, (B, H, L, D)."""
    projected: Tensor = getattr(module, name)(x)
    return projected.view(*x.shape[:2], heads, -1).transpose(1, 2)


def _self_attention(
    module: Any,
    heads: int,
    x: Tensor,
    visible: Tensor,
    new: int = 0,
    query_start: int | None = None,
) -> Tensor:
    """What a module gives for the last ``new`` tokens, 0 for all, without dropout."""
    query, key, value = (
        _heads(module, name, heads, x).double() for name in ("wq", "wk", "wv")
    )
    attended = relative_attention(
        query[:, :, -new:],
        key,
        value,
        key_table=module.key_table.double(),
        value_table=module.value_table.double(),
        mask=visible,
        query_start=query_start,
        backend="loop",
    )
    out: Tensor = module.wo(attended.transpose(1, 2).flatten(2).float())
    return out


def _expect_modes(module: nn.Module, x: Tensor, visible: Tensor) -> None:
    """Refuse dropout that acts in eval, or never."""
    module.eval()
    once, again = (numbers("the output", module(x.clone(), visible)) for _ in range(2))
    expect(
        torch.equal(once, again),
        "two calls in eval mode differ: dropout is for training only, so pass 0 "
        "unless self.training",
    )
    if x.shape[1] > 1:
        module.train()
        drops = [numbers("the output", module(x.clone(), visible)) for _ in range(3)]
        expect(
            not torch.equal(drops[0], drops[1]) or not torch.equal(drops[0], drops[2]),
            "in training, dropout does nothing",
        )


def _expect_rate(module: nn.Module, width: int) -> None:
    """Refuse a module that was made without dropout and drops all the same."""
    x = draw((2, 5, width))[0].float()
    visible = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    once, again = (numbers("the output", module.train()(x, visible)) for _ in range(2))
    expect(torch.equal(once, again), "made with dropout=0, the module drops weights")


def _expect_gradients(module: nn.Module, width: int) -> None:
    """Refuse a module with a parameter that learns nothing."""
    x = draw((2, 5, width))[0].float()
    out = module.eval()(x, torch.ones(1, 1, 5, 5, dtype=torch.bool))
    named = dict(module.named_parameters())
    found = torch.autograd.grad(
        out.square().sum(), list(named.values()), allow_unused=True
    )
    still = [name for name, one in zip(named, found, strict=True) if one is None]
    expect(not still, f"no gradient reaches {', '.join(still)}")


def _expect_cache(
    case: str, cache: Any, module: nn.Module, x: Tensor, new: int
) -> None:
    """Refuse a cache that does not hold the keys and values of all tokens in order."""
    for what, name, part in zip(("keys", "values"), ("wk", "wv"), cache, strict=True):
        wanted = _heads(module, name, 3, x).double()
        got = numbers(f"the cache of {what}", part)
        has, shape = tuple(got.shape), tuple(wanted.shape)
        expect(
            has == shape,
            f"{case}: the cache then has {what} of shape {has}, expected {shape}: the "
            "old ones and the new ones",
        )
        expect_other_than(
            got,
            wanted,
            wanted.roll(new, dims=2),
            f"new {what} go behind the old ones, along the axis of positions",
        )
        expect_equal(f"{case}: the cache of {what}", got, wanted, 1e-5)


def _wrong_steps(
    module: nn.Module, x: Tensor, new: int
) -> Iterator[tuple[Tensor, str]]:
    """Outputs of the last tokens that come from common mistakes, with hints."""
    length = x.shape[1]
    every = torch.ones(new, length, dtype=torch.bool)
    causal = every.tril(length - new)
    yield (
        _self_attention(module, 3, x[:, -new:], every[:, :new].tril()),
        "the new tokens see only one another: attend to the whole cache",
    )
    for visible, start, hint in (
        (every, None, "a token sees those after it: inside a chunk, hide the future"),
        (every.tril(), None, "the mask is aligned with the first key: " + LEFT),
        (every.tril(length - new - 1), None, "a token may attend to itself"),
        (every.triu(length - new), None, "this shows the future and hides the past"),
        (causal, 0, LEFT),
        (every, 0, LEFT),
    ):
        yield _self_attention(module, 3, x, visible, new, start), hint
