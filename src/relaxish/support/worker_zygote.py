"""The process that workers are forked from.

It is started clean (``python -m relaxish.support.worker_zygote FD``), imports what the workers need once, stays
single-threaded, and then forks a worker for each request: replacing a crashed worker costs milliseconds instead of an
import of the whole compiler. It also collects exit statuses, and kills its workers when its own parent disappears.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import os
import pickle
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from .child_process import end_group, unpickling

_HEADER = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1


def send_message(sock: socket.socket, payload: bytes) -> None:
    """One length-prefixed message."""
    sock.sendall(_HEADER.pack(len(payload)) + payload if len(payload) < 65536 else _HEADER.pack(len(payload)))
    if len(payload) >= 65536:
        sock.sendall(payload)


def receive_message(sock: socket.socket, deadline: float | None = None) -> bytes:
    """The next message; ``EOFError`` when the peer is gone, ``TimeoutError`` past ``deadline`` (monotonic seconds)."""
    (size,) = _HEADER.unpack(_receive_exactly(sock, _HEADER.size, deadline))
    return _receive_exactly(sock, size, deadline)


def _receive_exactly(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        if deadline is None:
            sock.settimeout(None)
        else:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            sock.settimeout(left)
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limit_memory(limit: int | None) -> None:
    """Allow ``limit`` bytes of address space on top of what the process has mapped already."""
    if limit is None:
        return
    import resource

    try:
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        mapped = 0
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + limit, hard))


def _run_task(payload: bytes) -> tuple[str, Any, float]:
    started = time.perf_counter()
    try:
        with unpickling():
            func, args, kwargs = pickle.loads(payload)
        started = time.perf_counter()
        value = func(*args, **kwargs)
        return "ok", value, time.perf_counter() - started
    except MemoryError:
        return "oom", "MemoryError\n" + traceback.format_exc(limit=4), time.perf_counter() - started
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        return "error", (_portable(err), traceback.format_exc()), time.perf_counter() - started


def _portable(err: BaseException) -> BaseException | None:
    try:
        pickle.loads(pickle.dumps(err))
    except Exception:
        return None
    return err


def _serve(sock: socket.socket, log_fd: int, memory_limit: int | None) -> None:
    """The life of one worker: read a task, run it, answer; leave when the socket closes."""
    import faulthandler

    _die_with_parent()
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    faulthandler.enable()
    with contextlib.suppress(Exception):
        receive_and_initialise(sock, memory_limit)
        while True:
            payload = receive_message(sock)
            # The log is append-mode, so truncating it also rewinds every writer: it then holds this task only.
            with contextlib.suppress(OSError):
                os.ftruncate(log_fd, 0)
            status, value, seconds = _run_task(payload)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            try:
                answer = pickle.dumps((status, value, seconds), protocol=pickle.HIGHEST_PROTOCOL)
            except Exception as err:
                text = f"the result of the task cannot be pickled: {err}"
                answer = pickle.dumps(("error", (None, text), seconds))
            send_message(sock, answer)


def receive_and_initialise(sock: socket.socket, memory_limit: int | None) -> None:
    """Run the initializer the parent sends first, apply the memory limit, and report ready or failed."""
    status, value, seconds = _run_task(receive_message(sock))
    _limit_memory(memory_limit)
    send_message(sock, pickle.dumps((status, None if status == "ok" else value, seconds)))
    if status != "ok":
        raise EOFError


def _fork_worker(control: socket.socket, memory_limit: int | None) -> int:
    """Fork a worker; its socket and log descriptor go to the parent. Returns its process id."""
    ours, theirs = socket.socketpair()
    fd, path = tempfile.mkstemp(prefix="relaxish-worker-")
    os.close(fd)
    log_fd = os.open(path, os.O_RDWR | os.O_APPEND)
    os.unlink(path)
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # timers are not inherited, but what they would call is
            control.close()
            ours.close()
            _serve(theirs, log_fd, memory_limit)
        finally:
            os._exit(0)
    theirs.close()
    socket.send_fds(control, [_HEADER.pack(pid)], [ours.fileno(), log_fd])
    ours.close()
    os.close(log_fd)
    return pid


def _reap(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def _reap_finished(pid: int) -> int:
    """Exit status of a worker that closed its socket; it gets a moment to finish dying, then is killed."""
    limit = time.monotonic() + 2.0
    while time.monotonic() < limit:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if done:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # grandchildren
            return status
        time.sleep(0.002)
    return _reap(pid)


@dataclass
class _Life:
    """What this process has forked, and how long it waits (monotonic seconds) when nobody needs it."""

    children: set[int] = field(default_factory=set)
    rest_until: float = math.inf


def _watch(parent: int, life: _Life) -> None:
    """Look four times a second whether the parent still is there and needs this process, whatever it is busy with.

    A signal does so, not a thread: only a process with one thread is safe to fork.
    """

    def look(*_: Any) -> None:
        if os.getppid() != parent or time.monotonic() > life.rest_until:
            for pid in list(life.children):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            end_group()

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.25, 0.25)


def main(fd: int, parent: int) -> None:
    """Serve requests to fork, kill and wait for workers, and to rest and wake, until the parent goes away."""
    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    life = _Life()
    _watch(parent, life)
    try:
        setup = pickle.loads(receive_message(control))
        sys.path[:] = setup["path"]
        for module in setup["preload"]:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        send_message(control, pickle.dumps("ready"))
        while True:
            _serve_request(control, life, *pickle.loads(receive_message(control)))
    except (EOFError, OSError):
        pass
    finally:
        for pid in life.children:
            _reap(pid)


def _serve_request(control: socket.socket, life: _Life, request: str, argument: Any) -> None:
    if request == "rest":
        life.rest_until = time.monotonic() + argument
        return
    life.rest_until = math.inf
    if request == "wake":
        send_message(control, pickle.dumps("ready"))
    elif request == "fork":
        life.children.add(_fork_worker(control, argument))
    else:
        status = _reap(argument) if request == "kill" else _reap_finished(argument)
        life.children.discard(argument)
        send_message(control, pickle.dumps(status))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
