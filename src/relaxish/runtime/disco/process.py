"""Workers that are processes: each runs ``python -m <entrypoint>`` and talks over local sockets."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...support.child_process import check_may_start, end_with_parent
from ...support.entry_points import module_name
from ...support.errors import RelaxishError
from ..rpc.trust import introduce
from ..rpc.wire import RPCError
from .links import PeerLinks
from .messages import Peer, next_visitor, pack, portable, unpack
from .session import PeerSession
from .worker import Worker

__all__ = ["ProcessSession", "run_worker"]

_START_SECONDS = 120.0


def _listen(path: Path, backlog: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    sock.listen(backlog)
    return sock


def _reach(path: Path, key: bytes) -> Peer:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(path))
    peer = Peer(sock)
    introduce(peer.channel, key)
    return peer


class ProcessSession(PeerSession):
    """Workers that are processes of this machine; ``entrypoint`` is the module that they run."""

    def __init__(self, num_workers: int, num_groups: int = 1, entrypoint: str = module_name("disco.worker")) -> None:
        check_may_start("a session of worker processes")
        super().__init__(num_workers, num_groups)
        key = secrets.token_bytes(16)
        self._folder = tempfile.TemporaryDirectory(prefix="relaxish-disco-")  # readable by this user only
        folder = Path(self._folder.name)
        (folder / "key").write_bytes(key)
        with _listen(folder / "controller", num_workers) as listener:
            listener.settimeout(_START_SECONDS)
            arguments = [str(num_workers), str(num_groups), self._folder.name]
            self._processes = [
                subprocess.Popen([sys.executable, "-m", entrypoint, str(w), *arguments]) for w in range(num_workers)
            ]
            while len(self._peers) < num_workers:
                self._admit(listener, key)
        for worker_id in range(num_workers):
            self._peers[worker_id].send(["meet"])

    def _admit(self, listener: socket.socket, key: bytes) -> None:
        try:
            peer, first = next_visitor(listener, key)
        except TimeoutError:
            for process in self._processes:
                process.kill()
            raise RelaxishError(f"{self._num_workers - len(self._peers)} worker processes did not start") from None
        if peer is not None and len(first) == 2 and first[0] == "worker" and first[1] in range(self._num_workers):
            self._peers[first[1]] = peer

    def _stop(self) -> None:
        super()._stop()
        self._folder.cleanup()


def _meet(me: int, count: int, folder: Path, key: bytes, controller: Peer) -> dict[int, Any]:
    """Connections to all other workers: each listens for those with higher numbers."""
    peers: dict[int, Any] = {}
    with _listen(folder / f"worker{me}", count) as listener:
        controller.send(["worker", me])
        controller.recv()  # all are listening now
        for other in range(me):
            peers[other] = _reach(folder / f"worker{other}", key)
            peers[other].send(["peer", me])
        while len(peers) < count - 1:
            peer, first = next_visitor(listener, key)
            if peer is not None and len(first) == 2 and first[0] == "peer" and first[1] in range(me + 1, count):
                peers[first[1]] = peer
    return peers


def run_worker(arguments: list[str]) -> None:
    """The life of a worker process: ``arguments`` are its number, those of workers and groups, and a folder."""
    end_with_parent(os.getppid())
    me, count, groups, folder = int(arguments[0]), int(arguments[1]), int(arguments[2]), Path(arguments[3])
    key = (folder / "key").read_bytes()
    controller = _reach(folder / "controller", key)
    peers = _meet(me, count, folder, key, controller)
    worker = Worker(me, count, groups, PeerLinks(me, peers, pack, unpack))
    with contextlib.suppress(RPCError):  # the controller is gone
        worker.serve(lambda: tuple(unpack(controller.recv())), lambda a: controller.send(portable(a)))
