"""A worker: it keeps values in numbered registers and does what the controller says, command by command.

A command that fails makes the worker skip what follows until the controller asks it for an answer; the answer is then
the error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...support.errors import RelaxishError
from ..device import Device, cpu
from ..arrays.ndarray import NDArray
from ..registry import get_global_func
from .links import Links

__all__ = ["Ref", "Worker", "current_worker"]

_CURRENT = threading.local()


@dataclass(frozen=True)
class Ref:
    """A register of all workers, as an argument of a command."""

    register: int


def current_worker() -> Worker:
    """The worker that runs this code. Raises RelaxishError outside of one."""
    found: Worker | None = getattr(_CURRENT, "worker", None)
    if found is None:
        raise RelaxishError("this function runs on a worker of a disco session only")
    return found


class Worker:
    """One of ``num_workers``; consecutive ones form ``num_groups`` groups of equal size."""

    def __init__(self, worker_id: int, num_workers: int, num_groups: int, links: Links) -> None:
        self.worker_id = worker_id
        self.num_workers = num_workers
        self.num_groups = num_groups
        self.links = links
        self.device: Device = cpu(0)
        self.registers: dict[int, Any] = {}
        self._failure: BaseException | None = None

    @property
    def everybody(self) -> range:
        """All workers."""
        return range(self.num_workers)

    @property
    def group(self) -> range:
        """The workers of this worker's group."""
        size = self.num_workers // self.num_groups
        first = self.worker_id // size * size
        return range(first, first + size)

    def serve(self, receive: Callable[[], tuple[Any, ...]], answer: Callable[[Any], None]) -> None:
        """Obey until told to stop."""
        _CURRENT.worker = self
        try:
            while True:
                kind, *details = receive()
                if kind == "stop":
                    return
                if kind == "ask":
                    answer(self._answer(details))
                elif kind == "kill":
                    self.registers.pop(details[0], None)
                elif self._failure is None:
                    self._obey(kind, details)
        finally:
            _CURRENT.worker = None
            self.registers.clear()

    def _obey(self, kind: str, details: list[Any]) -> None:
        try:
            target, *rest = details
            self.registers[target] = self._make(kind, rest)
        except Exception as error:  # whatever a user's function raises is reported to the controller
            self._failure = error
            self.links.abort()

    def _make(self, kind: str, rest: list[Any]) -> object:
        if kind == "set":
            return rest[0]
        if kind == "function":
            return get_global_func(rest[0])
        function, *args = (self._value(a) for a in rest)
        return function(*args)

    def _value(self, item: object) -> Any:
        if not isinstance(item, Ref):
            return item
        if item.register not in self.registers:
            raise RelaxishError(f"worker {self.worker_id} has no value in register {item.register}")
        return self.registers[item.register]

    def _answer(self, details: list[Any]) -> tuple[bool, Any]:
        """(True, value) or (False, error); after an error the worker goes on."""
        if self._failure is not None:
            error, self._failure = self._failure, None
            return False, error
        kind, *rest = details
        try:
            if kind == "value":
                return True, self._value(Ref(rest[0]))
            if kind == "copy":
                self._value(Ref(rest[0])).copyfrom(rest[1])
            if kind == "contents":
                found = self._value(Ref(rest[0]))
                return True, found.numpy() if isinstance(found, NDArray) else found
        except (RelaxishError, ValueError, TypeError) as error:
            return False, error
        return True, None
