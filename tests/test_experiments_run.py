"""A run refuses what cannot work, and has a name of its own that never changes."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest

from relpos_lib.experiments.plans import PLANS
from relpos_lib.experiments.run import LAST_SEED, Run, differing, run_from
from relpos_lib.experiments.schemes import SCHEMES
from relpos_lib.experiments.tasks import TASKS
from relpos_lib.experiments.text import text

TEXT = {"task": "text", "is_causal": True, "test_lengths": (64,)}


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"task": "magic"}, ValueError, "task must be one of switch, .*got 'magic'"),
        ({"task": ["switch"]}, ValueError, r"task must be one of .*got \['switch'\]"),
        ({"scheme": "rope"}, ValueError, "scheme must be one of none.*got 'rope'"),
        ({"init": "ones"}, ValueError, "init must be one of xavier.*got 'ones'"),
        ({"precision": "int8"}, ValueError, "precision must be one of float32.*'int8'"),
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"steps": 1.5}, TypeError, "steps must be an integer, got float"),
        ({"batch": True}, TypeError, "batch must be an integer, got bool"),
        ({"batch": 0}, ValueError, "batch must be at least 1, got 0"),
        ({"layers": 0}, ValueError, "layers must be at least 1, got 0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": LAST_SEED + 1}, ValueError, f"seed must be at most {LAST_SEED}, got"),
        ({"lr": 0}, ValueError, r"lr must be in \[1e-12, 1000.0\], got 0"),
        ({"lr": float("nan")}, ValueError, "lr must be in .*got nan"),
        ({"lr": "fast"}, TypeError, "lr must be a number, got str"),
        ({"stop_below": -1}, ValueError, "stop_below must be in .*got -1"),
        ({"shortest": 0}, ValueError, "shortest must be at least 1, got 0"),
        ({"longest": 7}, ValueError, "longest must be at least shortest, 8, got 7"),
        ({"longest": "8"}, TypeError, "longest must be an integer, got str"),
        ({"test_lengths": ()}, ValueError, "test_lengths must hold at least one"),
        ({"test_lengths": 16}, TypeError, "test_lengths must be a tuple.*got int"),
        ({"test_lengths": (16, 0)}, ValueError, "test_lengths must be at least 1"),
        ({"test_lengths": (1.0,)}, TypeError, "test_lengths must be an int.*float"),
        (
            {"test_lengths": (1,)},
            ValueError,
            "test_lengths must be at least 2.*'switch",
        ),
        ({"width": 0}, ValueError, "width must be at least 1, got 0"),
        ({"heads": 0}, ValueError, "heads must be at least 1, got 0"),
        ({"width": 10}, ValueError, "width must be a multiple of heads.*=10.*=4"),
        ({"is_causal": 1}, TypeError, "is_causal must be True or False, got int"),
        ({"window": 0}, ValueError, "window must be at least 1, got 0"),
        ({"max_distance": -1}, ValueError, "max_distance must be at least 0, got -1"),
        (
            {"max_distance": 2.0},
            TypeError,
            "max_distance must be an integer, got float",
        ),
        ({"max_distance": (2, -1, 3, 4)}, ValueError, "max_distance must be at least"),
        ({"max_distance": (2, 3)}, ValueError, "one per head, 4 of them, got 2"),
        (
            {"scheme": "bias", "max_distance": (1, 2, 3, 4)},
            ValueError,
            r"max_distance must be one integer for 'bias', got \(1, 2, 3, 4\)",
        ),
        (
            {"scheme": "alibi", "max_distance": 4},
            ValueError,
            "max_distance must be None for 'alibi'.*these clip: bias, gated",
        ),
        (
            {"scheme": "bias", "init": "zero"},
            ValueError,
            "init must be 'xavier' unless the scheme is Shaw's, got 'zero' with 'bias'",
        ),
        (
            {"scheme": "rotary", "window": 4},
            ValueError,
            "window must be None for 'rotary'; these can have one: none, learned",
        ),
        (
            {"scheme": "rotary", "width": 12},
            ValueError,
            "width / heads must be even for 'rotary', got 12 / 4",
        ),
        (
            {"is_causal": True},
            ValueError,
            "is_causal must be False for the task 'switch'.*causal tasks: copy, recall",
        ),
        (
            {"task": "text"},
            ValueError,
            "is_causal must be True for the task 'text'",
        ),
        (
            {"task": "copy", "shortest": 5},
            ValueError,
            "shortest must be at least 6 for the task 'copy'.*got 5",
        ),
        (
            {**TEXT, "test_lengths": (64, 4097)},
            ValueError,
            "test_lengths must be at most 4096 for the task 'text', got 4097",
        ),
        (
            {**TEXT, "longest": len(text().training)},
            ValueError,
            "longest must be less than the characters of the text, .*, got",
        ),
    ],
)
def test_what_cannot_work_is_refused(fields, error, message):
    with pytest.raises(error, match=message):
        Run(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "copy", "shortest": 6, "longest": 6, "test_lengths": (6,)},
        {"task": "translate", "shortest": 1, "test_lengths": (1,)},
        {**TEXT, "test_lengths": (4096,), "longest": len(text().training) - 1},
        {"max_distance": (0, 1, 2, 3)},
        {"max_distance": 0, "window": 1, "seed": LAST_SEED},
        {"heads": 1, "width": 1},
    ],
)
def test_what_is_just_possible_is_not(fields):
    run = Run(**fields)
    assert all(run.as_dict()[name] is not None for name in fields)


@pytest.mark.parametrize("name", SCHEMES)
def test_no_distance_means_the_one_of_the_scheme(name):
    run, own = Run(scheme=name), SCHEMES[name].distance
    assert run.max_distance == own
    assert run.label == (name if own is None else f"{name} K={own}")
    if own is not None:
        assert run == Run(scheme=name, max_distance=own)
        assert run.key == Run(scheme=name, max_distance=own).key


def test_heads_may_have_distances_of_their_own():
    run = Run(max_distance=(2, 4, 8, 16))
    assert run.label == "shaw K=2/4/8/16"
    assert "/" not in run.key
    assert run.key != Run(max_distance=16).key


# The key


OTHERS = {
    "task": "shift",
    "scheme": "bias",
    "max_distance": 3,
    "init": "zero",
    "window": 5,
    "is_causal": True,
    "seed": 1,
    "steps": 601,
    "batch": 65,
    "lr": 4e-3,
    "shortest": 9,
    "longest": 33,
    "test_lengths": (16, 32),
    "width": 60,
    "heads": 2,
    "layers": 3,
    "stop_below": 0.1,
    "precision": "bfloat16",
}


def test_every_field_changes_the_key():
    base = Run(task="copy")
    runs = [base, *(dataclasses.replace(base, **{n: v}) for n, v in OTHERS.items())]
    assert set(OTHERS) == {field.name for field in dataclasses.fields(Run)}
    assert len({run.key for run in runs}) == len(runs)


def test_equal_runs_have_equal_keys():
    assert Run(lr=1).key == Run(lr=1.0).key
    assert Run(stop_below=1).key == Run(stop_below=1.0).key
    assert Run(test_lengths=[16, 32]).key == Run(test_lengths=(16, 32)).key
    assert hash(Run(test_lengths=[16, 32])) == hash(Run(test_lengths=(16, 32)))


def test_keys_never_change():
    # Finished runs are found by them; a change would train all of them again.
    keys = {
        "switch-shaw-K4-s0-798227d7": Run(),
        "copy-alibi-s3-f3b4259a": Run(task="copy", scheme="alibi", seed=3, steps=20),
        "text-shaw-K2_4_8_16-s0-f653c963": Run(**TEXT, max_distance=(2, 4, 8, 16)),
    }
    assert list(keys) == [run.key for run in keys.values()]


def test_keys_of_all_prepared_sweeps_are_their_own_and_fit_for_a_file():
    runs = {run for plan in PLANS.values() for run in plan.runs}
    keys = {run.key for run in runs}
    assert len(keys) == len(runs)
    assert all(set(key) <= set(CHARACTERS) for key in keys)


CHARACTERS = "abcdefghijklmnopqrstuvwxyzK0123456789-_"


@pytest.mark.parametrize(
    "run",
    [
        Run(),
        Run(max_distance=(2, 4, 8, 16), init="zero"),
        Run(scheme="none", window=3, lr=0.1, stop_below=0.5, test_lengths=(2,)),
        Run(**TEXT, precision="bfloat16"),
    ],
    ids=lambda run: run.key,
)
def test_a_run_survives_json_and_pickle(run):
    again = run_from(json.loads(json.dumps(run.as_dict())))
    assert again == run
    assert again.key == run.key
    assert pickle.loads(pickle.dumps(run)) == run


def test_unknown_fields_are_refused():
    with pytest.raises(ValueError, match=r"field must be one of task, .*got 'colour'"):
        run_from({"colour": "red"})
    with pytest.raises(ValueError, match="task must be one of"):
        run_from({"task": "magic"})


def test_a_run_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Run().seed = 1


def test_the_fields_in_which_runs_differ_are_found():
    assert differing([]) == []
    assert differing([Run(), Run(seed=1)]) == []
    assert differing([Run(), Run(lr=0.1), Run(scheme="none")]) == [
        "scheme",
        "max_distance",
        "lr",
    ]
    assert differing([Run(), Run(test_lengths=(16,))]) == ["test_lengths"]


def test_the_longest_length_is_in_training_or_in_measuring():
    assert Run(longest=32, test_lengths=(16, 64)).longest_seen == 64
    assert Run(longest=32, test_lengths=(16,)).longest_seen == 32


def test_tasks_that_must_be_causal_can_be():
    assert all(task.can_be_causal for task in TASKS.values() if task.must_be_causal)
