"""Checks of the broken implementations: they name what is wrong, not the repair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from relpos_lib.attention import relative_attention
from relpos_lib.exercises.pairs import (
    SIZES,
    draw,
    expect_other_than,
    loop_scores,
    loop_values,
    pair_rows,
    pair_vectors,
)
from relpos_lib.exercises.report import (
    NotYet,
    copies,
    exercise,
    expect,
    expect_equal,
    expect_given,
    numbers,
)


@exercise
def check_evaluation(attention: Callable[..., Any]) -> None:
    """Whether the module ``attention(bias_table, dropout_p)`` evaluates rightly."""
    for batch, heads, q_len, k_len, width in SIZES:
        query, key, table, content = draw(
            (batch, heads, q_len, width),
            (batch, heads, k_len, width),
            (heads, 5),
            (batch, heads, k_len, width),
        )
        # With these values an output is its weights, and then their sum of contents.
        one = torch.eye(k_len, dtype=torch.double).expand(batch, heads, -1, -1)
        value = torch.cat([one, content], -1)  # (B, H, S, S + D)
        module = attention(*copies(table), 0.5)
        expect_given(module)
        expect(isinstance(module, nn.Module), "it must make a torch.nn.Module")
        wanted = relative_attention(query, key, value, bias_table=table, backend="loop")
        first, again = (_run(module.eval(), query, key, value) for _ in range(2))
        expect(torch.equal(first, again), "two calls in eval give different outputs")
        expect_equal("in eval, the output (b, h, i, d)", first, wanted, 1e-5)
        training = _run(module.train(), query, key, value)
        weights, out = training[..., :k_len], training[..., k_len:]
        lost = weights == 0
        expect(bool(lost.any()), "in training no weight is dropped any more")
        expect_equal(
            "in training with dropout_p=0.5, a weight that is kept",
            weights,
            (2 * wanted[..., :k_len]).masked_fill(lost, 0),
            1e-5,
        )
        expect(
            torch.allclose(out, weights @ content, atol=1e-4),
            "in training, the output is not the values weighted by what is left of "
            "the weights: something else was dropped, too",
        )


@exercise
def check_directions(add_bias: Callable[..., Tensor]) -> None:
    """Whether ``add_bias(scores, bias_table)`` adds the bias of every offset."""
    for length, far in ((4, 5), (5, 2), (7, 1), (1, 3), (3, 0)):
        scores, table = draw((2, 3, length, length), (3, 2 * far + 1))
        case = f"L={length}, K={far}"
        answer = add_bias(*copies(scores, table))
        got = numbers(f"the result for {case}", answer, tuple(scores.shape))
        rows = pair_rows(length, length, far, far)
        wanted = scores + table[:, rows]
        expect_other_than(
            got,
            wanted,
            scores + table[:, (rows - far).abs() + far],
            f"for {case}, the key before a query and the key after it still get "
            "the same bias",
        )
        expect_other_than(
            got,
            wanted,
            scores + table.flip(1)[:, rows],
            f"for {case}, the two sides have changed places: row 0 of the table is "
            "for keys K or more places before the query",
        )
        expect_equal(f"for {case}, the score (b, h, i, j)", got, wanted, 1e-5)


@exercise
def check_far_values(position_values: Callable[..., Tensor]) -> None:
    """Whether ``position_values(weights, value_table)`` adds up every pair's vector."""
    for far in (2, 0, 1, 6):
        for batch, heads, q_len, k_len, width in SIZES:
            logits, table = draw((batch, heads, q_len, k_len), (2 * far + 1, width))
            weights = logits.softmax(-1)
            case = f"Q={q_len}, S={k_len}, K={far}"
            shape = (batch, heads, q_len, width)
            ones = position_values(*copies(weights, torch.ones_like(table)))
            total = numbers(f"the result for {case}", ones, shape)
            for i in range(q_len):
                got = float(total[0, 0, i, 0])
                expect(
                    abs(got - 1) < 1e-4,
                    f"for {case}, a table of ones must give 1, as weights add up to "
                    f"1, but query {i} gets {got:.3g}",
                )
            answer = position_values(*copies(weights, table))
            wanted = loop_values(weights, pair_vectors(table, q_len, k_len, far))
            expect_equal(f"for {case}, the value (b, h, i, d)", answer, wanted, 1e-5)


@exercise
def check_cached_weights(cached_weights: Callable[..., Tensor]) -> None:
    """Whether ``cached_weights(query, keys, key_table)`` fits a pass in one go."""
    for batch, heads, q_len, k_len, width in SIZES:
        if q_len > k_len:
            continue  # a cache holds the queries' own keys at least
        query, keys, table = draw(
            (batch, heads, q_len, width), (batch, heads, k_len, width), (5, width)
        )
        one = torch.eye(k_len, dtype=torch.double).expand(batch, heads, -1, -1)
        wanted = relative_attention(
            query, keys, one, key_table=table, is_causal=True, backend="loop"
        )
        case = f"Q={q_len}, S={k_len}"
        answer = cached_weights(*copies(query, keys, table))
        got = numbers(f"the result for {case}", answer, tuple(wanted.shape))
        for i in range(q_len):
            for j in range(k_len):
                _expect_sight(got[0, 0, i, j], i, j, k_len - q_len + i, case)
        expect_equal(f"for {case}, the weight (b, h, i, j)", got, wanted, 1e-5)


@exercise
def check_half_rows(rows: Callable[..., Tensor]) -> None:
    """Whether ``rows(x, max_distance)`` is right for inputs of every precision."""
    lengths = {torch.float32: 5, torch.bfloat16: 300, torch.float16: 2051}
    for dtype, length in lengths.items():
        for far in (4, 300):
            answer = rows(torch.zeros(1, length, 2, dtype=dtype), far)
            case = f"in {dtype} with L={length}, K={far}"
            expect_given(answer)
            expect(isinstance(answer, Tensor), "the rows must be a tensor")
            shape = tuple(answer.shape)
            expect(
                shape == (length, length),
                f"{case}, the rows have shape {shape}, expected {(length, length)}",
            )
            place = torch.arange(length)
            wanted = (place - place[:, None]).clamp(-far, far) + far
            for i, j in (answer != wanted).nonzero()[:1].tolist():  # the first one
                found, right = answer[i, j].item(), wanted[i, j].item()
                message = f"{case}, the row (i, j) at {(i, j)} is {found:g}"
                raise NotYet(f"{message}, expected {right}")
            whole = not answer.is_floating_point()
            expect(whole, "rows are looked up, so they must have an integer dtype")
    elsewhere = rows(torch.zeros(1, 3, 2, device="meta"), 4)
    expect(elsewhere.is_meta, "the rows must lie on the device of the input")


@exercise
def check_empty_rows(attention_weights: Callable[..., Tensor]) -> None:
    """Whether ``attention_weights(scores, mask)`` bears a query that sees nothing."""
    some, empty = torch.tensor([[True, False, True], [False] * 3])
    per_sentence = torch.stack([empty, some])[:, None, None]  # (B, 1, 1, S)
    per_query = torch.stack([some, empty, ~empty, some])  # (Q, S)
    scores, grad = draw((2, 3, 4, 3), (2, 3, 4, 3))
    for mask in (per_sentence, per_query, torch.ones_like(per_query)):
        hidden = (~mask).expand_as(scores)
        powers = scores.exp().masked_fill(hidden, 0)
        wanted = powers / powers.sum(-1, keepdim=True).clamp(min=1e-9)
        asked = scores.float().requires_grad_()
        answer = attention_weights(asked, mask.clone())
        got = numbers("the result", answer, tuple(scores.shape))
        _expect_nothing(got[hidden.all(-1)])
        expect_equal("the weight (b, h, i, j)", got, wanted, 1e-5)
        carried = isinstance(answer, Tensor) and answer.requires_grad
        expect(carried, "the weights carry no gradient back")
        [found] = torch.autograd.grad((answer * grad.float()).sum(), asked)
        expect(
            bool(found.isfinite().all()),
            "the weights are right, but a gradient that flows back through them "
            "becomes NaN",
        )
        slope = wanted * (grad - (grad * wanted).sum(-1, keepdim=True))
        expect_equal("the gradient of the score (b, h, i, j)", found, slope, 1e-5)
        half = attention_weights(scores.half(), mask.clone())
        expect_equal("in float16, the weight (b, h, i, j)", half, wanted, 4e-3)
    spoiled = scores.float().index_fill(2, torch.tensor([2]), torch.nan)
    out = numbers("the result", attention_weights(spoiled, per_query.clone()))
    expect(
        bool(out[:, :, 2].isnan().any()),
        "a NaN that comes in with the scores of a visible key disappears, so nobody "
        "will find out where it came from",
    )


@exercise
def check_joined_heads(join_heads: Callable[..., Tensor]) -> None:
    """Whether ``join_heads(out)`` puts a place's heads side by side."""
    for batch, heads, length, _, width in SIZES:
        shape = (batch, length, heads * width)
        named = torch.arange(float(length))[:, None].expand(batch, heads, length, width)
        got = numbers("the result", join_heads(*copies(named)), shape)
        for i in range(length):
            for found in got[0, i].tolist():
                expect(
                    abs(found - i) < 1e-3,
                    f"for H={heads}, L={length}, D={width}, place {i} of the result "
                    f"holds numbers that place {found:.0f} computed",
                )
        [out] = draw((batch, heads, length, width))
        wanted = torch.stack(
            [torch.cat(list(out[:, :, i].unbind(1)), -1) for i in range(length)], 1
        )  # (B, L, H * D)
        expect_equal(
            "with all of head 0 before all of head 1, the result (b, i, n)",
            join_heads(*copies(out)),
            wanted,
        )


@exercise
def check_position_scores(position_scores: Callable[..., Tensor]) -> None:
    """Whether ``position_scores(query, key_table)`` is right for every key."""
    for batch, heads, length, width in ((2, 3, 5, 7), (1, 2, 3, 1), (3, 1, 1, 2)):
        query, table = draw((batch, heads, length, width), (2 * length - 1, width))
        answer = position_scores(*copies(query, table))
        got = numbers("the result", answer, (batch, heads, length, length))
        wanted = loop_scores(query, pair_vectors(table, length, length, length - 1))
        case = f"for L={length}, the score (b, h, i, j)"
        expect_equal(
            f"{case} of a key up to the query", got.tril(), wanted.tril(), 1e-5
        )
        expect_equal(
            f"{case} of a key ahead of the query", got.triu(), wanted.triu(), 1e-5
        )


def _run(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The module's output, (B, H, Q, Dv)."""
    shape = (*query.shape[:3], value.shape[3])
    return numbers("the output", module(*copies(query, key, value)), shape)


def _expect_sight(weight: Tensor, i: int, j: int, place: int, case: str) -> None:
    """Refuse weight on a key that is still ahead, and none on one already seen."""
    where = f"for {case}, query {i} stands on key {place}"
    if j > place:
        expect(float(weight) == 0, f"{where} but gives weight to key {j}, still ahead")
    else:
        expect(float(weight) > 0, f"{where} but gives no weight to key {j}")


def _expect_nothing(weights: Tensor) -> None:
    """Refuse weights of queries that may attend to nothing, (queries, S)."""
    who = "a query that may attend to nothing"
    expect(not weights.isnan().any(), f"{who} gets NaN")
    expect(
        bool((weights == 0).all()),
        f"{who} gives away weight, so it brings back keys that it must not see",
    )
