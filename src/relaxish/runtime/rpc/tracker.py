"""A tracker: servers offer themselves under a key, clients ask for one and wait their turn."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import Any

from ...support.log import get_logger
from .server import connections, listen
from .wire import RPCError, SocketChannel, receive, send

__all__ = ["Tracker"]

_log = get_logger("rpc")
_LIMIT = 1 << 20


class _Pool:
    """Free servers and waiting clients of one key."""

    def __init__(self) -> None:
        self.free: list[tuple[SocketChannel, str, int, str]] = []
        self.waiting: list[tuple[int, int, SocketChannel]] = []

    def match(self) -> list[tuple[SocketChannel, tuple[str, int, str]]]:
        """Clients that get a server now: the highest priority first, then who came first."""
        out = []
        while self.free and self.waiting:
            _, _, client = heapq.heappop(self.waiting)
            _, host, port, match_key = self.free.pop(0)
            out.append((client, (host, port, match_key)))
        return out


class Tracker:
    """Serves until :meth:`terminate`, at the first free port from ``port``; port 0 is any."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9190,
        port_end: int = 9199,
        silent: bool = False,
        reuse_addr: bool = True,
        timeout: float | None = None,
    ) -> None:
        self._socket = listen(host, port, port_end, reuse_addr)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._pools: dict[str, _Pool] = {}
        self._servers: dict[SocketChannel, tuple[str, str, int]] = {}
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._closed = threading.Event()
        self._channels: set[SocketChannel] = set()
        self._thread = threading.Thread(target=self._accept, name=f"rpc-tracker-{self.port}", daemon=True)
        self._thread.start()
        if not silent:
            _log.info("tracking on %s:%d", host, self.port)

    def _accept(self) -> None:
        for sock, address in connections(self._socket):
            channel = SocketChannel(sock)
            self._channels.add(channel)
            threading.Thread(target=self._talk, args=(channel, address[0]), daemon=True).start()

    def _talk(self, channel: SocketChannel, host: str) -> None:
        try:
            while True:
                message = receive(channel, _LIMIT)
                if not isinstance(message, list) or not message:
                    raise RPCError("not a message for a tracker")
                self._handle(channel, host, message)
        except RPCError:
            self._gone(channel)

    def _handle(self, channel: SocketChannel, host: str, message: list[Any]) -> None:
        kind, *rest = message
        matched: list[Any] = []
        with self._lock:
            if kind == "put":
                key, port, match_key, custom = rest
                where = custom or host
                self._servers[channel] = (key, where, int(port))
                pool = self._pools.setdefault(key, _Pool())
                pool.free.append((channel, where, int(port), match_key))
                matched = pool.match()
            elif kind == "request":
                key, priority = rest
                pool = self._pools.setdefault(key, _Pool())
                heapq.heappush(pool.waiting, (-int(priority), next(self._order), channel))
                matched = pool.match()
            elif kind == "summary":
                send(channel, ["ok", self._summary()])
            else:
                raise RPCError(f"unknown message {kind!r}")
        for client, found in matched:
            try:
                send(client, ["ok", list(found)])
            except RPCError:
                _log.info("a client has gone before its turn")

    def _summary(self) -> dict[str, Any]:
        queues = {
            key: {"free": len(p.free), "pending": len(p.waiting)}
            for key, p in self._pools.items()
            if p.free or p.waiting
        }
        info = [{"key": f"server:{key}", "addr": [host, port]} for key, host, port in self._servers.values()]
        return {"queue_info": queues, "server_info": info}

    def _gone(self, channel: SocketChannel) -> None:
        with self._lock:
            self._servers.pop(channel, None)
            for pool in self._pools.values():
                pool.free = [f for f in pool.free if f[0] is not channel]
                pool.waiting = [w for w in pool.waiting if w[2] is not channel]
                heapq.heapify(pool.waiting)
        self._channels.discard(channel)
        channel.close()

    def terminate(self) -> None:
        """Stop; servers and clients notice."""
        if self._closed.is_set():
            return
        self._closed.set()
        import socket

        for sock in [self._socket, *(c.sock for c in list(self._channels))]:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # not connected
            sock.close()
        self._thread.join(timeout=5)
