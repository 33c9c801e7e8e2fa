"""Functions run in processes of their own, with a limit of time.

The main program is not imported there: its functions travel by value, so that a script needs no
``if __name__ == "__main__":``. A worker ends with the process that started it.

>>> worker = PopenWorker()
>>> worker.send(max, (3, 5))
>>> worker.recv()
5
>>> worker.kill()
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..support import config, function_pickle, popen_worker
from ..support.child_process import check_may_start
from ..support.worker_zygote import receive_message, send_message
from ..support.zygotes import package_environment

__all__ = ["MapResult", "PopenPoolExecutor", "PopenWorker", "StatusKind"]

Call = Callable[..., Any]


class StatusKind(IntEnum):
    """Outcome of a call, or that it is still running."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


@dataclass
class MapResult:
    """Outcome of one call of :meth:`PopenPoolExecutor.map_with_error_catching`: its status, and its value or exception."""

    status: StatusKind
    value: Any


class PopenWorker:
    """One process, started by the first call and again after it was killed; ``maximum_uses`` calls each."""

    def __init__(
        self, initializer: Call | None = None, initargs: Sequence[Any] = (), maximum_uses: int | None = None,
        stdout: Any = None, stderr: Any = None,
    ) -> None:  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._uses = 0
        self._maximum = maximum_uses
        self._timeout: float | None = None
        self._streams = stdout, stderr
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable for PopenWorker")
        self._initialize: tuple[Call, tuple[Any, ...], dict[str, Any]] | None = None
        if initializer is not None:
            self._initialize = initializer, tuple(initargs), {}

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End the process, with those that it has started; the next call starts another."""
        process, self._process = self._process, None
        if self._sock is not None:
            self._sock.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the process to end."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)

    def _start(self) -> None:
        check_may_start("a worker process")
        self.kill()
        stdout, stderr = self._streams
        self._sock, theirs = socket.socketpair()
        with theirs:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", popen_worker.__name__, number, str(os.getpid())],
                pass_fds=[theirs.fileno()], env=package_environment(config.worker_environment()), stdout=stdout,
                stderr=stderr, start_new_session=True,
            )  # fmt: skip
        self._uses = 0
        send_message(self._sock, pickle.dumps([p or os.getcwd() for p in sys.path]))
        if self._initialize is not None:
            self._call(*self._initialize)
            self.recv()

    def _call(self, fn: Call, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        payload = function_pickle.dumps((fn, tuple(args), kwargs))
        assert self._sock is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended: recv will say so
            send_message(self._sock, payload)

    def send(
        self, fn: Call, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, timeout: float | None = None
    ) -> None:
        """Start a call; ``timeout`` seconds later :meth:`recv` gives up on it.

        Raises WorkerError where a module starts a worker when it is imported, and is imported by a worker.
        """
        if self._maximum is not None and self._uses >= self._maximum:
            self.kill()
        self._timeout = None
        if not self.is_alive():
            self._start()
        self._uses += 1
        self._timeout = timeout
        self._call(fn, args, kwargs or {})

    def recv(self) -> object:
        """Value of the call. Raises its exception, TimeoutError after the limit and ChildProcessError if the process
        died."""
        if self._sock is None:
            raise ChildProcessError("Subprocess terminated")
        try:
            answer = receive_message(self._sock, None if self._timeout is None else time.monotonic() + self._timeout)
        except TimeoutError:
            self.kill()
            raise TimeoutError from None
        except (EOFError, OSError):
            self.kill()
            raise ChildProcessError("Subprocess terminated") from None
        fine, value = pickle.loads(answer)
        if not fine:
            raise value
        return value

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.kill()


class PopenPoolExecutor:
    """A number of workers that calls are shared out to."""

    def __init__(
        self, max_workers: int | None = None, timeout: float | None = None, initializer: Call | None = None,
        initargs: Sequence[Any] = (), maximum_process_uses: int | None = None, stdout: Any = None, stderr: Any = None,
    ) -> None:  # fmt: skip
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable for PopenPoolExecutor")
        self._timeout = timeout
        self._options = initializer, tuple(initargs), maximum_process_uses
        self._workers: dict[int, PopenWorker] = {}
        self._threads = ThreadPoolExecutor(max_workers=max_workers or os.cpu_count())

    def _call(self, fn: Call, args: Sequence[Any], kwargs: dict[str, Any]) -> object:
        worker = self._workers.setdefault(threading.get_ident(), PopenWorker(*self._options))
        worker.send(fn, args, kwargs, self._timeout)
        return worker.recv()

    def submit(self, fn: Call, *args: Any, **kwargs: Any) -> Future[Any]:
        """A call whose result comes later."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def map_with_error_catching(self, fn: Call, iterator: Iterable[Any]) -> Iterator[MapResult]:
        """The results of all calls, in order; errors are results as well."""
        for future in [self.submit(fn, item) for item in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError as error:
                yield MapResult(StatusKind.TIMEOUT, error)
            except Exception as error:  # whatever the function raised is the result
                yield MapResult(StatusKind.EXCEPTION, error)

    def __del__(self) -> None:
        self._threads.shutdown(wait=False)
        for worker in self._workers.values():
            worker.kill()
