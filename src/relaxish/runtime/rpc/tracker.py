"""A tracker: servers offer themselves under a key, clients ask for one and wait their turn."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import socket
import struct
import threading
from typing import Any

from ...support.log import get_logger
from .server import Visitors, connections, listen
from .trust import HELLO_SECONDS, admit, require_trust, secret
from .wire import RPCError, SocketChannel, hang_up, receive, send

__all__ = ["Tracker"]

_log = get_logger("rpc")
_LIMIT = 1 << 16
_LONGEST_KEY = 256
# Offers and requests that one connection may have standing.
_STANDING = 64
_SEND_SECONDS = 5


class _Pool:
    """Free servers and waiting clients of one key."""

    def __init__(self) -> None:
        self.free: list[tuple[SocketChannel, str, int, str]] = []
        self.waiting: list[tuple[int, int, SocketChannel]] = []

    def match(self) -> list[tuple[SocketChannel, tuple[SocketChannel, str, int, str]]]:
        """Clients that get a server now: the highest priority first, then who came first."""
        out = []
        while self.free and self.waiting:
            _, _, client = heapq.heappop(self.waiting)
            out.append((client, self.free.pop(0)))
        return out


class Tracker:
    """Serves until :meth:`terminate`, at the first free port from ``port``; port 0 is any.

    Servers and clients must know the ``token`` (``RELAXISH_RPC_TOKEN``) if there is one; without one it listens to this
    machine only, unless told to be ``insecure``.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9190,
        port_end: int = 9199,
        silent: bool = False,
        reuse_addr: bool = True,
        timeout: float | None = None,
        *,
        token: str | None = None,
        insecure: bool = False,
    ) -> None:
        self._secret = secret(token)
        require_trust("an RPC tracker", host, self._secret, insecure)
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
        visitors = Visitors()
        # A client that does not read what it is sent must not hold up others.
        patience = struct.pack("@ll", _SEND_SECONDS, 0)
        for sock, address in connections(self._socket):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            visitors.receive(sock, address, lambda channel: admit(channel, self._secret), self._talk)

    def _talk(self, channel: SocketChannel, first: list[Any]) -> None:
        host = ""
        with contextlib.suppress(OSError):
            host = channel.sock.getpeername()[0]
        self._channels.add(channel)
        try:
            self._handle(channel, host, first)
            while not self._closed.is_set():
                # Servers and clients wait as long as they like; what they say they say at once.
                channel.wait()
                channel.hurry(HELLO_SECONDS)
                message = receive(channel, _LIMIT)
                channel.hurry(None)
                self._handle(channel, host, message)
        except RPCError as error:
            _log.info("%s has gone: %s", host, error)
        finally:
            self._gone(channel)

    def _handle(self, channel: SocketChannel, host: str, message: list[Any]) -> None:
        if not isinstance(message, list) or not message:
            raise RPCError("not a message for a tracker")
        kind, *rest = message
        if kind == "put":
            self._put(channel, host, rest)
        elif kind == "request":
            self._request(channel, rest)
        elif kind == "summary":
            with self._lock:
                summary = self._summary()
            send(channel, ["ok", summary])
        else:
            raise RPCError(f"unknown message {kind!r}")

    def _pool(self, key: str) -> _Pool:
        if not isinstance(key, str) or len(key) > _LONGEST_KEY:
            raise RPCError("a key is a text that is not too long")
        return self._pools.setdefault(key, _Pool())

    def _put(self, channel: SocketChannel, host: str, rest: list[Any]) -> None:
        if len(rest) != 4 or type(rest[1]) is not int or not 0 < rest[1] < 1 << 16 or not isinstance(rest[2], str):
            raise RPCError("not an offer")
        key, port, match_key, custom = rest
        if custom is not None and not isinstance(custom, str):
            raise RPCError("an address is a text")
        with self._lock:
            pool = self._pool(key)
            # The last client's match key is worth nothing any more.
            pool.free = [f for f in pool.free if f[0] is not channel or f[2] != port]
            if sum(f[0] is channel for f in pool.free) >= _STANDING:
                raise RPCError("too many offers")
            self._servers[channel] = (key, custom or host, port)
            pool.free.append((channel, custom or host, port, match_key))
        self._match(key)

    def _request(self, channel: SocketChannel, rest: list[Any]) -> None:
        if len(rest) != 2 or type(rest[1]) is not int:
            raise RPCError("not a request")
        key, priority = rest
        with self._lock:
            pool = self._pool(key)
            if sum(w[2] is channel for w in pool.waiting) >= _STANDING:
                raise RPCError("too many requests")
            heapq.heappush(pool.waiting, (-priority, next(self._order), channel))
        self._match(key)

    def _match(self, key: str) -> None:
        """Send clients to servers as long as there are both; a server whose client has gone waits for the next."""
        while True:
            with self._lock:
                pool = self._pools[key] if key in self._pools else _Pool()
                matched = pool.match()
                if not pool.free and not pool.waiting:
                    self._pools.pop(key, None)
            if not matched:
                return
            for client, server in matched:
                try:
                    send(client, ["ok", list(server[1:])])
                except RPCError:
                    _log.info("a client has gone before its turn")
                    hang_up(client.sock)
                    with self._lock:
                        if server[0] in self._channels:
                            self._pool(key).free.append(server)

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
            self._channels.discard(channel)
            self._servers.pop(channel, None)
            for key, pool in list(self._pools.items()):
                pool.free = [f for f in pool.free if f[0] is not channel]
                pool.waiting = [w for w in pool.waiting if w[2] is not channel]
                heapq.heapify(pool.waiting)
                if not pool.free and not pool.waiting:
                    del self._pools[key]
        channel.close()

    def terminate(self) -> None:
        """Stop; servers and clients notice."""
        if self._closed.is_set():
            return
        self._closed.set()
        for sock in [self._socket, *(c.sock for c in list(self._channels))]:
            hang_up(sock)
            sock.close()
        self._thread.join(timeout=5)
