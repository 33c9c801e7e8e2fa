"""Processes for sessions, forked from one that has imported all a session needs: starting Python would take longer than
many a session lasts."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading

from ...support.log import get_logger
from ...support.workers import TaskResult, WorkerPool
from .client import session_process

__all__ = ["SessionPool"]

_log = get_logger("rpc")
_PRELOAD = ("numpy", "relaxish.runtime", "relaxish.runtime.rpc.serving", "relaxish.runtime.exports.load")
_HAND_OVER_SECONDS = 60.0


class SessionPool:
    """Serves sockets in processes of their own, each of which ends with its session; at most ``most`` at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None

    def serve(self, sock: socket.socket, seconds: float) -> None:
        """Serve one session, for at most ``seconds`` (0: no limit), and wait for its end."""
        if not hasattr(socket, "send_fds"):
            self._serve_in_new_process(sock, seconds)
            return
        with self._lock:
            if self._pool is None:
                self._pool = WorkerPool(self._most, preload=_PRELOAD, max_tasks=1)
            pool = self._pool
        with tempfile.TemporaryDirectory(prefix="relaxish-session-") as folder:
            path = os.path.join(folder, "socket")
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(path)
                door.listen(1)
                door.settimeout(_HAND_OVER_SECONDS)
                future = pool.submit(_serve_here, path, timeout_sec=seconds or None)
                # Without a worker nobody comes to the door.
                future.add_done_callback(lambda _: _knock(path))
                with door.accept()[0] as worker:
                    if not future.done():
                        socket.send_fds(worker, [b"s"], [sock.fileno()])
            result = future.result()
        _tell(result, seconds)

    def _serve_in_new_process(self, sock: socket.socket, seconds: float) -> None:
        process = session_process(sock.fileno())
        try:
            process.wait(timeout=seconds or None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            _tell(TaskResult("timeout"), seconds)

    def shutdown(self) -> None:
        """End all sessions."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(kill=True)
                self._pool = None


def _tell(result: TaskResult, seconds: float) -> None:
    if result.status == "timeout":
        _log.info("a session took longer than %s s and is ended", seconds)
    elif not result.ok:
        _log.info("a session ended with %s: %s", result.status, result.error)


def _knock(path: str) -> None:
    """Wake up who waits at a door; nobody does any more where the session was served."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(path)
        except OSError:
            return


def _serve_here(path: str) -> None:
    """In the worker: take over the socket and serve it."""
    from .serving import serve_descriptor

    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        _, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
    if descriptors:
        serve_descriptor(descriptors[0])
