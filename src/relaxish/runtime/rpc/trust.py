"""Authentication of RPC peers: a shared secret, and the addresses that are listened on without one.

A side proves that it knows the token without sending it: each sends a random challenge, and answers the other's with an
HMAC over both. What follows is not encrypted: where others can read or change what goes over the network, put a tunnel
around it.
"""

from __future__ import annotations

from typing import Any
import hashlib
import hmac
import ipaddress
import secrets
import socket

from ...support import config
from ...support.log import get_logger
from .wire import Channel, RPCError, receive, send

__all__ = ["HELLO_BYTES", "HELLO_SECONDS", "admit", "introduce", "is_loopback", "require_trust", "secret"]

_log = get_logger("rpc")
#: How long, and in how many bytes, a side may take to say who it is.
HELLO_SECONDS = 10.0
HELLO_BYTES = 1 << 16
_SHORTEST = 16


def secret(token: str | None) -> bytes:
    """The token given, else that of the environment (``RELAXISH_RPC_TOKEN``); empty if there is none.

    Raises RPCError for one that is short enough to be guessed.
    """
    text = token if token is not None else config.RPC_TOKEN.value
    if text and len(text) < _SHORTEST:
        raise RPCError(f"the token must have at least {_SHORTEST} characters: secrets.token_hex(16) makes one")
    return text.encode()


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(info[4][0]).partition("%")[0]).is_loopback for info in found)


def require_trust(what: str, host: str, key: bytes, insecure: bool) -> None:
    """Raise RPCError where everybody in reach could have code run here."""
    if key or is_loopback(host):
        return
    if insecure or config.RPC_INSECURE.value:
        _log.warning("%s on %s lets everybody in reach of it run code here", what, host or "all addresses")
        return
    raise RPCError(
        f"{what} on {host or 'all addresses'} would let everybody in reach of it run code here: give both sides a secret "
        "(token=..., or RELAXISH_RPC_TOKEN), listen on 127.0.0.1, or insist with insecure=True (RELAXISH_RPC_INSECURE=1)"
    )


def _proof(key: bytes, role: str, challenges: tuple[bytes, bytes]) -> bytes:
    return hmac.digest(key, b"relaxish-rpc\0" + role.encode() + b"\0" + b"".join(challenges), hashlib.sha256)


def introduce(channel: Channel, key: bytes) -> None:
    """Prove to who listens that this side knows the token, and have it prove the same. Raises RPCError if it does not."""
    if not key:
        return
    mine = secrets.token_bytes(32)
    send(channel, ["token", mine])
    answer = receive(channel, HELLO_BYTES)
    if not isinstance(answer, list) or len(answer) != 3 or answer[0] != "token":
        raise RPCError(_said(answer, "the other side does not ask for a token, so it cannot be told from another"))
    theirs, proof = answer[1:]
    if not isinstance(theirs, bytes) or not isinstance(proof, bytes):
        raise RPCError("the other side answers with something else than a proof")
    if not hmac.compare_digest(proof, _proof(key, "listener", (mine, theirs))):
        raise RPCError("the other side does not know the token")
    send(channel, ["proof", _proof(key, "caller", (mine, theirs))])


def _said(answer: object, otherwise: str) -> str:
    if isinstance(answer, list) and len(answer) == 2 and answer[0] == "refused":
        return str(answer[1])
    return otherwise


def admit(channel: Channel, key: bytes) -> Any:
    """The first message of who connects, after it has proved that it knows the token, if there is one.

    Raises RPCError for everybody else, who is told so.
    """
    first = receive(channel, HELLO_BYTES)
    asks = isinstance(first, list) and bool(first) and first[0] == "token"
    if not key:
        if asks:
            send(channel, ["refused", "this side has no token"])
            raise RPCError("it has a token, and this side has none")
        return first
    if not asks or len(first) != 2 or not isinstance(first[1], bytes) or len(first[1]) < 16:
        send(channel, ["refused", "a token is needed"])
        raise RPCError("it has no token")
    mine = secrets.token_bytes(32)
    send(channel, ["token", mine, _proof(key, "listener", (first[1], mine))])
    answer = receive(channel, HELLO_BYTES)
    fits = isinstance(answer, list) and len(answer) == 2 and answer[0] == "proof" and isinstance(answer[1], bytes)
    if not fits or not hmac.compare_digest(answer[1], _proof(key, "caller", (first[1], mine))):
        send(channel, ["refused", "the token is another"])
        raise RPCError("its token is another")
    return receive(channel, HELLO_BYTES)
