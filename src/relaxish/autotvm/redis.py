"""A client of Redis servers, for the few commands that a store of measurements needs (protocol RESP 2)."""

from __future__ import annotations

import socket
import threading

from ..support.errors import RelaxishError
from ..support.sequences import of_kind

__all__ = ["RedisClient"]

_MOST_BYTES = 1 << 30
Reply = bytes | int | None | list["Reply"]


class RedisClient:
    """One connection, opened on first use. Raises RelaxishError where no server answers, or it refuses a command."""

    def __init__(self, host: str = "127.0.0.1", port: int = 6379, db: int = 0, timeout: float = 10.0) -> None:
        self.host, self.port, self.db, self.timeout = host, int(port), int(db), timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._unread = bytearray()

    def command(self, *words: str | int) -> Reply:
        """The server's reply to a command."""
        with self._lock:
            try:
                if self._socket is None:
                    self._socket = socket.create_connection((self.host, self.port), self.timeout)
                    self._unread.clear()
                    self._ask("SELECT", self.db)
                return self._ask(*words)
            except OSError as err:
                self._hang_up()
                raise RelaxishError(f"no Redis server answers at {self.host}:{self.port}: {err}") from None

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, *words: str | int) -> Reply:
        parts = [str(word).encode() for word in words]
        message = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        assert self._socket is not None
        self._socket.sendall(message)
        reply = self._reply()
        if isinstance(reply, RelaxishError):
            raise reply
        return reply

    def _reply(self) -> Reply | RelaxishError:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return RelaxishError(f"the Redis server at {self.host}:{self.port} says: {rest.decode(errors='replace')}")
        if kind not in (b":", b"$", b"*") or not rest.lstrip(b"-").isdigit():
            raise OSError(f"this is no Redis server: it sent {line[:40]!r}")
        number = int(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        if number > _MOST_BYTES:
            raise OSError(f"a reply of {number} bytes or entries is too long")
        if kind == b"$":
            return self._bytes(number + 2)[:-2]
        return [part if not isinstance(part := self._reply(), RelaxishError) else None for _ in range(number)]

    def _receive(self) -> None:
        assert self._socket is not None
        got = self._socket.recv(1 << 16)
        if not got:
            raise OSError("the connection was closed")
        self._unread += got

    def _line(self) -> bytes:
        while (end := self._unread.find(b"\r\n")) < 0:
            if len(self._unread) > 1 << 16:
                raise OSError("this is no Redis server: it sent a line without end")
            self._receive()
        line = bytes(self._unread[:end])
        del self._unread[: end + 2]
        return line

    def _bytes(self, count: int) -> bytes:
        while len(self._unread) < count:
            self._receive()
        found = bytes(self._unread[:count])
        del self._unread[:count]
        return found

    # ---- the commands

    def set(self, key: str, value: str) -> None:
        """Store a text."""
        self.command("SET", key, value)

    def get(self, key: str) -> str | None:
        """The text of a key, None if there is none."""
        found = self.command("GET", key)
        return found.decode() if isinstance(found, bytes) else None

    def keys(self) -> list[str]:
        """All keys."""
        found = self.command("KEYS", "*")
        return [key.decode() for key in of_kind(found, bytes)] if isinstance(found, list) else []

    def flushdb(self) -> None:
        """Forget everything."""
        self.command("FLUSHDB")
