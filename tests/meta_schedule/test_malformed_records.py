"""Lines of databases as data: what is no workload, record or argument is one kind of error."""

from __future__ import annotations

import json

import pytest

from faults.hostile_text import tuned_workload
from relaxish.meta_schedule.arg_info import ArgInfo
from relaxish.meta_schedule.database import TuningRecord, Workload
from relaxish.meta_schedule.application.pass_database import JSONDatabase as PassDatabase
from relaxish.meta_schedule.application.pass_database import TuningRecord as PassRecord
from relaxish.support.errors import MalformedDataError

LINES = [[], {}, 3, None, "x", ["1"], ["1", 7], ["1", "%%%"], ["1", "AAAA"], ["1", "bnVsbA=="], ["1", None], [1, 2, 3]]


@pytest.mark.parametrize("line", LINES)
def test_workloads(line):
    with pytest.raises(MalformedDataError):
        Workload.from_json(line)


@pytest.mark.parametrize("line", [*LINES, [[[], []], ["x"], None, None], [[[], []], [1.0], None, [["TENSOR"]]]])
def test_records(line):
    workload, _ = tuned_workload()
    with pytest.raises(MalformedDataError):
        TuningRecord.from_json(line, workload)


@pytest.mark.parametrize(
    "line", [*LINES, ["TENSOR"], ["TENSOR", "float32"], ["TENSOR", "float32", ["x"]], ["X", "y", [1]]]
)
def test_arguments(line):
    with pytest.raises(MalformedDataError):
        ArgInfo.from_json(line)


@pytest.mark.parametrize("line", [x for x in LINES if x != ["1", "AAAA"]])
def test_pass_level_records(line, tmp_path):
    with pytest.raises(MalformedDataError):
        PassRecord.from_json(line)
    paths = [tmp_path / name for name in ("w.json", "r.json", "m.json")]
    for path in paths:
        path.write_text(json.dumps(line) + "\n")
    PassDatabase(*map(str, paths))  # a bad line costs itself only


def test_whole_lines_are_read():
    workload, record = tuned_workload()
    again = TuningRecord.from_json(json.loads(json.dumps(record.as_json())), Workload.from_json(workload.as_json()))
    assert again.run_secs == record.run_secs and again.workload.shash == workload.shash
    assert again.args_info == record.args_info
