"""The questions of the quizzes: complete, in their places, and their answers right."""

import math
import re

import pytest
import torch

from book.tools.notebooks import chapters, read
from relpos_lib import (
    GatedBiasRPE,
    MultiplicativeBiasRPE,
    RelativePositionEmbedding,
    relative_attention,
    sinusoidal_encoding,
    table_rows,
)
from relpos_lib.backends.near_far.quadtree import Lengths, far_rectangles, near_tiles
from relpos_lib.experiments.spread import compare
from relpos_lib.quizzes import Choice, Question, questions, quizzes
from relpos_lib.quizzes.question import ask, right, wrong
from relpos_lib.records import result

ALL = {
    f"{name}-{number}": question
    for name in quizzes()
    for number, question in enumerate(questions(name), 1)
}


def answer(key):
    """Text of the right choice, with plain minus signs and numbers."""
    question = ALL[key]
    text = question.choices[question.right].text
    return text.replace("\N{MINUS SIGN}", "-").replace(",", "")


# Form


def test_every_quiz_is_asked_in_one_chapter():
    sources = (cell.source for path in chapters() for cell in read(path).cells)
    asked = re.findall(r'Quiz\.of\("(\w+)"\)', "\n".join(sources))
    assert sorted(asked) == list(quizzes())


def test_an_unknown_quiz_is_refused_by_naming_those_that_exist():
    for name in ("biases", "question", ""):
        with pytest.raises(
            ValueError, match=r"one of bias, choosing, .*sinusoidal, got"
        ):
            questions(name)


@pytest.mark.parametrize("name", quizzes())
def test_a_quiz_has_a_few_questions_and_the_right_answer_moves(name):
    found = questions(name)
    assert 3 <= len(found) <= 5
    assert len({question.right for question in found}) >= 3
    assert len({question.text for question in found}) == len(found)


@pytest.mark.parametrize("question", ALL.values(), ids=ALL)
def test_every_answer_teaches(question):
    assert question.text.endswith("?")
    assert 3 <= len(question.choices) <= 4
    texts = [choice.feedback for choice in question.choices]
    assert len(set(texts)) == len(texts)
    for feedback in texts:
        assert 7 <= len(feedback.split()) <= 45
        assert feedback.endswith(".")


@pytest.mark.parametrize("question", ALL.values(), ids=ALL)
def test_the_longest_answer_does_not_give_itself_away(question):
    wrong_ones = [c.text for c in question.choices if not c.is_right]
    text = question.choices[question.right].text
    assert len(text) <= 2.2 * max(map(len, wrong_ones))


@pytest.mark.parametrize("question", ALL.values(), ids=ALL)
def test_texts_are_plain(question):
    for choice in question.choices:
        for text in (question.text, choice.text, choice.feedback):
            assert not set("$\\<>") & set(text)
            assert "  " not in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ask("a?", right("b", "c")), "at least 2, with exactly 1 right, got 1"),
        (lambda: ask("a?", wrong("b", "c"), wrong("d", "e")), "got 2 with 0 right"),
        (lambda: ask("a?", right("b", "c"), right("d", "e")), "got 2 with 2 right"),
        (lambda: ask("a?", right("b", "c"), wrong("b", "e")), "two alike for 'a"),
        (lambda: Choice(" ", "c"), "text must be words"),
        (lambda: Choice("b", ""), "feedback must be words"),
        (lambda: Choice("`b", "c"), "paired backticks, got '`b'"),
        (lambda: Question("a `b", (right("b", "c"), wrong("d", "e"))), "paired"),
    ],
)
def test_incomplete_questions_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Answers that can be computed


def test_sinusoidal_answers():
    code = sinusoidal_encoding(10, 4)
    assert answer("sinusoidal-2").endswith(f"{code[7] @ code[9]:.2f}")
    code = sinusoidal_encoding(24, 32)
    speed = 10_000.0 ** (-2 * torch.arange(16) / 32)
    sine, cosine = (-2 * speed).sin(), (-2 * speed).cos()
    blocks = torch.stack([cosine, sine, -sine, cosine], dim=-1).view(-1, 2, 2)
    scores = code[10] @ torch.block_diag(*blocks).T @ code.T
    assert answer("sinusoidal-3") == f"Key {scores.argmax()}"


def test_bias_answers():
    assert answer("bias-1") == f"Row {table_rows(1, 6, 3)[0, 0]}"
    scores = torch.zeros(10)
    scores[3] = math.log(3)
    share = float(scores.softmax(0)[3])
    assert answer("bias-2") == f"3/12 = {share:.2f}"
    learned = int(table_rows(16, 16, 15)[1, 0])  # the row of offset -1
    assert learned - (12 - 1) == 3
    assert "three ahead" in answer("bias-3")


def test_gated_bias_answers():
    rpe = GatedBiasRPE(1, 2)
    with torch.no_grad():
        rpe.gate.zero_()
        rpe.logit_scale.fill_(math.log(4))
        rpe.bias[0] = 3
    assert float(answer("gated_bias-1")) == pytest.approx(
        rpe.tables()["bias_table"][0, 0].item()
    )
    fresh = GatedBiasRPE(1, 2)
    wanted = torch.ones(1, 3)
    (fresh.tables()["bias_table"] - wanted).square().sum().backward()
    moved = [name for name, p in fresh.named_parameters() if p.grad.any()]
    assert (moved, answer("gated_bias-2")) == (["bias"], "Only the table")
    scheme = MultiplicativeBiasRPE(1, 2)
    torch.nn.init.constant_(scheme.factor.bias, 0.5)
    made = scheme(torch.tensor([[[2.0, 0.0, -2.0]]])).flatten().tolist()
    assert answer("gated_bias-4") == "{:.0f} {:.0f} and {:.0f}".format(*made)


def test_shaw_answers():
    query = math.log(2) * torch.ones(1, 1, 1, 1)
    keys = torch.tensor([0.0, 1.0, 0.0]).view(1, 1, 3, 1)
    table = torch.tensor([[1.0], [0.0], [2.0]])
    values = torch.eye(3).view(1, 1, 3, 3)
    weights = relative_attention(query, keys, values, key_table=table)
    assert weights[0, 0, 0, 0].item() == pytest.approx(2 / 7)
    assert answer("shaw-1") == "2/7"
    assert answer("shaw-2").endswith(str(8 * 1000 * (2 * 16 + 1)))
    q = torch.arange(210.0).view(2, 3, 5, 7)
    cut, moved = q.reshape(5, 6, 7), q.permute(2, 0, 1, 3).reshape(5, 6, 7)
    assert cut.shape == moved.shape
    assert not torch.equal(cut, moved)


def test_fast_answers():
    total = 2 * 3 + 2
    assert float(answer("fast-1")) == (2 * 3 * 10 + 2 * 2) / total
    shares, calls = [], []
    for n in (2048, 4096):
        lengths = Lengths(n, n, 0, max_distance=16, is_causal=False, tile=128)
        near = (t.queries * (t.stop - t.start) * t.number for t in near_tiles(lengths))
        shares.append(sum(near) / n**2)
        calls.append(len(far_rectangles(lengths)))
    assert shares[1] == pytest.approx(shares[0] / 2, rel=0.02)
    assert calls[1] - calls[0] == 4
    assert answer("fast-3") == "The share halves and there are four more calls."


def test_longer_answers():
    n = int(answer("longer-1"))
    scores = torch.zeros(n + 1)
    scores[0] = math.log(50)
    assert scores.softmax(0)[0].item() == pytest.approx(1 / 3)
    assert answer("longer-4") == f"2/{math.comb(8, 4)}"
    assert compare([5.0, 6, 7, 8], [1.0, 2, 3, 4]) == "higher"
    assert compare([5.0, 6, 7], [1.0, 2, 3]) == "tie"


def test_choosing_answers():
    def is_singled_out(offset, distance, length=100):
        row = table_rows(length, length, distance)
        offsets = torch.arange(length) - torch.arange(length)[:, None]
        return bool((offsets[row == offset + distance] == offset).all())

    enough = [k for k in range(3, 8) if is_singled_out(-3, k) and is_singled_out(1, k)]
    assert int(answer("choosing-1")) == enough[0]
    trained, used = table_rows(32, 32, 32), table_rows(512, 512, 32)
    assert not torch.isin(trained, torch.tensor([0, 64])).any()
    assert torch.isin(used, torch.tensor([0, 64])).float().mean() > 0.5
    assert answer("choosing-4").endswith("edge rows that training never touched.")
    one = RelativePositionEmbedding(16, 64)
    assert int(answer("choosing-2")) == 2 * sum(p.numel() for p in one.parameters())


def test_claims_answers():
    def lost(length):
        return (length - 32) / length * 15 / 16

    assert [n for n in (33, 40, 48, 64) if 0.15 <= lost(n) <= 0.2] == [40]
    assert answer("claims-1") == "Near 40"
    gains = [26.8 - 26.5, 29.2 - 27.9, 38.7 - 38.2, 41.5 - 41.2]
    assert max(gains) < 1.8


def test_implement_answers():
    rows = table_rows(1, 3, 1)[0]
    weights = torch.tensor([0.5, 0.25, 0.25])
    bins = torch.zeros(3).scatter_add(0, rows, weights)
    assert bins.tolist() == [0.75, 0.25, 0]
    assert answer("implement-1") == "3/4 1/4 and 0"
    hidden, values = torch.full((4,), -1e9), torch.arange(4.0)
    assert hidden.softmax(0) @ values == values.mean()
    assert "mean of all" in answer("implement-2")
    lowest = torch.full((2,), -65504.0).half()
    assert (lowest - 20).softmax(0).isnan().all()
    assert answer("implement-3") == "A query that sees nothing gets NaN."
    one_seen = (lowest + 20).index_fill(0, torch.tensor([0]), 0)
    assert one_seen.softmax(0).tolist() == [1, 0]


def test_debugging_answers():
    assert f"{math.log(3):.2f}" == "1.10"
    places = torch.arange(300)
    first = int((places.bfloat16().long() != places).nonzero()[0])
    assert answer("debugging-3").startswith(f"From {first + 1} on")


# What the questions say of experiments


def accuracies(name, group, length):
    return result(name)["groups"][group]["accuracy"][str(length)]["each"]


def test_a_window_repairs_most_of_a_faded_model():
    before = accuracies("experiments-length", "bias-K4", 1024)
    inside = accuracies("experiments-length", "bias-K4", 32)
    repaired = accuracies("experiments-dilution", "half_window", 1024)
    assert max(before) < 0.25
    assert min(repaired) - max(before) > 0.5 * (min(inside) - max(before))


def test_a_large_k_is_worse_far_beyond_its_training():
    small = accuracies("experiments-distance", "shaw-K4", 512)
    large = accuracies("experiments-distance", "shaw-K32", 512)
    assert compare(large, small) == "lower"
    inside = [accuracies("experiments-distance", f"shaw-K{k}", 32) for k in (4, 32)]
    assert compare(*inside) == "tie"


def test_the_lead_of_a_gate_is_a_learning_rate():
    cells = result("experiments-gate-rate")["groups"]["bias-zero-x9-K4-lr0_01"]
    gated = result("experiments-gate")["groups"]["gated-K4-lr0_01"]
    for length in ("256", "1024"):
        fast = cells["accuracy"][length]["each"]
        assert compare(fast, gated["accuracy"][length]["each"]) == "higher"
