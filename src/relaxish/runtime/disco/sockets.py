"""Workers on several machines: everybody talks over TCP, in the messages of ``runtime.rpc``.

The controller listens and starts the workers of the first node; each other node runs
``python -m relaxish.tools.disco_remote_socket_session HOST PORT WORKERS``, whose workers connect to the controller and,
for collective operations, to one another.

Nothing that arrives is executed but the commands of a session; still, a worker runs what it is told. All sides prove that
they know the secret in ``RELAXISH_RPC_TOKEN``, if there is one; without one a session stays on this machine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any


from ...support.child_process import end_with_parent
from ...support.entry_points import module_name
from ...support.log import get_logger
from ..rpc.server import listen
from ..rpc.trust import introduce, require_trust, secret
from ..rpc.wire import RPCError
from .links import PeerLinks
from .messages import Peer, next_visitor, pack, portable, unpack
from .session import PeerSession
from .worker import Worker

__all__ = ["SocketSession", "run_remote_node", "run_socket_worker"]

_log = get_logger("disco")
_ATTEMPTS, _PAUSE = 300, 0.1
_WORKER_PROGRAM = module_name("disco.remote_worker")


class SocketSession(PeerSession):
    """``num_workers_per_node`` workers on each of ``num_nodes`` machines, this one among them.

    The constructor returns when all other nodes have come. ``port`` 0 takes any that is free (see ``self.port``).
    """

    def __init__(
        self, num_nodes: int, num_workers_per_node: int, num_groups: int, host: str, port: int,
    ) -> None:  # fmt: skip
        key = secret(None)
        require_trust("a session of workers", host, key, insecure=False)
        super().__init__(num_nodes * num_workers_per_node, num_groups)
        with listen(host, port, port + 1, True) as listener:
            self.host, self.port = host, int(listener.getsockname()[1])
            self._processes = [
                _start_worker(host, self.port, w, self._num_workers, num_groups) for w in range(num_workers_per_node)
            ]
            self._gather(listener, num_nodes, num_workers_per_node, num_groups, key)

    def _gather(self, listener: socket.socket, num_nodes: int, per_node: int, num_groups: int, key: bytes) -> None:
        """Number the nodes that come, and introduce all workers to one another."""
        addresses: dict[int, list[Any]] = {}
        node = 0
        while len(addresses) < self._num_workers:
            peer, first = next_visitor(listener, key)
            if peer is None:
                continue
            kind, *details = first
            if kind == "worker" and len(details) == 3 and details[0] in range(self._num_workers):
                worker_id, *address = details
                addresses[worker_id] = address
                self._peers[worker_id] = peer
                continue
            node += 1
            if kind != "node" or details != [per_node] or node >= num_nodes:
                peer.send(["refused", f"the session has {num_nodes} nodes of {per_node} workers"])
                node -= 1
                continue
            peer.send(["welcome", list(range(node * per_node, (node + 1) * per_node)), self._num_workers, num_groups])
        table = [addresses[w] for w in range(self._num_workers)]
        for peer in self._peers.values():
            peer.send(table)


def _start_worker(host: str, port: int, worker_id: int, count: int, groups: int) -> subprocess.Popen[bytes]:
    arguments = ["--worker", host, str(port), str(worker_id), str(count), str(groups)]
    return subprocess.Popen([sys.executable, "-m", _WORKER_PROGRAM, *arguments])


def _reach(host: str, port: int) -> socket.socket:
    """A connection to the controller, which may still be about to listen. Raises RPCError if it does not."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, port))
        time.sleep(_PAUSE)
    raise RPCError(f"no session at {host}:{port}")


def run_remote_node(host: str, port: int, num_workers: int) -> None:
    """Be a node of the session at ``host:port``: start its workers and wait until the session is over.

    Raises RPCError if the session has no place for this node.
    """
    with _reach(host, port) as sock:
        door = Peer(sock)
        introduce(door.channel, secret(None))
        door.send(["node", num_workers])
        answer, *details = door.recv()
        if answer != "welcome":
            raise RPCError(str(details[0]))
        numbers, count, groups = details
        for process in [_start_worker(host, port, w, count, groups) for w in numbers]:
            process.wait()


def _meet(me: int, listener: socket.socket, table: Sequence[Sequence[Any]], key: bytes) -> dict[int, Peer]:
    """Connections to all other workers: each listens for those with higher numbers."""
    peers: dict[int, Peer] = {}
    for other in range(me):
        host, port = table[other]
        peers[other] = Peer(socket.create_connection((host, port)))
        introduce(peers[other].channel, key)
        peers[other].send(["peer", me])
    while len(peers) < len(table) - 1:
        peer, first = next_visitor(listener, key)
        if peer is not None and len(first) == 2 and first[0] == "peer" and first[1] in range(me + 1, len(table)):
            peers[first[1]] = peer
    return peers


def run_socket_worker(host: str, port: int, me: int, count: int, groups: int) -> None:
    """The life of a worker."""
    end_with_parent(os.getppid())
    key = secret(None)
    with socket.create_connection((host, port)) as sock:
        controller = Peer(sock)
        introduce(controller.channel, key)
        # Others reach this worker where it reaches the controller from.
        with socket.create_server((sock.getsockname()[0], 0), backlog=count) as listener:
            controller.send(["worker", me, *listener.getsockname()[:2]])
            peers = _meet(me, listener, controller.recv(), key)
        worker = Worker(me, count, groups, PeerLinks(me, peers, pack, unpack))

        def answer(what: tuple[bool, Any]) -> None:
            controller.send(portable(what))

        with contextlib.suppress(RPCError):  # the controller is gone
            worker.serve(lambda: tuple(unpack(controller.recv())), answer)
