"""Databases in files: large ones, damaged ones, ones of other machines, ones that cannot be written."""

import errno
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from relaxish import meta_schedule as ms
from relaxish import te, tir
from relaxish.meta_schedule.database import JSONDatabase, MemoryDatabase, TuningRecord, hardware_fingerprint
from relaxish.meta_schedule.testing import te_workload
from relaxish.meta_schedule.testing.dummy_object import DummyBuilder, DummyRunner
from relaxish.support import config, journal
from relaxish.support.errors import JournalError
from relaxish.target import Target

TARGET = Target("llvm -num-cores=1")


def program(n):
    x = te.placeholder((n, 16), "float32", name="X")
    return te.create_prim_func([x, te.compute((n, 16), lambda i, j: x[i, j] * 2.0, name="Y")])


def module(n):
    return ms.TuneContext(program(n)).mod


def traced(mod, unroll):
    sch = tir.Schedule(mod)
    sch.annotate(sch.get_loops("Y")[0], "pragma_auto_unroll_max_step", unroll)
    return sch.trace


def record(database, n, seconds, unroll=1, **options):
    workload = database.commit_workload(module(n))
    return TuningRecord(traced(workload.mod, unroll), workload, seconds, TARGET, [], **options)


@pytest.fixture(autouse=True)
def unchecked():
    """What records compute is tested elsewhere."""
    with config.UNCHECKED_RECORDS.override("trust"):
        yield


def filled(folder, sizes=(4, 6, 8)):
    database = JSONDatabase(work_dir=str(folder))
    for n in sizes:
        for unroll in (1, 2, 3):
            database.commit_tuning_record(record(database, n, [n * 1e-3 / unroll], unroll))
    return database


def best_of(database, n):
    found = database.query_tuning_record(module(n), TARGET)
    return None if found is None else found.run_secs[0]


BAD_RECORDS = [
    b"{", b"[]", b"null", b"17", b"[0]", b"[0,[1,2,3]]", b'[0,[[],[1.0],null,null]]', b'{"trace":[[],[]]}',
    b'["0",[[[],[]],[1.0],null,null]]', b'[99999,[[[],[]],[1e-9],{"kind":"llvm"},[]],{}]',
    b'[-1,[[[],[]],[1e-9],{"kind":"llvm"},[]],{}]', b"\xff\xfe\x00", b"[" * 100_000, b'[0,' * 5000 + b"]" * 5000,
]  # fmt: skip
BAD_TIMES = [
    "NaN",
    "-1.0",
    "Infinity",
    "-Infinity",
    "1e999",
    '"fast"',
    "true",
    "null",
    "[1e-9]",
    "1" + "0" * 400,
    "0x1",
    "{}",
]
BAD_WORKLOADS = [
    b"{", b'["1"]', b'["x","y"]', b'[1,"AAAA"]', b'["12","AAAA"]', b'["12","!!!"]', b"[]", b"[" * 100_000,
    b'["12","eyJyb290IjogMX0="]', b'{"hash":["a"]}', b'{"hash":"0","graph":5}',
]  # fmt: skip


def spliced(path, lines):
    """Put lines between those of a file, the first one in front."""
    own = path.read_bytes().splitlines()
    mixed = []
    for index, line in enumerate(lines):
        mixed.append(line)
        mixed += own[index : index + 1]
    mixed += own[len(lines) :]
    path.write_bytes(b"\n".join(mixed) + b"\n")


def test_a_bad_record_line_costs_itself_only(tmp_path):
    filled(tmp_path)
    spliced(tmp_path / "database_tuning_record.json", BAD_RECORDS)
    again = JSONDatabase(work_dir=str(tmp_path))
    assert [best_of(again, n) for n in (4, 6, 8)] == [n * 1e-3 / 3 for n in (4, 6, 8)]
    assert len(again.get_all_tuning_records()) == 9
    again.commit_tuning_record(record(again, 4, [1e-6], 7))
    assert best_of(JSONDatabase(work_dir=str(tmp_path)), 4) == 1e-6


@pytest.mark.parametrize("value", BAD_TIMES)
@pytest.mark.parametrize("spaces", [False, True], ids=["as written here", "as written elsewhere"])
def test_times_that_are_none_never_win(tmp_path, value, spaces):
    filled(tmp_path, (4,))
    path = tmp_path / "database_tuning_record.json"
    lines = path.read_text().splitlines()
    first = json.loads(lines[0])
    broken = lines[0].replace(json.dumps(first[1][1], separators=(",", ":")), f"[{value}]", 1)
    assert broken != lines[0]
    path.write_text("\n".join([broken.replace(",", ", ") if spaces else broken, *lines[1:]]) + "\n")
    again = JSONDatabase(work_dir=str(tmp_path))
    assert best_of(again, 4) == 4e-3 / 3
    workload = again.commit_workload(module(4))
    assert [r.run_secs for r in again.get_top_k(workload, 9)] == [[4e-3 / 3], [4e-3 / 2]]


def test_a_bad_workload_line_costs_itself_and_shifts_nothing(tmp_path):
    filled(tmp_path)
    records = tmp_path / "database_tuning_record.json"
    spliced(tmp_path / "database_workload.json", BAD_WORKLOADS[:3])
    # As other writers leave them: the number of the line is all that names the workload.
    plain = [json.loads(line)[:2] for line in records.read_text().splitlines()]
    records.write_text("".join(json.dumps([2 * n + 1, r]) + "\n" for n, r in plain))
    again = JSONDatabase(work_dir=str(tmp_path))
    assert [best_of(again, n) for n in (4, 6, 8)] == [n * 1e-3 / 3 for n in (4, 6, 8)]


@pytest.mark.parametrize("line", BAD_WORKLOADS, ids=range(len(BAD_WORKLOADS)))
def test_each_bad_workload_line(tmp_path, line):
    filled(tmp_path)
    spliced(tmp_path / "database_workload.json", [line])
    again = JSONDatabase(work_dir=str(tmp_path))
    assert [best_of(again, n) for n in (4, 6, 8)] == [n * 1e-3 / 3 for n in (4, 6, 8)]
    assert best_of(again, 10) is None
    again.commit_tuning_record(record(again, 10, [0.5]))
    assert best_of(JSONDatabase(work_dir=str(tmp_path)), 10) == 0.5


def test_random_damage_costs_the_lines_it_hits(tmp_path):
    rng = np.random.default_rng(0)
    filled(tmp_path / "whole")
    for trial in range(40):
        folder = tmp_path / str(trial)
        folder.mkdir()
        hit = 0
        for name in ("database_workload.json", "database_tuning_record.json"):
            data = bytearray((tmp_path / "whole" / name).read_bytes())
            if name != "database_workload.json":
                places = rng.integers(0, len(data), 2)
                hit = len({bytes(data[:p]).count(b"\n") for p in places})
                for place in places:
                    if data[place] != 10:
                        data[place] = rng.choice([x for x in range(256) if x != 10])
            (folder / name).write_bytes(data)
        found = JSONDatabase(work_dir=str(folder))
        good = [r for r in found.get_all_tuning_records() if r.is_valid()]
        assert len(good) >= 9 - hit, trial


def test_verdicts_are_no_records_of_their_own(tmp_path):
    database = JSONDatabase(work_dir=str(tmp_path))
    database.commit_tuning_record(record(database, 4, [1.0], 1))
    database.commit_tuning_record(record(database, 4, [2.0], 2))
    database.commit_verdict(record(database, 4, [1.5], 1, valid=True, again=True))
    database.commit_verdict(record(database, 4, [2.0], 2, valid=False, again=True, error_msg="wrong result"))
    for each in (database, JSONDatabase(work_dir=str(tmp_path))):
        assert len(each) == 2
        assert [(r.run_secs, r.numerically_valid) for r in each.get_all_tuning_records()] == [
            ([1.5], True),
            ([2.0], False),
        ]
        assert best_of(each, 4) == 1.5
    # What was found out about a trace holds for the next measurement of it.
    database.commit_tuning_record(record(database, 4, [1e-6], 2))
    database.commit_tuning_record(record(database, 4, [1e-3], 1))
    for each in (database, JSONDatabase(work_dir=str(tmp_path))):
        assert [r.numerically_valid for r in each.get_all_tuning_records()] == [True, False, False, True]
        assert best_of(each, 4) == 1e-3
    # A program that was wrong once stays wrong.
    database.commit_verdict(record(database, 4, [1e-6], 2, valid=True, again=True))
    assert best_of(JSONDatabase(work_dir=str(tmp_path)), 4) == 1e-3


@pytest.mark.parametrize("kind", ["memory", "json"])
def test_records_of_other_machines_are_left_out_unless_asked_for(tmp_path, kind):
    database = MemoryDatabase() if kind == "memory" else JSONDatabase(work_dir=str(tmp_path))
    database.commit_tuning_record(record(database, 4, [1e-6], 1, hardware="another machine"))
    database.commit_tuning_record(record(database, 4, [2e-3], 2))
    database.commit_tuning_record(record(database, 6, [1e-6], 1, hardware="another machine"))
    database.commit_tuning_record(record(database, 8, [1e-6], 1, hardware=""))
    if kind == "json":
        database = JSONDatabase(work_dir=str(tmp_path))
        assert database.left_out() == {"another machine": 2}
    workload = database.commit_workload(module(4))
    assert [best_of(database, n) for n in (4, 6, 8)] == [2e-3, None, 1e-6]
    assert [r.hardware for r in database.get_top_k(workload, 5)] == [hardware_fingerprint()]
    assert len(database.records_of(workload)) == 2
    with config.ANY_HARDWARE.override(True):
        assert [best_of(database, n) for n in (4, 6, 8)] == [1e-6, 1e-6, 1e-6]
        assert len(database.get_top_k(workload, 5)) == 2
    pruned = MemoryDatabase()
    database.dump_pruned(pruned)
    assert sorted((r.run_secs[0], r.hardware) for r in pruned.get_all_tuning_records()) == sorted(
        [(1e-6, "another machine"), (2e-3, hardware_fingerprint()), (1e-6, "another machine"), (1e-6, "")]
    )


# ---- places that cannot be written


def test_a_database_that_may_not_be_written_opens_for_reading(tmp_path, monkeypatch):
    filled(tmp_path)
    before = (tmp_path / "database_tuning_record.json").read_bytes()
    real = os.open

    def refuse(path, flags, *rest, **named):
        # Permissions do not stop the superuser, as whom tests often run.
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(journal.os, "open", refuse)
    database = JSONDatabase(work_dir=str(tmp_path))
    monkeypatch.undo()
    assert len(database) == 9
    with config.UNCHECKED_RECORDS.override("refuse"):
        # The verdict is kept in memory, as it cannot be written.
        assert best_of(database, 4) == 4e-3 / 3
        assert database.query_tuning_record(module(4), TARGET).numerically_valid is True
    with pytest.raises(JournalError, match="read-only"):
        database.commit_tuning_record(record(database, 4, [1.0]))
    with pytest.raises(JournalError, match="read-only"):
        database.commit_workload(module(99))
    assert (tmp_path / "database_tuning_record.json").read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_files_and_folders_without_permission(tmp_path):
    filled(tmp_path)
    for path in [*tmp_path.iterdir(), tmp_path]:
        path.chmod(0o555)
    try:
        assert best_of(JSONDatabase(work_dir=str(tmp_path)), 4) == 4e-3 / 3
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_what_cannot_be_written_is_an_error_and_not_a_record(tmp_path, monkeypatch, code):
    database = filled(tmp_path, (4,))

    def full(fd, data):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "write", full)
        with pytest.raises(JournalError, match="cannot write"):
            database.commit_tuning_record(record(database, 4, [1e-9], 9))
        assert best_of(database, 4) == 4e-3 / 3 and len(database) == 3
    database.commit_tuning_record(record(database, 4, [1e-9], 9))
    assert best_of(database, 4) == best_of(JSONDatabase(work_dir=str(tmp_path)), 4) == 1e-9


@pytest.mark.parametrize("recovers", [False, True])
def test_tuning_goes_on_in_memory_when_the_disk_is_full(tmp_path, monkeypatch, caplog, recovers):
    real, writes = os.write, []

    def nearly_full(fd, data):
        writes.append(len(data))
        if 6 < len(writes) and not (recovers and len(writes) > 12):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    monkeypatch.setattr(journal.os, "write", nearly_full)
    database = ms.tune_tir(
        te.create_prim_func(te_workload.matmul(32, 32, 32)), TARGET, str(tmp_path), 24, num_trials_per_iter=8,
        builder=DummyBuilder(), runner=DummyRunner(), cost_model="random", seed=1, validate=False,
    )  # fmt: skip
    assert len(database) == 24 and "kept in memory" in caplog.text
    monkeypatch.undo()
    on_disk = len(JSONDatabase(work_dir=str(tmp_path)))
    assert on_disk + database.unwritten == 24 and (database.unwritten == 0) == recovers
    assert ("in memory only" in caplog.text) != recovers
    database.flush()
    assert len(JSONDatabase(work_dir=str(tmp_path))) == 24 and len(database) == 24 and database.unwritten == 0


# ---- size


@pytest.mark.slow
def test_a_hundred_thousand_records_open_quickly(tmp_path):
    filled(tmp_path, (4, 6, 8, 10))
    path = tmp_path / "database_tuning_record.json"
    lines = path.read_text().splitlines()
    padded = [line.replace('"time":', '"note":"' + "x" * 1200 + '","time":') for line in lines]
    with open(path, "a") as file:
        for _ in range(100_000 // len(padded)):
            file.write("\n".join(padded) + "\n")
    code = (
        "import resource, sys, time\n"
        "from relaxish.meta_schedule.database import JSONDatabase\n"
        "begin = time.process_time()\n"
        "database = JSONDatabase(work_dir=sys.argv[1])\n"
        "print(len(database), time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    count, seconds, megabytes = (float(x) for x in done.stdout.split())
    assert count > 100_000 and seconds < 3 and megabytes < 150
    database = JSONDatabase(work_dir=str(tmp_path))
    begin = time.process_time()
    assert best_of(database, 8) == 8e-3 / 3
    assert time.process_time() - begin < 1


def test_verdicts_are_in_a_file_of_their_own(tmp_path):
    database = filled(tmp_path, (4,))
    lines = (tmp_path / "database_tuning_record.json").read_bytes()
    database.commit_verdict(record(database, 4, [2e-4], 1, valid=True, again=True))
    assert (tmp_path / "database_tuning_record.json").read_bytes() == lines
    path = tmp_path / "database_verdict.json"
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line[2]["after"] == len(lines) and line[2]["again"]
    again = JSONDatabase(work_dir=str(tmp_path))
    assert len(again) == len(database) and best_of(again, 4) == best_of(database, 4) == 2e-4
    # Files of earlier versions have such lines among the records.
    with open(tmp_path / "database_tuning_record.json", "ab") as file:
        file.write(path.read_bytes())
    path.unlink()
    old = JSONDatabase(work_dir=str(tmp_path))
    assert len(old) == len(database) and best_of(old, 4) == 2e-4


@pytest.mark.parametrize("bad", ["", "{", "[0, [1]]", '[0,[[[],[]],[1.0],null,null],{"valid":true}]', "null"])
def test_bad_lines_among_verdicts_cost_themselves(tmp_path, bad):
    database = filled(tmp_path, (4,))
    path = tmp_path / "database_verdict.json"
    path.write_text(bad + "\n")
    database = JSONDatabase(work_dir=str(tmp_path))
    database.commit_verdict(record(database, 4, [2e-4], 1, valid=True, again=True))
    again = JSONDatabase(work_dir=str(tmp_path))
    assert len(again) == len(database) == 3 and best_of(again, 4) == 2e-4
    assert [r.numerically_valid for r in again.get_all_tuning_records()].count(True) == 1


def test_a_verdict_without_its_measurement_is_no_record(tmp_path):
    database = filled(tmp_path, (4,))
    database.commit_verdict(record(database, 4, [1e-9], 7, valid=True, again=True))
    for each in (database, JSONDatabase(work_dir=str(tmp_path))):
        assert len(each) == 3 and best_of(each, 4) == 4e-3 / 3


def test_each_trace_is_looked_at_once(monkeypatch):
    """Verdicts on each of many records used to compare every record with every other one."""
    from relaxish.meta_schedule.database import memory_database

    looked = []
    key = memory_database.verdict_key
    monkeypatch.setattr(memory_database, "verdict_key", lambda r: looked.append(r) or key(r))
    database = MemoryDatabase()
    made = [record(database, 4, [1.0 + n], n) for n in range(32)]
    for item in made:
        database.commit_tuning_record(item)
    for n, item in enumerate(made):
        database.commit_verdict(record(database, 4, [0.5 + n], n, valid=n != 7, again=True))
    assert len(looked) <= 3 * len(made)
    assert [r.run_secs[0] for r in made] == [0.5 + n for n in range(32)]
    assert [r.numerically_valid for r in made] == [n != 7 for n in range(32)]
    # What is measured after a verdict inherits it, and counts when the next one comes.
    late = record(database, 4, [2.0], 7)
    database.commit_tuning_record(late)
    assert late.numerically_valid is False
    database.commit_verdict(record(database, 4, [0.1], 7, valid=True, again=True))
    assert late.run_secs == [0.1] and late.numerically_valid is False
