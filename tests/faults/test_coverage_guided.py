"""The campaign that atheris guides, with a stand-in for atheris: what it is given, and what of its end is a fault."""

from __future__ import annotations

import pytest

from faults import coverage_guided

STAND_IN = """
import sys
from pathlib import Path

def instrument_all():
    pass

def Setup(arguments, function):
    global run, folder
    run, folder = function, Path(arguments[-1])
    assert any(a.startswith("-max_total_time=") for a in arguments) and any(a.startswith("-seed=") for a in arguments)

def Fuzz():
    corpus = sorted(folder.glob("seed*"))
    for path in corpus:
        run(path.read_bytes())
    {end}
    print(f"Done {{len(corpus)}} runs in 1 second(s)", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("end", "fault"),
    [("pass", ""), ("raise TypeError('found')", "crashed"), ("sys.exit('ALARM: timeout after 30 seconds')", "hung")],
)
def test_guided_inputs(tmp_path, monkeypatch, capfd, end, fault):
    (tmp_path / "atheris.py").write_text(STAND_IN.format(end=end))
    monkeypatch.syspath_prepend(str(tmp_path))
    figures = coverage_guided.campaign(2.0, 3)
    assert figures["guided"] and {key for key in ("crashed", "hung") if figures[key]} == ({fault} if fault else set())
    assert fault or figures["tried"] == len(coverage_guided.seeds())


def test_seeds_are_read():
    ends = [coverage_guided.read(data) for data in coverage_guided.seeds()]
    assert ends.count("read") >= len(ends) - 1


def test_errors_of_other_classes_are_faults(monkeypatch, capfd):
    def fails(data):
        raise KeyError("x")

    monkeypatch.setattr(coverage_guided, "READERS", (fails,))
    figures = coverage_guided.run_cases(lambda n: coverage_guided._plain(1, n), ("read", "refused", "lost"), 0.1)
    assert figures["lost"] == figures["tried"] > 0
