"""The figures' Python side: traits, numbers, static pictures and the bundled module."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from traitlets import TraitError

from relpos_lib.attention import relative_attention
from relpos_lib.bias import (
    ALiBi,
    ContentGatedBiasRPE,
    MultiplicativeBiasRPE,
    SimpleBiasRPE,
)
from relpos_lib.explorers import AttentionMapExplorer, IndexMatrixExplorer
from relpos_lib.explorers._bundle import FOLDER, _collect, bundle
from relpos_lib.explorers._picture import draw_panels, round_up
from relpos_lib.palette import DIVERGING, SEQUENTIAL
from relpos_lib.shaw import RelativeMultiHeadAttention
from tests.explorers import check_link, check_output, check_range, nothing_sent

ROOT = Path(__file__).resolve().parents[1]
H, L, D, K = 3, 11, 5, 4
ENTRIES = sorted(
    path.name for path in FOLDER.glob("*.js") if "export default" in path.read_text()
)


def shaw_module(**options):
    torch.manual_seed(0)
    return RelativeMultiHeadAttention(H * D, H, K, **options)


def shaw_explorer(**options):
    module = shaw_module()
    return AttentionMapExplorer.from_shaw(module, torch.randn(L, H * D), **options)


def bias_explorer(q_len=7, k_len=L, **options):
    torch.manual_seed(1)
    query, key = torch.randn(H, q_len, D), torch.randn(H, k_len, D)
    return AttentionMapExplorer.from_bias(query, key, SimpleBiasRPE(H, 5), **options)


# Traits


@pytest.mark.parametrize(
    ("make", "trait", "good", "bad", "needs"),
    [
        (IndexMatrixExplorer, "query_length", (1, 40), (0, 41), "from 1 to 40"),
        (IndexMatrixExplorer, "key_length", (1, 40), (0, 41, 3.0), "from 1 to 40"),
        (IndexMatrixExplorer, "key_length", (7,), (np.int64(41), np.bool_(1)), "to 40"),
        (IndexMatrixExplorer, "max_distance", (0, 39), (-1, 40, True), "from 0 to 39"),
        (IndexMatrixExplorer, "causal", (True,), (1, None), "True or False"),
        (IndexMatrixExplorer, "view", ("offset",), ("rows", 0), "row, clipped, offset"),
        (shaw_explorer, "max_distance", (0, K), (-1, K + 1, "2"), f"from 0 to {K}"),
        (shaw_explorer, "heads_shown", (1, H), (0, H + 1), f"from 1 to {H}"),
        (bias_explorer, "view", ("score", "content"), ("w",), "weights, content"),
    ],
)
def test_traits_take_their_range_and_refuse_the_rest(make, trait, good, bad, needs):
    check_range(make(), trait, good, bad, needs)


def test_construction_refuses_wrong_values_before_anything_is_sent():
    with nothing_sent():
        with pytest.raises(TraitError, match=r"query_length .* from 1 to 12, got 13"):
            IndexMatrixExplorer(query_length=13, max_length=12)
        with pytest.raises(TraitError, match=r"max_length .* from 2 to 64, got 65"):
            IndexMatrixExplorer(max_length=65)
        with pytest.raises(TraitError, match=r"heads_shown .* from 1 to 3, got 4"):
            shaw_explorer(heads_shown=4)


def test_whole_numbers_of_numpy_are_kept_as_plain_ones():
    explorer = IndexMatrixExplorer(query_length=np.int64(7), key_length=np.uint8(5))
    explorer.max_distance = np.int32(2)
    for trait, value in (("query_length", 7), ("key_length", 5), ("max_distance", 2)):
        kept = getattr(explorer, trait)
        assert type(kept) is int
        assert kept == value


def test_what_belongs_to_the_data_cannot_be_set():
    with pytest.raises(TraitError, match="num_heads"):
        shaw_explorer().num_heads = 2


def test_controls_can_be_observed_and_linked():
    first, second = IndexMatrixExplorer(), IndexMatrixExplorer()
    assert check_link(first, second, "max_distance", 7) == 7


def test_every_control_is_in_the_state_that_the_page_gets():
    state = bias_explorer(causal=True).get_state()
    assert state["max_distance"] == 4
    assert state["causal"] is True
    table = np.frombuffer(state["_table"], "<f4").reshape(H, 9)
    torch.manual_seed(1)
    torch.randn(H, 7, D), torch.randn(H, L, D)
    expected = SimpleBiasRPE(H, 5).tables()["bias_table"].detach()
    np.testing.assert_array_equal(table, expected)


# Numbers


def test_index_values_by_hand():
    explorer = IndexMatrixExplorer(query_length=2, key_length=4, max_distance=1)
    assert explorer.values().tolist() == [[0, 0, 1, 2], [0, 0, 0, 1]]
    explorer.view = "clipped"
    assert explorer.values().tolist() == [[-1, -1, 0, 1], [-1, -1, -1, 0]]
    explorer.view = "offset"
    assert explorer.values().tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]
    explorer.causal = True
    assert explorer.allowed().long().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
def test_shaw_maps_are_what_the_module_computes(causal, per_head):
    module = shaw_module(per_head=per_head).double()
    x = torch.randn(1, L, H * D, dtype=torch.float64)
    maps = AttentionMapExplorer.from_shaw(module, x, causal=causal).maps()
    _, debug = module(x, x, x, debug=True, is_causal=causal)
    scale = D**0.5
    for ours, theirs in (
        (scale * maps["content"], debug["content_scores"]),
        (scale * maps["position"], debug["positional_scores"]),
        (maps["weights"], debug["attention_weights"]),
    ):
        torch.testing.assert_close(ours[None], theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scheme", [SimpleBiasRPE(H, 5), ALiBi(H)])
@pytest.mark.parametrize(("q_len", "k_len"), [(7, 11), (11, 7), (1, 13)])
def test_bias_maps_are_what_the_scheme_computes(scheme, q_len, k_len):
    query, key = torch.randn(H, q_len, D), torch.randn(H, k_len, D)
    maps = AttentionMapExplorer.from_bias(query[None], key[None], scheme).maps()
    expected = scheme((query @ key.mT)[None] / D**0.5)[0].double()
    torch.testing.assert_close(maps["score"], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        maps["weights"], expected.softmax(-1), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("distance", range(K + 1))
def test_a_smaller_distance_reads_the_middle_of_the_same_table(distance):
    module, x = shaw_module(), torch.randn(L, H * D)
    explorer = AttentionMapExplorer.from_shaw(module, x, max_distance=distance)
    table = module.tables()["key_table"][K - distance : K + distance + 1]
    query, key = (
        projection(x).unflatten(-1, (H, D)).transpose(0, 1)[None]
        for projection in (module.wq, module.wk)
    )
    eye = torch.eye(L).expand(1, H, L, L)
    expected = relative_attention(query, key, eye, key_table=table)[0].double()
    torch.testing.assert_close(
        explorer.maps()["weights"], expected, atol=1e-5, rtol=1e-5
    )


def test_a_long_table_is_trimmed_to_the_offsets_that_occur():
    query = torch.randn(H, 7, D)
    explorer = AttentionMapExplorer.from_bias(query, query, SimpleBiasRPE(H))
    assert explorer.table_distance == 6
    assert len(explorer.get_state()["_table"]) == H * 13 * 4


class LargestTensor(TorchDispatchMode):
    """The number of elements of the largest tensor that an operation returned."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.numel = max(self.numel, out.numel())
        return out


@pytest.mark.parametrize("per_head", [False, True])
def test_maps_make_no_vector_for_every_pair(per_head):
    length, width = 32, 8
    table = torch.randn(*([H] if per_head else []), 2 * length - 1, width)
    explorer = AttentionMapExplorer(
        torch.randn(H, length, width), torch.randn(H, length, width), key_table=table
    )
    with LargestTensor() as largest:
        explorer.maps()
    assert 0 < largest.numel <= H * length * (2 * length - 1)


@pytest.mark.parametrize("name", ["query", "key", "table"])
@pytest.mark.parametrize("scheme", ["key_table", "bias_table"])
def test_tensors_are_copied(scheme, name):
    table = torch.randn(9, D) if scheme == "key_table" else torch.randn(H, 9)
    tensors = {"query": torch.randn(H, 5, D), "key": torch.randn(H, 5, D)}
    explorer = AttentionMapExplorer(**tensors, **{scheme: table})
    before = explorer.maps()["score"]
    (tensors | {"table": table})[name].add_(1)
    assert torch.equal(explorer.maps()["score"], before)


def test_a_query_without_keys_has_weights_zero():
    explorer = bias_explorer(q_len=11, k_len=7, causal=True)
    weights = explorer.maps()["weights"]
    assert torch.equal(weights[:, :4], torch.zeros(H, 4, 7, dtype=torch.float64))
    torch.testing.assert_close(weights[:, 4:].sum(-1), torch.ones(H, 7).double())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda q: AttentionMapExplorer(q, q), ValueError, "exactly one of"),
        (
            lambda q: AttentionMapExplorer(q[0], q, bias_table=torch.ones(H, 3)),
            ValueError,
            r"query must have shape \(H, length, D\)",
        ),
        (
            lambda q: AttentionMapExplorer(q, q, bias_table=torch.ones(H, 4)),
            ValueError,
            "bias_table must have an odd number of rows",
        ),
        (
            lambda q: AttentionMapExplorer.from_shaw(shaw_module(), q),
            ValueError,
            r"x must have shape \(L, 15\)",
        ),
        (
            lambda q: AttentionMapExplorer.from_bias(q[0, 0], q, ALiBi(H)),
            ValueError,
            r"query must have shape \(H, length, D\) .* got \(5,\)",
        ),
        (
            lambda q: AttentionMapExplorer.from_bias(q, q[:, :0], ALiBi(H)),
            ValueError,
            r"key must have shape .* no empty axis, got \(3, 0, 5\)",
        ),
        (
            lambda q: AttentionMapExplorer.from_shaw(
                shaw_module(), torch.ones(0, H * D)
            ),
            ValueError,
            r"x must have shape \(L, 15\) .* L at least 1, got \(0, 15\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make(torch.randn(H, 7, D))


WRONG_KINDS = [
    (None, "must be a tensor, got NoneType"),
    ([[[1.0]]], "must be a tensor, got list"),
    (np.ones((H, 7, D)), "must be a tensor, got ndarray"),
    (torch.ones(H, 7, D, dtype=torch.cfloat), "floating-point tensor, got .*complex64"),
    (torch.ones(H, 7, D, dtype=torch.bool), "floating-point tensor, got .*bool"),
    (torch.ones(H, 7, D, dtype=torch.long), "floating-point tensor, got .*int64"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_KINDS)
def test_only_real_floating_point_tensors_are_shown(wrong, message):
    good, table = torch.randn(H, 7, D), torch.randn(H, 3)
    with pytest.raises(TypeError, match=f"query .*{message}"):
        AttentionMapExplorer(wrong, good, bias_table=table)
    with pytest.raises(TypeError, match=f"key .*{message}"):
        AttentionMapExplorer(good, wrong, bias_table=table)
    with pytest.raises(TypeError, match=f"query .*{message}"):
        AttentionMapExplorer.from_bias(wrong, good, ALiBi(H))
    with pytest.raises(TypeError, match=f"x .*{message}"):
        AttentionMapExplorer.from_shaw(shaw_module(), wrong)
    if wrong is not None:
        for name in ("key_table", "bias_table"):
            with pytest.raises(TypeError, match=f"{name} .*{message}"):
                AttentionMapExplorer(good, good, **{name: wrong})


def test_a_sequence_of_another_dtype_is_refused():
    with pytest.raises(TypeError, match="x must have the dtype of the module"):
        AttentionMapExplorer.from_shaw(shaw_module(), torch.ones(7, H * D).double())


@pytest.mark.parametrize(
    "scheme",
    [MultiplicativeBiasRPE(H), ContentGatedBiasRPE(H, D), shaw_module(), ALiBi, None],
)
def test_a_scheme_without_a_table_is_refused(scheme):
    query = torch.randn(H, 7, D)
    needs = f"rpe must be an additive scheme, .* got {type(scheme).__name__}$"
    with pytest.raises(TypeError, match=needs):
        AttentionMapExplorer.from_bias(query, query, scheme)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 1e39])
@pytest.mark.parametrize("name", ["query", "key", "key_table", "bias_table"])
def test_numbers_without_a_colour_are_refused(name, value):
    tensors = {
        "query": torch.randn(H, 7, D).double(),
        "key": torch.randn(H, 7, D).double(),
        "key_table": torch.randn(9, D).double(),
        "bias_table": torch.randn(H, 9).double(),
    }
    del tensors["key_table" if name == "bias_table" else "bias_table"]
    tensors[name].view(-1)[3] = value
    needs = rf"^{name} must hold finite numbers .* float32, got {re.escape(str(value))}"
    with pytest.raises(ValueError, match=needs) as error:
        AttentionMapExplorer(**tensors)
    assert ("-inf there" in str(error.value)) == (name == "bias_table")


# What is shown where no widget can live


@pytest.mark.parametrize("make", [IndexMatrixExplorer, shaw_explorer, bias_explorer])
def test_output_has_view_picture_and_a_stable_sentence(make):
    check_output(make)


def test_the_sentence_says_what_is_shown():
    explorer = IndexMatrixExplorer(query_length=3, max_distance=2, causal=True)
    assert explorer.describe() == (
        "Index matrix explorer: row of the table of 3 queries and 6 keys, "
        "maximum distance 2, causal."
    )
    assert "3 of 3 heads with Shaw's key table, 11 queries" in repr(shaw_explorer())


def pictured(monkeypatch, explorer):
    """The arrays and the scale that a picture is drawn from."""
    seen = {}

    def spy(panels, titles, low, high, unit, **options):
        seen.update(panels=panels, titles=titles, low=low, high=high, unit=unit)
        return draw_panels(panels, titles, low, high, unit, **options)

    monkeypatch.setattr(f"{type(explorer).__module__}.draw_panels", spy)
    explorer.picture()
    return seen


def test_index_picture_shows_the_rows(monkeypatch):
    explorer = IndexMatrixExplorer(query_length=3, key_length=5, causal=True)
    seen = pictured(monkeypatch, explorer)
    expected = explorer.values().double().numpy()
    assert np.isnan(seen["panels"][0]).tolist() == (~explorer.allowed()).tolist()
    shown = ~np.isnan(seen["panels"][0])
    np.testing.assert_array_equal(seen["panels"][0][shown], expected[shown])
    assert (seen["low"], seen["high"]) == (0, 6)


@pytest.mark.parametrize("view", ["weights", "content", "position", "score"])
def test_all_heads_are_pictured_on_one_scale(monkeypatch, view):
    explorer = shaw_explorer(view=view, heads_shown=2)
    seen = pictured(monkeypatch, explorer)
    everything = explorer.maps()[view]
    assert len(seen["panels"]) == 2
    np.testing.assert_array_equal(seen["panels"][1], everything[1].numpy())
    assert seen["high"] == round_up(everything.abs().max().item())
    assert seen["low"] == (0 if view == "weights" else -seen["high"])


def test_scale_ends_are_finite_and_not_zero():
    for x in (0.0, 5e-324, 1e-320, 1e-299, 1e299, 1.7e308, np.inf, np.nan):
        assert 0 < round_up(x) < np.inf
        assert round_up(x) >= x or not 1e-300 < x < 1e300


def test_pictures_share_the_palette_of_the_book():
    tokens = (ROOT / "book/_static/tokens.css").read_text()
    for name, stops in (("seq", SEQUENTIAL), ("div", DIVERGING)):
        found = re.findall(rf"--{name}-\d: #(\w+);", tokens)
        assert stops == ",".join(found)


# The module that the browser gets


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bundle_is_one_small_module(entry):
    text = bundle(entry)
    assert re.findall(r"^\s*import\b", text, re.MULTILINE) == []
    assert re.findall(r"\bexport\b.*", text) == ["export default { render };"]
    assert "/**" not in text
    assert len(gzip.compress(text.encode())) < 20_000
    names = re.findall(r"^(?:const|let|function) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))


def test_all_modules_together_are_light():
    """Each once, without the comments, as pages get them, and the host script."""
    parts: dict[str, str] = {}
    for entry in ENTRIES:
        _collect(entry, parts)
    texts = [*parts.values(), (ROOT / "book/_static/figures.js").read_text()]
    assert sum(len(gzip.compress(text.encode())) for text in texts) <= 60_000


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_bundle_holds_each_file_once_and_whole(entry):
    text, parts = bundle(entry), {}
    _collect(entry, parts)
    assert {entry, "dom.js"} <= set(parts)
    for source in parts:
        for line in (FOLDER / source).read_text().splitlines():
            if line.startswith(("export const", "export function")):
                assert text.count(line.removeprefix("export ")) == 1


def test_figures_name_no_other_host():
    for path in [*FOLDER.glob("*.js"), *FOLDER.glob("*.css")]:
        addresses = re.findall(r"https?://[^\s\"']+", path.read_text())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}
