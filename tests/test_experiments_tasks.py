"""Every task asks for what it says, symbol by symbol; the text is what it claims."""

from __future__ import annotations

import hashlib
from pydoc_data.topics import topics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpos_lib.experiments import data, tasks
from relpos_lib.experiments.run import Run
from relpos_lib.experiments.tasks import IGNORED, TASKS
from relpos_lib.experiments.text import ALPHABET, encoded, text

SEQUENCES = st.lists(st.integers(0, 15), min_size=1, max_size=23)


def answer_of_switch(x, i):
    place = i - 1 if x[i] % 2 == 0 else i + 2
    return x[place] if 0 <= place < len(x) else IGNORED


def answer_of_shift(x, i):
    return x[i + 1] if i + 1 < len(x) else IGNORED


def answer_of_copy(x, i):
    return x[i - 5] if i >= 5 else IGNORED


def source_of_recall(x, i):
    for j in reversed(range(i)):
        if x[j] == x[i]:
            return j + 1
    return -1


def answer_of_recall(x, i):
    source = source_of_recall(x, i)
    return x[source] if source >= 0 else IGNORED


def answer_of_translate(x, i):
    """Find the clause that holds i; its first word moves to its end."""

    def translated(symbol):
        return (5 * symbol + 3) % 16

    if x[i] % 4 == 0:
        return translated(x[i])
    start = i
    while start > 0 and x[start - 1] % 4:
        start -= 1
    stop = i
    while stop < len(x) and x[stop] % 4:
        stop += 1
    clause = x[start:stop]
    if i < stop - 1:
        return translated(clause[i - start + 1])
    return translated(clause[0]) if stop < len(x) else IGNORED


ANSWERS = {
    "switch": answer_of_switch,
    "shift": answer_of_shift,
    "copy": answer_of_copy,
    "recall": answer_of_recall,
    "translate": answer_of_translate,
}


def test_every_task_is_tested():
    assert set(ANSWERS) == set(TASKS) - {"text"}


@pytest.mark.parametrize("name", ANSWERS)
@given(sequence=SEQUENCES)
def test_a_task_asks_for_what_it_says(name, sequence):
    # Two rows, so that nothing can leak from one into the other.
    rows = [sequence, sequence[::-1]]
    found = TASKS[name].answers(torch.tensor(rows))
    answer = ANSWERS[name]
    assert found.tolist() == [[answer(x, i) for i in range(len(x))] for x in rows]


@given(sequence=SEQUENCES)
def test_the_source_of_recall_is_after_the_last_same_symbol(sequence):
    (found,) = tasks.recall_source(torch.tensor([sequence])).tolist()
    assert found == [source_of_recall(sequence, i) for i in range(len(sequence))]


@given(sequence=SEQUENCES)
def test_the_source_of_switch_holds_its_answer(sequence):
    x = torch.tensor([sequence])
    (answers,), (source,) = tasks.switch(x).tolist(), tasks.switch_source(x).tolist()
    held = [IGNORED if place < 0 else sequence[place] for place in source]
    assert held == answers


@pytest.mark.parametrize("delay", [0, 1, 3, 30])
def test_any_delay_can_be_copied(delay):
    x = list(range(7))
    (found,) = tasks.delayed_copy(torch.tensor([x]), delay).tolist()
    assert found == [x[i - delay] if i >= delay else IGNORED for i in range(7)]


@given(sequence=SEQUENCES)
def test_a_translation_can_be_undone(sequence):
    # Of a text that ends with a stop nothing is lost: no answer is missing, and the
    # words are the same, each in the other language.
    symbols = torch.tensor([[*sequence, 0]])
    (found,) = tasks.translate(symbols).tolist()
    assert IGNORED not in found
    back = {(5 * symbol + 3) % 16: symbol for symbol in range(16)}
    assert sorted(back[answer] for answer in found) == sorted(symbols[0].tolist())


@pytest.mark.parametrize("name", ANSWERS)
def test_nothing_is_asked_below_the_shortest_length(name):
    task = TASKS[name]
    generator = torch.Generator().manual_seed(0)
    for length in (task.shortest - 1, task.shortest):
        symbols = torch.randint(16, (997, length), generator=generator)
        is_asked = bool((task.answers(symbols) != IGNORED).any()) if length else False
        assert is_asked == (length >= task.shortest)


@pytest.mark.parametrize(
    "name", [n for n, task in TASKS.items() if task.can_be_causal and task.answers]
)
@given(sequence=SEQUENCES)
def test_answers_of_a_causal_task_depend_on_the_past_alone(name, sequence):
    symbols = torch.tensor([sequence])
    changed = symbols.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 16
    answers = TASKS[name].answers
    assert torch.equal(answers(symbols)[:, :-1], answers(changed)[:, :-1])


# Batches


def test_a_step_draws_the_same_whenever_it_is_asked():
    run = Run(batch=3, shortest=5, longest=11, seed=2)
    first, again = data.training_batch(run, 7), data.training_batch(run, 7)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], TASKS["switch"].answers(first[0]))
    for other in (Run(batch=3, shortest=5, longest=11, seed=3), run):
        step = 7 if other.seed != run.seed else 8
        symbols, _ = data.training_batch(other, step)
        assert symbols.shape != first[0].shape or not torch.equal(symbols, first[0])


def test_lengths_reach_from_the_shortest_to_the_longest():
    run = Run(batch=1, shortest=5, longest=9)
    shapes = {data.training_batch(run, step)[0].shape for step in range(100)}
    assert shapes == {(1, length) for length in range(5, 10)}


def test_all_runs_are_measured_with_the_same_symbols():
    one, other = Run(seed=0), Run(seed=1, scheme="alibi", longest=64)
    first, _ = data.test_batch(one, 16, tokens=160)
    second, _ = data.test_batch(other, 16, tokens=160)
    assert first.shape == (10, 16)
    assert torch.equal(first, second)
    assert data.test_batch(one, 512, tokens=160)[0].shape == (1, 512)


# Text


def decoded(characters):
    return "".join(ALPHABET[place] for place in characters.tolist())


def test_characters_are_places_in_the_alphabet():
    assert len(set(ALPHABET)) == len(ALPHABET) == 97
    assert encoded(ALPHABET[:-1]).tolist() == list(range(96))
    assert encoded("é\t\ufffd").tolist() == [96] * 3
    assert decoded(encoded("Ab\n~ ")) == "Ab\n~ "


def test_every_tenth_topic_is_for_testing_and_no_other():
    names = sorted(topics)
    kept = {
        True: "\n".join(topics[name] for name in names[::10]),
        False: "\n".join(topics[n] for i, n in enumerate(names) if i % 10),
    }
    assert torch.equal(text().testing, encoded(kept[True]))
    assert torch.equal(text().training, encoded(kept[False]))
    assert len(text().training) > 5 * len(text().testing)


def test_the_fingerprint_is_that_of_the_text():
    names = sorted(topics)
    parts = [[n for i, n in enumerate(names) if i % 10], names[::10]]
    whole = "\0".join("\n".join(topics[n] for n in part) for part in parts)
    assert text().fingerprint == hashlib.sha256(whole.encode()).hexdigest()


def test_pieces_of_text_ask_for_the_next_character():
    run = Run(
        task="text", is_causal=True, batch=5, shortest=7, longest=7, test_lengths=(8,)
    )
    symbols, answers = data.training_batch(run, 0)
    assert symbols.shape == answers.shape == (5, 7)
    assert torch.equal(symbols[:, 1:], answers[:, :-1])
    training = decoded(text().training)
    for row, last in zip(symbols, answers[:, -1:], strict=True):
        assert decoded(torch.cat((row, last))) in training


def test_the_last_piece_of_text_can_be_drawn():
    characters = torch.arange(6, dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)
    drawn = [data._windows(characters, 50, n, generator) for n in (4, 5)]
    assert {tuple(row) for row in drawn[0][1].tolist()} == {(1, 2, 3, 4), (2, 3, 4, 5)}
    assert {tuple(row) for row in drawn[1][0].tolist()} == {(0, 1, 2, 3, 4)}
