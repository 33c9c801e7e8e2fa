"""Messages: a length, a JSON text, and the bytes it refers to.

A message is ``magic, length of text, number of blobs, their lengths, text, blobs``. JSON numbers, texts, lists and
mappings stand for themselves; ``{"$": kind, ...}`` for all else. Nothing that is read is ever executed.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from typing import Any, Protocol

from ...support.errors import RelaxishError
from ...support.untrusted import parse_json
from ..arrays.container import ShapeTuple

__all__ = [
    "MAX_BYTES", "BytesChannel", "Channel", "RPCError", "SocketChannel", "Tagged", "decode", "encode", "hang_up", "pack",
    "receive", "send",
]  # fmt: skip

_MAGIC = b"RXR1"
_HEAD = struct.Struct("<4sQI")
#: A message that claims to be longer is refused, and the connection closed.
MAX_BYTES = 8 << 30
_MAX_BLOBS = 1 << 16
#: Lists in lists, as results may be; each takes a few calls to go through.
_MAX_DEPTH = 100


class RPCError(RelaxishError):
    """The other side failed, cannot be reached, or says what cannot be understood."""


class Channel(Protocol):
    """Bytes to and from the other side."""

    def read(self, nbytes: int) -> bytes:
        """Exactly so many bytes. Raises RPCError at the end."""

    def write(self, data: bytes) -> None:
        """Send all of it."""

    def close(self) -> None:
        """No more."""


class SocketChannel:
    """A connected socket.

    ``deadline`` (of ``time.monotonic``) ends a read, however small the pieces are in which something comes.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline: float | None = None

    def hurry(self, seconds: float | None) -> None:
        """Reads and writes from now on have so many seconds in all; None: as long as it takes."""
        self.deadline = None if seconds is None else time.monotonic() + seconds
        try:
            self.sock.settimeout(seconds)
        except OSError as error:
            raise RPCError(f"the connection broke: {error}") from None

    def wait(self) -> None:
        """Until something comes, as long as it takes. Raises RPCError at the end."""
        try:
            self.sock.settimeout(None)
            came = self.sock.recv(1, socket.MSG_PEEK)
        except OSError as error:
            raise RPCError(f"the connection broke: {error}") from None
        if not came:
            raise RPCError("the other side closed the connection")

    def read(self, nbytes: int) -> bytes:
        """See :class:`Channel`."""
        out = bytearray()
        while len(out) < nbytes:
            try:
                if self.deadline is not None:
                    left = self.deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError
                    self.sock.settimeout(left)
                part = self.sock.recv(min(nbytes - len(out), 1 << 20))
            except TimeoutError:
                raise RPCError("the other side did not answer in time") from None
            except OSError as error:
                raise RPCError(f"the connection broke: {error}") from None
            if not part:
                raise RPCError("the other side closed the connection")
            out += part
        return bytes(out)

    def write(self, data: bytes) -> None:
        """See :class:`Channel`."""
        try:
            if self.deadline is not None:
                self.sock.settimeout(max(self.deadline - time.monotonic(), 0.001))
            self.sock.sendall(data)
        except TimeoutError:
            raise RPCError("the other side does not read what it is sent") from None
        except OSError as error:
            raise RPCError(f"the connection broke: {error}") from None

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


def hang_up(sock: socket.socket) -> None:
    """Let whoever reads from a socket, here or there, know that nothing more comes."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not connected any more


class BytesChannel:
    """A message that is here already."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, nbytes: int) -> bytes:
        """See :class:`Channel`."""
        self._at += nbytes
        if self._at > len(self._data):
            raise RPCError("a message that ends too early")
        return self._data[self._at - nbytes : self._at]

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def close(self) -> None:
        """Nothing to close."""


def encode(value: object, blobs: list[bytes]) -> object:
    """A value as JSON; bytes go to ``blobs``. Raises RPCError for what has no form on the wire."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$": "float", "text": repr(value)}
        case bytes() | bytearray() | memoryview():
            blobs.append(bytes(value))
            return {"$": "bytes", "at": len(blobs) - 1}
        case ShapeTuple():
            return {"$": "shape", "dims": [int(d) for d in value]}
        case list() | tuple():
            return [encode(v, blobs) for v in value]
        case dict():
            return {"$": "map", "items": [[encode(k, blobs), encode(v, blobs)] for k, v in value.items()]}
        case Tagged():
            return {"$": value.kind, **{k: encode(v, blobs) for k, v in value.fields.items()}}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # NumPy's numbers
        return encode(value.item(), blobs)
    raise RPCError(f"a {type(value).__name__} cannot be sent to the other side")


class Tagged:
    """A value of a kind that the layers above give meaning to."""

    __slots__ = ("fields", "kind")

    def __init__(self, kind: str, **fields: Any) -> None:
        self.kind = kind
        self.fields = fields


def decode(value: object, blobs: list[bytes]) -> Any:
    """The value that :func:`encode` wrote. Raises RPCError for what it would not write."""
    if isinstance(value, list):
        return [decode(v, blobs) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("$")
    rest = {k: decode(v, blobs) for k, v in value.items() if k not in ("$", "items")}
    if kind == "float":
        return float(rest["text"])
    if kind == "bytes":
        at = rest["at"]
        if not isinstance(at, int) or not 0 <= at < len(blobs):
            raise RPCError("a message refers to bytes that it does not have")
        return blobs[at]
    if kind == "shape":
        return ShapeTuple(rest["dims"])
    if kind == "map":
        return {decode(k, blobs): decode(v, blobs) for k, v in value["items"]}
    if not isinstance(kind, str):
        raise RPCError("a message has a value of no kind")
    return Tagged(kind, **rest)


def pack(value: object) -> bytes:
    """A whole message."""
    blobs: list[bytes] = []
    try:
        text = json.dumps(encode(value, blobs)).encode()
    except RecursionError:
        raise RPCError(
            "a value that is nested too deep, or contains itself, cannot be sent to the other side"
        ) from None
    sizes = struct.pack(f"<{len(blobs)}Q", *(len(b) for b in blobs))
    return b"".join((_HEAD.pack(_MAGIC, len(text), len(blobs)), sizes, text, *blobs))


def send(channel: Channel, value: object) -> None:
    """Send a message."""
    channel.write(pack(value))


def receive(channel: Channel, limit: int = MAX_BYTES) -> Any:
    """The next message. Raises RPCError if it is not one of ours or longer than ``limit``."""
    magic, length, count = _HEAD.unpack(channel.read(_HEAD.size))
    if magic != _MAGIC:
        raise RPCError("the other side does not speak this protocol")
    if count > _MAX_BLOBS or length > limit:
        raise RPCError(f"a message of {length:,} bytes and {count:,} parts is refused")
    sizes = struct.unpack(f"<{count}Q", channel.read(8 * count))
    if length + sum(sizes) > limit:
        raise RPCError(f"a message of {length + sum(sizes):,} bytes is refused")
    text = channel.read(length)
    blobs = [channel.read(size) for size in sizes]
    try:
        return decode(parse_json(text, "a message", max_depth=_MAX_DEPTH, max_bytes=limit), blobs)
    except (ValueError, KeyError, TypeError, OverflowError, RelaxishError) as error:
        raise error if isinstance(error, RPCError) else RPCError(f"a damaged message: {error}") from None
