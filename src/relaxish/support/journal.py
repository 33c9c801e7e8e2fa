"""Append-only JSON-lines file that survives ``kill -9`` and many writers.

An append takes an exclusive lock, repairs a torn last line left by a writer that died, writes whole lines with one
``write`` and syncs. A record is *acknowledged* once :meth:`Journal.append` returns; an acknowledged record is never
lost. Readers take a shared lock only for the moment of reading and never see half a line.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .errors import JournalError
from .log import get_logger

try:
    import fcntl
except ImportError:  # no advisory locks on this platform: single-writer use only
    fcntl = None  # type: ignore[assignment]

_log = get_logger("journal")
_CHUNK = 1 << 16
_PIECE = 1 << 22
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class Journal:
    """One journal file, opened for appending and incremental reading.

    >>> journal = Journal("records.jsonl")
    >>> journal.append({"trial": 1})
    >>> journal.read_new()
    [{'trial': 1}]
    """

    def __init__(
        self, path: str | os.PathLike[str], *, sync: bool = True, readonly: bool = False, or_readonly: bool = False
    ) -> None:
        """``or_readonly`` opens a file that may not be written for reading, with ``readonly`` set."""
        self.path = Path(path)
        self.sync = sync
        self.readonly = readonly
        self._or_readonly = or_readonly
        self.skipped = 0
        self._position = 0
        self._thread_lock = threading.Lock()
        self._fd = self._open()
        self._pid = os.getpid()

    def _open(self) -> int:
        flags = os.O_RDONLY if self.readonly else os.O_RDWR | os.O_APPEND | os.O_CREAT
        fresh = not self.path.exists()
        try:
            if not self.readonly:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as err:
            if self._or_readonly and not self.readonly and err.errno in _NOT_WRITABLE and self.path.exists():
                self.readonly = True
                return self._open()
            raise JournalError(f"cannot open journal {self.path}: {err.strerror}") from err
        if fresh and self.sync and not self.readonly:
            _sync_directory(self.path.parent)
        return fd

    def _descriptor(self) -> int:
        # flock belongs to the open file, which a forked child shares: the child needs its own or locks do not exclude.
        if self._fd < 0 or self._pid != os.getpid():
            self._fd = self._open()
            self._pid = os.getpid()
            self._thread_lock = threading.Lock()
        return self._fd

    @contextlib.contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[int]:
        """Hold the file lock; not reentrant within one Journal object."""
        fd = self._descriptor()
        with self._thread_lock:
            if fcntl is None:
                yield fd
                return
            fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            try:
                yield fd
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def append(self, record: Any) -> None:
        """Write one record durably."""
        self.extend((record,))

    def extend(self, records: Iterable[Any], *, sync: bool = True) -> None:
        """Write several records durably with one lock, one write and one sync.

        Without ``sync`` they survive the death of this process but not of the machine, until :meth:`flush`.
        """
        data = b"".join(json.dumps(r, separators=(",", ":")).encode() + b"\n" for r in records)
        if not data:
            return
        if self.readonly:
            raise JournalError(f"journal {self.path} was opened read-only")
        with self.lock() as fd:
            end = _repair_tail(fd, self.path)
            self._write(fd, data, end, sync)

    def _write(self, fd: int, data: bytes, end: int, sync: bool) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(fd, view) :]
            if self.sync and sync:
                os.fsync(fd)
        except OSError as err:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, end)
            raise JournalError(f"cannot write to journal {self.path}: {err.strerror}") from err

    def flush(self) -> None:
        """Make what was written without ``sync`` safe against power failure as well. Raises JournalError if it cannot."""
        if self.sync and not self.readonly:
            try:
                os.fsync(self._descriptor())
            except OSError as err:
                raise JournalError(f"cannot write to journal {self.path}: {err.strerror}") from err

    def read_new(self) -> list[Any]:
        """Complete records added (by anyone) since the last call; the first call returns all."""
        with self.lock(shared=True) as fd:
            data = _read_from(fd, self._position)
        cut = data.rfind(b"\n") + 1
        self._position += cut
        return self._parse(data[:cut])

    def complete_end(self) -> int:
        """Current end of the last complete line."""
        with self.lock(shared=True) as fd:
            return _complete_end(fd)

    def lines_new(self, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Offset and text of each complete line since the last call, unparsed and without its newline.

        The position moves with what was taken; ``end`` is where to stop, from :meth:`complete_end`. Lines are read in
        pieces, so that a large file needs little memory.
        """
        if end is None:
            end = self.complete_end()
        fd = self._descriptor()
        rest = b""
        while self._position + len(rest) < end:
            at = self._position + len(rest)
            data = rest + os.pread(fd, min(_PIECE, end - at), at)
            if len(data) == len(rest):  # somebody made the file shorter
                return
            begin = 0
            while (cut := data.find(b"\n", begin)) >= 0:
                offset = self._position
                self._position += cut + 1 - begin
                yield offset, data[begin:cut]
                begin = cut + 1
            rest = data[begin:]

    def read_at(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, as :meth:`lines_new` gave them. Raises JournalError if they are gone."""
        try:
            data = os.pread(self._descriptor(), length, offset)
        except OSError as err:
            raise JournalError(f"cannot read journal {self.path}: {err.strerror}") from err
        if len(data) != length:
            raise JournalError(f"journal {self.path} was made shorter while it was in use")
        return data

    def read(self) -> list[Any]:
        """All complete records from the beginning; does not move the position of :meth:`read_new`."""
        with self.lock(shared=True) as fd:
            data = _read_from(fd, 0)
        return self._parse(data[: data.rfind(b"\n") + 1])

    def _parse(self, data: bytes) -> list[Any]:
        records = []
        for line in data.split(b"\n"):
            if not line.strip():
                continue
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError):
                self.skipped += 1
                _log.warning("%s: skipping a damaged line of %d bytes", self.path, len(line))
        return records

    def repair(self) -> None:
        """Drop a torn last line now instead of at the next append."""
        with self.lock() as fd:
            _repair_tail(fd, self.path)

    def close(self) -> None:
        """Close the file; a later call opens it again."""
        if self._fd >= 0 and self._pid == os.getpid():
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _sync_directory(path: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _read_from(fd: int, position: int) -> bytes:
    chunks = []
    while chunk := os.pread(fd, 1 << 20, position):
        chunks.append(chunk)
        position += len(chunk)
    return b"".join(chunks)


def _complete_end(fd: int) -> int:
    """Where the last complete line ends."""
    end = os.fstat(fd).st_size
    while end > 0:
        begin = max(0, end - _CHUNK)
        cut = os.pread(fd, end - begin, begin).rfind(b"\n")
        if cut >= 0:
            return begin + cut + 1
        end = begin
    return 0


def _repair_tail(fd: int, path: Path) -> int:
    """Make the file end in a newline; returns its length. Call with the exclusive lock held."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return size
    begin = size
    tail = b""
    while begin > 0 and b"\n" not in tail:
        step = min(_CHUNK, begin)
        begin -= step
        tail = os.pread(fd, step, begin) + tail
    fragment = tail[tail.rfind(b"\n") + 1 :]
    if fragment[:1] in (b"{", b"[") and _is_json(fragment):
        os.write(fd, b"\n")  # only the newline was lost
        return size + 1
    _log.warning("%s: dropping a torn last line of %d bytes", path, len(fragment))
    os.ftruncate(fd, size - len(fragment))
    return size - len(fragment)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
