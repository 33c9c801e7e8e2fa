"""Our end of the processes that workers are forked from; pools that want the same one share it.

A zygote imports the compiler once (half a second), and what it forks is as fresh as its first worker was. So a zygote
serves every pool that preloads the same modules under the same circumstances (:func:`_circumstances`), at the same time
or one after the other: one without a pool rests, and ends when no pool wanted it for ``_REST_SEC``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Hashable, Sequence

from . import config
from .errors import WorkerError
from .worker_zygote import _HEADER, receive_message, send_message

__all__ = ["Zygote", "acquire", "discard", "package_environment", "release"]

_REST_SEC = 30.0
# A rested zygote has nothing to do but to answer, on a machine that does other things as well.
_WAKE_SEC = 20.0
_MOST_AT_REST = 2
# Workers need not know which test runs.
_OF_NO_ACCOUNT = ("PYTEST_CURRENT_TEST",)


def package_environment(env: dict[str, str]) -> dict[str, str]:
    """The environment with this package where another Python finds it."""
    package_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = env.get("PYTHONPATH", "")
    return {**env, "PYTHONPATH": package_root + (os.pathsep + path if path else "")}


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _circumstances(env: dict[str, str]) -> Hashable:
    """What a process takes from the one that starts it: environment, folder, search path, processors, limits."""
    import resource

    known = tuple(sorted((name, value) for name, value in env.items() if name not in _OF_NO_ACCOUNT))
    processors = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
    limits = tuple(resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_"))
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    return sys.executable, known, _working_directory(), tuple(sys.path), processors, limits, priority


class Zygote:
    """One such process: started when it is first needed, by whoever needs it first."""

    def __init__(self, preload: Sequence[str], env: dict[str, str]) -> None:
        self.users = 0
        self._preload = list(preload)
        self._env = env
        self._lock = threading.RLock()
        self._sock: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._rests = False

    def prepare(self) -> None:
        """Start it or wake it; ``WorkerError`` where it does not come up."""
        with self._lock:
            if self._rests and not self._wake():
                self.kill()
                self.close()
            if self._sock is None:
                self._start()

    def _start(self) -> None:
        self._sock, theirs = socket.socketpair()
        env = package_environment(self._env)
        command = [sys.executable, "-m", "relaxish.support.worker_zygote", str(theirs.fileno()), str(os.getpid())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=env, start_new_session=True)
        theirs.close()
        search = [p or os.getcwd() for p in sys.path]
        try:
            send_message(self._sock, pickle.dumps({"path": search, "preload": self._preload}))
            receive_message(self._sock, time.monotonic() + config.WORKER_START_SEC.value)
        except (EOFError, OSError) as err:
            self.close()
            raise WorkerError("the process that starts workers did not come up") from err

    def _wake(self) -> bool:
        self._rests = False
        try:
            self._send(("wake", None))
            receive_message(self._connected(), time.monotonic() + _WAKE_SEC)
        except (EOFError, OSError):
            return False
        return True

    def rest(self) -> None:
        """Wait for the next pool, but not for long."""
        if not self._lock.acquire(blocking=False):
            return  # another pool is using it already
        try:
            if self.users == 0 and self._sock is not None and not self._rests:
                self._send(("rest", _REST_SEC))
                self._rests = True
        except (EOFError, OSError):
            self.close()
        finally:
            self._lock.release()

    def _connected(self) -> socket.socket:
        if self._sock is None:
            raise EOFError
        return self._sock

    def _send(self, request: tuple[str, object]) -> None:
        sock = self._connected()
        sock.settimeout(config.WORKER_START_SEC.value)
        send_message(sock, pickle.dumps(request))

    def fork(self, memory_limit: int | None) -> tuple[int, socket.socket, int]:
        """A new worker: process id, socket, log descriptor."""
        with self._lock:
            try:
                self._send(("fork", memory_limit))
                data, fds, _, _ = socket.recv_fds(self._connected(), _HEADER.size, 2)
            except (EOFError, OSError) as err:
                raise WorkerError("the process that starts workers is gone") from err
        if len(fds) != 2:
            raise WorkerError("the process that starts workers is gone")
        return _HEADER.unpack(data)[0], socket.socket(fileno=fds[0]), fds[1]

    def finish(self, pid: int, *, kill: bool) -> int:
        """Kill a worker or wait for one that is dying; returns its wait status."""
        if kill:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        with self._lock:
            try:
                self._send(("kill" if kill else "wait", pid))
                return int(pickle.loads(receive_message(self._connected(), time.monotonic() + 30)))
            except (EOFError, OSError):
                pass
        discard(self)  # a late answer would be taken for that to another question
        return signal.SIGKILL

    def close(self) -> None:
        """End it, and the workers it has."""
        with self._lock:
            sock, process, self._sock, self._process, self._rests = self._sock, self._process, None, None, False
        if sock is not None:
            sock.close()
        if process is not None:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def ended(self) -> bool:
        """Whether it had rested long enough."""
        return self._rests and self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """Send it the signal, without waiting for its end."""
        if self._process is not None:
            self._process.kill()


# Reentrant: a pool may be collected, and give its zygote back, wherever something is allocated.
_LOCK = threading.RLock()
_SHARED: dict[Hashable, Zygote] = {}


def acquire(preload: Sequence[str], env: dict[str, str]) -> Zygote:
    """A running zygote with these modules imported; give it back with :func:`release`."""
    with _LOCK:
        key = tuple(preload), _circumstances(env)
        zygote = _SHARED.pop(key, None) or Zygote(preload, env)
        _SHARED[key] = zygote  # the last one used is the last
        zygote.users += 1
    try:
        zygote.prepare()
    except BaseException:
        discard(zygote)
        release(zygote)
        raise
    return zygote


def release(zygote: Zygote) -> None:
    """A pool that has ended all its workers needs the zygote no more."""
    with _LOCK:
        zygote.users -= 1
        unused = [z for z in _SHARED.values() if z.users == 0]
        outdated = [z for i, z in enumerate(unused) if z.ended or i < len(unused) - _MOST_AT_REST]
        for other in outdated:
            discard(other)
        if zygote.users == 0 and zygote not in _SHARED.values():
            outdated.append(zygote)
    zygote.rest()
    for other in outdated:
        other.close()


def discard(zygote: Zygote) -> None:
    """No other pool is to use this one."""
    with _LOCK:
        for key in [key for key, value in _SHARED.items() if value is zygote]:
            del _SHARED[key]


def _forget() -> None:
    """In a forked child: these are processes of the parent."""
    global _LOCK
    _LOCK = threading.RLock()
    _SHARED.clear()


@atexit.register
def _end_unused() -> None:
    with _LOCK:
        for zygote in _SHARED.values():
            if zygote.users == 0:
                zygote.kill()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
