"""Numbered cases in child processes: one that kills its process or does not end is a finding, and the next one runs."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Ended", "numbered"]

_BATCH_SECONDS = 30.0
_GRACE = 30  # seconds after which a blocked child without a parent ends itself


@dataclass(frozen=True)
class Ended:
    """A case that gave nothing: ``status`` is slow (no end within the limit) or crashed (it raised, or its process died)."""

    status: str
    reason: str


class _Batch:
    """A forked child that does cases from ``first`` on and sends what each gave."""

    def __init__(self, attempt: Callable[[int], Any], first: int, most: int, patience: float) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.patience = patience
        self.reader, writer = multiprocessing.Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.reader.close()
                _serve(attempt, first, most, patience, writer)
                status = 0
            except BrokenPipeError:  # nobody listens any more
                pass
            except BaseException:  # no exception may leave a forked child
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        writer.close()

    def next(self) -> Any:
        """Result of the next case; None after the last one of the batch, ``Ended`` when there will be no more."""
        try:
            if not self.reader.poll(self.patience):
                return Ended("slow", f"no end after {self.patience:g} s")
            return self.reader.recv()
        except (EOFError, ConnectionResetError):
            pass
        status = os.waitpid(self.pid, 0)[1]
        self.pid = 0
        if os.WIFSIGNALED(status):
            return Ended("crashed", f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
        return Ended("crashed", f"the process ended with status {os.waitstatus_to_exitcode(status)}")

    def close(self) -> None:
        """End the child, if it is there still, with all that it started."""
        self.reader.close()
        if self.pid:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def _serve(attempt: Callable[[int], Any], first: int, most: int, patience: float, writer: Connection) -> None:
    os.setpgid(0, 0)  # what a case starts ends with the batch; an interrupt from the terminal is the parent's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    gc.freeze()  # what the parent has loaded is here to stay: no collection need look at it
    stop = time.monotonic() + _BATCH_SECONDS
    for number in range(first, first + most):
        signal.alarm(int(patience) + _GRACE)
        try:
            gave = attempt(number)
        except Exception:  # a case that raises is a finding like any other
            gave = Ended("crashed", traceback.format_exc())
        writer.send(gave)
        if time.monotonic() > stop:
            break
    writer.send(None)


def numbered(
    attempt: Callable[[int], Any], first: int, seconds: float, patience: float = 60.0, most: int = 500
) -> Generator[tuple[int, Any], None, None]:
    """(number, what ``attempt(number)`` gave) for ``first``, ``first + 1``, ... until the time is up; at least one.

    The cases run in children that take up to ``most`` of them each. A case without an end after ``patience`` seconds,
    or whose process dies, gives :class:`Ended`.  Results must be picklable and not None.

    >>> next(numbered(lambda number: number * 2, 21, 0.0))
    (21, 42)
    """
    end = time.monotonic() + seconds
    number = first
    while number == first or time.monotonic() < end:
        with contextlib.closing(_Batch(attempt, number, most, patience)) as batch:
            while number == first or time.monotonic() < end:
                gave = batch.next()
                if gave is None:
                    break
                yield number, gave
                number += 1
                if isinstance(gave, Ended):
                    break
