"""The journal: durable, locked, tolerant of torn tails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from relaxish.support.errors import JournalError
from relaxish.support.journal import Journal

SRC = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "src"))


def test_append_read_and_incremental_read(tmp_path):
    journal = Journal(tmp_path / "sub" / "a.jsonl")
    journal.append({"a": 1})
    journal.extend([[1, 2], {"b": None}])
    assert journal.read() == [{"a": 1}, [1, 2], {"b": None}]
    assert len(journal.read_new()) == 3 and journal.read_new() == []
    other = Journal(journal.path)
    other.append({"c": 3})
    assert journal.read_new() == [{"c": 3}]


@pytest.mark.parametrize("tail", [b'{"x": 1', b"[1, 2", b"tru", b"\x00\x00", b'{"x": "\xff'])
def test_torn_tail_is_dropped_at_next_append(tmp_path, tail):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n' + tail)
    journal = Journal(path)
    assert journal.read() == [{"a": 1}]
    journal.append({"b": 2})
    assert path.read_bytes() == b'{"a":1}\n{"b":2}\n'


def test_only_the_newline_was_lost(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":2}')
    journal = Journal(path)
    journal.append({"c": 3})
    assert journal.read() == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_long_torn_tail(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"x":"' + b"y" * 200_000)
    journal = Journal(path)
    journal.repair()
    assert path.read_bytes() == b'{"a":1}\n'


def test_damaged_middle_line_is_skipped_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":\n{"c":3}\n')
    journal = Journal(path)
    assert journal.read_new() == [{"a": 1}, {"c": 3}] and journal.skipped == 1


def test_threads_and_processes_do_not_tear_each_other(tmp_path):
    path = tmp_path / "a.jsonl"
    code = (
        "import sys; from relaxish.support.journal import Journal\n"
        "j = Journal(sys.argv[1], sync=False)\n"
        "[j.append({'who': sys.argv[2], 'i': i, 'pad': 'x' * (i * 37 % 5000)}) for i in range(100)]\n"
    )
    env = dict(os.environ, PYTHONPATH=SRC)
    children = [subprocess.Popen([sys.executable, "-c", code, str(path), str(k)], env=env) for k in range(3)]
    journal = Journal(path, sync=False)
    threads = [
        threading.Thread(target=lambda k=k: [journal.append({"who": f"t{k}", "i": i}) for i in range(100)])
        for k in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [c.wait() for c in children] == [0, 0, 0]
    records = journal.read()
    assert len(records) == 600 and journal.skipped == 0


def test_kill_nine_loses_nothing_acknowledged(tmp_path):
    path = tmp_path / "a.jsonl"
    code = (
        "import sys; from relaxish.support.journal import Journal\n"
        "j = Journal(sys.argv[1]); n = len(j.read())\n"
        "while True:\n"
        "    j.append({'i': n, 'pad': 'x' * 10000}); n += 1; print(n, flush=True)\n"
    )
    env = dict(os.environ, PYTHONPATH=SRC)
    for round_number in range(4):
        child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, env=env)
        acknowledged = 0
        for _ in range(5 + 3 * round_number):
            acknowledged = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        child.wait()
        child.stdout.close()
        numbers = [r["i"] for r in Journal(path).read()]
        assert numbers == list(range(len(numbers))) and len(numbers) >= acknowledged


def test_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot open"):
        Journal(tmp_path / "file" / "a.jsonl")
    with pytest.raises(JournalError, match="read-only"):
        path = tmp_path / "b.jsonl"
        path.write_text("")
        Journal(path, readonly=True).append(1)
