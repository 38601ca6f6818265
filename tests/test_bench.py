"""The benchmark runs and prints a ratio for every case; times are never judged."""

import re
import sys

import pytest

from relpos_lib import bench


def test_bench_prints_one_line_a_case(monkeypatch, capsys):
    arguments = ["bench", "--lengths", "5", "11", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    bench.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    pattern = r"L=(5|11) +(forward|forward\+backward) +(bias|Shaw) +[\d.]+x plain"
    assert len({re.match(pattern, line).groups() for line in lines}) == len(lines) == 8


@pytest.mark.parametrize("option", ["--rounds", "--lengths"])
def test_bench_refuses_numbers_below_one(monkeypatch, capsys, option):
    monkeypatch.setattr(sys, "argv", ["bench", option, "0"])
    with pytest.raises(SystemExit):
        bench.main()
    assert f"argument {option}: must be at least 1, got 0" in capsys.readouterr().err
