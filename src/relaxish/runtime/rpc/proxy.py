"""A proxy: servers and clients that cannot reach one another both connect to it.

A server (``Server(host, port, is_proxy=True, key=...)``) waits there under its key; a client connects to the proxy as it
would to the server. What either says then goes to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
import socket
import threading
from dataclasses import dataclass
from typing import Any

from ...support.log import get_logger
from .server import Visitors, connections, listen
from .tracker_session import Offer
from .trust import admit, require_trust, secret
from .wire import RPCError, SocketChannel, hang_up, send

__all__ = ["Proxy"]

_log = get_logger("rpc")
_PIECE = 1 << 16


@dataclass(eq=False)
class _Waiting:
    """A server that waits for a client."""

    key: str
    channel: SocketChannel
    offer: Offer | None

    def answers_to(self, key: str) -> bool:
        """Whether a client of this key is for this server; a tracker gives clients keys of their own."""
        return key == (self.key if self.offer is None else self.offer.match_key)


class Proxy:
    """Serves until :meth:`terminate`, at the first free port from ``port``; port 0 is any.

    A client waits ``timeout_client`` seconds for its server, a server ``timeout_server`` seconds for a client (after
    which it comes again). Both must know the ``token``, if there is one; without one the proxy listens to this machine
    only, unless told to be ``insecure``. With ``tracker_addr`` the proxy offers its servers to a tracker.
    """

    def __init__(
        self, host: str, port: int = 9091, port_end: int = 9199, web_port: int = 0, timeout_client: float = 600,
        timeout_server: float = 600, index_page: str | None = None, resource_files: Sequence[str] | None = None,
        tracker_addr: tuple[str, int] | None = None, *, token: str | None = None, insecure: bool = False,
    ) -> None:  # fmt: skip
        self._secret = secret(token)
        require_trust("an RPC proxy", host, self._secret, insecure)
        if web_port or index_page or resource_files:
            raise RPCError("this proxy speaks to sockets only, not to web browsers")
        self._timeout_client, self._timeout_server = timeout_client, timeout_server
        self._tracker = tracker_addr
        self._socket = listen(host, port, port_end)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._servers: list[_Waiting] = []
        self._came = threading.Condition()
        self._closed = threading.Event()
        self._channels: set[SocketChannel] = set()
        self._thread = threading.Thread(target=self._accept, name=f"rpc-proxy-{self.port}", daemon=True)
        self._thread.start()
        _log.info("proxy on %s:%d", host, self.port)

    def _accept(self) -> None:
        visitors = Visitors()
        for sock, address in connections(self._socket):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            visitors.receive(sock, address, self._greet, self._talk)

    def _greet(self, channel: SocketChannel) -> list[Any]:
        first = admit(channel, self._secret)
        fits = isinstance(first, list) and len(first) in (2, 3) and first[0] == ("serve", "hello")[len(first) - 2]
        if not fits or not isinstance(first[1], str):
            raise RPCError("neither a server nor a client")
        self._channels.add(channel)
        return list(first)

    def _talk(self, channel: SocketChannel, first: list[Any]) -> None:
        try:
            if first[0] == "serve":
                self._add_server(first[1], channel)
            else:
                self._join(first, channel)
        except RPCError as error:
            _log.info("refused %s: %s", first[0], error)
            self._drop(channel)

    def _add_server(self, key: str, channel: SocketChannel) -> None:
        offer = None if self._tracker is None else Offer(self._tracker, key, self.port, None, self._secret)
        waiting = _Waiting(key, channel, offer)
        with self._came:
            self._servers.append(waiting)
            self._came.notify_all()
        timer = threading.Timer(self._timeout_server, self._give_up, [waiting])
        timer.daemon = True
        timer.start()

    def _give_up(self, waiting: _Waiting) -> None:
        with self._came:
            if waiting not in self._servers:
                return  # it has a client
            self._servers.remove(waiting)
        self._drop(waiting.channel, waiting.offer)

    def _take(self, key: str) -> _Waiting | None:
        return next((server for server in self._servers if server.answers_to(key)), None)

    def _join(self, hello: list[Any], client: SocketChannel) -> None:
        """Give a client its server, and carry what they say until one hangs up."""
        key = str(hello[1])
        with self._came:
            self._came.wait_for(lambda: self._closed.is_set() or self._take(key) is not None, self._timeout_client)
            server = self._take(key)
            if server is not None:
                self._servers.remove(server)
        if server is None:
            send(client, ["refused", f"no server of the key {key!r} has come"])
            raise RPCError("no server")
        try:
            send(server.channel, ["hello", server.key, *hello[2:]])
            back = threading.Thread(target=_carry, args=(server.channel.sock, client.sock), daemon=True)
            back.start()
            _carry(client.sock, server.channel.sock)
            back.join()
        finally:
            self._drop(client)
            self._drop(server.channel, server.offer)

    def _drop(self, channel: SocketChannel, offer: Offer | None = None) -> None:
        self._channels.discard(channel)
        channel.close()
        if offer is not None:
            offer.close()

    def terminate(self) -> None:
        """Stop; servers and clients notice."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._came:
            self._came.notify_all()
        for sock in [self._socket, *(channel.sock for channel in list(self._channels))]:
            hang_up(sock)
            sock.close()
        for server in list(self._servers):
            if server.offer is not None:
                server.offer.close()
        self._thread.join(timeout=5)


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until either side hangs up, and then hang up on both."""
    try:
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    except OSError:
        pass  # one has gone
    hang_up(source)
    hang_up(target)
