"""Trained model explorer, Python side: traits, text, the models' numbers, picture."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from traitlets import TraitError

from relpos_lib.experiments.build import build
from relpos_lib.experiments.run import run_from
from relpos_lib.experiments.tasks import IGNORED
from relpos_lib.explorers import TrainedModelExplorer
from relpos_lib.explorers.trained_model import LETTERS, SCHEMES
from relpos_lib.records import RESULTS, result
from tests.explorers import check_link, check_output, check_range, nothing_sent

H, D = 4, 8
STRANGE = [
    "<b>&amp;</b>",
    "Ωmega ẞ",
    "שלום",
    "e\u0301\u0323",
    "🙂👩\u200d🚀",
    "\0\t \n\x7f",
]


@pytest.fixture(scope="module")
def figure():
    """One with all schemes; tests set what they need."""
    return TrainedModelExplorer(SCHEMES)


@pytest.fixture(autouse=True)
def as_made(figure):
    """As it was made, before each test."""
    figure.set_trait("scheme", SCHEMES[0])
    for trait, value in {"text": "", "length": 24, "layer": 2, "head": 1}.items():
        figure.set_trait(trait, value)


def model_of(scheme):
    """The kept model, loaded with nothing of the figure in between."""
    found = result("experiments-live")
    (run,) = (
        run_from(found["common"] | group["run"])
        for group in found["groups"].values()
        if group["run"]["scheme"] == scheme
    )
    model = build(run)
    model.load_state_dict(load_file(RESULTS / f"live-{scheme}.safetensors"))
    return model.eval().requires_grad_(False)


def input_of_layer(model, symbols, number):
    """What goes into a layer, (L, E)."""
    seen = []
    layer = model.layers[number - 1]
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0]))
    model(symbols[None])
    hook.remove()
    return seen[0]


def weights_by_loop(scheme, layer, x, head):
    """Attention weights of a head, cell by cell, (L, L)."""
    mine = slice(head * D, (head + 1) * D)
    query, key = (w(layer.norm1(x))[:, mine] for w in (layer.wq, layer.wk))
    scores = torch.zeros(len(x), len(x))
    for i in range(len(x)):
        for j in range(len(x)):
            vector, added = key[j], 0.0
            if scheme in ("bias", "shaw"):  # both of K = 4
                row = min(max(j - i, -4), 4) + 4
            if scheme == "shaw":
                vector = vector + layer.rpe.keys.embedding.weight[row]
            elif scheme == "bias":
                added = layer.rpe.bias[row, head]
            elif scheme == "alibi":
                added = -abs(j - i) * 2.0 ** (-8 * (head + 1) / H)
            scores[i, j] = query[i] @ vector / math.sqrt(D) + added
    return scores.softmax(-1)


# Values


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("length", [2, 3, 24, 32, 33, 256])
def test_the_logits_are_those_of_the_model(figure, scheme, length):
    figure.scheme, figure.length = scheme, length
    shown = figure.values()
    assert shown.symbols.shape == shown.answers.shape == (length,)
    assert torch.equal(shown.logits, model_of(scheme)(shown.symbols[None])[0])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("text", ["", "headline"])
def test_weights_are_those_of_a_double_loop(figure, scheme, text):
    model = model_of(scheme)
    figure.scheme, figure.text, figure.length = scheme, text, 11
    for number, layer in enumerate(model.layers, 1):
        x = input_of_layer(model, figure.symbols(), number)
        for head in range(H):
            figure.layer, figure.head = number, head + 1
            expected = weights_by_loop(scheme, layer, x, head)
            torch.testing.assert_close(
                figure.values().weights, expected, atol=1e-5, rtol=0
            )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_weights_of_a_query_sum_to_one(figure, scheme):
    figure.scheme, figure.length = scheme, 256
    for figure.layer in (1, 2):
        for figure.head in range(1, H + 1):
            sums = figure.values().weights.sum(-1)
            torch.testing.assert_close(sums, torch.ones(256))


@pytest.mark.parametrize("text", ["", "aabb", "pacific", "bbbbbbbbbbb"])
def test_what_is_right_and_what_is_looked_at(figure, text):
    figure.scheme, figure.text, figure.length = "sinusoidal", text, 40
    shown = figure.values()
    symbols = shown.symbols.tolist()
    hits, weights = [], []
    for i, symbol in enumerate(symbols):
        place = i + 2 if symbol % 2 else i - 1
        if not 0 <= place < len(symbols):
            assert shown.answers[i] == IGNORED
            continue
        assert shown.answers[i] == symbols[place]
        hits.append(shown.logits[i].argmax() == symbols[place])
        weights.append(shown.weights[i, place])
    assert figure.right() == (sum(hits), len(hits))
    shares = figure.on_answers()
    assert shares.shape == (2, H)
    assert shares[1, 0].item() == pytest.approx(float(sum(weights) / len(weights)))


def test_a_sequence_may_ask_for_nothing(figure):
    figure.text, figure.length = "aa", 2
    assert figure.right() == (0, 0)
    assert figure.on_answers().isnan().all()
    assert figure.describe().endswith("gives 0 of 0 right answers at length 2.")


def test_the_models_are_those_of_the_results(figure):
    """On a sequence of its own each is right about as often as was measured."""
    for group in result("experiments-live")["groups"].values():
        figure.scheme = group["run"]["scheme"]
        for length in (32, 64, 256):
            figure.length = length
            right, asked = figure.right()
            assert right / asked == pytest.approx(
                group["accuracy"][str(length)]["mean"], abs=0.12
            )


def test_the_page_gets_the_weights_as_they_are(figure):
    numbers = np.frombuffer(figure._weights, "<f2").astype(np.float32)
    counted = 0
    for scheme in SCHEMES:
        state = model_of(scheme).state_dict()
        assert [name for name, *_ in figure._layouts[scheme]] == list(state)
        for name, shape, start in figure._layouts[scheme]:
            found = numbers[start : start + math.prod(shape)].reshape(shape)
            np.testing.assert_array_equal(found, state[name].numpy())
            counted += found.size
    assert counted == len(numbers)


# Text


def test_text_begins_the_sequence_and_the_rest_is_the_same_every_time(figure):
    invented = figure.symbols().tolist()
    assert len(set(invented)) > 8
    figure.text = "headline"
    found = figure.symbols().tolist()
    assert "".join(LETTERS[symbol] for symbol in found[:8]) == "headline"
    assert found[8:] == invented[8:]
    figure.length = 5
    assert figure.symbols().tolist() == found[:5]
    assert TrainedModelExplorer(["none"]).symbols().tolist() == invented


@pytest.mark.parametrize("text", STRANGE)
def test_any_character_is_a_symbol(figure, text):
    figure.text = text
    assert figure.text == text
    found = figure.symbols()[: len(text)].tolist()
    assert found == [ord(character) % 16 for character in text]
    assert figure.right()[1] > 0


def test_text_of_64_characters_is_taken_and_of_65_refused(figure):
    for character in "a🙂":
        figure.text = 64 * character
        with pytest.raises(TraitError, match=r"text of .* at most 64 .* got 65 of"):
            figure.text = 65 * character
        assert figure.text == 64 * character


# Traits


@pytest.mark.parametrize(
    ("trait", "good", "bad", "needs"),
    [
        ("length", (2, 256), (1, 257, 3.0, True), "from 2 to 256"),
        ("layer", (1, 2), (0, 3, "1"), "from 1 to 2"),
        ("head", (1, 4), (0, 5, None), "from 1 to 4"),
        ("scheme", SCHEMES, ("rotary", "", 1), ", ".join(SCHEMES)),
        ("text", ("", "abc"), (b"abc", None, 3, "a\ud83d"), "at most 64 characters"),
    ],
)
def test_traits_take_their_range_and_refuse_the_rest(figure, trait, good, bad, needs):
    check_range(figure, trait, good, bad, needs)


@pytest.mark.parametrize("schemes", [(), "shaw", ["rotary"], ["shaw", 3]])
def test_unknown_schemes_are_refused(schemes):
    with pytest.raises(ValueError, match="schemes must be some of none, sinusoidal"):
        TrainedModelExplorer(schemes)


def test_construction_refuses_wrong_values_before_anything_is_sent():
    with nothing_sent():
        for wrong in (
            {"scheme": "alibi"},
            {"text": 65 * "a"},
            {"length": 41, "max_length": 40},
            {"layer": 0},
            {"head": 5},
            {"max_length": 257},
        ):
            with pytest.raises(TraitError, match=next(iter(wrong))):
                TrainedModelExplorer(["shaw"], **wrong)


def test_what_belongs_to_the_models_stays(figure):
    for trait in ("schemes", "trained", "width", "num_heads", "num_layers"):
        with pytest.raises(TraitError, match=trait):
            setattr(figure, trait, getattr(figure, trait))


def test_the_schemes_are_those_asked_for_once_each():
    figure = TrainedModelExplorer(["shaw", "none", "shaw"])
    assert figure.schemes == ["shaw", "none"]
    assert figure.scheme == "shaw"
    assert TrainedModelExplorer().schemes == ["sinusoidal", "bias", "shaw"]


def test_controls_can_be_observed_and_linked(figure):
    other = TrainedModelExplorer(["shaw"])
    kept = check_link(other, figure, "length", np.int64(100))
    assert kept == 100
    assert type(kept) is int


# Outside the page


def test_the_sentence_says_what_is_shown(figure):
    figure.scheme, figure.length, figure.head = "shaw", 256, 3
    assert figure.describe() == (
        "Trained model explorer: shaw, trained at lengths up to 32, gives 253 of 253 "
        "right answers at length 256; layer 2, head 3 puts 75% of its weight where "
        "the answers stand."
    )


@pytest.mark.parametrize(
    "options", [{}, {"length": 2, "text": "aa"}, {"length": 256, "scheme": "bias"}]
)
def test_output_has_view_picture_and_a_stable_sentence(options):
    check_output(lambda: TrainedModelExplorer(**options), most=150_000)
