"""The benchmark measures what it says and keeps it; times are never judged."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from relpos_lib.attention import BACKENDS, relative_attention
from relpos_lib.bench import (
    claims,
    cli,
    equality,
    measure,
    memory,
    options,
    peers,
    plan,
    predict,
    report,
    store,
    timing,
)
from relpos_lib.bench.cases import CLIPPED, WORKLOADS, Case, Setting, problem_of
from relpos_lib.bench.contenders import Contender, Pass, contenders
from relpos_lib.bench.measure import Rules
from relpos_lib.bench.predict import History, Limits, Prediction
from relpos_lib.plots import cost_by_length

SMALL = Setting(batch=2, heads=3, width=5)
SHAW = Case("shaw", 11, 3)
SIZES = ["--batch", "1", "--heads", "2", "--width", "8", "--rounds", "2"]
GROWTH = ["--parts", "growth", "--lengths", "7", "13", "--workloads", "shaw"]


class FakeClock:
    """A clock that moves only when a contender runs."""

    def __init__(self):
        self.now = 0.0
        self.ran = []

    def __call__(self):
        return self.now

    def takes(self, name, seconds):
        """A contender that needs so many seconds, one number a call."""
        needed = iter(seconds)

        def run():
            self.ran.append(name)
            self.now += next(needed)

        return run


def case_of_workload(name, causal=False, backward=False):
    return Case(name, 11, 3 if name in CLIPPED else None, causal, backward)


def bench(path, *arguments):
    return cli.main([*SIZES, *arguments, "--out", str(path)])


# Time


def test_ratios_compare_within_a_round():
    clock = FakeClock()
    runs = {
        "plain": clock.takes("plain", [1.0, 2.0, 4.0]),
        "ours": clock.takes("ours", [3.0, 2.0, 8.0]),
    }
    found = timing.interleaved(runs, "plain", 3, clock=clock)
    assert found == {"plain": [1.0, 2.0, 4.0], "ours": [3.0, 2.0, 8.0]}
    assert timing.ratios(found, "plain") == {"ours": [3.0, 1.0, 2.0]}
    assert timing.spread([3.0, 1.0, 2.0]) == (2.0, 1.0, 1.5, 2.5, 3.0)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_everyone_follows_everyone_equally_often(count):
    rounds = [timing.order(count, turn) for turn in range(2 * count)]
    assert all(sorted(places) == list(range(count)) for places in rounds)
    pairs = [pair for places in rounds for pair in itertools.pairwise(places)]
    seen = {pair: pairs.count(pair) for pair in pairs}
    assert len(seen) == count * (count - 1)
    assert len(set(seen.values())) == 1


def test_a_slow_contender_leaves_and_the_base_stays_with_the_others():
    clock = FakeClock()
    runs = {
        "plain": clock.takes("plain", itertools.repeat(5.0)),
        "slow": clock.takes("slow", itertools.repeat(4.0)),
        "quick": clock.takes("quick", itertools.repeat(1.0)),
    }
    found = timing.interleaved(runs, "plain", 6, budget=8.0, clock=clock)
    assert {name: len(times) for name, times in found.items()} == {
        "plain": 6,
        "slow": timing.FEWEST,
        "quick": 6,
    }


@pytest.mark.parametrize(
    ("enough", "rounds"), [(0.0, 3), (2.5, 3), (9.5, 10), (99, 30)]
)
def test_short_cases_are_measured_more_often(enough, rounds):
    clock = FakeClock()
    runs = {
        "plain": clock.takes("plain", itertools.repeat(1.0)),
        "ours": clock.takes("ours", itertools.repeat(2.0)),
    }
    found = timing.interleaved(runs, "plain", 3, enough=enough, clock=clock)
    assert [len(times) for times in found.values()] == [rounds, rounds]


def test_nobody_is_timed_alone():
    clock = FakeClock()
    runs = {
        "plain": clock.takes("plain", itertools.repeat(1.0)),
        "slow": clock.takes("slow", itertools.repeat(4.0)),
        "ours": clock.takes("ours", itertools.repeat(9.0)),
    }
    options = {"budget": 3.0, "clock": clock}
    few = timing.interleaved(runs, "plain", 5, **options)
    assert len(few["plain"]) == timing.FEWEST
    found = timing.interleaved(runs, "plain", 5, patient=["ours"], **options)
    assert [len(times) for times in found.values()] == [5, timing.FEWEST, 5]


# Memory


def test_memory_inside_and_between_operators_is_seen():
    x = torch.ones(100, 50)  # float32: 20,000 bytes

    def two_at_once():
        first = x + 1
        second = first * first
        return second.sum()

    assert memory.peak_bytes(two_at_once, "cpu") == 40_000

    def reused():
        return x.neg().abs_().sum()

    assert memory.peak_bytes(reused, "cpu") == 20_000
    # An operator's own scratch space: the indices that come with the values.
    assert memory.peak_bytes(lambda: x.sort(-1).values, "cpu") >= 40_000


def test_what_a_call_leaves_behind_is_not_its_peak():
    x = torch.ones(1000, requires_grad=True)
    assert memory.peak_bytes(x.detach().neg, "cpu") == 0

    def forward_and_backward():
        doubled = x * 2  # kept for the backward pass of the square
        return torch.autograd.grad((doubled * doubled).sum(), x)

    peak = memory.peak_bytes(forward_and_backward, "cpu")
    assert 4000 <= peak <= 16_000


def test_measuring_memory_writes_nothing(capfd):
    memory.peak_bytes(lambda: torch.ones(3), "cpu")
    assert capfd.readouterr() == ("", "")


def test_on_a_gpu_the_allocator_is_asked(monkeypatch):
    calls = []
    answers = {"max_memory_allocated": 900, "memory_allocated": 300}
    for name in ("synchronize", "reset_peak_memory_stats", *answers):
        monkeypatch.setattr(
            torch.cuda, name, lambda name=name: calls.append(name) or answers.get(name)
        )
    assert memory.peak_bytes(lambda: calls.append("run"), "cuda") == 600
    asked = ["synchronize", "reset_peak_memory_stats", "run", "synchronize"]
    assert calls == [*asked, *answers]
    assert measure.waiter("cuda") is torch.cuda.synchronize


@pytest.mark.parametrize("backward", [False, True])
def test_the_usual_form_needs_the_memory_that_it_is_predicted_to_need(backward):
    case, setting = Case("shaw", 127, 16, backward=backward), Setting(width=64)
    everyone, problem = contenders(), problem_of(case, setting)
    for name in ("usual-shaw", "gather", "auto", "plain"):
        prepared = everyone[name].prepare(problem)
        peak = memory.peak_bytes(
            lambda prepared=prepared: measure.once(prepared, problem, backward), "cpu"
        )
        guess = predict.first_guess(everyone[name], case, setting).bytes
        if name in ("usual-shaw", "gather"):
            assert 0.6 * peak <= guess <= 2 * peak, name


# Predictions


def fake(name="usual-shaw", numbers=1000.0, slowness=2.0):
    return Contender(name, lambda problem: None, lambda *_: numbers, slowness)


def test_the_first_guess_counts_multiplications_and_numbers():
    guess = predict.first_guess(fake(), Case("bias", 100, 3), SMALL)
    work = 4 * 2 * 3 * 100**2 * 5  # two products of (L, D) and (D, L), B * H times
    assert guess.seconds == pytest.approx(2.0 * work / predict.RATE["cpu"])
    assert guess.bytes == 4 * 1000
    both = predict.first_guess(fake(), Case("bias", 100, 3, backward=True), SMALL)
    assert both.seconds == pytest.approx(predict.BACKWARD * guess.seconds)


def test_what_was_measured_at_half_the_length_counts_four_times():
    history = History()
    history.add("usual-shaw", Case("bias", 50, 3), 7.0, 11.0)
    history.add("usual-shaw", Case("bias", 25, 3), 1000.0, 1000.0)
    history.add("usual-shaw", Case("bias", 200, 3), 1000.0, 1000.0)
    history.add("usual-shaw", Case("bias", 50, 5), 1000.0, 1000.0)
    history.add("gather", Case("bias", 50, 3), 1000.0, 1000.0)
    assert history.predict(fake(), Case("bias", 100, 3), SMALL) == (28.0, 44.0)
    other = Case("bias", 100, 3, causal=True)
    guess = predict.first_guess(fake(), other, SMALL)
    assert history.predict(fake(), other, SMALL) == guess


def test_limits_say_what_is_too_much():
    limits = Limits(seconds=30.0, bytes=8e9)
    assert limits.refuse(Prediction(30.0, 8e9)) is None
    assert "need 9 GB and 1 s, the limits are 8 GB" in limits.refuse(
        Prediction(1.0, 9e9)
    )
    assert "31 s, the limits are 8 GB and 30 s" in limits.refuse(Prediction(31.0, 1.0))


# One case


def working(name, run=None, **about):
    def prepare(problem):
        return Pass(run or (problem.value.clone), [problem.value])

    return Contender(name, prepare, lambda *_: 1.0, 1.0, **about)


def refusing(error):
    def run():
        raise error

    return working("odd", run)


def measured(*others, rules=None, case=SHAW, **more):
    everyone = {one.name: one for one in (working("plain"), *others)}
    return measure.measure(
        case, SMALL, everyone, History(), rules or measure.Rules(3), **more
    )


def test_a_cell_has_its_ratios_and_what_they_come_from():
    ticks = itertools.count()
    rules = measure.Rules(3, clock=lambda: float(next(ticks)))  # all take one second
    record = measured(working("ours"), rules=rules)
    assert record["peer"]["rounds"] == 3
    assert record["peer"]["seconds"] == 1.0
    assert record["cells"]["ours"] == {
        "ratio": 1.0,
        "low": 1.0,
        "high": 1.0,
        "quartiles": [1.0, 1.0],
        "rounds": 3,
        "ratios": [1.0, 1.0, 1.0],
        "seconds": 1.0,
        "peak_bytes": 0,
        "megabytes": 0.0,
    }
    assert record["workload"] == "shaw"
    assert record["length"] == 11
    assert record["direction"] == "forward"


@pytest.mark.parametrize("error", [ValueError("no\nway"), NotImplementedError("no")])
def test_a_refusal_is_no_failure(error):
    record = measured(refusing(error), working("ours"))
    assert record["not_served"] == {"odd": "no"}
    assert set(record["cells"]) == {"ours"}


def test_a_failure_does_not_end_the_run():
    record = measured(refusing(RuntimeError("out of luck")), working("ours"))
    assert record["failed"] == {"odd": "RuntimeError: out of luck"}
    assert set(record["cells"]) == {"ours"}


def test_a_cell_that_is_too_large_is_skipped_and_not_prepared():
    def prepare(problem):
        raise AssertionError("must not be tried")

    large = Contender("large", prepare, lambda *_: 1e10, 1.0)
    record = measured(large, working("ours"))
    assert record["skipped"]["large"]["bytes"] == 4 * 10**10
    assert "40 GB" in record["skipped"]["large"]["reason"]
    assert "skipped: predicted to need 40 GB" in report.table(record)


def test_nothing_is_measured_without_what_it_is_compared_with():
    rules = measure.Rules(3, Limits(seconds=1e-30))
    record = measured(working("ours"), rules=rules)
    assert set(record["skipped"]) == {"plain", "ours"}
    assert record["peer"] is None


def test_compiling_is_neither_timed_nor_counted():
    kept, calls = [], itertools.count()

    def run():
        if next(calls) < 2:
            kept.append(torch.ones(10_000) + torch.ones(10_000))
        return torch.ones(3)

    rules = measure.Rules(3, enough=0.0)
    record = measured(working("ours", run, compiled=True), rules=rules)
    assert record["cells"]["ours"]["peak_bytes"] < 100
    assert next(calls) == 2 + 1 + 3


def test_contenders_meet_only_workloads_that_they_are_for():
    record = measured(working("ours", workloads=["bias"]), working("other"))
    assert set(record["cells"]) == {"other"}


def test_what_is_measured_is_extrapolated_next():
    history = History()
    everyone = {name: working(name) for name in ("plain", "ours")}
    record = measure.measure(SHAW, SMALL, everyone, history, measure.Rules(1))
    twice = history.predict(everyone["ours"], SHAW._replace(length=22), SMALL)
    assert twice.seconds == pytest.approx(4 * record["cells"]["ours"]["seconds"])


def test_a_backward_pass_gives_all_gradients():
    case = case_of_workload("shaw", backward=True)
    problem = problem_of(case, SMALL)
    results = measure.once(contenders()["gather"].prepare(problem), problem, True)
    assert [r.shape for r in results] == [
        problem.value.shape,
        *(leaf.shape for leaf in problem.leaves),
    ]
    assert len(problem.leaves) == 5
    out = measure.once(contenders()["gather"].prepare(problem), problem, False)
    assert not out.requires_grad


# Peers


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_peers_compute_what_we_compute(workload, causal):
    case = case_of_workload(workload, causal, backward=True)
    problem = problem_of(case, SMALL)
    everyone = contenders()
    wanted = measure.once(everyone["gather"].prepare(problem), problem, True)
    met = 0
    for name in ("usual-shaw", "bias-as-mask"):
        if not everyone[name].is_for(workload):
            continue
        met += 1
        found = measure.once(everyone[name].prepare(problem), problem, True)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert met == 1


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("workload", ["bias", "shaw-keys"])
def test_the_captured_table_of_flex_attention_is_ours(workload):
    problem = problem_of(case_of_workload(workload), SMALL)
    score_mod = peers._score_function(problem)
    found = flex_attention(*problem.inputs, score_mod=score_mod)
    wanted = relative_attention(*problem.inputs, **problem.tables)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_flex_attention_refuses_to_train_on_a_cpu_before_it_is_compiled():
    problem = problem_of(case_of_workload("bias", backward=True), SMALL)
    with pytest.raises(NotImplementedError, match="no backward pass on a CPU"):
        peers.flex_captured(problem)


def test_installed_peers_compute_what_we_compute():
    from relpos_lib.bench.installed import installed_peers

    found = installed_peers()
    if not found:
        pytest.skip("neither transformers nor x-transformers is installed")
    for peer in found:
        problem = problem_of(case_of_workload(peer.workloads[0]), SMALL)
        wanted = relative_attention(*problem.inputs, **problem.tables)
        out = measure.once(peer.prepare(problem), problem, False)
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)


def test_everyone_of_ours_takes_part():
    ours = {name for name, one in contenders().items() if one.ours}
    assert ours == {"auto", *BACKENDS}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_problem_wants_gradients_of_what_is_learned(workload):
    problem = problem_of(case_of_workload(workload, backward=True), SMALL)
    learned = 0 if workload == "alibi" else len(problem.tables)
    assert len(problem.leaves) == 3 + learned
    assert problem_of(case_of_workload(workload), SMALL).leaves == []
    again = problem_of(case_of_workload(workload), SMALL)
    assert torch.equal(again.query, problem.query)


# Equality


def check_of(case, contender, **setting):
    found = equality.check(case, SMALL._replace(**setting), contender, Limits())
    return {record["contender"]: record for record in found}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("causal", [False, True])
def test_our_backends_pass_the_check(monkeypatch, causal, whole):
    if not whole:
        monkeypatch.setattr(equality, "WHOLE_UP_TO", 10)
        monkeypatch.setattr(equality, "SAMPLED_ROWS", 5)
    everyone = {n: c for n, c in contenders().items() if n in ("plain", "gather")}
    case = Case("shaw", 43, 3, causal)
    for record in check_of(case, everyone).values():
        assert record["holds"], record
        assert record["rows"] == (43 if whole else 5)
        assert "gradient of query" in record["errors"]
    assert set(check_of(case, everyone)["gather"]["errors"]) == {
        "output",
        *(f"gradient of {name}" for name in ("query", "key", "value")),
        *(f"gradient of {name}" for name in ("key_table", "value_table")),
    }


@pytest.mark.parametrize("wrong", ["output", "gradient"])
@pytest.mark.parametrize("length", [43, 2053])
def test_the_check_finds_what_is_wrong(monkeypatch, wrong, length):
    class OffGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * 1.001

    def off(inputs):
        value = inputs.value
        value = value * 1.001 if wrong == "output" else OffGradient.apply(value)
        return BACKENDS["gather"](inputs._replace(value=value))

    monkeypatch.setitem(BACKENDS, "loop", off)
    everyone = {"loop": contenders()["gather"]._replace(name="loop")}
    record = check_of(Case("bias", length, 3), everyone, batch=1, heads=2)["loop"]
    assert not record["holds"]
    worst = max(record["errors"].values())
    assert worst == pytest.approx(1e-3, rel=0.1)
    assert (record["errors"]["output"] < 1e-5) == (wrong == "gradient")
    assert "NOT EQUAL" in report.check_line(record)


def test_the_check_names_who_refuses_and_who_fails(monkeypatch):
    def refuse(inputs):
        raise ValueError("not for me")

    def fail(inputs):
        raise RuntimeError("broken")

    monkeypatch.setitem(BACKENDS, "loop", refuse)
    monkeypatch.setitem(BACKENDS, "checkpoint", fail)
    everyone = {name: contenders()[name] for name in ("loop", "checkpoint")}
    everyone["loop"] = everyone["loop"]._replace(slowness=1.0)
    found = check_of(SHAW, everyone)
    assert found["loop"]["not_served"] == "not for me"
    assert found["checkpoint"]["failed"] == "RuntimeError: broken"


def test_half_precision_is_checked_with_its_own_rounding():
    everyone = {"gather": contenders()["gather"]}
    record = check_of(SHAW._replace(dtype="bfloat16"), everyone)["gather"]
    assert record["holds"]
    assert record["errors"]["output"] > equality.TOLERANCES["float32"]


# The plan and its promises


def test_the_promised_cases_are_those_that_were_promised():
    promised = {case.key: most for case, most in plan.accepted("float32").items()}
    assert promised == {
        "bias-k16-4096-forward-float32": 1.25,
        "bias-k16-4096-forward+backward-float32": 1.35,
        "shaw-k16-1024-forward-float32": 2.2,
        "shaw-k16-1024-forward+backward-float32": 1.7,
        "shaw-k16-4096-forward-float32": 1.35,
        "shaw-k16-4096-forward+backward-float32": 1.35,
        "shaw-k16-8192-forward-float32": 1.25,
        "shaw-k16-8192-forward+backward-float32": 1.25,
        "unclipped-512-forward+backward-float32": 1.7,
        "alibi-4096-forward+backward-float32": 1.7,
        "shaw-causal-k16-4096-forward-float32": 1.8,
        "shaw-causal-k16-4096-forward+backward-float32": 1.4,
        "shaw-causal-k16-8192-forward-float32": 1.4,
        "shaw-causal-k16-8192-forward+backward-float32": 1.3,
    }


def test_short_cases_come_first_and_none_twice():
    cases = plan.in_order(plan.growth([64, 32], "float32") * 2)
    assert len(cases) == len(set(cases)) == 12
    assert [case.length for case in cases] == [32] * 6 + [64] * 6


def cells(**ratios):
    return {
        name: {"ratio": timing.spread(list(by_round)).median, "ratios": by_round}
        for name, by_round in ratios.items()
    }


@pytest.mark.parametrize(("ratio", "holds"), [(1.35, True), (1.36, False)])
def test_a_promise_holds_up_to_its_bound(ratio, holds):
    record = {"cells": cells(auto=[ratio])}
    key = "shaw-k16-4096-forward-float32"
    (verdict,) = plan.verdicts({key: record}, contenders(), ["float32"])
    assert (verdict["bound"], verdict["holds"]) == (1.35, holds)
    word = "holds" if holds else "does not hold"
    assert word in report.promises([verdict])


def test_auto_is_compared_with_the_best_of_ours_round_by_round():
    found = cells(auto=[2.0, 9.0, 4.0], gather=[1.0, 9.0], checkpoint=[9.0, 9.0, 9.0])
    found |= cells(plain=[0.1], **{"usual-shaw": [0.1, 0.1, 0.1]})
    worst = plan.over_the_best(found, ["auto", "gather", "checkpoint"])
    assert worst == (1.5, "gather")  # median of 2 and 1
    assert plan.over_the_best(cells(auto=[1.0]), ["auto", "gather"]) is None
    verdicts = plan.verdicts({"x": {"cells": found}}, contenders(), ["float32"])
    assert [v["holds"] for v in verdicts] == [False]


# The file of results and the command


def test_the_command_checks_measures_prints_and_keeps(tmp_path, capsys):
    path = tmp_path / "out.json"
    arguments = ["--parts", "check", *GROWTH[1:], "--check-lengths", "7"]
    names = ["--contenders", "gather", "usual-shaw"]
    assert bench(path, *arguments, "--workloads", "shaw", *names) == 0
    printed = capsys.readouterr().out
    results = json.loads(path.read_text())
    assert results["machine"]["torch"] == torch.__version__
    assert results["settings"]["heads"] == 2
    assert len(results["cases"]) == 8
    record = results["cases"]["shaw-k16-13-forward-float32"]
    assert set(record["cells"]) == {"gather", "usual-shaw"}
    assert record["cells"]["gather"]["rounds"] >= 2
    assert len(results["checks"]) == 4
    for check in results["checks"].values():
        assert check["gather"]["holds"]
    assert re.search(r"gather +[\d.]+x  \[[\d.]+, [\d.]+\]", printed)
    assert re.search(r"usual-shaw +[\d.]+x +[\d.]+x\n", printed)


def test_workload_names_are_without_dots_and_spaces():
    # The prose finds numbers by keys that are joined by dots.
    names = [*contenders(), *(case_of_workload(name).key for name in WORKLOADS)]
    assert not [name for name in names if "." in name or " " in name]


def test_resume_measures_only_what_is_missing(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    names = ["--contenders", "gather"]
    assert bench(path, *GROWTH, *names) == 0
    before = json.loads(path.read_text())
    seen = []
    original = cli.measure

    def counting(case, *rest, **more):
        seen.append(case.length)
        return original(case, *rest, **more)

    monkeypatch.setattr(cli, "measure", counting)
    longer = ["--parts", "growth", "--lengths", "7", "13", "17", "--workloads", "shaw"]
    assert bench(path, *longer, *names, "--resume") == 0
    assert seen == [17] * 4
    after = json.loads(path.read_text())
    assert len(after["cases"]) == 12
    for key, record in before["cases"].items():
        assert after["cases"][key] == record


def test_resume_refuses_results_of_another_kind(tmp_path, capsys):
    path = tmp_path / "out.json"
    names = ["--contenders", "gather"]
    assert bench(path, *GROWTH, *names) == 0
    assert bench(path, *GROWTH, *names, "--resume", "--width", "4") == 2
    assert "width was 8 and is 4" in capsys.readouterr().err
    path.write_text("[]")
    assert bench(path, *GROWTH, *names, "--resume") == 2
    assert "no file of results" in capsys.readouterr().err


def test_a_stop_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    path = tmp_path / "out.json"
    original = cli.measure

    def stopped(case, *rest, **more):
        if case.length == 13:
            raise KeyboardInterrupt
        return original(case, *rest, **more)

    monkeypatch.setattr(cli, "measure", stopped)
    assert bench(path, *GROWTH, "--contenders", "gather") == cli.STOPPED
    assert len(json.loads(path.read_text())["cases"]) == 4
    assert "4 cases are in" in capsys.readouterr().err


def test_a_file_of_results_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "out.json"
    store.save(path, {"version": store.VERSION, "first": 1, "n": [1.5, 2e-7, -3]})
    assert '"n": [ 1.5, 2e-07, -3 ]' in path.read_text()
    with pytest.raises(TypeError):
        store.save(path, {"bad": object()})
    assert store.load(path)["first"] == 1
    assert not list(path.parent.glob("*.part"))


def test_a_failing_backend_ends_with_an_error(tmp_path, monkeypatch):
    def fail(inputs):
        raise RuntimeError("broken")

    monkeypatch.setitem(BACKENDS, "checkpoint", fail)
    names = ["--contenders", "checkpoint", "gather"]
    assert bench(tmp_path / "out.json", *GROWTH, *names) == 1


def test_no_case_begins_when_time_is_over(tmp_path, capsys):
    path = tmp_path / "out.json"
    assert bench(path, *GROWTH, "--contenders", "gather", "--minutes", "1e-9") == 0
    assert "is left out" in capsys.readouterr().out
    assert len(json.loads(path.read_text())["left_out"]) == 8


def test_what_cannot_be_drawn_does_not_spoil_the_run(tmp_path, capsys):
    out, plot = tmp_path / "out.json", tmp_path / "folder" / "growth.png"
    more = ["--contenders", "gather", "--plot", str(plot)]
    assert bench(out, *GROWTH[:-1], "bias", *more) == 0
    assert "nothing is drawn" in capsys.readouterr().err
    assert bench(out, *GROWTH, *more) == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "argument --rounds: must be at least 1, got 0"),
        (["--lengths", "0"], "argument --lengths: must be at least 1, got 0"),
        (["--lengths", "1.5"], "argument --lengths: must be an integer, got '1.5'"),
        (["--distances", "-1"], "argument --distances: must be at least 0, got -1"),
        (["--max-seconds", "nan"], "must be above 0 and finite, got nan"),
        (["--max-gigabytes", "no"], "must be a number, got 'no'"),
        (["--device", "abacus"], "must be cpu or cuda, got 'abacus'"),
        (["--parts", "all"], "invalid choice: 'all'"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
    ],
)
def test_bad_values_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        options.parsed(arguments)
    assert message in capsys.readouterr().err


def test_an_unknown_contender_is_refused(tmp_path, capsys):
    assert bench(tmp_path / "out.json", "--contenders", "magic") == 2
    assert "'magic' is none of plain, auto" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused(capsys):
    with pytest.raises(SystemExit):
        options.parsed(["--device", "cuda"])
    assert "torch finds no GPU" in capsys.readouterr().err


def test_a_gpu_gets_the_short_check(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = options.parsed(["--device", "cuda", "--lengths", "64"])
    assert found.parts == ("check", "growth")
    assert found.lengths == [64]
    assert found.check_lengths[-1] == 32768
    assert found.minutes < 5
    assert found.dtype == found.check_dtype == ("float32", "bfloat16")
    assert cli._path(found).name == "bench-cuda.json"


def test_out_may_be_a_folder(tmp_path):
    parsed = options.parsed(["--out", str(tmp_path)])
    assert cli._path(parsed) == tmp_path / "bench-cpu.json"
    assert cli._path(options.parsed([])).parent.name == "results"


# Whole layers


def test_a_stack_measures_everyone_within_layers_and_compares_them():
    stack = claims.Stack("shaw", 23, 2)
    setting = Setting(heads=2, width=4)
    record = claims.measure_stack(stack, setting, contenders(), Rules(rounds=2))
    assert set(record["cells"]) == {*claims.INSIDE["shaw"]} - {"plain"}
    assert not record["failed"]
    assert not record["not_served"]
    assert (record["depth"], record["batch"]) == (2, 1024 // 23)
    found = record["compared"]["gather-to-usual-shaw"]
    cells = record["cells"]
    assert found["memory"] == pytest.approx(
        cells["gather"]["peak_bytes"] / cells["usual-shaw"]["peak_bytes"], rel=1e-3
    )
    both = zip(cells["gather"]["ratios"], cells["usual-shaw"]["ratios"], strict=True)
    middle = timing.spread([a / b for a, b in both]).median
    assert found["time"] == pytest.approx(middle, rel=1e-2)


def test_layers_compute_the_same_with_every_contender_that_knows_the_tables():
    everyone = contenders()
    problem = problem_of(case_of_workload("shaw", backward=True), SMALL)
    found = {
        name: measure.once(
            claims.in_layers(everyone[name], 2).prepare(problem), problem, True
        )
        for name in claims.INSIDE["shaw"]
    }
    plain, wanted = found.pop("plain"), found.pop("gather")
    assert not torch.allclose(plain[0], wanted[0], atol=1e-3)
    assert len(wanted) == len(plain) + len(problem.tables)  # with their gradients
    for out in found.values():
        torch.testing.assert_close(out, wanted, rtol=1e-3, atol=1e-3)


def test_the_tables_of_an_index_are_a_part_of_a_pass():
    setting = Setting(heads=2, width=4)
    found = claims.measure_index(53, setting, contenders(), Rules(rounds=2))
    assert found["share"] > 0
    assert found["megabytes"] == pytest.approx(8 * 53 * 53 / 1e6, rel=1e-3)


def test_the_command_measures_claims_once(tmp_path, monkeypatch, capsys):
    stacks = (claims.Stack("shaw", 7), claims.Stack("unclipped", 7))
    monkeypatch.setattr(claims, "STACKS", stacks)
    monkeypatch.setattr(claims, "INDEX_LENGTHS", (5,))
    path = tmp_path / "out.json"
    arguments = ["--parts", "claims", "--workloads", "shaw"]
    arguments += ["--contenders", "gather", "usual-shaw"]
    assert bench(path, *arguments) == 0
    printed = capsys.readouterr().out
    assert "1 layer, B=146, shaw L=7" in printed
    assert "index tables at L=5" in printed
    kept = json.loads(path.read_text())["claims"]
    assert set(kept["layers"]) == {"shaw-7-x1"}
    assert set(kept["layers"]["shaw-7-x1"]["cells"]) == {"gather", "usual-shaw"}
    assert set(kept["index"]) == {"5"}
    assert bench(path, *arguments, "--resume") == 0
    assert json.loads(path.read_text())["claims"] == kept
    assert bench(path, "--parts", "claims", "--contenders", "usual-shaw") == 0
    assert json.loads(path.read_text())["claims"].get("index") is None


def test_a_failure_within_layers_ends_with_an_error(tmp_path, monkeypatch):
    def fail(inputs):
        raise RuntimeError("broken")

    monkeypatch.setattr(claims, "STACKS", (claims.Stack("shaw", 7),))
    monkeypatch.setitem(BACKENDS, "near_far", fail)
    names = ["--contenders", "near_far"]
    assert bench(tmp_path / "out.json", "--parts", "claims", *names) == 1


# The picture


def results_to_draw():
    case = Case("shaw", 64, 16, backward=True)
    records = {}
    for length in (64, 128, 256):
        record = measure._empty_record(case._replace(length=length))
        record["peer"] = {"seconds": 1.0, "peak_bytes": 10 * length}
        record["cells"]["auto"] = {
            "ratio": 1.5,
            "low": 1.0,
            "high": 2.0,
            "peak_bytes": 1000 * length,
        }
        if length < 256:
            record["cells"]["usual-shaw"] = {**record["cells"]["auto"], "ratio": 9.0}
        records[str(length)] = record
    return {"cases": records}


def test_the_picture_has_a_line_a_contender_up_to_where_it_was_measured():
    fig = cost_by_length(results_to_draw())
    time, peak = fig.axes
    lines = {line.get_label(): line for line in time.lines}
    assert list(lines["auto"].get_xdata()) == [64, 128, 256]
    assert list(lines["auto"].get_ydata()) == [1.5] * 3
    assert list(lines["usual-shaw"].get_xdata()) == [64, 128]
    assert peak.get_yscale() == "log"
    drawn = {line.get_label(): line for line in peak.lines}
    assert list(drawn["auto"].get_ydata()) == pytest.approx([0.064, 0.128, 0.256])
    assert drawn["auto"].get_color() == lines["auto"].get_color()
    assert "no positions" in drawn


def test_the_picture_may_leave_out_contenders():
    time, _ = cost_by_length(results_to_draw(), only=["usual-shaw"]).axes
    labels = [line.get_label() for line in time.lines]
    assert "usual-shaw" in labels
    assert "auto" not in labels


def test_a_picture_of_nothing_is_refused():
    with pytest.raises(ValueError, match="hold no case"):
        cost_by_length(results_to_draw(), workload="bias")
