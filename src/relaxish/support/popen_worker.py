"""A process that calls functions for another: ``python -m relaxish.support.popen_worker SOCKET PARENT``.

The main program of the other process is not imported: its functions come by value (:mod:`.function_pickle`).
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import sys
from typing import Any

from . import function_pickle
from .child_process import end_with_parent, unpickling
from .worker_zygote import receive_message, send_message


def _answer(payload: bytes) -> bytes:
    try:
        with unpickling():
            func, args, kwargs = pickle.loads(payload)
        answer: tuple[bool, Any] = True, func(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's function raises is handed over
        answer = False, error
    return _portable(answer)


def _portable(answer: tuple[bool, Any]) -> bytes:
    try:
        made = function_pickle.dumps(answer)
        pickle.loads(made)  # some exceptions can be pickled, but not made again
        return made
    except Exception as error:  # pickling runs code of users
        fine, value = answer
        text = f"the result cannot be sent back: {error}" if fine else f"{type(value).__name__}: {value}"
        return function_pickle.dumps((False, RuntimeError(text)))


def main(descriptor: int, parent: int) -> None:
    """Answer calls until the other side is gone."""
    end_with_parent(parent)
    sock = socket.socket(fileno=descriptor)
    with contextlib.suppress(EOFError, OSError):
        sys.path[:] = pickle.loads(receive_message(sock))
        while True:
            send_message(sock, _answer(receive_message(sock)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
