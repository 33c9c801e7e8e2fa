"""Worker pools: tasks that crash, hang, eat memory, and lambdas that travel."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from relaxish.support import function_pickle, zygotes
from relaxish.support.errors import WorkerError
from relaxish.support.workers import WorkerPool


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1, memory_limit=512 << 20) as made:
        yield made


def test_plain_task_and_reuse(pool):
    assert pool.submit(math.sqrt, 4.0, timeout_sec=20).result().unwrap() == 2.0
    first = pool.submit(os.getpid).result().value
    assert first != os.getpid()
    assert pool.submit(os.getpid).result().value == first


def test_closures_travel(pool):
    offset = 5

    def helper(x, fib=None):
        return x + offset + math.floor(0.5)

    assert pool.submit(lambda x: helper(x) * 2, 1).result().unwrap() == 12


def test_recursive_local_function_travels():
    def fact(n):
        return 1 if n == 0 else n * fact(n - 1)

    assert function_pickle.loads(function_pickle.dumps(fact))(5) == 120


def test_error_carries_exception_and_trace(pool):
    result = pool.submit(int, "nope").result()
    assert result.status == "error" and isinstance(result.exception, ValueError)
    assert "invalid literal" in result.error
    with pytest.raises(ValueError, match="invalid literal"):
        result.unwrap()


def test_segfault_is_a_record(pool):
    before = pool.submit(os.getpid).result().value
    result = pool.submit(ctypes.string_at, 8).result()
    assert result.status == "crash" and result.signal == signal.SIGSEGV
    assert "Segmentation fault" in result.log
    assert pool.submit(os.getpid).result().value != before


def test_hang_is_killed(pool):
    begin = time.monotonic()
    result = pool.submit(time.sleep, 60, timeout_sec=0.3).result()
    assert result.status == "timeout" and "0.3 s" in result.error
    assert time.monotonic() - begin < 5
    assert pool.submit(math.sqrt, 9.0).result().value == 3.0


def test_memory_hog_is_oom(pool):
    result = pool.submit(lambda: len(bytearray(4 << 30))).result()
    assert result.status == "oom"
    assert pool.submit(lambda: len(bytearray(1 << 20))).result().ok


def test_kill_nine_from_outside(pool):
    def suicide():
        os.kill(os.getpid(), signal.SIGKILL)

    result = pool.submit(suicide).result()
    assert result.status == "crash" and result.signal == signal.SIGKILL
    assert pool.submit(math.sqrt, 9.0).result().ok


def test_exit_is_an_error_or_crash(pool):
    assert pool.submit(sys.exit, 3).result().status == "error"
    result = pool.submit(os._exit, 3).result()
    assert result.status == "crash" and "status 3" in result.error


def test_grandchildren_die_with_the_task(pool, tmp_path):
    pidfile = tmp_path / "pid"

    def spawn_and_hang(path):
        child = subprocess.Popen(["sleep", "100"])
        with open(path, "w") as out:
            out.write(str(child.pid))
        time.sleep(100)

    assert pool.submit(spawn_and_hang, str(pidfile), timeout_sec=1.0).result().status == "timeout"
    child = int(pidfile.read_text())
    for _ in range(100):
        try:
            with open(f"/proc/{child}/stat") as stat:
                if stat.read().split()[2] == "Z":
                    break
        except FileNotFoundError:
            break
        time.sleep(0.02)
    else:
        pytest.fail("the grandchild is still alive")


def test_unpicklable_result(pool):
    result = pool.submit(lambda: (x for x in ())).result()
    assert result.status == "error" and "pickled" in result.error


def test_initializer_and_max_tasks():
    def init(value):
        os.environ["WORKER_TEST"] = value

    with WorkerPool(1, initializer=init, initargs=("hello",), max_tasks=1) as small:
        a = small.submit(lambda: (os.getpid(), os.environ["WORKER_TEST"])).result().value
        b = small.submit(lambda: (os.getpid(), os.environ["WORKER_TEST"])).result().value
        assert a[0] != b[0] and a[1] == b[1] == "hello"


def test_failing_initializer_is_reported():
    def init():
        raise RuntimeError("no such device")

    with WorkerPool(1, initializer=init) as small:
        result = small.submit(math.sqrt, 1.0).result()
        assert result.status == "crash" and "no such device" in result.error


def test_map_keeps_order_on_two_workers():
    with WorkerPool(2) as two:
        results = two.map(lambda i: i * i, [(i,) for i in range(20)], timeout_sec=30)
        assert [r.value for r in results] == [i * i for i in range(20)]
    with pytest.raises(WorkerError):
        two.submit(math.sqrt, 1.0)


def test_large_payload_both_ways(pool):
    blob = os.urandom(3 << 20)
    assert pool.submit(lambda b: b[::-1], blob).result().value == blob[::-1]


def test_task_overhead_is_small(pool):
    pool.submit(math.sqrt, 1.0).result()
    begin = time.perf_counter()
    for _ in range(50):
        pool.submit(math.sqrt, 1.0).result()
    assert (time.perf_counter() - begin) / 50 < 0.01


def test_workers_die_with_a_killed_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, sys, time\n"
        "from relaxish.support.workers import WorkerPool\n"
        "pool = WorkerPool(1)\n"
        "print(pool.submit(os.getpid).result().value, flush=True)\n"
        "pool.submit(time.sleep, 100)\n"
        "time.sleep(100)\n"
    )
    src = os.path.join(os.path.dirname(__file__), "..", "..", "src")
    env = dict(os.environ, PYTHONPATH=os.path.abspath(src))
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env)
    worker = int(parent.stdout.readline())
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not os.path.exists(f"/proc/{worker}"):
            return
        time.sleep(0.02)
    pytest.fail("the worker outlived its killed parent")


def test_what_was_prepared_for_nothing_is_not_waited_for(tmp_path, monkeypatch):
    (tmp_path / "imported_for_a_minute.py").write_text("import time\nfor _ in range(600):\n    time.sleep(0.1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    pool = WorkerPool(preload=["imported_for_a_minute"])
    pool.prepare()
    begin = time.monotonic()
    pool.shutdown()
    assert time.monotonic() - begin < 20


@pytest.fixture(autouse=True)
def long_rest(monkeypatch):
    """A machine that does other things as well may need longer than usual from one pool to the next."""
    monkeypatch.setattr(zygotes, "_REST_SEC", 300.0)


def zygote_of(pool):
    return pool.submit(os.getppid).result(300).unwrap()


def test_pools_share_what_forks_their_workers():
    with WorkerPool(1) as one, WorkerPool(1) as two:
        parent = zygote_of(one)
        assert zygote_of(two) == parent
        one.submit(time.sleep, 600)
        one.shutdown(kill=True)  # which ends its workers, and nobody else's
        assert zygote_of(two) == parent
    with WorkerPool(1) as later:
        assert zygote_of(later) == parent


def test_pools_under_other_circumstances_share_nothing(tmp_path, monkeypatch):
    with WorkerPool(1) as pool:
        parent = zygote_of(pool)
    with WorkerPool(1, preload=["colorsys"]) as pool:
        assert zygote_of(pool) != parent
        assert pool.submit(lambda: "colorsys" in sys.modules).result().value
    with WorkerPool(1) as pool:
        assert not pool.submit(lambda: "colorsys" in sys.modules).result().value
    monkeypatch.setenv("RELAXISH_CUDA_PROVIDER", "null")
    with WorkerPool(1) as pool:
        assert pool.submit(os.environ.get, "RELAXISH_CUDA_PROVIDER").result().value == "null"
        null = zygote_of(pool)
    monkeypatch.delenv("RELAXISH_CUDA_PROVIDER")
    monkeypatch.chdir(tmp_path)
    with WorkerPool(1) as pool:
        assert pool.submit(os.getcwd).result().value == str(tmp_path)
        assert zygote_of(pool) not in (parent, null)


def test_what_a_task_changes_is_gone_with_its_pool():
    def change():
        os.environ["LEFT_BY_A_TASK"] = "1"
        sys.modules["left_by_a_task"] = sys

    def look():
        return os.environ.get("LEFT_BY_A_TASK"), "left_by_a_task" in sys.modules

    with WorkerPool(1) as pool:
        parent = zygote_of(pool)
        pool.submit(change).result().unwrap()
        assert pool.submit(look).result().value == ("1", True)
    with WorkerPool(1) as pool:
        assert zygote_of(pool) == parent
        assert pool.submit(look).result().value == (None, False)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_what_died_or_hangs_at_rest_is_replaced(sent, monkeypatch):
    monkeypatch.setattr(zygotes, "_WAKE_SEC", 1.0)
    with WorkerPool(1) as pool:
        parent = zygote_of(pool)
    os.kill(parent, sent)
    with WorkerPool(1) as pool:
        assert zygote_of(pool) != parent


def test_a_zygote_that_is_killed_at_work_is_replaced_for_each_pool():
    with WorkerPool(1) as one, WorkerPool(1) as two:
        parent = zygote_of(one)
        assert zygote_of(two) == parent
        os.kill(parent, signal.SIGKILL)
        deadline = time.monotonic() + 300
        for pool in (one, two):
            # Until the system has ended it and its workers, these answer, or their tasks crash.
            while not (result := pool.submit(os.getppid).result(60)).ok or result.value == parent:
                assert time.monotonic() < deadline


def test_rest_ends(monkeypatch):
    monkeypatch.setattr(zygotes, "_REST_SEC", 0.1)
    with WorkerPool(1, env={"OF": "this test"}) as pool:
        parent = zygote_of(pool)
    deadline = time.monotonic() + 300
    while psutil.pid_exists(parent) and psutil.Process(parent).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with WorkerPool(1, env={"OF": "this test"}) as pool:
        assert zygote_of(pool) != parent


def test_a_forked_child_has_zygotes_of_its_own():
    with WorkerPool(1) as pool:
        parent = zygote_of(pool)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with WorkerPool(1) as pool:
                os.write(writer, str(zygote_of(pool)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        other = int(file.read())
    os.waitpid(child, 0)
    assert other != parent
    with WorkerPool(1) as pool:
        assert zygote_of(pool) == parent
