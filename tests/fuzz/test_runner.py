"""The loop around all fuzzers: cases without an end, deaths, flukes, interrupts, and what is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import relaxish.testing.fuzz.__main__ as command
from relaxish.testing.fuzz.batches import Ended, numbered
from relaxish.testing.fuzz.runner import Kind, Outcome, run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def _kind(attempt, explain=None, patience=60.0):
    return Kind("cases", attempt, explain or attempt, lambda: None, patience)


def test_a_case_without_an_end_is_a_finding_with_its_number():
    def attempt(number):
        while number == 12:
            time.sleep(0.01)
        return Outcome("right", steps=("one",))

    report = run(_kind(attempt, patience=1.0), 60.0, 10, max_failures=1)
    (found,) = report.failures
    assert (found.number, found.status) == (12, "slow") and "number 12" in str(found)
    assert report.cases == 3 and report.ends == {"right": 2, "slow": 1} and report.steps == {"one": 2}


def test_a_case_that_kills_its_process_is_a_finding_and_the_next_one_runs():
    def attempt(number):
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3:
            raise KeyError("three")
        return Outcome("right")

    report = run(_kind(attempt), 60.0, 0, max_failures=2)
    assert [(f.number, f.status) for f in report.failures] == [(1, "crashed"), (3, "crashed")]
    assert "SIGKILL" in str(report.failures[0]) and "KeyError: 'three'" in str(report.failures[1])
    assert report.ends == {"right": 2, "crashed": 2}


def test_a_finding_is_told_of_as_it_is_when_alone():
    def attempt(number):
        return Outcome("wrong", "seen") if number == 2 else Outcome("right")

    report = run(_kind(attempt, lambda n: Outcome("wrong", f"small {n}", "a test")), 60.0, 0, max_failures=1)
    assert [(f.told, f.test) for f in report.failures] == [("small 2", "a test")]
    report = run(_kind(attempt, lambda n: Outcome("right")), 60.0, 0, max_failures=1)
    assert "seen" in str(report.failures[0]) and "not when it runs alone" in str(report.failures[0])


def test_a_case_that_only_a_busy_machine_made_late_is_none():
    def attempt(number):
        if number == 1:
            time.sleep(60)
        return Outcome("right")

    report = run(_kind(attempt, lambda n: Outcome("right"), patience=0.5), 3.0, 0, max_failures=1)
    assert not report.failures and report.ends["late"] == 1 and report.cases > 2


def test_what_a_case_started_ends_with_it(tmp_path):
    mark = tmp_path / "pid"

    def attempt(number):
        child = os.fork()
        if not child:
            time.sleep(600)
        mark.write_text(str(child))
        time.sleep(600)

    ((_, gave),) = numbered(attempt, 0, 0.0, 3.0)
    assert isinstance(gave, Ended) and gave.status == "slow"
    left = int(mark.read_text())
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            with open(f"/proc/{left}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.05)
    raise AssertionError("what a case started is still there")


def test_counts_are_told_of_in_between(monkeypatch):
    from relaxish.testing.fuzz import runner

    monkeypatch.setattr(runner, "_PERIOD", 0.0)
    heads = []
    kind = _kind(lambda n: Outcome("right") if n < 3 else Outcome("wrong", "x"))
    run(kind, 60.0, 0, 1, on_count=lambda report: heads.append(report.cases))
    assert heads == [1, 2, 3]


_ENDLESS = """
import sys, time
import relaxish.testing.fuzz.__main__ as command
from relaxish.testing.fuzz.runner import Kind, Outcome

def attempt(number):
    if number == 7:
        print("waiting", flush=True)
        time.sleep(600)
    return Outcome("right")

command.KINDS["onnx"] = lambda: Kind("cases", attempt, attempt, lambda: None, 600.0)
sys.exit(command.main(["--kind", "onnx", "--seconds", "600", "--first", "5"]))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_prints_its_count(how):
    process = subprocess.Popen([sys.executable, "-c", _ENDLESS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(how)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    done = int(told.split()[0])  # what the last case gave may not have been read yet
    ends = f"right {done}" if done else ""
    assert done <= 2 and told == f"{done} cases ({ends}), 0 failures, next {5 + done}, interrupted\n"


def test_findings_of_the_command_are_written_and_counted(monkeypatch, tmp_path, capsys):
    kind = _kind(lambda n: Outcome("wrong", f"bad {n}", f"number = {n}\n") if n % 2 else Outcome("right"))
    monkeypatch.setitem(command.KINDS, "onnx", lambda: kind)
    assert command.main(["--kind", "onnx", "--max-failures", "2", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().out.splitlines()[:2] == ["bad 1", "bad 3"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["test_fuzz_onnx_1.py", "test_fuzz_onnx_3.py"]
