"""Running a check in a child process, so that a crash of compiled code is a finding and not the end."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_child"]

_T = TypeVar("_T")


def in_child(check: Callable[[], _T], seconds: int = 60) -> _T | str:
    """Result of ``check`` in a forked child, or a description of the child's death.

    >>> in_child(lambda: 1 + 1)
    2
    """
    if not hasattr(os, "fork"):
        return check()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(seconds)
        status = 1
        try:
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(check(), pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    if not data:
        return f"the child ended with status {os.waitstatus_to_exitcode(status)}"
    return pickle.loads(data)
