"""The HTML report and the record reader, on journals written by hand."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from relaxish import cli
from relaxish.support.journal import Journal
from relaxish.tools.records import load_log, trace_text
from relaxish.tools.report import write_report
from relaxish.tools.statistics import spearman

TRACE = [
    [
        ["GetBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["SamplePerfectTile", ["l1"], [2, 16], ["v3", "v4"]],
    ],
    [[2, [8, 16]]],
]


@pytest.fixture
def work_dir(tmp_path):
    rng = np.random.default_rng(0)
    workloads = Journal(tmp_path / "database_workload.json")
    records = Journal(tmp_path / "database_tuning_record.json")
    for k, name in enumerate(["matmul", "conv2d<b>"]):
        workloads.append({"hash": f"{k:016x}", "name": name, "script": f"def {name}(A & B): pass"})
        for i in range(30):
            seconds = float(1e-3 * (1 + k) / (1 + i / 10) * rng.uniform(0.9, 1.1))
            line = {
                "workload": f"{k:016x}",
                "trace": TRACE,
                "run_secs": [seconds],
                "target": {"kind": "llvm"},
                "hardware": "a machine",
                "predicted": float(1e-3 / seconds + rng.normal() * 0.1),
                "time": 1e9 + i,
            }
            if i % 10 == 9:
                line |= {"run_secs": [1e10], "error": "time limit of 10 s exceeded"}
            records.append(line)
    records.append({"workload": "ffffffffffffffff", "trace": TRACE, "run_secs": [1.0]})
    return tmp_path


class _Checker(HTMLParser):
    void = {"meta", "line", "rect", "circle", "path"}

    def __init__(self):
        super().__init__()
        self.stack = []
        self.tags = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in ("meta",):
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def test_report_is_one_well_formed_page(work_dir):
    path = write_report(str(work_dir), str(work_dir / "out.html"), title="A & B")
    text = open(path, encoding="utf-8").read()
    checker = _Checker()
    checker.feed(text)
    assert checker.stack == [] and "script" not in checker.tags
    assert not re.search(r'(src|href)="', text) and "http" not in text
    for part in (
        "A &amp; B",
        "conv2d&lt;b&gt;",
        "Tuning curves",
        "Cost model",
        "rank correlation",
        "Failures",
        "time limit of 10 s exceeded",
        "SamplePerfectTile(l1, 2, 16)  # [8, 16]",
        "a machine",
    ):
        assert part in text, part
    assert text.count("<svg") == 3 and "nan" not in text.lower().replace("nanos", "")


def test_log_reading(work_dir):
    log = load_log(str(work_dir))
    assert [t.name for t in log.tasks] == ["matmul", "conv2d<b>"] and log.orphans == 1 and log.target == "llvm"
    task = log.tasks[0]
    assert len(task.records) == 30 and sum(r.seconds is None for r in task.records) == 3
    curve = task.curve()
    assert curve[-1] == (30, task.best_seconds) and all(a[1] >= b[1] for a, b in zip(curve, curve[1:]))
    assert trace_text(TRACE).splitlines()[1] == "l1, l2 = GetLoops(b0)"


def test_verdicts_gains_and_other_machines(work_dir, capsys):
    records, key = Journal(work_dir / "database_tuning_record.json"), "0" * 16
    other = [TRACE[0], [[2, [4, 32]]]]
    line = {"workload": key, "trace": other, "run_secs": [1e-9], "target": {"kind": "llvm"}, "hardware": "a machine"}
    records.append(line)
    before = load_log(str(work_dir)).tasks[0]
    assert before.best_seconds == 1e-9 and len(before.records) == 31 and before.gain is None
    records.append({**line, "valid": False, "again": True, "error": "wrong result: relative error 1"})
    records.append({**line, "run_secs": [1e-12], "hardware": "another machine"})
    Journal(work_dir / "database_baseline.json").extend(
        [
            {"workload": key, "run_secs": [9.0], "best": 1.0, "hardware": "another machine"},
            {"workload": key, "run_secs": [4e-4], "best": 1e-4, "hardware": "a machine"},
            {"workload": 7}, [], None, {"workload": key, "run_secs": ["x"]}, {"workload": key, "run_secs": [-1.0]},
        ]
    )  # fmt: skip
    log = load_log(str(work_dir))
    task = log.tasks[0]
    # A verdict is no measurement of its own, and the record it speaks of cannot win.
    assert len(task.records) == 31 and task.best_seconds > 1e-5 and log.left_out == {"another machine": 1}
    assert task.gain == pytest.approx(4.0)
    text = open(write_report(str(work_dir), str(work_dir / "out.html"))).read()
    assert "4.00x" in text and "default (us)" in text and "1 of another machine" in text
    with pytest.raises(SystemExit):
        cli.main(["db", "show", str(work_dir)])
    captured = capsys.readouterr()
    assert "left out 1 records of other machines (1 of another machine)" in captured.err and "4.00x" in captured.out


def test_report_without_success(tmp_path):
    Journal(tmp_path / "database_workload.json").append({"hash": "0" * 16, "script": ""})
    Journal(tmp_path / "database_tuning_record.json").append(
        {"workload": "0" * 16, "trace": TRACE, "run_secs": [1e10], "error": "worker killed by SIGSEGV"}
    )
    text = open(write_report(str(tmp_path), str(tmp_path / "r.html"))).read()
    assert "No candidate ran successfully" in text and "SIGSEGV" in text


def test_commands(work_dir, capsys):
    for args in (["db", "show", work_dir], ["db", "best", work_dir, "matmul"], ["report", work_dir]):
        with pytest.raises(SystemExit) as caught:
            cli.main([str(a) for a in args])
        assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "matmul" in out and "SamplePerfectTile" in out and (work_dir / "report.html").exists()
    with pytest.raises(SystemExit) as caught:
        cli.main(["db", "best", str(work_dir), "nothing"])
    assert caught.value.code == 1 and "no kernel named 'nothing'" in capsys.readouterr().err


def test_rank_correlation():
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3], [30, 20, 10]) == pytest.approx(-1)
    assert np.isnan(spearman([1, 1, 1], [1, 2, 3])) and np.isnan(spearman([1], [1]))
