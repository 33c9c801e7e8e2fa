"""Messages between a controller and its workers: data, in the form of ``runtime.rpc``."""

from __future__ import annotations

import builtins
import contextlib
import socket
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from ...support.log import get_logger
from ..device import Device
from ..arrays.dtype import numpy_dtype
from ..arrays.ndarray import NDArray, array
from ..rpc.trust import HELLO_SECONDS, admit
from ..rpc.wire import RPCError, SocketChannel, Tagged, receive, send
from .worker import Ref

__all__ = ["Peer", "as_error", "next_visitor", "pack", "portable", "unpack"]

_log = get_logger("disco")


def pack(value: object) -> object:
    """A value as data: arrays, references and devices get a form, functions and modules only a name."""
    match value:
        case NDArray():
            return Tagged("array", shape=list(value.shape), dtype=str(value.dtype), data=value.numpy().tobytes())
        case np.ndarray():
            return Tagged("numpy", shape=list(value.shape), dtype=str(value.dtype), data=value.tobytes())
        case Ref():
            return Tagged("ref", register=value.register)
        case Device():
            return Tagged("device", type=value.device_type, id=value.device_id)
    if type(value) is tuple:
        return Tagged("tuple", of=[pack(v) for v in value])
    if type(value) is list:
        return [pack(v) for v in value]
    return repr(value) if callable(value) else value


def unpack(value: object) -> Any:
    """The value that :func:`pack` made data of. Raises RPCError for others."""
    if isinstance(value, list):
        return [unpack(v) for v in value]
    if not isinstance(value, Tagged):
        return value
    fields = value.fields
    if value.kind in ("array", "numpy"):
        found = np.frombuffer(fields["data"], numpy_dtype(fields["dtype"])).reshape(fields["shape"]).copy()
        return array(found) if value.kind == "array" else found
    if value.kind == "tuple":
        return tuple(unpack(v) for v in fields["of"])
    if value.kind == "ref":
        return Ref(fields["register"])
    if value.kind == "device":
        return Device(fields["type"], fields["id"])
    raise RPCError(f"a worker cannot be sent a value of kind {value.kind!r}")


class Peer:
    """A connection as :class:`PeerLinks` wants it."""

    def __init__(self, sock: socket.socket) -> None:
        if sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.channel = SocketChannel(sock)

    def send(self, value: object) -> None:
        """Send a value that :func:`pack` has made."""
        send(self.channel, value)

    def recv(self) -> Any:
        """Next message of the other side."""
        return receive(self.channel)


def next_visitor(listener: socket.socket, key: bytes) -> tuple[Peer | None, list[Any]]:
    """Next peer with a valid token, and its first message; (None, []) for somebody else."""
    peer = Peer(listener.accept()[0])
    try:
        peer.channel.hurry(HELLO_SECONDS)
        first = admit(peer.channel, key)
        peer.channel.hurry(None)
        if not isinstance(first, list) or not first:
            raise RPCError("not a message for a session")
    except RPCError as error:
        _log.info("refused a connection: %s", error)
        peer.channel.close()
        return None, []
    return peer, first


def portable(answer: tuple[bool, Any]) -> list[Any]:
    """An answer of a worker that can be sent: functions and modules stay where they are, errors keep their text."""
    fine, value = answer
    return [fine, pack(value) if fine else [type(value).__name__, str(value)]]


def as_error(name: str, text: str) -> BaseException:
    """An error of a worker as one of the controller: of the same class if that is a built-in one."""
    kind = getattr(builtins, str(name), None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # some want more than a text
            return kind(text)
    return RelaxishError(f"{name}: {text}")
