"""Shared parts of the processes started by this package: they end with their parent, and they are not started by
accident.

A process that unpickles a task imports the module the function is from. If that module starts processes when it is
imported, each of them would do so again: starting one is an error then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

from .errors import WorkerError

__all__ = ["check_may_start", "end_group", "end_with_parent", "unpickling"]

_PERIOD = 0.25
_STATE = threading.local()


@contextlib.contextmanager
def unpickling() -> Iterator[None]:
    """Scope of imports for a task of this process: they must not start processes."""
    before = getattr(_STATE, "unpickling", False)
    _STATE.unpickling = True
    try:
        yield
    finally:
        _STATE.unpickling = before


def check_may_start(what: str) -> None:
    """Raise WorkerError where starting a process would start another, and that one the next, without an end."""
    process = sys.modules.get("multiprocessing.process")
    # While a process of multiprocessing imports the main script of its parent.
    inheriting = process is not None and getattr(process.current_process(), "_inheriting", False)
    if inheriting or getattr(_STATE, "unpickling", False):
        raise WorkerError(
            f"{what} is started while a worker process imports the module that does so, which would go on without an "
            "end; start it only in the main program: put the code under `if __name__ == '__main__':`"
        )


def end_group() -> None:
    """End this process and those of its group, at once."""
    with contextlib.suppress(OSError):
        if os.getpgrp() == os.getpid():  # a group of its own
            os.killpg(0, signal.SIGKILL)
    os._exit(1)


def end_with_parent(parent: int) -> None:
    """From now on a thread looks whether the process ``parent`` is this one's parent still, and ends it if not."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PERIOD)
        end_group()

    if hasattr(os, "getppid") and not sys.platform.startswith("win"):
        threading.Thread(target=watch, name="relaxish-parent", daemon=True).start()
