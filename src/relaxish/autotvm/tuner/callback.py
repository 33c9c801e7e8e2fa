"""Callbacks after each batch of measurements: ``f(tuner, inputs, results)``."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

import numpy as np

from ...support.journal import Journal
from ...support.log import get_logger
from .. import record
from ..measure.measure import MeasureInput, MeasureResult

if TYPE_CHECKING:
    from .tuner import Tuner

__all__ = ["Monitor", "log_to_database", "log_to_file", "progress_bar"]

Callback = Callable[[Any, Sequence[Any], Sequence[Any]], None]
_log = get_logger("autotvm")
_SCALES = {"Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "K": 3, "": 0}


def format_si_prefix(value: float, prefix: str) -> float:
    """A number in units of a prefix. Raises ValueError for an unknown one.

    >>> format_si_prefix(2.5e9, "G")
    2.5
    """
    if prefix not in _SCALES:
        raise ValueError(f"unknown SI prefix {prefix!r}; use one of {', '.join(filter(None, _SCALES))}")
    return float(value / 10.0 ** _SCALES[prefix])


class log_to_file:
    """Append each measurement to a log, as "json" or "pickle"; ``file_out`` is a path or an open file.

    A path is written whole lines at a time and synchronised, so that what has been measured survives ``kill -9``; a
    tuner that is given the same path in a new process goes on from what is there.
    """

    def __init__(self, file_out: Any, protocol: str = "json") -> None:
        if protocol not in ("json", "pickle"):
            raise RuntimeError(f"Invalid log protocol: {protocol}")
        self.path = Path(file_out) if isinstance(file_out, (str, os.PathLike)) else None
        self.protocol = protocol
        self.file = None if self.path is not None else file_out
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A writer that was killed may have left half a line.
            if self.path.exists() and protocol == "json":
                journal = Journal(self.path)
                journal.repair()
                journal.close()

    def __call__(self, tuner: Tuner, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        pairs = zip(inputs, results, strict=True)
        lines = "".join(record.encode(inp, res, self.protocol) + "\n" for inp, res in pairs)
        if self.path is None:
            assert self.file is not None
            self.file.write(lines)
            return
        with self.path.open("a") as out:
            out.write(lines)
            out.flush()
            os.fsync(out.fileno())


def log_to_database(db: Any) -> Callback:
    """Save each measurement to a database of AutoTVM, or each program and its times to one of ``meta_schedule``."""

    def callback(tuner: Tuner, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        from .journal import commit

        for inp, res in zip(inputs, results, strict=True):
            if hasattr(db, "commit_tuning_record"):
                commit(db, inp, res)
            else:
                db.save(inp, res)

    return callback


class Monitor:
    """Remembers the speed (operations a second) and the time of each trial."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Tuner, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            self.scores.append(_speed(inp, res))
            self.timestamps.append(float(res.timestamp))

    def reset(self) -> None:
        """Forget everything."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> np.ndarray[Any, Any]:
        """Operations a second of each trial, 0 for those that failed."""
        return np.array(self.scores)

    def trial_timestamps(self) -> np.ndarray[Any, Any]:
        """When each trial was measured (seconds since the epoch)."""
        return np.array(self.timestamps)


def _speed(inp: MeasureInput, res: MeasureResult) -> float:
    if int(res.error_no) != 0:
        return 0.0
    cost = float(np.mean(res.costs))
    return float(inp.task.flop or 0.0) / cost if cost > 0 and math.isfinite(cost) else 0.0


class progress_bar:
    """A line that shows the present and the best speed, how far tuning is, and the time it took."""

    def __init__(self, total: int, prefix: str = "", si_prefix: str = "G") -> None:
        format_si_prefix(0.0, si_prefix)
        self.total, self.prefix, self.si_prefix = total, prefix, si_prefix
        self.current = self.best = 0.0
        self.count = 0
        self.began = time.time()
        self._show()

    def _show(self) -> None:
        unit = f"{self.si_prefix}FLOPS"
        now, best = (format_si_prefix(x, self.si_prefix) for x in (self.current, self.best))
        text = f"\r{self.prefix} Current/Best: {now:7.2f}/{best:7.2f} {unit} | Progress: ({self.count}/{self.total}) "
        try:
            sys.stdout.write(f"{text}| {time.time() - self.began:.2f} s")
            sys.stdout.flush()
        except (OSError, ValueError, io.UnsupportedOperation) as error:  # nobody reads any more: tuning goes on
            _log.debug("the progress cannot be shown: %s", error)

    def __call__(self, tuner: Tuner, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            self.current = _speed(inp, res)
            self.best = max(self.best, self.current)
        self.count += len(inputs)
        self._show()
        if self.count >= self.total:
            sys.stdout.write(" Done.\n")
            sys.stdout.flush()
