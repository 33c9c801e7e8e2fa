"""Journal of measurements on disk: a killed run goes on from there."""

from __future__ import annotations

import math
import os
from typing import Any, Protocol

from ...support import untrusted as ut
from ...support.errors import MalformedDataError
from ...support.journal import Journal
from ...support.log import get_logger
from ..database import hardware_fingerprint
from .engine import Measured
from .status import MeasureStatus

__all__ = ["FileJournal", "MeasureJournal"]

_log = get_logger("meta_schedule")


class MeasureJournal(Protocol):
    """Journal of an engine: looked up before measuring, and written after."""

    def known(self, candidate: object) -> Measured | None:
        """Earlier measurement of this candidate; None to measure it."""

    def write(self, measured: Measured) -> None:
        """Keep a result; called as soon as it is there, in the thread that measures."""


_LINE = ut.record(
    {
        "key": ut.text(),
        "status": ut.one_of(*(s.value for s in MeasureStatus)),
        "run_secs": ut.optional(ut.list_of(ut.number, 1 << 16)),
        "error": ut.optional(ut.text()),
        "build_seconds": ut.number,
        "run_seconds": ut.number,
        "timestamp": ut.number,
        "hardware": ut.text(),
    }
)


class FileJournal:
    """A file of JSON lines, one for each measurement of a candidate with a ``key``; safe against ``kill -9`` and other
    writers.

    ``scope`` is part of every key, say a hash of the target and the way of measuring: only what was measured under the
    same one on this machine is known. Lines that cannot be understood are passed over.
    """

    def __init__(self, path: str | os.PathLike[str], scope: str = "") -> None:
        self._file = Journal(path)
        self._scope = scope
        self._known: dict[str, dict[str, Any]] = {}

    def _key(self, candidate: object) -> str | None:
        key = getattr(candidate, "key", None)
        return None if key is None else f"{self._scope}/{key}" if self._scope else str(key)

    def known(self, candidate: object) -> Measured | None:
        """The last measurement of the candidate's key, by any process."""
        key = self._key(candidate)
        if key is None:
            return None
        for number, line in enumerate(self._file.read_new()):
            try:
                found = _LINE(line, f"{self._file.path}: line {number + 1}")
            except MalformedDataError as err:
                _log.warning("%s; it is left out", err)
                continue
            if found["hardware"] == hardware_fingerprint():
                self._known[found["key"]] = found
        found = self._known.get(key)
        if found is None:
            return None
        seconds = [float(t) for t in found["run_secs"] or ()]
        status = MeasureStatus(found["status"])
        if status.ok and not (seconds and all(math.isfinite(t) and t > 0 for t in seconds)):
            return None
        return Measured(
            candidate, status, seconds, found["error"], build_seconds=float(found["build_seconds"]),
            run_seconds=float(found["run_seconds"]), timestamp=float(found["timestamp"]), remembered=True,
        )  # fmt: skip

    def write(self, measured: Measured) -> None:
        """Append a line; candidates without a key are not kept. Raises JournalError if it cannot be written."""
        key = self._key(measured.candidate)
        if key is None or measured.remembered:
            return
        self._file.append(
            {
                "key": key,
                "status": measured.status.value,
                "run_secs": measured.run_secs or None,
                "error": measured.error[-2000:] if measured.error else None,
                "build_seconds": measured.build_seconds,
                "run_seconds": measured.run_seconds,
                "timestamp": measured.timestamp,
                "hardware": hardware_fingerprint(),
            }
        )
