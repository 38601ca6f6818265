"""Attention map explorer: values, bins and the arithmetic of a cell, in Python."""

import math
import re

import numpy as np
import pytest
import torch

from relpos_lib.attention import relative_attention
from relpos_lib.bias import SimpleBiasRPE
from relpos_lib.explorers import AttentionMapExplorer
from relpos_lib.offsets import table_rows
from relpos_lib.shaw import RelativeMultiHeadAttention
from tests.explorers import check_range

H, L, D, K = 3, 11, 5, 4
SHAW_OPTIONS = [
    {},
    {"per_head": True},
    {"keys": False},
    {"values": False},
    {"max_value_positions": 2},
    {"max_value_positions": 7},
]


def shaw(options=(), length=L, **shown):
    torch.manual_seed(0)
    module = RelativeMultiHeadAttention(H * D, H, K, **dict(options)).double()
    x = torch.randn(1, length, H * D, dtype=torch.float64)
    return module, x, AttentionMapExplorer.from_shaw(module, x, **shown)


@pytest.mark.parametrize(
    ("trait", "good", "bad", "needs"),
    [
        ("length", (1, L), (0, L + 1, 2.0), f"from 1 to {L}"),
        ("head", (1, H), (0, H + 1), f"from 1 to {H}"),
        ("query_index", (0, L - 1), (-1, L), f"from 0 to {L - 1}"),
        ("key_index", (0, L - 1), (-1, L, True), f"from 0 to {L - 1}"),
        ("view", ("steps", "score"), ("all",), "weights, content, position, score"),
    ],
)
def test_controls_take_their_range_and_refuse_the_rest(trait, good, bad, needs):
    _, _, explorer = shaw()
    check_range(explorer, trait, good, bad, needs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", SHAW_OPTIONS)
def test_bins_and_values_make_the_output_of_the_module(options, causal):
    """Summed cell by cell, and by bins, it is what the module computes before wo."""
    module, x, explorer = shaw(options, causal=causal)
    weights = explorer.maps()["weights"]
    value = module.wv(x).view(L, H, D).transpose(0, 1)
    output = weights @ value
    if explorer.tables != ("key_table",):
        table = module.tables()["value_table"]
        own = table.shape[-2] // 2
        middle = table[..., own - explorer.value_distance :, :]
        output = output + explorer.bins() @ middle[..., : explorer.bins().shape[-1], :]
    joined = module.wo(output.transpose(0, 1).reshape(1, L, H * D))
    expected = module(x, x, x, is_causal=causal)
    torch.testing.assert_close(joined, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("distance", range(K + 1))
def test_bins_are_sums_of_weights_that_read_one_row(distance):
    _, _, explorer = shaw(max_distance=distance, causal=True, length=9)
    rows = table_rows(9, 9, distance)
    weights = explorer.maps()["weights"]
    for row in range(2 * distance + 1):
        expected = (weights * (rows == row)).sum(-1)
        torch.testing.assert_close(explorer.bins()[..., row], expected)


def test_without_a_value_table_there_are_no_bins():
    _, _, explorer = shaw({"values": False})
    with pytest.raises(ValueError, match="value_table"):
        explorer.bins()


@pytest.mark.parametrize("length", [1, 4, L])
@pytest.mark.parametrize("sizes", [(7, 11), (11, 7), (11, 11)])
def test_a_shorter_sequence_is_the_first_queries_and_keys(sizes, length):
    query, key = (torch.randn(H, size, D) for size in sizes)
    scheme = SimpleBiasRPE(H, 12)
    whole = AttentionMapExplorer.from_bias(query, key, scheme, length=length)
    short = AttentionMapExplorer.from_bias(query[:, :length], key[:, :length], scheme)
    for name, values in short.maps().items():
        torch.testing.assert_close(whole.maps()[name], values, msg=name)
    assert torch.equal(whole.allowed(), short.allowed())
    assert f"{min(length, sizes[0])} queries and" in whole.describe()


@pytest.mark.parametrize("options", SHAW_OPTIONS)
@pytest.mark.parametrize("cell", [(1, L - 1, 0), (3, 2, 8), (2, 5, 5)])
def test_the_arithmetic_of_a_cell_adds_up(options, cell):
    head, i, j = cell
    where = {"head": head, "query_index": i, "key_index": j}
    module, x, explorer = shaw(options, causal=True, **where)
    found = explorer.arithmetic()
    assert found["offset"] == j - i
    reach = explorer.max_distance
    assert found["clipped"] == max(-reach, min(reach, j - i))
    query, key, value = (
        projection(x)[0].view(L, H, D)[at, head - 1]
        for projection, at in ((module.wq, i), (module.wk, j), (module.wv, j))
    )
    assert found["content"] == pytest.approx((query @ key / D**0.5).item(), abs=1e-5)
    assert found["score"] == pytest.approx(found["content"] + found["position"])
    weight = math.exp(found["score"] - found["shift"]) / found["denominator"]
    assert found["weight"] == pytest.approx(weight if j <= i else 0)
    tables = {
        name: table if table.dim() == 2 else table[head - 1]
        for name, table in module.tables().items()
    }
    vector = value
    if "value_table" in tables:
        own = len(tables["value_table"]) // 2
        row = max(-own, min(own, j - i)) + own
        vector = value + tables["value_table"][row]
        assert (
            found["value_row"] == max(-own, min(own, j - i)) + explorer.value_distance
        )
        assert found["bin"] >= found["weight"]
    expected = found["weight"] * vector
    torch.testing.assert_close(found["added"], expected, atol=1e-5, rtol=1e-5)
    if "key_table" in tables:
        position = query @ tables["key_table"][max(-K, min(K, j - i)) + K] / D**0.5
        assert found["position"] == pytest.approx(position.item(), abs=1e-5)
    else:
        assert found["position"] == 0


def test_large_scores_are_made_smaller_before_the_exponential():
    query = 30 * torch.ones(1, 3, 4)
    explorer = AttentionMapExplorer(query, query, bias_table=torch.zeros(1, 5))
    found = explorer.arithmetic()
    assert found["shift"] == found["score"] == 1800
    assert found["denominator"] == 3
    assert found["weight"] == pytest.approx(1 / 3)


def test_the_chosen_cell_stays_inside_what_is_shown():
    _, _, explorer = shaw(head=3, query_index=9, key_index=7)
    assert explorer.cell() == (2, 9, 7)
    explorer.length, explorer.heads_shown = 4, 1
    assert explorer.cell() == (0, 3, 3)
    assert explorer.arithmetic()["offset"] == 0
    assert explorer.query_index == 9


def test_all_four_steps_at_once():
    _, _, explorer = shaw(view="steps", heads_shown=2, causal=True)
    values = explorer.values()
    assert values.shape == (4, 2, L, L)
    for shown, (name, step) in zip(values, explorer.maps().items(), strict=True):
        seen = explorer.allowed()
        assert torch.equal(shown[:, seen], step[:2, seen]), name
        assert shown[:, ~seen].isnan().all()
    assert explorer.picture() == explorer.picture()
    assert explorer.describe().startswith("Attention map explorer: steps of 2 of 3")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "exactly one of key_table and bias_table"),
        ({"key_table": (9, D), "bias_table": (H, 9)}, "exactly one of"),
        ({"value_table": (4, D)}, "value_table must have an odd number of rows"),
        ({"value_table": (H + 1, 3, D)}, "value_table must have shape"),
        ({"key_table": (9, D), "value_table": (9, D + 1)}, "value_table"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tables, message):
    query = torch.randn(H, 7, D)
    given = {name: torch.randn(shape) for name, shape in tables.items()}
    value = query if len(given) == 2 and "value_table" in given else None
    with pytest.raises(ValueError, match=message):
        AttentionMapExplorer(query, query, value=value, **given)


def test_values_must_have_numbers_and_fit_the_keys():
    query, table = torch.randn(H, 7, D), torch.randn(9, D)
    with pytest.raises(ValueError, match="value must have shape"):
        AttentionMapExplorer(query, query, value=query[:, :6], key_table=table)
    with pytest.raises(ValueError, match=re.escape("value must hold finite numbers")):
        AttentionMapExplorer(query, query, value=query / 0, key_table=table)
    with pytest.raises(TypeError, match="value must be a tensor"):
        AttentionMapExplorer(query, query, value=[1.0], key_table=table)


def test_values_may_be_wider_than_keys_and_a_table_may_stand_alone():
    query, key = torch.randn(H, 7, D), torch.randn(H, 7, D)
    value, table = torch.randn(H, 7, 2), torch.randn(H, 5, 2)
    explorer = AttentionMapExplorer(query, key, value=value, value_table=table)
    assert explorer.tables == ("value_table",)
    assert "Shaw's value table" in explorer.describe()
    assert torch.equal(explorer.maps()["position"], torch.zeros(H, 7, 7).double())
    expected = relative_attention(
        query[None], key[None], value[None], value_table=table
    )[0]
    weights = explorer.maps()["weights"]
    found = weights @ value.double() + explorer.bins() @ table.double()
    torch.testing.assert_close(found, expected.double(), atol=1e-5, rtol=1e-5)
    alone = AttentionMapExplorer(query, key, value_table=table)
    torch.testing.assert_close(alone.bins(), explorer.bins())


def test_the_page_gets_values_and_their_table():
    module, x, explorer = shaw()
    state = explorer.get_state()
    value = np.frombuffer(state["_value"], "<f4").reshape(H, L, D)
    expected = module.wv(x)[0].view(L, H, D).transpose(0, 1).float()
    np.testing.assert_array_equal(value, expected.detach())
    table = np.frombuffer(state["_value_table"], "<f4").reshape(2 * K + 1, D)
    np.testing.assert_array_equal(
        table, module.tables()["value_table"].detach().float()
    )
    assert state["length"] == L
