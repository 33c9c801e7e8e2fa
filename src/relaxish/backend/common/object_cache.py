"""Compiled objects on disk, found again by a key of all that they were made from.

Many processes may share the folder: an entry is written to a file of its own and renamed into place, and carries a
checksum, so a torn or foreign file reads as "not there". The knobs ``RELAXISH_CACHE`` and ``RELAXISH_CACHE_DIR`` rule.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from ...support import config

__all__ = ["key_of", "lookup", "store"]

_MAGIC = b"RXOBJ1\n"
_DIGEST = 16


def key_of(text: str, *parts: str) -> str:
    """The key of an object compiled from ``text`` with settings ``parts``; name the compiler's version among them."""
    digest = hashlib.blake2b(digest_size=20)
    for part in (*parts, repr(config.code_key())):
        digest.update(part.encode() + b"\0")
    digest.update(text.encode())
    return digest.hexdigest()


def _path(key: str) -> Path:
    return Path(config.CACHE_DIR.value) / "objects" / key[:2] / key[2:]


def lookup(key: str) -> bytes | None:
    """The object stored under ``key``; None when there is none that is whole."""
    if not config.CACHE.value:
        return None
    try:
        data = _path(key).read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST
    if not data.startswith(_MAGIC):
        return None
    body = data[head:]
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != data[len(_MAGIC) : head]:
        return None
    return body


def store(key: str, body: bytes) -> None:
    """Keep an object. A folder that cannot be written only costs the next compilation its time."""
    if not config.CACHE.value:
        return
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new")
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.blake2b(body, digest_size=_DIGEST).digest() + body)
        os.replace(name, path)
    except OSError:
        return
