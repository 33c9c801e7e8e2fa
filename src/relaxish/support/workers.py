"""Pools of killable worker processes.

A task that crashes, hangs, or eats memory costs one :class:`TaskResult` saying so, and nothing else: the worker is
killed and replaced, the pool goes on. Workers are reused between tasks, so an uneventful task costs about 0.1 ms.

>>> import math
>>> from relaxish.support.workers import WorkerPool
>>> with WorkerPool(max_workers=2, memory_limit=1 << 30) as pool:
...     pool.submit(math.sqrt, 2.0, timeout_sec=10).result().value
1.4142135623730951
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import config, function_pickle
from .child_process import check_may_start
from .errors import WorkerError
from .log import get_logger
from .worker_zygote import receive_message, send_message
from .zygotes import Zygote, acquire, discard, release

_LOG_TAIL = 4000
_log = get_logger("workers")


@dataclass(frozen=True)
class TaskResult:
    """Outcome of one task.

    ``status`` is ``"ok"`` (``value`` holds the result), ``"error"`` (it raised), ``"timeout"``, ``"crash"`` (the worker
    died; ``signal`` says of what) or ``"oom"`` (it ran into the memory limit, or the system killed it for memory).
    """

    status: str
    value: Any = None
    error: str = ""
    exception: BaseException | None = None
    seconds: float = 0.0
    signal: int | None = None
    log: str = ""

    @property
    def ok(self) -> bool:
        """Whether the task returned normally."""
        return self.status == "ok"

    def unwrap(self) -> Any:
        """The value, or the error raised again here."""
        if self.ok:
            return self.value
        if self.exception is not None:
            raise self.exception
        raise WorkerError(f"task ended with {self.status}: {self.error}")


class TaskFuture:
    """A result that will be there later."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._result: TaskResult | None = None
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[TaskResult], None]] = []

    def done(self) -> bool:
        """Whether the result is there."""
        return self._event.is_set()

    def result(self, timeout: float | None = None) -> TaskResult:
        """Wait for the result; ``TimeoutError`` if it is not there in ``timeout`` seconds."""
        if not self._event.wait(timeout):
            raise TimeoutError("the task is not finished")
        assert self._result is not None
        return self._result

    def add_done_callback(self, callback: Callable[[TaskResult], None]) -> None:
        """Call ``callback(result)`` when the task ends, before :meth:`done` says so; at once if it has ended.

        It runs in the thread that drives the worker; what it raises is logged.
        """
        with self._lock:
            if self._result is None:
                self._callbacks.append(callback)
                return
        _call(callback, self._result)

    def _resolve(self, result: TaskResult) -> None:
        with self._lock:
            self._result = result
            waiting, self._callbacks = self._callbacks, []
        for callback in waiting:
            _call(callback, result)
        self._event.set()


def _call(callback: Callable[[TaskResult], None], result: TaskResult) -> None:
    try:
        callback(result)
    except Exception:  # a thread of ours must survive it
        _log.exception("a callback of a task failed")


@dataclass
class _Task:
    payload: bytes
    timeout: float | None
    future: TaskFuture


class _Worker:
    """One forked process, driven by one supervising thread."""

    def __init__(
        self, zygote: Zygote, initializer: bytes, memory_limit: int | None, born: Callable[[int], None]
    ) -> None:
        self._zygote = zygote
        self._memory_limit = memory_limit
        self.pid, self._sock, self._log_fd = zygote.fork(memory_limit)
        born(self.pid)
        try:
            send_message(self._sock, initializer)
            answer = receive_message(self._sock, time.monotonic() + config.WORKER_START_SEC.value)
            status, value, _ = pickle.loads(answer)
        except (EOFError, OSError) as err:
            log = self._log_tail()
            self.close()
            raise WorkerError(f"a worker did not start ({type(err).__name__}){': ' + log if log else ''}") from err
        if status != "ok":
            self.close()
            raise WorkerError(f"the worker initializer failed:\n{value[1] if isinstance(value, tuple) else value}")

    def run(self, task: _Task) -> tuple[TaskResult, bool]:
        """Run one task; the flag says whether the worker is still usable."""
        begin = time.monotonic()
        deadline = None if task.timeout is None else begin + task.timeout
        try:
            self._sock.settimeout(task.timeout)
            send_message(self._sock, task.payload)
            answer = receive_message(self._sock, deadline)
        except TimeoutError:
            log = self._log_tail()
            self._zygote.finish(self.pid, kill=True)
            error = f"time limit of {task.timeout:g} s exceeded"
            return TaskResult("timeout", error=error, seconds=time.monotonic() - begin, log=log), False
        except (EOFError, OSError):
            return self._obituary(time.monotonic() - begin), False
        try:
            status, value, seconds = pickle.loads(answer)
        except Exception as err:
            return TaskResult("error", error=f"the result cannot be unpickled: {err}", log=self._log_tail()), True
        if status == "ok":
            return TaskResult("ok", value, seconds=seconds), True
        if status == "oom":
            return TaskResult("oom", error=str(value), seconds=seconds, log=self._log_tail()), False
        exception, text = value
        return TaskResult("error", error=text, exception=exception, seconds=seconds, log=self._log_tail()), True

    def _obituary(self, seconds: float) -> TaskResult:
        status = self._zygote.finish(self.pid, kill=False)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        log = self._log_tail()
        if number is None:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else status
            return TaskResult("crash", error=f"worker exited with status {code}", seconds=seconds, log=log)
        name = signal.Signals(number).name
        # Nobody here sends SIGKILL to a running task, so it was the system short of memory or a person; and allocation
        # failure under a limit usually ends in abort.
        text = log.lower()
        starved = "out of memory" in text or "bad_alloc" in text or "memoryerror" in text or "cannot allocate" in text
        kind = "oom" if starved and self._memory_limit is not None else "crash"
        return TaskResult(kind, error=f"worker killed by {name}", seconds=seconds, signal=number, log=log)

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            size = os.fstat(self._log_fd).st_size
            return os.pread(self._log_fd, _LOG_TAIL, max(0, size - _LOG_TAIL)).decode(errors="replace")
        return ""

    def close(self) -> None:
        self._sock.close()
        self._zygote.finish(self.pid, kill=True)
        with contextlib.suppress(OSError):
            os.close(self._log_fd)


def _kill_group(pid: int) -> None:
    """Kill a worker with what it started; one just born leads no group yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _nothing() -> None:
    return None


class WorkerPool:
    """``max_workers`` processes taking tasks from one queue.

    ``preload`` names modules imported once, before workers are forked. ``initializer(*initargs)`` runs in each new
    worker. ``memory_limit`` (bytes) is what a worker may allocate beyond its size at start. ``max_tasks`` replaces a
    worker after that many tasks (against leaks). ``env`` adds to the environment of the workers.
    """

    def __init__(
        self,
        max_workers: int = 1,
        *,
        initializer: Callable[..., Any] | None = None,
        initargs: Sequence[Any] = (),
        memory_limit: int | None = None,
        preload: Sequence[str] = (),
        max_tasks: int | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        if max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self.max_workers = max_workers
        self._initializer = function_pickle.dumps((initializer or _nothing, tuple(initargs), {}))
        self._memory_limit = memory_limit
        self._preload = tuple(preload)
        self._max_tasks = max_tasks
        self._env = config.worker_environment(**(env or {}))
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Apart from the queue's lock: starting the zygote takes a second, in which tasks may be queued.
        self._zygote_lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._threads: list[threading.Thread] = []
        self._living: set[int] = set()
        self._idle = 0
        self._closed = False
        self._killed = False
        self._owner = os.getpid()

    def submit(
        self, func: Callable[..., Any], *args: Any, timeout_sec: float | None = None, **kwargs: Any
    ) -> TaskFuture:
        """Queue ``func(*args, **kwargs)``; the time limit counts from the moment a worker takes it."""
        if self._closed:
            raise WorkerError("the worker pool is closed")
        if self._owner != os.getpid():
            raise WorkerError("a worker pool cannot be used in a forked child")
        check_may_start("a worker pool")
        future = TaskFuture()
        task = _Task(function_pickle.dumps((func, args, kwargs)), timeout_sec, future)
        with self._lock:
            self._queue.put(task)
            if len(self._threads) < self.max_workers and self._queue.qsize() > self._idle:
                thread = threading.Thread(target=self._supervise, name="relaxish-worker", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def map(
        self, func: Callable[..., Any], arguments: Iterable[Sequence[Any]], *, timeout_sec: float | None = None
    ) -> list[TaskResult]:
        """Run ``func(*a)`` for every ``a``; results in the order given."""
        futures = [self.submit(func, *a, timeout_sec=timeout_sec) for a in arguments]
        return [f.result() for f in futures]

    def prepare(self) -> None:
        """Begin to start what the first task will need, without waiting for it."""
        if not self._closed and self._zygote is None:
            threading.Thread(target=self._prepare, name="relaxish-prepare", daemon=True).start()

    def _prepare(self) -> None:
        # A failure shows again, and is reported, when the first task needs the zygote.
        with contextlib.suppress(WorkerError):
            if not self._closed:
                self._get_zygote()
        if self._closed:
            self._give_zygote_back()

    def _get_zygote(self) -> Zygote:
        with self._zygote_lock:
            if self._zygote is None:
                self._zygote = acquire(self._preload, self._env)
            return self._zygote

    def _give_zygote_back(self) -> None:
        # A thread that prepares it still, which is not waited for, does it afterwards.
        if self._zygote_lock.acquire(blocking=False):
            zygote, self._zygote = self._zygote, None
            self._zygote_lock.release()
            if zygote is not None:
                release(zygote)

    def _drop_zygote(self, dead: Zygote) -> None:
        with self._zygote_lock:
            if self._zygote is dead:
                discard(dead)
                dead.close()
                release(dead)
                self._zygote = None

    def _note_birth(self, pid: int) -> None:
        with self._lock:
            self._living.add(pid)
            killed = self._killed
        if killed:
            _kill_group(pid)

    def _bury(self, worker: _Worker) -> None:
        with self._lock:
            self._living.discard(worker.pid)
        worker.close()

    def _start_worker(self) -> _Worker:
        for attempt in (0, 1):
            zygote = self._get_zygote()
            try:
                return _Worker(zygote, self._initializer, self._memory_limit, self._note_birth)
            except WorkerError as err:
                # Somebody may have killed the zygote itself; a second one gets a chance.
                if attempt or "gone" not in str(err):
                    raise
                self._drop_zygote(zygote)
        raise AssertionError("unreachable")

    def _supervise(self) -> None:
        worker: _Worker | None = None
        served = 0
        while True:
            with self._lock:
                self._idle += 1
            task = self._queue.get()
            with self._lock:
                self._idle -= 1
            if task is None:
                break
            try:
                if worker is None:
                    worker, served = self._start_worker(), 0
                result, usable = worker.run(task)
                served += 1
            except Exception as err:
                result, usable = TaskResult("crash", error=f"{type(err).__name__}: {err}", exception=err), False
            if worker is not None and (not usable or (self._max_tasks is not None and served >= self._max_tasks)):
                self._bury(worker)
                worker = None
            task.future._resolve(result)
        if worker is not None:
            self._bury(worker)

    def shutdown(self, *, kill: bool = False) -> None:
        """Finish queued tasks (or, with ``kill``, drop them and kill running ones) and end all workers."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        if kill:
            self._drain()
            with self._lock:
                self._killed = True
                living = list(self._living)
            for pid in living:
                _kill_group(pid)
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._give_zygote_back()

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                task = self._queue.get_nowait()
                if task is not None:
                    task.future._resolve(TaskResult("error", error="the worker pool was shut down"))

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        self.shutdown(kill=kind is not None)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.shutdown(kill=True)
