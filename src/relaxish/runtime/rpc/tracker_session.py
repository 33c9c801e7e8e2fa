"""The tracker from outside: clients that ask it for servers, and servers that offer themselves."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...support.log import get_logger
from .client import RPCSession, connect
from .trust import HELLO_SECONDS, introduce, secret
from .wire import RPCError, SocketChannel, hang_up, receive, send

__all__ = ["Offer", "TrackerSession", "connect_tracker"]

_T = TypeVar("_T")

_log = get_logger("rpc")
_PAUSE = 1.0
_LIMIT = 1 << 26


def _open(address: tuple[str, int], key: bytes) -> SocketChannel:
    try:
        channel = SocketChannel(socket.create_connection(address, timeout=HELLO_SECONDS))
    except OSError as error:
        raise RPCError(f"cannot connect to the tracker at {address[0]}:{address[1]}: {error}") from None
    channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    try:
        channel.hurry(HELLO_SECONDS)
        introduce(channel, key)
    except RPCError:
        channel.close()
        raise
    return channel


class Offer:
    """A server's standing offer: free until a client is sent to it with ``match_key``, and again after that.

    A tracker that went away is looked for again, until it is there or the offer is withdrawn.
    """

    def __init__(
        self, address: tuple[str, int], key: str, port: int, custom_addr: str | None, token: bytes = b""
    ) -> None:
        self._address, self._token = address, token
        self._channel = _open(address, token)
        self._channel.hurry(None)
        self._closed = threading.Event()
        self._key, self._port, self._custom = key, port, custom_addr
        self._lock = threading.Lock()
        self.match_key = ""
        self.put()
        threading.Thread(target=self._keep, name="rpc-offer", daemon=True).start()

    def put(self) -> None:
        """Be free, with a new match key: the last client's is worth nothing any more."""
        with self._lock:
            self.match_key = f"{self._key}:{secrets.token_hex(8)}"
            with contextlib.suppress(RPCError):  # it is told when it is there again
                self._say()

    def _say(self) -> None:
        send(self._channel, ["put", self._key, self._port, self.match_key, self._custom])

    def _keep(self) -> None:
        """Look for the tracker whenever it has gone."""
        while not self._closed.is_set():
            try:
                self._channel.wait()  # it says nothing, so this is the end
                raise RPCError("the tracker speaks out of turn")
            except RPCError as error:
                if self._closed.wait(_PAUSE):
                    return
                _log.info("looking for the tracker at %s:%d: %s", *self._address, error)
            with contextlib.suppress(RPCError), self._lock:
                self._channel.close()
                self._channel = _open(self._address, self._token)
                self._channel.hurry(None)
                self._say()

    def close(self) -> None:
        """Withdraw it."""
        self._closed.set()
        hang_up(self._channel.sock)
        self._channel.close()


class TrackerSession:
    """A connection to a tracker; ``token`` is the secret of it and its servers."""

    def __init__(self, addr: tuple[str, int], token: str | None = None) -> None:
        self._address = addr
        self._token = token
        self._channel = _open(addr, secret(token))
        self._lock = threading.Lock()

    def _ask(self, *message: Any, timeout: float | None = None) -> Any:
        with self._lock:
            self._channel.hurry(timeout)
            send(self._channel, list(message))
            answer = receive(self._channel, _LIMIT)
        if not isinstance(answer, list) or len(answer) != 2 or answer[0] != "ok":
            raise RPCError(f"the tracker refuses: {answer[1] if isinstance(answer, list) and answer[1:] else answer!r}")
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
        session_constructor_args: Sequence[Any] | None = None,
    ) -> RPCSession:  # fmt: skip
        """A session with a free server of that key; waits until there is one, longest for the lowest priority.

        Raises RPCError when ``max_retry`` servers in a row cannot be reached.
        """
        last: RPCError | None = None
        for _ in range(max(1, max_retry)):
            host, port, match_key = self._ask("request", key, priority)
            try:
                return connect(host, int(port), match_key, session_timeout, session_constructor_args, token=self._token)
            except RPCError as error:
                last = error
        raise RPCError(f"cannot get a server for {key!r} after {max_retry} tries: {last}")

    def request_and_run(
        self,
        key: str,
        func: Callable[[RPCSession], _T],
        priority: int = 1,
        session_timeout: float = 0,
        max_retry: int = 2,
    ) -> _T:
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


def connect_tracker(url: str, port: int, *, token: str | None = None) -> TrackerSession:
    """A connection to a tracker. Raises RPCError if there is none, or if it does not know the token."""
    return TrackerSession((url, port), token)
