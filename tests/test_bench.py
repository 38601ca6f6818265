"""The benchmark runs and prints a ratio for every case; times are never judged."""

import re
import sys

from relpos_lib import bench


def test_bench_prints_one_line_a_case(monkeypatch, capsys):
    arguments = ["bench", "--lengths", "5", "11", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", arguments)
    bench.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    pattern = r"L=(5|11) +(forward|forward\+backward) +(bias|Shaw) +[\d.]+x plain"
    assert len({re.match(pattern, line).groups() for line in lines}) == len(lines) == 8
