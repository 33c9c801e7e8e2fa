"""Worker processes end with their parent, however it ends, and are not started by being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

# The requirement is one second; a loaded machine gets some more.
PATIENCE = 5.0
# Until all children are there, on a machine that does other things as well.
STARTED = 60.0


def descendants(pid):
    found, stack = set(), [pid]
    while stack:
        parent = stack.pop()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in found:
                try:
                    stat = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(stat[1]) == parent and stat[0] != "Z":
                    found.add(int(entry.name))
                    stack.append(int(entry.name))
    return found


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def run(tmp_path, name, text, **options):
    path = tmp_path / name
    path.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        **options,
    )


POOL = """
import sys, time
from relaxish.support.workers import WorkerPool
def busy():
    import subprocess, time
    subprocess.Popen(["sleep", "600"])
    time.sleep(600)
pool = WorkerPool(2)
futures = [pool.submit(busy) for _ in range(2)]
time.sleep(2)
print("ready", flush=True)
time.sleep(600)
"""
IMPORTING = """
import sys, time
from relaxish.support.workers import WorkerPool
pool = WorkerPool(1, preload=["slow_to_import"])
pool.prepare()
time.sleep(1)
print("ready", flush=True)
time.sleep(600)
"""
POPEN = """
import time
from relaxish.contrib.popen_pool import PopenPoolExecutor
def busy(n):
    import subprocess, time
    subprocess.Popen(["sleep", "600"])
    while True:
        time.sleep(0.01)
pool = PopenPoolExecutor(max_workers=2)
futures = [pool.submit(busy, n) for n in range(2)]
time.sleep(2)
print("ready", flush=True)
time.sleep(600)
"""
SERVER = """
import time
from relaxish import rpc
server = rpc.Server(port=0, key="k", silent=True)
session = rpc.connect("127.0.0.1", server.port, key="k")
session.listdir()
other = rpc.PopenSession()
other.listdir()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("text", "fewest"), [(POOL, 5), (IMPORTING, 1), (POPEN, 4), (SERVER, 2)], ids=["pool", "importing", "popen", "rpc"]
)
def test_children_end_with_a_killed_parent(tmp_path, text, fewest):
    (tmp_path / "slow_to_import.py").write_text("import time\nfor _ in range(6000):\n    time.sleep(0.1)\n")
    process = run(tmp_path, "parent.py", text)
    try:
        assert process.stdout.readline() == "ready\n"
        limit = time.monotonic() + STARTED
        while len(children := descendants(process.pid)) < fewest and time.monotonic() < limit:
            time.sleep(0.1)
        assert len(children) >= fewest
        process.send_signal(signal.SIGKILL)
        process.wait()
        limit = time.monotonic() + PATIENCE
        while (left := [pid for pid in children if is_running(pid)]) and time.monotonic() < limit:
            time.sleep(0.02)
        assert not left, [Path(f"/proc/{pid}/cmdline").read_text() for pid in left]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def finished(process):
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return out


def test_a_script_without_a_guard_runs_once(tmp_path):
    text = """
import os
print("top", flush=True)
from relaxish.contrib.popen_pool import PopenPoolExecutor, PopenWorker
class Mine(Exception):
    pass
class Point:
    def __init__(self, x):
        self.x = x
def double(p):
    if p.x < 0:
        raise Mine("negative")
    return Point(2 * p.x)
pool = PopenPoolExecutor(max_workers=2, timeout=50)
got = [r.value for r in pool.map_with_error_catching(double, [Point(2), Point(-1), Point(5)])]
assert type(got[0]) is Point and (got[0].x, got[2].x) == (4, 10), got
assert type(got[1]) is Mine and str(got[1]) == "negative", got
worker = PopenWorker()
worker.send(lambda: 3)
print("done", worker.recv())
"""
    process = run(tmp_path, "script.py", text)
    out = finished(process)
    assert out == "top\ndone 3\n" and process.returncode == 0


MODULE = """
import os
with open("imports", "a") as file:
    file.write("x")
def work():
    return 7
{start}
"""


@pytest.mark.parametrize(
    "start",
    [
        "from relaxish.contrib.popen_pool import PopenWorker\nw = PopenWorker(); w.send(work); print(w.recv())",
        "from relaxish.support.workers import WorkerPool\npool = WorkerPool(1); print(pool.submit(work).result().unwrap())",
    ],
    ids=["popen", "pool"],
)
def test_a_module_that_starts_workers_when_imported_is_told_so(tmp_path, start):
    (tmp_path / "job.py").write_text(MODULE.format(start=start))
    process = run(tmp_path, "script.py", "import sys; sys.path.insert(0, '.')\nimport job\n")
    out = finished(process)
    assert process.returncode != 0 and "if __name__ == '__main__':" in out
    assert (tmp_path / "imports").read_text() == "xx"  # the program and one worker


def test_multiprocessing_that_imports_the_script_again_is_told_so(tmp_path):
    text = """
import multiprocessing
from relaxish.contrib.popen_pool import PopenWorker
def nothing():
    pass
if multiprocessing.current_process().name == "MainProcess":
    process = multiprocessing.get_context("spawn").Process(target=nothing)
    process.start()
    process.join()
    print("ended with", process.exitcode)
else:
    PopenWorker().send(nothing)
"""
    out = finished(run(tmp_path, "script.py", text))
    assert "ended with 1" in out and "if __name__ == '__main__':" in out


def test_killed_workers_take_what_they_started(tmp_path):
    from relaxish.contrib.popen_pool import PopenWorker

    def start():
        import subprocess

        return subprocess.Popen(["sleep", "600"]).pid

    worker = PopenWorker()
    worker.send(start)
    pid = worker.recv()
    assert is_running(pid)
    worker.kill()
    limit = time.monotonic() + PATIENCE
    while is_running(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not is_running(pid)
