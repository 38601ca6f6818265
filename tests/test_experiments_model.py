"""The tiny model with every scheme: it learns, keeps to its rules and to its window."""

from __future__ import annotations

import math

import pytest
import torch

from relpos_lib.experiments.build import build
from relpos_lib.experiments.model import TinyTransformer
from relpos_lib.experiments.positions import (
    FromContentGate,
    FromFactor,
    OwnAttention,
    Rotary,
    ShawTables,
    hide_beyond,
)
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.schemes import INITS, SCHEMES
from relpos_lib.experiments.tasks import IGNORED, TASKS
from relpos_lib.rotary import rotary_encoding
from tests import cases, reference

SMALL = {"width": 12, "heads": 3, "test_lengths": (7, 31), "longest": 11}
CAN_HIDE = [name for name, scheme in SCHEMES.items() if scheme.can_hide]


def run_of(scheme, is_causal=False, **more):
    task = "copy" if is_causal else "switch"
    # An even width of the heads, for rotary, and another K than the default.
    clips = {"max_distance": 3} if SCHEMES[scheme].distance is not None else {}
    return Run(
        task=task, scheme=scheme, is_causal=is_causal, **{**SMALL, **clips, **more}
    )


def symbols_of(length, batch=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(16, (batch, length), generator=generator)


def backward(model, run, length=13):
    symbols = symbols_of(length, batch=5)
    answers = TASKS[run.task].answers(symbols)
    logits = model(symbols).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(
        logits, answers.flatten(), ignore_index=IGNORED
    )
    model.zero_grad()
    loss.backward()
    return loss


def has_no_gradient(name, run):
    """Parameters that cannot change what the model says.

    The same number added to all scores of a query changes no weight: that is what the
    bias of the keys does, unless a scheme turns keys or multiplies scores.
    """
    return name.endswith("wk.bias") and run.scheme not in ("rotary", "multiplicative")


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_parameter_learns(scheme, is_causal):
    run = run_of(scheme, is_causal)
    model = build(run)
    assert model(symbols_of(13)).shape == (2, 13, 16)
    backward(model, run)
    # A gate learns nothing while the bias behind it is zero: one step first.
    torch.optim.AdamW(model.parameters(), lr=0.01).step()
    loss = backward(model, run)
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        largest = parameter.grad.abs().max().item()
        if has_no_gradient(name, run):
            assert largest < 1e-7, name
        else:
            assert largest > 1e-7, name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_seed_gives_one_model(scheme):
    torch.manual_seed(1)
    first = build(run_of(scheme)).state_dict()
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    again = build(run_of(scheme)).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    other = build(run_of(scheme, seed=1)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_models_run_at_any_length_up_to_the_longest_test(scheme, is_causal):
    model = build(run_of(scheme, is_causal))
    for length in (1, 2, 31):
        assert model(symbols_of(length)).isfinite().all()
    if scheme != "learned":
        assert model(symbols_of(53)).isfinite().all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_causal_model_does_not_see_the_future(scheme):
    model = build(run_of(scheme, is_causal=True)).double()
    _stir(model)
    symbols = symbols_of(17)
    changed = symbols.clone()
    changed[:, 11] = (changed[:, 11] + 1) % 16
    before, after = model(symbols), model(changed)
    cases.assert_equal(after[:, :11], before[:, :11])
    assert (after[:, 11:] - before[:, 11:]).abs().amax(-1).min() > 1e-6
    encoder = build(run_of(scheme)).double()
    assert (encoder(symbols) - encoder(changed))[:, :11].abs().max() > 1e-6


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "none"])
def test_all_schemes_but_one_tell_the_order(scheme):
    model = build(run_of(scheme)).double()
    _stir(model)
    symbols = symbols_of(11)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    moved = model(symbols)[:, order] - model(symbols[:, order])
    assert moved.abs().max() > 1e-4


def test_without_positions_the_order_is_unknown():
    model = build(run_of("none")).double()
    symbols = symbols_of(11)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(3))
    cases.assert_equal(model(symbols[:, order]), model(symbols)[:, order])


def _stir(model):
    """Let no table be zero any more."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.3 * noise.to(parameter.dtype)


# Attention of their own


def heads_of(seed=0, length=7):
    return [cases.numbers(2, 3, length, 4, seed=seed + n) for n in range(3)]


def looped(query, key, value, is_causal, score):
    """Softmax of scores, number by number; ``score(b, h, i, j)`` gives one."""
    out = torch.zeros_like(value)
    batch, heads, length, _ = query.shape
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                seen = range(i + 1) if is_causal else range(length)
                weights = [math.exp(score(b, h, i, j)) for j in seen]
                for weight, j in zip(weights, seen, strict=True):
                    out[b, h, i] += weight / sum(weights) * value[b, h, j]
    return out


def sigmoid(x):
    return 1 / (1 + math.exp(-float(x)))


def layer_of(scheme):
    """What a layer of a stirred model has, in float64."""
    model = build(run_of(scheme)).double()
    _stir(model)
    rpe = model.layers[0].rpe
    assert isinstance(rpe, OwnAttention)
    return rpe


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@torch.no_grad()
def test_the_factor_multiplies_the_scores(is_causal):
    attention = layer_of("multiplicative")
    assert isinstance(attention, FromFactor)
    gated = attention.rpe.factor
    query, key, value = heads_of()

    def score(b, h, i, j):
        product = float(query[b, h, i] @ key[b, h, j]) / 2
        strength = sigmoid(gated.gate[h]) * math.exp(gated.logit_scale[h])
        return product * (1 + strength * float(reference.entry(gated.bias, j - i)[h]))

    found = attention.attend(query, key, value, is_causal)
    cases.assert_equal(found, looped(query, key, value, is_causal, score))


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@torch.no_grad()
def test_the_query_chooses_how_strong_the_bias_is(is_causal):
    attention = layer_of("content-gated")
    assert isinstance(attention, FromContentGate)
    rpe = attention.rpe
    query, key, value = heads_of()

    def score(b, h, i, j):
        q = query[b, h, i]
        update, reset = sigmoid(q @ rpe.update[h]), sigmoid(q @ rpe.reset[h])
        strength = 1 + update + (1 - update) * float(rpe.scale[h]) * reset
        bias = float(reference.entry(rpe.rpe.bias, j - i)[h])
        return float(q @ key[b, h, j]) / 2 + strength * bias

    found = attention.attend(query, key, value, is_causal)
    cases.assert_equal(found, looped(query, key, value, is_causal, score))


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@torch.no_grad()
def test_rotary_turns_queries_and_keys_but_no_values(is_causal):
    query, key, value = heads_of()
    turned = rotary_encoding(query), rotary_encoding(key)

    def score(b, h, i, j):
        return float(turned[0][b, h, i] @ turned[1][b, h, j]) / 2

    found = Rotary().attend(query, key, value, is_causal)
    cases.assert_equal(found, looped(query, key, value, is_causal, score))


# Tables


def test_shaws_tables_are_on_keys_values_or_both():
    for keys, values in ((True, False), (False, True), (True, True)):
        tables = ShawTables(3, 5, keys, values).tables()
        assert [*tables] == ["key_table"] * keys + ["value_table"] * values
        assert all(table.shape == (7, 5) for table in tables.values())


def test_shaws_tables_may_differ_by_head():
    tables = ShawTables((1, 3), 5)
    assert tables.max_distance == 3
    key_table = tables.tables()["key_table"]
    assert key_table.shape == (2, 7, 5)
    assert torch.equal(key_table[0, 0], key_table[0, 2])  # clipped at 1
    assert not torch.equal(key_table[1, 0], key_table[1, 2])


@pytest.mark.parametrize("factor", [3, 9])
def test_a_table_times_a_constant_learns_that_many_times_faster(factor):
    times, plain = (
        build(run_of(scheme)).double()
        for scheme in (f"bias-zero-x{factor}", "bias-zero")
    )
    rate = 3e-3
    groups = [
        {"params": [p], "lr": rate * (factor if "rpe" in name else 1)}
        for name, p in plain.named_parameters()
    ]
    tiny = {"eps": 1e-30}  # or the size of a gradient would matter a little
    optimizers = {
        times: torch.optim.Adam(times.parameters(), lr=rate, **tiny),
        plain: torch.optim.Adam(groups, **tiny),
    }
    for step in range(5):
        for model, optimizer in optimizers.items():
            backward(model, Run(), length=9 + step)
            optimizer.step()
    symbols = symbols_of(12)
    torch.testing.assert_close(times(symbols), plain(symbols))


@pytest.mark.parametrize("init", INITS)
def test_tables_begin_as_they_are_told(init):
    model = build(run_of("shaw", init=init, width=96, max_distance=20))
    plain = build(run_of("none", width=96))
    (table,) = {
        p for n, p in model.named_parameters() if n.startswith("layers.0.rpe.keys")
    }
    bound = math.sqrt(6 / sum(table.shape))  # Xavier's: (2K + 1) rows in, D out
    wanted = {"xavier": bound / math.sqrt(3), "normal": 0.02, "zero": 0.0}[init]
    assert table.std().item() == pytest.approx(wanted, rel=0.1)
    if init == "xavier":
        assert table.abs().max() <= bound
    before = "embedding.weight"
    assert torch.equal(model.state_dict()[before], plain.state_dict()[before])


# The window


def near_mask(window, length):
    """True where the distance is at most the window."""
    places = range(length)
    near = [[abs(i - j) <= window for j in places] for i in places]
    return torch.tensor(near)


@pytest.mark.parametrize("is_causal", [False, True], ids=["encoder", "causal"])
@pytest.mark.parametrize("window", [1, 2, 3, 4, 50])
@pytest.mark.parametrize("scheme", ["none", "bias", "shaw", "alibi", "t5"])
@torch.no_grad()
def test_a_window_hides_what_a_mask_would(scheme, window, is_causal):
    layer = build(run_of(scheme, is_causal, window=window)).double()
    _stir(layer)
    layer = layer.layers[0]
    query, key, value = heads_of(length=11)
    near = near_mask(window, 11)
    wanted = reference.attention(
        query, key, value, **layer.tables(11), mask=near, is_causal=is_causal
    )
    cases.assert_equal(layer.attend(query, key, value), wanted)


@pytest.mark.parametrize("scheme", CAN_HIDE)
def test_a_window_hides_all_beyond_it_from_the_whole_model(scheme):
    run = run_of(scheme, window=2)
    model = build(run).double()
    _stir(model)
    symbols = symbols_of(17)
    changed = symbols.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 16
    moved = (model(symbols) - model(changed)).abs().amax((0, 2))
    assert moved[5:].max() < 1e-12  # two layers reach 2 + 2
    assert moved[:5].min() > 1e-9
    backward(model, run)
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_window_keeps_the_tables_that_it_finds():
    like = cases.numbers(2, 3, 5, 4, seed=0)
    bias = cases.numbers(3, 5, seed=1)
    tables = hide_beyond({"bias_table": bias, "key_table": like}, 3, like)
    assert tables["key_table"] is like
    found = tables["bias_table"]
    assert found.shape == (3, 9)
    assert found[:, 0].eq(-torch.inf).all()
    assert found[:, -1].eq(-torch.inf).all()
    columns = [0, 0, 1, 2, 3, 4, 4]  # both ends of K = 2 repeated up to 3
    assert torch.equal(found[:, 1:-1], bias[:, columns])


def test_the_model_as_the_chapters_use_it():
    model = TinyTransformer(
        7, make_rpe=lambda: ShawTables(2, 4), d_model=8, num_heads=2
    )
    assert len(model.layers) == 2
    assert model(torch.zeros(3, 5, dtype=torch.int64)).shape == (3, 5, 7)
