"""The browser's arithmetic equals the library's, over every control's full range."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from matplotlib.colors import LinearSegmentedColormap

from relpos_lib.attention import relative_attention
from relpos_lib.bias import SimpleBiasRPE
from relpos_lib.explorers import AttentionMapExplorer
from relpos_lib.explorers._picture import round_up
from relpos_lib.offsets import relative_offsets, table_rows
from relpos_lib.palette import DIVERGING, SEQUENTIAL
from relpos_lib.shaw import RelativeMultiHeadAttention

LENGTHS, DISTANCES = range(1, 41), range(40)

# Nineteen million numbers are too many to carry over: of each matrix both sides make
# a sum in which every cell has a weight of its own, exact in 53 bits.
WEIGHTS = (7919 * np.arange(40 * 40)) % 10007 + 1
INDEX = """async ([address, cases, weights]) => {
  const core = await import(address);
  const sum = (matrix) => matrix.reduce((so, x, cell) => so + weights[cell] * x, 0);
  return cases.map(([Q, S, K]) => {
    const offsets = core.relativeOffsets(Q, S);
    const clipped = offsets.map((offset) => core.clipOffset(offset, K));
    const rows = core.tableRows(Q, S, K);
    return [offsets, clipped, rows, core.allowedPairs(Q, S, true)].map(sum);
  });
}"""

ATTENTION = """async ([address, problem, cases]) => {
  const core = await import(address);
  for (const name of ["query", "key", "table"])
    problem[name] = Float32Array.from(problem[name]);
  const fixed = core.prepare(problem);
  return cases.map(([K, causal]) => {
    const { content, position, score, weights } = core.attend(fixed, K, causal);
    return [content, position, score, weights].map((values) => [...values]);
  });
}"""


@pytest.fixture
def core(module):
    """Call a script with the address of core.js in front of its arguments."""
    return partial(module, "core.js")


def pairs_and_corners():
    """Every pair of two controls' full ranges, the third at both ends and between."""
    cases = set(product(LENGTHS, LENGTHS, (0, 5, 39)))
    cases |= set(product(LENGTHS, (1, 6, 40), DISTANCES))
    cases |= set(product((1, 6, 40), LENGTHS, DISTANCES))
    return sorted(cases)


def test_offsets_clipping_rows_and_mask(core):
    cases = pairs_and_corners()
    found = core(INDEX, cases, WEIGHTS.tolist())
    for (q_len, k_len, distance), sums in zip(cases, found, strict=True):
        offsets = relative_offsets(q_len, k_len)
        rows = table_rows(q_len, k_len, distance)
        parts = (offsets, rows - distance, rows, offsets <= 0)
        expected = [int(WEIGHTS[: q_len * k_len] @ p.numpy().ravel()) for p in parts]
        assert sums == expected, f"Q={q_len}, S={k_len}, K={distance}"


def test_one_index_matrix_cell_by_cell(core):
    script = (
        "async ([address, Q, S, K]) => [...(await import(address)).tableRows(Q, S, K)]"
    )
    assert core(script, 2, 4, 1) == [0, 0, 1, 2, 0, 0, 0, 1]


def shaw_problem(per_head):
    torch.manual_seed(0)
    module = RelativeMultiHeadAttention(15, 3, 6, per_head=per_head)
    return AttentionMapExplorer.from_shaw(module, torch.randn(13, 15))


def bias_problem(q_len, k_len):
    torch.manual_seed(0)
    query, key = torch.randn(3, q_len, 5), torch.randn(3, k_len, 5)
    return AttentionMapExplorer.from_bias(query, key, SimpleBiasRPE(3, 8))


def as_problem(explorer):
    """What attention_map.js reads from the model."""
    numbers = {
        name: np.frombuffer(getattr(explorer, f"_{name}"), "<f4").tolist()
        for name in ("query", "key", "table")
    }
    return numbers | {
        "scheme": explorer.scheme,
        "H": explorer.num_heads,
        "Q": explorer.query_length,
        "S": explorer.key_length,
        "D": explorer.head_width,
        "Kmax": explorer.table_distance,
    }


@pytest.mark.parametrize(
    "explorer",
    [
        pytest.param(lambda: shaw_problem(False), id="shaw"),
        pytest.param(lambda: shaw_problem(True), id="shaw per head"),
        pytest.param(lambda: bias_problem(11, 11), id="bias"),
        pytest.param(lambda: bias_problem(7, 11), id="fewer queries"),
        pytest.param(lambda: bias_problem(11, 7), id="more queries"),
        pytest.param(lambda: bias_problem(1, 1), id="one pair"),
    ],
)
def test_scores_and_weights(core, explorer):
    explorer = explorer()
    cases = list(product(range(explorer.table_distance + 1), (False, True)))
    found = core(ATTENTION, as_problem(explorer), cases)
    for (distance, causal), values in zip(cases, found, strict=True):
        explorer.max_distance, explorer.causal = distance, causal
        for name, ours in zip(explorer.maps().items(), values, strict=True):
            expected = name[1].flatten().numpy()
            np.testing.assert_allclose(ours, expected, atol=1e-5, err_msg=name[0])


def test_weights_against_attention_itself(core):
    """One case with nothing of the figure's Python in between."""
    torch.manual_seed(2)
    query, key = torch.randn(2, 3, 7, 5).double()
    table = torch.randn(3, 2 * 4 + 1).double()
    problem = {"scheme": "bias", "H": 3, "Q": 7, "S": 7, "D": 5, "Kmax": 4}
    arrays = {"query": query, "key": key, "table": table}
    problem |= {name: array.flatten().tolist() for name, array in arrays.items()}
    [[*_, found]] = core(ATTENTION, problem, [[2, True]])
    eye = torch.eye(7).double().expand(1, 3, 7, 7)
    expected = relative_attention(
        query[None], key[None], eye, bias_table=table[:, 2:7], is_causal=True
    )
    np.testing.assert_allclose(found, expected.flatten(), atol=1e-5)


@pytest.mark.parametrize(
    ("function", "stops", "low"),
    [("viridis", SEQUENTIAL, 0), ("diverging", DIVERGING, -1)],
)
def test_colours(core, function, stops, low):
    points = np.linspace(low, 1, 201)
    script = "async ([address, name, at]) => at.map((await import(address))[name])"
    found = np.array(core(script, function, points.tolist()))
    hexes = [f"#{stop}" for stop in stops.split(",")]
    cmap = LinearSegmentedColormap.from_list("book", hexes, N=4096)
    expected = 255 * cmap((points - low) / (1 - low))[:, :3]
    assert np.abs(found - expected).max() < 1


def test_round_scale_ends(core):
    rng = np.random.default_rng(0)
    ends = [5e-324, 1e-320, 1e-299, 1e299]
    numbers = [0.0, 0.1, 0.3, 1.0, 1.5, 40.0, *10 ** rng.uniform(-4, 4, 500), *ends]
    script = "async ([address, at]) => at.map((await import(address)).roundUp)"
    found = core(script, numbers)
    assert found == pytest.approx([round_up(x) for x in numbers])
    assert all(end >= x * (1 - 1e-8) for end, x in zip(found, numbers, strict=True))


def test_numbers_as_text(core):
    script = "async ([address, a, d]) => (await import(address)).format(a, d)"
    assert core(script, -3, 0) == "\N{MINUS SIGN}3"
    assert core(script, -0.0004, 3) == "0.000"
    assert core(script, 1.23456, 3) == "1.235"
