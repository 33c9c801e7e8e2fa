"""Workers that are processes: each runs ``python -m <entrypoint>`` and talks over local sockets."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
import tempfile
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from ..ndarray import NDArray, array
from .links import PeerLinks
from .session import Session
from .worker import Worker

__all__ = ["ProcessSession", "run_worker"]


class _Array:
    """An array on its way between processes."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        self.value = value


def _pack(value: Any) -> Any:
    """The value with arrays as NumPy arrays; tuples and lists are gone through."""
    if isinstance(value, NDArray):
        return _Array(value.numpy())
    if type(value) in (tuple, list):
        return type(value)(_pack(v) for v in value)
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, _Array):
        return array(value.value)
    if type(value) in (tuple, list):
        return type(value)(_unpack(v) for v in value)
    return value


def _portable(answer: Any) -> Any:
    """An answer that can be sent: functions and modules stay where they are, errors keep their text."""
    fine, value = answer
    if not fine:
        return False, (type(value).__name__, str(value))
    return True, _pack(value) if not callable(value) else repr(value)


class ProcessSession(Session):
    """Workers that are processes of this machine; ``entrypoint`` is the module that they run."""

    def __init__(self, num_workers: int, num_groups: int = 1, entrypoint: str = "relaxish.tools.disco_worker") -> None:
        super().__init__(num_workers, num_groups)
        key = secrets.token_bytes(16)
        self._folder = tempfile.TemporaryDirectory(prefix="relaxish-disco-")  # readable by this user only
        (Path(self._folder.name) / "key").write_bytes(key)
        address = str(Path(self._folder.name) / "controller")
        self._connections: dict[int, Connection[Any, Any]] = {}
        with Listener(address, "AF_UNIX", authkey=key) as listener:
            arguments = [str(num_workers), str(num_groups), self._folder.name]
            self._processes = [
                subprocess.Popen([sys.executable, "-m", entrypoint, str(w), *arguments]) for w in range(num_workers)
            ]
            for _ in range(num_workers):
                connection = listener.accept()
                self._connections[connection.recv()] = connection
        for worker_id in range(num_workers):
            self._connections[worker_id].send("meet")

    def _tell(self, worker_id: int, command: tuple[Any, ...]) -> None:
        self._connections[worker_id].send(tuple(map(_pack, command)))

    def _hear(self, worker_id: int) -> tuple[bool, Any]:
        fine, value = self._connections[worker_id].recv()
        return (True, _unpack(value)) if fine else (False, _as_error(*value))

    def _stop(self) -> None:
        for process in self._processes:
            process.wait()
        for connection in self._connections.values():
            connection.close()
        self._folder.cleanup()


def _as_error(name: str, text: str) -> BaseException:
    """An error of a worker as one of the controller: of the same class if that is a built-in one."""
    import builtins

    from ...support.errors import RelaxishError

    kind = getattr(builtins, name, None)
    fits = isinstance(kind, type) and issubclass(kind, Exception)
    return kind(text) if fits and kind is not None else RelaxishError(f"{name}: {text}")


def _meet(me: int, count: int, folder: str, key: bytes, controller: Connection[Any, Any]) -> dict[int, Any]:
    """Connections to all other workers: each listens for those with higher numbers."""
    peers: dict[int, Any] = {}
    with Listener(str(Path(folder) / f"worker{me}"), "AF_UNIX", backlog=count, authkey=key) as listener:
        controller.send(me)
        controller.recv()  # all are listening now
        for other in range(me):
            peers[other] = Client(str(Path(folder) / f"worker{other}"), "AF_UNIX", authkey=key)
            peers[other].send(me)
        for _ in range(me + 1, count):
            connection = listener.accept()
            peers[connection.recv()] = connection
    return peers


def run_worker(arguments: list[str]) -> None:
    """The life of a worker process: ``arguments`` are its number, those of workers and groups, and a folder."""
    me, count, groups, folder = int(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3]
    secret = (Path(folder) / "key").read_bytes()
    controller = Client(str(Path(folder) / "controller"), "AF_UNIX", authkey=secret)
    peers = _meet(me, count, folder, secret, controller)
    worker = Worker(me, count, groups, PeerLinks(me, peers, _pack, _unpack))
    with contextlib.suppress(EOFError):  # the controller is gone
        worker.serve(lambda: tuple(map(_unpack, controller.recv())), lambda a: controller.send(_portable(a)))
