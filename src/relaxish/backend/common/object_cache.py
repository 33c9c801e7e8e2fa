"""Compiled objects on disk, found again by a key of all that they were made from.

Many processes may share the folder: an entry is written to a file of its own and renamed into place, and carries a
checksum of its key and contents, so a torn, foreign or misplaced file reads as "not there" and is removed. The folder
is private to the user (mode 0700); one that others can write to is not used at all, since entries are machine code. The
knobs ``RELAXISH_CACHE`` and ``RELAXISH_CACHE_DIR`` rule.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import stat
import tempfile
from pathlib import Path

from ...support import config
from ...support.log import get_logger
from ...support.private_folder import UnsafeFolderError, private_folder

__all__ = ["key_of", "lookup", "store"]

_MAGIC = b"RXOBJ2\n"
_DIGEST = 32
_log = get_logger("cache")
_WARNED: set[str] = set()


def key_of(text: str, *parts: str) -> str:
    """The key of an object compiled from ``text`` with settings ``parts``; name the compiler's version among them."""
    digest = hashlib.blake2b(digest_size=20)
    for part in (*parts, repr(config.code_key())):
        digest.update(part.encode() + b"\0")
    digest.update(text.encode())
    return digest.hexdigest()


def _path(key: str) -> Path | None:
    """Where an entry is or will be; None if the folder cannot be trusted, which is said once."""
    root = Path(config.CACHE_DIR.value)
    try:
        return private_folder(private_folder(root) / "objects") / key[:2] / key[2:]
    except UnsafeFolderError as err:
        if str(root) not in _WARNED:
            _WARNED.add(str(root))
            _log.warning("compiled objects are not kept: %s", err)
        return None


def _digest(key: str, body: bytes) -> bytes:
    digest = hashlib.sha256(key.encode() + b"\0")
    digest.update(body)
    return digest.digest()


def lookup(key: str) -> bytes | None:
    """The object stored under ``key``; None when there is none that is whole."""
    if not config.CACHE.value:
        return None
    try:
        path = _path(key)
        if path is None:
            return None
        # Without O_NONBLOCK the opening of a named pipe waits for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            data = file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST
    body = data[head:]
    if data.startswith(_MAGIC) and hmac.compare_digest(_digest(key, body), data[len(_MAGIC) : head]):
        return body
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def store(key: str, body: bytes) -> None:
    """Keep an object. A folder that cannot be written only costs the next compilation its time."""
    if not config.CACHE.value:
        return
    name = ""
    try:
        path = _path(key)
        if path is None:
            return
        private_folder(path.parent)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new")
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _digest(key, body) + body)
        os.replace(name, path)
    except (OSError, UnsafeFolderError):
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
