"""A server: listens on a port and serves each session in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ...support.log import get_logger
from .client import session_process
from .serving import serve
from .wire import RPCError, SocketChannel, receive, send

__all__ = ["HELLO_BYTES", "HELLO_SECONDS", "Server", "connections", "listen"]

_log = get_logger("rpc")
HELLO_SECONDS = 10.0
HELLO_BYTES = 1 << 16
_PROXY_PAUSE = 0.5


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
        sock.listen(16)
        return sock
    raise RPCError(f"no port from {port} to {port_end} of {host} is free")


def connections(sock: socket.socket) -> Iterator[tuple[socket.socket, Any]]:
    """Sockets and addresses of those that connect, until the listening socket is closed."""
    while True:
        try:
            yield sock.accept()
        except OSError:
            return


class Server:
    """Serves sessions until :meth:`terminate`; ``port`` is where.

    It listens on ``host`` (this machine only, unless told otherwise) at the first free port from ``port``; port 0 is any.
    Clients must give the same ``key``. With ``tracker_addr`` it offers itself to a tracker under that key, one session
    at a time. With ``is_proxy`` it waits for clients at the :class:`Proxy` there. Sessions run in processes of their own,
    so that a crash ends one session only; with ``no_fork`` in threads.
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
    ) -> None:
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
        self._processes: list[subprocess.Popen[bytes]] = []
        self._tracker: Any = None
        if tracker_addr is not None:
            from .tracker_session import Offer

            self._tracker = Offer((str(tracker_addr[0]), int(tracker_addr[1])), key, self.port, custom_addr)
        work = self._behind_proxy if is_proxy else self._accept
        self._thread = threading.Thread(target=work, name=f"rpc-server-{self.port}", daemon=True)
        self._thread.start()
        if not silent:
            _log.info("serving on %s:%d", host, self.port)

    def _accept(self) -> None:
        for sock, address in connections(self._socket):
            threading.Thread(target=self._session, args=(sock, address), daemon=True).start()

    def _behind_proxy(self) -> None:
        """Wait at the proxy for a client, again and again."""
        while not self._closed.is_set():
            try:
                self._socket = socket.create_connection((self.host, self.port), timeout=HELLO_SECONDS)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                send(SocketChannel(self._socket), ["serve", self.key])
                # The client may take its time.
                self._socket.settimeout(None)
                came = self._socket.recv(1, socket.MSG_PEEK)
            except (OSError, RPCError) as error:
                _log.info("the proxy at %s:%d cannot be reached: %s", self.host, self.port, error)
                self._closed.wait(_PROXY_PAUSE)
                continue
            if came:
                self._session(self._socket, (self.host, self.port))
            else:
                self._socket.close()  # the proxy gave up waiting, or this server is to end

    def _session(self, sock: socket.socket, address: Any) -> None:
        channel = SocketChannel(sock)
        try:
            limit = self._greet(channel)
        except RPCError as error:
            _log.info("refused %s: %s", address, error)
            channel.close()
            return
        try:
            if self._no_fork:
                serve(channel)
            else:
                self._in_process(sock, limit)
        finally:
            channel.close()
            if self._tracker is not None and not self._closed.is_set():
                self._tracker.put()

    def _greet(self, channel: SocketChannel) -> float:
        """Check the key; the seconds that the session may last (0: no limit)."""
        channel.sock.settimeout(HELLO_SECONDS)
        hello = receive(channel, HELLO_BYTES)
        if not isinstance(hello, list) or len(hello) != 3 or hello[0] != "hello":
            raise RPCError("not a client")
        _, key, seconds = hello
        wanted = self._tracker.match_key if self._tracker is not None and key != self.key else self.key
        if key != wanted:
            send(channel, ["refused", f"the key {key!r} is not the server's"])
            raise RPCError("a wrong key")
        send(channel, ["welcome"])
        channel.sock.settimeout(None)
        limits = [float(t) for t in (seconds, self._timeout) if t]
        return min(limits, default=0.0)

    def _in_process(self, sock: socket.socket, seconds: float) -> None:
        process = session_process(sock.fileno())
        self._processes.append(process)
        try:
            process.wait(timeout=seconds or None)
        except subprocess.TimeoutExpired:
            _log.info("a session took longer than %s s and is ended", seconds)
            process.kill()
            process.wait()
        self._processes.remove(process)

    def terminate(self) -> None:
        """Stop listening, and end all sessions."""
        if self._closed.is_set():
            return
        self._closed.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # nobody was connected to it; closing wakes the thread
        self._socket.close()
        if self._tracker is not None:
            self._tracker.close()
        for process in list(self._processes):
            process.kill()
        self._thread.join(timeout=5)

    def __del__(self) -> None:
        if hasattr(self, "_closed") and not sys.is_finalizing():
            self.terminate()
