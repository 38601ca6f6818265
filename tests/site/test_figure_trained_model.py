"""Trained model explorer in a browser: arithmetic, text, drawing, handling, speed."""

import base64
import random
import re
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from figure_pages import (
    assert_colours,
    assert_nothing_grows,
    assert_nothing_overflows,
    assert_unique_ids,
    axe_findings,
    colours_of,
    hover_cell,
    move_slider,
    readout,
    slider_of,
)

from relpos_lib.experiments.tasks import IGNORED, switch, switch_source
from relpos_lib.explorers import TrainedModelExplorer
from relpos_lib.explorers._picture import round_up
from relpos_lib.explorers.trained_model import LETTERS, SCHEMES

LENGTHS = (2, 3, 5, 31, 32, 33, 64, 127, 256)
STRANGE = ["<b>&amp;</b>", "Ωmega ẞ", "שלום", "e\u0301\u0323", "🙂👩\u200d🚀", "\x7f"]

# Logits and weights of sequences, as base64 of float32.
MODEL = """async ([address, bytes, layout, scheme, sequences]) => {
  const { halfFloats, roomForMaps, transformer, weightsFrom } = await import(address);
  const all = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));
  const tensors = weightsFrom(halfFloats(new DataView(all.buffer)), layout);
  const model = { tensors, scheme, width: 32, heads: 4, layers: 2 };
  const room = roomForMaps(model, Math.max(...sequences.map((s) => s.length)));
  const packed = (numbers) => {
    const all = new Uint8Array(Float32Array.from(numbers).buffer);
    let text = "";
    for (let k = 0; k < all.length; k += 8192)
      text += String.fromCharCode(...all.subarray(k, k + 8192));
    return btoa(text);
  };
  return sequences.map((symbols, k) => {
    const { logits, maps } = transformer(model, symbols, k % 2 ? undefined : room);
    return [packed(logits), maps.map(packed)];
  });
}"""


def unpacked(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


def set_state(explorer, **state):
    """Set traits in Python; returns the explorer."""
    for trait, value in state.items():
        setattr(explorer, trait, value)
    return explorer


def maps_of(explorer):
    """Weights of all layers and heads, (layers, H, L, L)."""
    maps = []
    for explorer.layer in (1, 2):
        for explorer.head in range(1, 5):
            maps.append(explorer.values().weights)
    return torch.stack(maps).unflatten(0, (2, 4)).numpy()


# Arithmetic


@pytest.mark.parametrize("scheme", SCHEMES)
def test_logits_and_weights_are_those_of_torch(module, scheme):
    explorer = TrainedModelExplorer([scheme])
    cases = [(n, "") for n in LENGTHS] + [(n, "aa") for n in LENGTHS[:2]]
    cases += [(40, text) for text in ("pacific", 40 * "b", 40 * "o", "hijack")]
    sequences = [
        set_state(explorer, length=length, text=text).symbols().tolist()
        for length, text in cases
    ]
    numbers = base64.b64encode(explorer._weights).decode()
    layout = explorer._layouts[scheme]
    answers = module("transformer_math.js", MODEL, numbers, layout, scheme, sequences)
    for (length, text), (logits, maps) in zip(cases, answers, strict=True):
        set_state(explorer, length=length, text=text)
        expected = explorer.values().logits.flatten().numpy()
        np.testing.assert_allclose(unpacked(logits), expected, atol=1e-4, rtol=0)
        found = np.stack([unpacked(one) for one in maps])
        expected = maps_of(explorer).reshape(2, -1)
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_every_half_float_is_read(module):
    bits = np.array([b for b in range(2**16) if b >> 10 & 31 < 31], dtype="<u2")
    script = """async ([address, bits]) => {
      const { halfFloats } = await import(address);
      return [...halfFloats(new DataView(Uint16Array.from(bits).buffer))];
    }"""
    found = module("transformer_math.js", script, bits.tolist())
    np.testing.assert_array_equal(found, bits.view("<f2").astype(float))


def test_characters_are_the_symbols_of_python(module):
    script = """async ([address, texts]) => {
      const { charactersOf, symbolOf } = await import(address);
      return texts.map((text) => charactersOf(text).map(symbolOf));
    }"""
    every = [*range(0xD800), *range(0xE000, 0x110000, 97)]
    texts = [*STRANGE, "".join(map(chr, every))]
    found = module("transformer_math.js", script, texts)
    assert found == [[ord(character) % 16 for character in text] for text in texts]


def test_half_a_surrogate_pair_becomes_a_sign_that_it_is_missing(module):
    script = r"""async ([address]) => {
      const { charactersOf } = await import(address);
      return ["a\uD83D", "\uDE42b", "\uDE42\uD83D", "\uD83D\uDE42"].map(charactersOf);
    }"""
    sign = "\N{REPLACEMENT CHARACTER}"
    found = module("transformer_math.js", script)
    assert found == [["a", sign], [sign, "b"], [sign, sign], ["🙂"]]


def test_places_predictions_and_shares(module):
    script = """async ([address, sequences, logits, weights]) => {
      const { predictions, switchPlaces, weightOnPlaces } = await import(address);
      return sequences.map((symbols, k) => {
        const places = switchPlaces(symbols);
        const share = weightOnPlaces(weights[k], places);
        const said = predictions(logits[k], symbols.length);
        return [places, said, isNaN(share) ? "none" : share];
      });
    }"""
    torch.manual_seed(0)
    sequences = [torch.randint(16, (n,)) for n in (1, 2, 3, 7, 100)]
    sequences.append(torch.tensor([1, 1]))
    logits = [torch.randn(len(x), 16) for x in sequences]
    weights = [torch.rand(len(x), len(x)) for x in sequences]
    found = module(
        "transformer_math.js",
        script,
        [x.tolist() for x in sequences],
        [x.flatten().tolist() for x in logits],
        [x.flatten().tolist() for x in weights],
    )
    for k, (places, said, share) in enumerate(found):
        source = switch_source(sequences[k][None])[0]
        asked = (source >= 0).nonzero()[:, 0]
        assert places == source.tolist()
        assert said == logits[k].argmax(-1).tolist()
        mean = weights[k][asked, source[asked]].mean().item()
        assert share == ("none" if not len(asked) else pytest.approx(mean))


# Drawing


def head_button(figure, layer, head):
    return figure.get_by_role("button", name=f"layer {layer}, head {head}")


def set_controls(figure, **state):
    """Set traits as a reader does."""
    for trait, value in state.items():
        if trait == "text":
            figure.get_by_role("textbox").fill(value)
        elif trait == "length":
            move_slider(figure, "Length", value)
        elif trait == "scheme":
            figure.get_by_role("radio", name=value, exact=True).check()
        else:
            head_button(figure, *value).click()


def strip_of(figure):
    """What the visible cells of the sequence show, one dict a place."""
    return figure.locator(".rp-model-strip").evaluate(
        """(strip) => [...strip.children].filter((cell) => !cell.hidden).map((cell) => {
          const [typed, symbol, said, answer] =
            [...cell.children].map((node) => node.textContent);
          return { typed, symbol, said, answer, kind: cell.dataset.kind,
            mark: cell.dataset.mark ?? "", past: cell.matches("[data-past]"),
            colour: cell.children[1].style.background.match(/\\d+/g).map(Number) };
        })"""
    )


def margins(logits):
    """How far the largest logit of each place is above the next."""
    two = logits.topk(2, -1).values
    return two[:, 0] - two[:, 1]


def assert_strip(figure, explorer, query):
    """The sequence, the answers, the mistakes and the attention of a query."""
    shown, cells = explorer.values(), strip_of(figure)
    said, sure = shown.logits.argmax(-1).tolist(), margins(shown.logits) > 1e-3
    assert len(cells) == explorer.length
    for place, cell in enumerate(cells):
        answer = shown.answers[place].item()
        assert cell["symbol"] == LETTERS[shown.symbols[place]]
        assert cell["past"] == (place >= explorer.trained)
        if answer == IGNORED:
            assert (cell["kind"], cell["said"]) == ("none", "·")
        elif sure[place]:
            is_wrong = said[place] != answer
            assert cell["kind"] == ("wrong" if is_wrong else "right")
            assert cell["said"] == LETTERS[said[place]]
            assert cell["answer"] == (LETTERS[answer] if is_wrong else "")
    top = round_up(shown.weights.max().item())
    expected = colours_of(shown.weights[query].numpy(), 0, top)
    found = [cell["colour"] for cell in cells]
    np.testing.assert_allclose(found, expected, atol=1.01)


def assert_drawn(figure, explorer):
    """Everything that the figure shows, compared with Python."""
    query = int(readout(figure)["i"])
    assert_strip(figure, explorer, query)
    weights = explorer.values().weights.numpy()
    top = round_up(float(weights.max()))
    assert_colours(figure, weights, 0, top)
    right, asked = explorer.right()
    score = figure.locator(".rp-model-score").inner_text()
    wanted = f"{explorer.scheme}: {right} of {asked} answers right" if asked else "no"
    assert wanted in score
    bar = figure.locator(".rp-bar").inner_text().split()
    assert [float(end) for end in bar[:2]] == [0, pytest.approx(top)]
    buttons = figure.get_by_role("button", name=re.compile("^layer ., head .: "))
    found = buttons.evaluate_all(
        "ns => ns.map((n) => [n.ariaLabel, n.innerText, n.ariaPressed])"
    )
    shares = explorer.on_answers()
    heads = product((1, 2), (1, 2, 3, 4))
    for (layer, head), (name, text, pressed) in zip(heads, found, strict=True):
        assert name == f"layer {layer}, head {head}: {text}"
        share = 100 * shares[layer - 1, head - 1].item()
        close = pytest.approx(share, abs=0.51)
        assert text == "none" if np.isnan(share) else float(text[:-1]) == close
        chosen = (layer, head) == (explorer.layer, explorer.head)
        assert pressed == str(chosen).lower()


@pytest.mark.parametrize(
    ("scheme", "length", "text", "head"),
    [
        ("none", 24, "", (1, 1)),
        ("sinusoidal", 32, "headline", (2, 4)),
        ("sinusoidal", 65, "", (1, 3)),
        ("alibi", 2, "aa", (2, 1)),
        ("alibi", 47, STRANGE[1], (1, 4)),
        ("bias", 256, "hijack", (2, 2)),
        ("bias", 3, STRANGE[0], (1, 2)),
        ("shaw", 33, STRANGE[4], (2, 3)),
        ("shaw", 129, 64 * "d", (1, 1)),
    ],
)
def test_drawing(open_figure, scheme, length, text, head):
    """Set through the controls, from another state; Python says what to see."""
    explorer = TrainedModelExplorer(SCHEMES, scheme="shaw", length=40)
    figure = open_figure(explorer)
    set_controls(figure, text=text, scheme=scheme, length=length, head=head)
    state = {"scheme": scheme, "length": length, "text": text}
    layer, head = head
    assert_drawn(figure, set_state(explorer, **state, layer=layer, head=head))
    if length > explorer.trained:
        box = figure.locator(".rp-model-trained").bounding_box()
        whole = figure.get_by_role("grid").bounding_box()
        assert box["width"] / whole["width"] == pytest.approx(32 / length, abs=0.01)


def test_changes_of_the_length_are_drawn(open_figure):
    explorer = TrainedModelExplorer(["sinusoidal"])
    figure = open_figure(explorer)
    random.seed(0)
    for length in [100, 2, 33, *random.sample(range(2, 101), 3)]:
        set_controls(figure, length=length)
        assert_drawn(figure, set_state(explorer, length=length))


# Text


def typed_in(figure):
    return [cell["typed"] for cell in strip_of(figure)]


def warning(figure):
    return figure.locator(".rp-model-warning").inner_text()


@pytest.mark.parametrize("text", STRANGE)
def test_text_is_shown_as_text(open_figure, text):
    figure = open_figure(TrainedModelExplorer(["shaw"]))
    before = figure.locator("b").count()
    set_controls(figure, text=text)
    typed = typed_in(figure)[: len(text)]
    for shown, character in zip(typed, text, strict=True):
        joined = "\u0300" <= character <= "\u036f"
        expected = f"◌{character}" if joined else "␣" if character == " " else character
        assert shown == expected
    assert figure.locator("b").count() == before
    assert figure.locator(".rp-model-typed").count() == 1


def test_typed_characters_are_shown_only_if_they_are_not_their_symbols(open_figure):
    figure = open_figure(TrainedModelExplorer(["shaw"], text="Headline"))
    assert "".join(c["symbol"] for c in strip_of(figure)).startswith("headline")
    assert figure.locator("small:visible").count() == 0
    set_controls(figure, text="head line")
    assert figure.locator("small:visible").count() == 24


def test_too_much_text_is_cut_with_a_message(open_figure):
    explorer = TrainedModelExplorer(["shaw"])
    figure = open_figure(explorer)
    field = figure.get_by_role("textbox")
    set_controls(figure, text=64 * "🙂")
    assert warning(figure) == ""
    assert slider_of(figure, "Length").input_value() == "64"
    set_controls(figure, text=64 * "🙂" + "ab")
    assert warning(figure) == "Only the first 64 characters are used."
    assert field.input_value() == 64 * "🙂" + "ab"
    assert_drawn(figure, set_state(explorer, text=64 * "🙂", length=64))
    assert figure.locator("[role=status]").count() == 1
    set_controls(figure, length=10)
    assert warning(figure) == "Only the first 10 characters are used."
    set_controls(figure, text=12 * "🙂")
    field.press("End")
    for _ in range(2):
        assert warning(figure) == "Only the first 10 characters are used."
        field.press("Backspace")
    for _ in range(4):
        assert warning(figure) == ""
        field.press("Backspace")
    assert_drawn(figure, set_state(explorer, text=6 * "🙂", length=10))


def test_a_sequence_grows_with_its_text_and_does_not_shrink_with_it(open_figure):
    figure = open_figure(TrainedModelExplorer(["shaw"], length=3))
    field = figure.get_by_role("textbox")
    field.press_sequentially("abacab")
    assert len(strip_of(figure)) == 6
    field.press("Backspace")
    assert len(strip_of(figure)) == 6
    assert field.input_value() == "abaca"


def test_the_caret_stays_where_the_reader_types(open_figure):
    figure = open_figure(TrainedModelExplorer(["shaw"], text="ace"))
    field = figure.get_by_role("textbox")
    field.press("Home")
    field.press_sequentially("no")
    assert field.input_value() == "noace"
    assert [cell["symbol"] for cell in strip_of(figure)[:5]] == list("noace")


# Handling


def test_pointing_at_a_cell_tells_its_numbers(open_figure):
    explorer = TrainedModelExplorer(["sinusoidal"], length=40, text="headline")
    figure = open_figure(explorer)
    shown = explorer.values()
    for i, j in ((0, 0), (39, 0), (7, 39), (12, 13)):
        hover_cell(figure, i, j, 40, 40)
        found, cells = readout(figure), strip_of(figure)
        assert (found["i"], found["j"], found["offset"]) == (str(i), str(j), str(j - i))
        assert found["symbol"] == LETTERS[shown.symbols[i]]
        assert found["key"] == LETTERS[shown.symbols[j]]
        answer = shown.answers[i].item()
        assert found["answer"] == ("none" if answer == IGNORED else LETTERS[answer])
        said = shown.logits[i].argmax().item()
        verdict = ", right" if said == answer else ", wrong"
        expected = LETTERS[said] + (verdict if answer != IGNORED else "")
        assert found["said"] == expected
        weight = shown.weights[i, j].item()
        assert float(found["weight"].lstrip("< ")) == pytest.approx(weight, abs=1e-3)
        assert cells[i]["mark"] == "query"
        assert cells[j]["mark"] == ("query" if i == j else "key")
        assert sum(cell["mark"] != "" for cell in cells) == len({i, j})
        assert_strip(figure, explorer, i)


def strip_cell(figure, place):
    return figure.locator(".rp-model-strip > *").nth(place)


def assert_at(figure, explorer, query):
    """The readout is about this query and the place where its answer stands."""
    place = switch_source(explorer.symbols()[None])[0, query].item()
    found = readout(figure)
    key = str(query if place < 0 else place)
    assert (found["i"], found["j"]) == (str(query), key)


def test_pointing_at_a_symbol_goes_to_where_its_answer_stands(open_figure):
    explorer = TrainedModelExplorer(["bias"], length=70)
    figure = open_figure(explorer)
    for query in (0, 35, 69, 68, 12):
        strip_cell(figure, query).hover()
        assert_at(figure, explorer, query)


def test_touch(open_figures):
    explorer = TrainedModelExplorer(["bias"])
    page = open_figures(
        explorer, has_touch=True, viewport={"width": 400, "height": 900}
    )
    figure = page.locator(".rp-figure")
    strip_cell(figure, 17).tap()
    assert_at(figure, explorer, 17)
    grid = figure.get_by_role("grid")
    box = grid.bounding_box()
    at = {"x": box["width"] * 3.5 / 24, "y": box["height"] * 20.5 / 24}
    grid.tap(position=at)
    assert (readout(figure)["i"], readout(figure)["j"]) == ("20", "3")
    head_button(figure, 1, 3).tap()
    assert_drawn(figure, set_state(explorer, layer=1, head=3))


def test_keyboard(open_figures):
    """Every control and the matrix, reached and used by keys alone."""
    explorer = TrainedModelExplorer(["sinusoidal", "shaw"], length=40)
    page = open_figures(explorer)
    figure, state = page.locator(".rp-figure"), {}
    page.keyboard.press("Tab")
    page.keyboard.type("mono")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    state = {"text": "mono", "length": 39, "scheme": "shaw"}
    assert_drawn(figure, set_state(explorer, **state))
    page.keyboard.press("Tab")  # next mistake: there is none
    before = readout(figure)
    page.keyboard.press("Enter")
    assert readout(figure) == before
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert_drawn(figure, set_state(explorer, layer=1, head=3))
    figure.get_by_role("grid").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    found = readout(figure)
    assert found["j"] == "0"
    i = int(found["i"])
    assert i == int(before["i"]) + 1
    assert_strip(figure, explorer, i)


def mistakes_of(explorer):
    shown = explorer.values()
    said = shown.logits.argmax(-1)
    wrong = (shown.answers != IGNORED) & (said != shown.answers)
    return wrong.nonzero()[:, 0].tolist()


def test_next_mistake_goes_round(open_figure):
    explorer = TrainedModelExplorer(["sinusoidal"], length=40)
    figure = open_figure(explorer)
    wrong = mistakes_of(explorer)
    assert len(wrong) > 3
    button = figure.get_by_role("button", name="Next mistake")
    assert_at(figure, explorer, wrong[0])
    for query in [*wrong[1:], wrong[0]]:
        button.click()
        assert_at(figure, explorer, query)
    assert button.get_attribute("aria-disabled") == "false"
    set_controls(figure, length=20)
    assert button.get_attribute("aria-disabled") == "true"


def test_the_pair_stays_in_the_sequence(open_figure):
    explorer = TrainedModelExplorer(["shaw"], length=256)
    figure = open_figure(explorer)
    strip_cell(figure, 250).hover()
    set_controls(figure, length=5)
    assert (readout(figure)["i"], readout(figure)["j"]) == ("4", "4")


COUNT_EXPONENTIALS = """() => {
  const exp = Math.exp;
  window.exponentials = 0;
  Math.exp = (x) => (window.exponentials++, exp(x));
}"""


def test_only_a_new_sequence_runs_the_model(open_figures):
    """Another head is drawn from what is there; a softmax needs exponentials."""
    page = open_figures(TrainedModelExplorer(["shaw"], length=256))
    page.evaluate(COUNT_EXPONENTIALS)
    for button in page.locator(".rp-model-heads button").all():
        button.click()
    assert page.evaluate("exponentials") == 0
    set_controls(page.locator(".rp-figure"), length=255)
    assert page.evaluate("exponentials") > 255**2


# For everybody


def test_text_alternatives_state_the_finding(open_figure):
    explorer = TrainedModelExplorer(["sinusoidal", "shaw"], length=64, head=3)
    figure = open_figure(explorer)
    strip = figure.locator(".rp-model-strip")
    wrong = mistakes_of(explorer)
    right, asked = explorer.right()
    first = ", ".join(map(str, wrong[:10]))
    assert strip.get_attribute("aria-label") == (
        f"The sequence with the model's answers: {len(wrong)} mistakes, at positions "
        f"{first} and more."
    )
    share = f"{explorer.on_answers()[1, 2].item():.0%}"
    assert figure.locator(".rp-cells").get_attribute("aria-label") == (
        f"Attention weights of layer 2, head 3, 64 by 64; {share} of them where the "
        f"answers stand. sinusoidal: {right} of {asked} answers right "
        f"({right / asked:.0%}) at length 64, 32 more than in training."
    )
    set_controls(figure, scheme="shaw")
    label = strip.get_attribute("aria-label")
    assert label == "The sequence with the model's answers: no mistake."
    assert figure.locator("output[aria-live=polite]").count() == 2


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_figures, theme):
    page = open_figures(
        TrainedModelExplorer(length=64, text="Hello, world"),
        TrainedModelExplorer(SCHEMES, scheme="bias", length=128),
        TrainedModelExplorer(["shaw"], text="aa", length=2),
        theme=theme,
    )
    assert axe_findings(page) == []


def test_mistakes_are_seen_without_colour(open_figures):
    """A wrong answer is dark on light where the others are light on dark, or so."""
    for theme in ("light", "dark"):
        page = open_figures(TrainedModelExplorer(length=64), theme=theme)
        shades = page.locator(".rp-model-strip").evaluate(
            """(strip) => ["right", "wrong"].map((kind) => {
              const cell = strip.querySelector(`[data-kind=${kind}] b`);
              const { backgroundColor } = getComputedStyle(cell);
              const [r, g, b] = backgroundColor.match(/\\d+/g).map(Number);
              return 0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2
                + 0.0722 * (b / 255) ** 2.2;
            })"""
        )
        low, high = sorted(shades)
        assert (high + 0.05) / (low + 0.05) > 4


def test_nothing_overflows(open_figures):
    page = open_figures(
        TrainedModelExplorer(SCHEMES, length=256, scheme="sinusoidal"),
        TrainedModelExplorer(text=4 * "🙂 <b>שלום</b>", length=64),
        TrainedModelExplorer(["shaw"], length=2),
    )
    assert_nothing_overflows(page, [280, 320, 480, 700, 1100])


def test_every_letter_of_the_sequence_fits_into_its_cell(open_figures):
    for length in (64, 256):
        page = open_figures(TrainedModelExplorer(["sinusoidal"], length=length))
        tops = page.locator(".rp-model-strip").evaluate(
            """(strip) => [...strip.children].filter((cell) => !cell.hidden)
              .map((cell) => {
                const box = cell.getBoundingClientRect();
                const parts = [...cell.children]
                  .map((node) => node.getBoundingClientRect());
                return [box.top, ...parts.map((part) => part.bottom - box.bottom)];
              })"""
        )
        assert all(below <= 0.5 for _, *parts in tops for below in parts)
        steps = [late[0] - early[0] for early, late in pairwise(tops)]
        assert max(steps) > 20


def test_nothing_moves_by_itself(open_figures):
    page = open_figures(TrainedModelExplorer(), reduced_motion="reduce")
    set_controls(page.locator(".rp-figure"), length=64)
    assert page.evaluate("document.getAnimations().length") == 0


# Lasting


def test_nothing_grows(open_figures):
    page = open_figures(TrainedModelExplorer(max_length=48))

    def play(rounds):
        page.locator(".rp-figure").evaluate(
            """(figure, rounds) => {
              const text = figure.querySelector("input[type=text]");
              const length = figure.querySelector("input[type=range]");
              const set = (node, value) => {
                node.value = value;
                node.dispatchEvent(new Event("input"));
              };
              const point = (node, x, y) => node.dispatchEvent(
                new PointerEvent("pointermove", { clientX: x, clientY: y,
                  bubbles: true }));
              const [grid, strip] = ["[role=grid]", ".rp-model-strip"].map((name) =>
                figure.querySelector(name));
              for (let k = 0; k < rounds; k++) {
                set(length, 2 + (k * 7) % 47);
                set(text, "abc<\\u0301".slice(0, k % 6));
                figure.querySelectorAll("input[type=radio]")[k % 3].click();
                figure.querySelectorAll("button")[k % 9].click();
                const box = grid.getBoundingClientRect();
                point(grid, box.left + k % 90, box.top + k % 70);
                point(strip.children[k % 2], 0, 0);
              }
              set(length, 20);
              set(text, "");
            }""",
            rounds,
        )

    assert_nothing_grows(page, play, 20, 200)


def test_copies_move_together_and_others_stay(open_figures):
    explorer, other = TrainedModelExplorer(length=20), TrainedModelExplorer(["shaw"])
    page = open_figures(explorer, other, copies=2)
    first, second, third, _ = page.locator(".rp-figure").all()
    set_controls(first, text="mango", length=33, scheme="bias", head=(1, 2))
    state = {"text": "mango", "length": 33, "scheme": "bias", "layer": 1, "head": 2}
    assert_drawn(second, set_state(explorer, **state))
    assert second.get_by_role("textbox").input_value() == "mango"
    assert_drawn(third, other)
    strip_cell(first, 30).hover()
    assert readout(first)["i"] == "30"
    assert readout(second)["i"] != "30"
    assert_unique_ids(page)


def test_the_task_is_the_one_of_the_experiments():
    """What the page says of letters: even ones look back, odd ones ahead."""
    figure = TrainedModelExplorer(["shaw"], length=256)
    symbols = figure.symbols()
    answers = switch(symbols[None])[0].tolist()
    for i in range(1, 254):
        back = LETTERS[symbols[i]] in "bdfhjlnp"
        assert answers[i] == symbols[i - 1 if back else i + 2]
