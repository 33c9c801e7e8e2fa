"""The tracker from outside: clients that ask it for servers, and servers that offer themselves."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .client import RPCSession, connect
from .wire import RPCError, SocketChannel, receive, send

__all__ = ["Offer", "TrackerSession", "connect_tracker"]


def _open(address: tuple[str, int]) -> SocketChannel:
    try:
        return SocketChannel(socket.create_connection(address, timeout=10.0))
    except OSError as error:
        raise RPCError(f"cannot connect to the tracker at {address[0]}:{address[1]}: {error}") from None


class Offer:
    """A server's standing offer: free until a client is sent to it with ``match_key``, and again after that."""

    def __init__(self, address: tuple[str, int], key: str, port: int, custom_addr: str | None) -> None:
        self._channel = _open(address)
        self._channel.sock.settimeout(None)
        self._key, self._port, self._custom = key, port, custom_addr
        self._lock = threading.Lock()
        self.match_key = ""
        self.put()

    def put(self) -> None:
        """Be free, with a new match key: the last client's is worth nothing any more."""
        with self._lock:
            self.match_key = f"{self._key}:{secrets.token_hex(8)}"
            send(self._channel, ["put", self._key, self._port, self.match_key, self._custom])

    def close(self) -> None:
        """Withdraw it."""
        self._channel.close()


class TrackerSession:
    """A connection to a tracker."""

    def __init__(self, addr: tuple[str, int]) -> None:
        self._address = addr
        self._channel = _open(addr)
        self._lock = threading.Lock()

    def _ask(self, *message: Any, timeout: float | None = None) -> Any:
        with self._lock:
            self._channel.sock.settimeout(timeout)
            send(self._channel, list(message))
            answer = receive(self._channel)
        return answer[1]

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def summary(self) -> dict[str, Any]:
        """``{"queue_info": {key: {"free": n, "pending": n}}, "server_info": [{"key": ..., "addr": ...}]}``."""
        out: dict[str, Any] = self._ask("summary", timeout=10.0)
        return out

    def text_summary(self) -> str:
        """The summary as text."""
        data = self.summary()
        lines = ["Server List", "------------------------------", "server-address           key"]
        lines += [f"{host + ':' + str(port):<24} {s['key']}" for s in data["server_info"] for host, port in [s["addr"]]]
        lines += ["", "Queue Status", "------------------------------", "key               total  free  pending"]
        totals: dict[str, int] = {}
        for server in data["server_info"]:
            name = server["key"].partition(":")[2]
            totals[name] = totals.get(name, 0) + 1
        for key in sorted({*totals, *data["queue_info"]}):
            queue = data["queue_info"].get(key, {"free": 0, "pending": 0})
            lines.append(f"{key:<17} {totals.get(key, 0):<6} {queue['free']:<5} {queue['pending']}")
        return "\n".join(lines)

    def request(
        self, key: str, priority: int = 1, session_timeout: float = 0, max_retry: int = 5,
        session_constructor_args: Any = None,
    ) -> RPCSession:  # fmt: skip
        """A session with a free server of that key; waits until there is one, longest for the lowest priority.

        Raises RPCError when ``max_retry`` servers in a row cannot be reached.
        """
        last: RPCError | None = None
        for _ in range(max(1, max_retry)):
            host, port, match_key = self._ask("request", key, priority)
            try:
                return connect(host, int(port), match_key, session_timeout, session_constructor_args)
            except RPCError as error:
                last = error
        raise RPCError(f"cannot get a server for {key!r} after {max_retry} tries: {last}")

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], Any],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> Any:
        """``func(session)`` with a server; tried again with another one when a session breaks."""
        last: RPCError | None = None
        for _ in range(max(1, max_retry)):
            began = time.monotonic()
            session = self.request(key, priority, session_timeout)
            try:
                return func(session)
            except RPCError as error:
                last = error
                spent = time.monotonic() - began
            finally:
                session.close()
        raise RPCError(f"the function failed on {key!r} after {max_retry} tries, the last of {spent:.1f} s: {last}")


def connect_tracker(url: str, port: int) -> TrackerSession:
    """A connection to a tracker. Raises RPCError if there is none."""
    return TrackerSession((url, port))
