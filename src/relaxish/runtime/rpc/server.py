"""A server: listens on a port and serves each session in a process of its own."""

from __future__ import annotations

import math
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ...support.log import get_logger
from .serving import serve
from .session_pool import SessionPool
from .trust import HELLO_BYTES, HELLO_SECONDS, admit, introduce, require_trust, secret
from .wire import RPCError, SocketChannel, hang_up, receive, send

__all__ = ["HELLO_BYTES", "HELLO_SECONDS", "Server", "Visitors", "connections", "listen"]

_log = get_logger("rpc")
_PROXY_PAUSE = 0.5
_ACCEPT_PAUSE = 0.05
_BACKLOG = 1024
_VISITORS = 256


def listen(host: str, port: int, port_end: int, reuse_addr: bool = True) -> socket.socket:
    """A listening socket on the first free port of a range (port 0: any). Raises RPCError if none is free."""
    ports = [0] if port == 0 else range(port, max(port_end, port + 1))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in ports:
        sock = socket.socket(family, socket.SOCK_STREAM)
        if reuse_addr:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
        except OSError:
            sock.close()
            continue
        sock.listen(_BACKLOG)
        return sock
    raise RPCError(f"no port from {port} to {port_end} of {host} is free")


def connections(sock: socket.socket) -> Iterator[tuple[socket.socket, Any]]:
    """Sockets and addresses of those that connect, until the listening socket is closed.

    Where descriptors run out, those who wait in line wait a little longer.
    """
    while True:
        try:
            made, address = sock.accept()
        except OSError:
            if sock.fileno() < 0 or not _is_listening(sock):
                return
            time.sleep(_ACCEPT_PAUSE)
            continue
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        yield made, address


def _is_listening(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


class Visitors:
    """Threads for those who connect; of those that have not yet said who they are, only the latest so many stay."""

    def __init__(self, most: int = _VISITORS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._strangers: dict[SocketChannel, None] = {}

    def receive(
        self, sock: socket.socket, address: tuple[str, int], greet: Callable[..., Any], then: Callable[..., Any]
    ) -> None:
        """In a thread, ``then(channel, greet(channel))``; who cannot be greeted in time is let go."""
        channel = SocketChannel(sock)
        with self._lock:
            while len(self._strangers) >= self._most:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                hang_up(oldest.sock)
            self._strangers[channel] = None
        try:
            threading.Thread(target=self._talk, args=(channel, address, greet, then), daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._forget(channel)
            channel.close()
            _log.warning("refused %s: %s", address, error)

    def _forget(self, channel: SocketChannel) -> None:
        with self._lock:
            self._strangers.pop(channel, None)

    def _talk(
        self, channel: SocketChannel, address: tuple[str, int], greet: Callable[..., Any], then: Callable[..., Any]
    ) -> None:
        try:
            channel.hurry(HELLO_SECONDS)
            known = greet(channel)
            channel.hurry(None)
        except Exception as error:  # whatever a stranger sends must not show in this process
            _log.info("refused %s: %s", address, error)
            channel.close()
            return
        finally:
            self._forget(channel)
        try:
            then(channel, known)
        except Exception as error:  # nor what a client sends
            _log.info("the connection with %s ended: %s", address, error)
            channel.close()


class Server:
    """Serves sessions until :meth:`terminate`; ``port`` is where.

    It listens on ``host`` (this machine only, unless told otherwise) at the first free port from ``port``; port 0 is any.
    Clients must give the same ``key``. With ``tracker_addr`` it offers itself to a tracker under that key, one session
    at a time. With ``is_proxy`` it waits for clients at the :class:`Proxy` there. Sessions run in processes of their own,
    so that a crash ends one session only; with ``no_fork`` in threads.

    Who connects can have code run here. With a ``token`` (``RELAXISH_RPC_TOKEN``) only those who know it can; without one
    the server listens to this machine only, unless told to be ``insecure``. Clients beyond ``max_sessions`` at a time are
    refused.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: str | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        server_init_callback: Callable[[], None] | None = None,
        reuse_addr: bool = True,
        timeout: float | None = None,
        *,
        token: str | None = None,
        insecure: bool = False,
        max_sessions: int = 64,
    ) -> None:
        self._secret = secret(token)
        self._room = threading.BoundedSemaphore(max_sessions)
        if not is_proxy:
            require_trust("an RPC server", host, self._secret, insecure)
        for path in (load_library or "").split(":"):
            if path:
                import ctypes

                ctypes.CDLL(path)
        if server_init_callback is not None:
            server_init_callback()
        self.host, self.key, self.custom_addr = host, key, custom_addr
        self._socket = socket.socket() if is_proxy else listen(host, port, port_end, reuse_addr)
        self.port: int = port if is_proxy else self._socket.getsockname()[1]
        self._no_fork, self._timeout = no_fork, timeout
        self._closed = threading.Event()
        self._sessions = SessionPool(max_sessions)
        self._tracker: Any = None
        if tracker_addr is not None:
            from .tracker_session import Offer

            self._tracker = Offer(
                (str(tracker_addr[0]), int(tracker_addr[1])), key, self.port, custom_addr, self._secret
            )
        work = self._behind_proxy if is_proxy else self._accept
        self._thread = threading.Thread(target=work, name=f"rpc-server-{self.port}", daemon=True)
        self._thread.start()
        if not silent:
            _log.info("serving on %s:%d", host, self.port)

    def _accept(self) -> None:
        visitors = Visitors()
        for sock, address in connections(self._socket):
            visitors.receive(sock, address, self._greet, self._session)

    def _behind_proxy(self) -> None:
        """Wait at the proxy for a client, again and again."""
        while not self._closed.is_set():
            try:
                self._socket = socket.create_connection((self.host, self.port), timeout=HELLO_SECONDS)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                channel = SocketChannel(self._socket)
                channel.hurry(HELLO_SECONDS)
                introduce(channel, self._secret)
                send(channel, ["serve", self.key])
                # The client may take its time.
                channel.hurry(None)
                channel.wait()
                channel.hurry(HELLO_SECONDS)
                # The proxy has looked at the client's token.
                limit = self._check_hello(channel, receive(channel, HELLO_BYTES))
                channel.hurry(None)
            except (OSError, RPCError) as error:
                # The proxy cannot be reached or gave up waiting, a client was wrong, or this server is to end.
                _log.info("no session by the proxy at %s:%d: %s", self.host, self.port, error)
                self._socket.close()
                self._closed.wait(_PROXY_PAUSE)
                continue
            try:
                self._session(channel, limit)
            except RPCError as error:
                _log.info("the session by the proxy ended: %s", error)

    def _session(self, channel: SocketChannel, limit: float) -> None:
        if not self._room.acquire(blocking=False):
            send(channel, ["refused", "the server has as many sessions as it can"])
            channel.close()
            return
        try:
            send(channel, ["welcome"])
            if self._no_fork:
                serve(channel)
            else:
                self._sessions.serve(channel.sock, limit)
        finally:
            self._room.release()
            channel.close()
            if self._tracker is not None and not self._closed.is_set():
                self._tracker.put()

    def _greet(self, channel: SocketChannel) -> float:
        """Check token and key; the seconds that the session may last (0: no limit)."""
        return self._check_hello(channel, admit(channel, self._secret))

    def _check_hello(self, channel: SocketChannel, hello: object) -> float:
        if not isinstance(hello, list) or len(hello) != 3 or hello[0] != "hello" or not isinstance(hello[1], str):
            raise RPCError("not a client")
        _, key, seconds = hello
        if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
            raise RPCError("a session cannot last so long")
        wanted = self._tracker.match_key if self._tracker is not None and key != self.key else self.key
        if not secrets.compare_digest(key.encode(), wanted.encode()):
            send(channel, ["refused", f"the key {key!r} is not the server's"])
            raise RPCError("a wrong key")
        limits = [float(t) for t in (seconds, self._timeout) if t]
        return min(limits, default=0.0)

    def terminate(self) -> None:
        """Stop listening, and end all sessions."""
        if self._closed.is_set():
            return
        self._closed.set()
        hang_up(self._socket)
        self._socket.close()
        if self._tracker is not None:
            self._tracker.close()
        self._sessions.shutdown()
        self._thread.join(timeout=5)

    def __del__(self) -> None:
        if hasattr(self, "_closed") and not sys.is_finalizing():
            self.terminate()
