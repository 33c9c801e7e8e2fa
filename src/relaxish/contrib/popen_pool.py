"""Functions run in processes of their own, with a limit of time.

>>> worker = PopenWorker()
>>> worker.send(max, (3, 5))
>>> worker.recv()
5
>>> worker.kill()
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

__all__ = ["MapResult", "PopenPoolExecutor", "PopenWorker", "StatusKind"]

Call = Callable[..., Any]


class StatusKind(IntEnum):
    """How a call ended, or that it goes on."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


@dataclass
class MapResult:
    """How one call of :meth:`PopenPoolExecutor.map_with_error_catching` ended, and what it gave or raised."""

    status: StatusKind
    value: Any


def _obey(connection: Any, initializer: Call | None, initargs: Sequence[Any]) -> None:
    """The life of a worker process."""
    if initializer is not None:
        initializer(*initargs)
    with contextlib.suppress(EOFError):
        while True:
            func, args, kwargs = connection.recv()
            try:
                answer = True, func(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  (whatever a user's function raises is handed over)
                answer = False, error
            connection.send(answer)


class PopenWorker:
    """One process, started by the first call and again after it was killed; ``maximum_uses`` calls each."""

    def __init__(
        self, initializer: Call | None = None, initargs: Sequence[Any] = (), maximum_uses: int | None = None,
        stdout: Any = None, stderr: Any = None,
    ) -> None:  # fmt: skip
        self._initializer, self._initargs, self._maximum = initializer, tuple(initargs), maximum_uses
        self._process: Any = None
        self._connection: Any = None
        self._uses = 0
        self._timeout: float | None = None
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable for PopenWorker")

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """End the process; the next call starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._process = None

    def join(self, timeout: float | None = None) -> None:
        """Wait for the process to end."""
        if self._process is not None:
            self._process.join(timeout)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe()
        arguments = there, self._initializer, self._initargs
        self._process = context.Process(target=_obey, args=arguments, daemon=True)
        self._process.start()
        there.close()
        self._uses = 0

    def send(
        self, fn: Call, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, timeout: float | None = None
    ) -> None:
        """Start a call; ``timeout`` seconds later :meth:`recv` gives up on it."""
        if self._maximum is not None and self._uses >= self._maximum:
            self.kill()
        if not self.is_alive():
            self._start()
        self._uses += 1
        self._timeout = timeout
        self._connection.send((fn, tuple(args), kwargs or {}))

    def recv(self) -> Any:
        """What the call gave, or raised. Raises TimeoutError after the limit and ChildProcessError if the process died."""
        if not self._connection.poll(self._timeout):
            self.kill()
            raise TimeoutError
        try:
            fine, value = self._connection.recv()
        except EOFError:
            self.kill()
            raise ChildProcessError("Subprocess terminated") from None
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

    def _call(self, fn: Call, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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
            except Exception as error:  # noqa: BLE001  (whatever the function raised is the result)
                yield MapResult(StatusKind.EXCEPTION, error)

    def __del__(self) -> None:
        self._threads.shutdown(wait=False)
        for worker in self._workers.values():
            worker.kill()
