"""The controller's side: a session of workers, and references to values that all of them hold.

>>> session = ThreadedSession(num_workers=2)
>>> ids = session.call_packed(session.get_global_func("runtime.disco.worker_rank"))
>>> [ids.debug_get_from_remote(w) for w in range(2)]
[0, 1]
>>> session.shutdown()
"""

from __future__ import annotations

import itertools
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.errors import RelaxishError
from ..arrays.container import ShapeTuple
from ..device import Device
from ..arrays.ndarray import NDArray, array
from . import collectives
from .links import ThreadHub, ThreadLinks
from .messages import Peer, as_error, pack, unpack
from .worker import Ref, Worker

__all__ = ["DModule", "DPackedFunc", "DRef", "PeerSession", "Session", "ThreadedSession"]

_Ref = TypeVar("_Ref", bound="DRef")


class DRef:
    """A value that each worker holds its own of."""

    def __init__(self, session: Session, register: int) -> None:
        self.session = session
        self.register = register

    def debug_get_from_remote(self, worker_id: int) -> Any:
        """One worker's value, once it is there."""
        return self.session._ask(worker_id, "value", self.register)

    def debug_copy_from(self, worker_id: int, value: object) -> None:
        """Overwrite the array of one worker."""
        self.session._ask(worker_id, "copy", self.register, _as_numpy(value))

    def __del__(self) -> None:
        if not self.session._closed:
            self.session._tell_all(("kill", self.register))


class DPackedFunc(DRef):
    """A function that each worker has; calling it calls all of them."""

    def __call__(self, *args: Any) -> DRef:
        return self.session.call_packed(self, *args)


class DModule(DRef):
    """A module that each worker has loaded."""

    def __getitem__(self, name: str) -> DPackedFunc:
        getter = self.session._method("runtime.disco.module_get_function")
        found = self.session.call_packed(getter, self, name)
        return self.session._retyped(found, DPackedFunc)


def _as_numpy(value: object) -> np.ndarray[Any, Any]:
    return value.numpy() if isinstance(value, NDArray) else np.asarray(value)


class Session:
    """Workers that all do the same; subclasses say what a worker is.

    Calls return at once; errors of workers are raised where a value is asked for or workers are waited for.
    """

    def __init__(self, num_workers: int, num_groups: int) -> None:
        if num_workers < 1 or num_groups < 1 or num_workers % num_groups:
            raise ValueError(f"{num_workers} workers cannot form {num_groups} groups of equal size")
        self._num_workers = num_workers
        self._numbers = itertools.count()
        self._functions: dict[str, DPackedFunc] = {}
        self._closed = False

    def _tell(self, worker_id: int, command: tuple[Any, ...]) -> None:
        """Send one worker a command."""
        raise NotImplementedError

    def _hear(self, worker_id: int) -> tuple[bool, Any]:
        """One worker's answer."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Wait for the workers to end."""
        raise NotImplementedError

    def _tell_all(self, command: tuple[Any, ...]) -> None:
        for worker_id in range(self._num_workers):
            self._tell(worker_id, command)

    def _ask(self, worker_id: int, *question: Any) -> Any:
        self._open()
        if not 0 <= worker_id < self._num_workers:
            raise ValueError(f"there is no worker {worker_id}; the session has {self._num_workers}")
        self._tell(worker_id, ("ask", *question))
        fine, value = self._hear(worker_id)
        if not fine:
            raise value
        return value

    def _open(self) -> None:
        if self._closed:
            raise RelaxishError("the session has been shut down")

    def _command(self, kind: str, *details: Any) -> DRef:
        self._open()
        made = DRef(self, next(self._numbers))
        self._tell_all((kind, made.register, *details))
        return made

    @staticmethod
    def _retyped(ref: DRef, kind: type[_Ref]) -> _Ref:
        made: Any = ref
        made.__class__ = kind
        return made

    def _method(self, name: str) -> DPackedFunc:
        if name not in self._functions:
            self._functions[name] = self.get_global_func(name)
        return self._functions[name]

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return self._num_workers

    def get_global_func(self, name: str) -> DPackedFunc:
        """The registered function of that name, of each worker."""
        made = self._retyped(self._command("function", name), DPackedFunc)
        return made

    def import_python_module(self, module_name: str) -> None:
        """Import a module on all workers."""
        self.call_packed(self._method("runtime.disco.import_python_module"), module_name)

    def call_packed(self, func: DRef, *args: Any) -> DRef:
        """Call a function on all workers: references stand for each worker's own value, anything else goes to all."""
        return self._command("call", Ref(func.register), *(Ref(a.register) if isinstance(a, DRef) else a for a in args))

    def empty(
        self,
        shape: Sequence[int],
        dtype: str,
        device: Device | None = None,
        worker0_only: bool = False,
        in_group: bool = True,
    ) -> DRef:
        """An array on each worker, or on the first one (of each group) only."""
        func = self._method("runtime.disco.empty")
        return self.call_packed(func, ShapeTuple(shape), str(dtype), device, worker0_only, in_group)

    def shutdown(self) -> None:
        """End the workers; values asked for before are there, nothing is afterwards."""
        if self._closed:
            return
        self._closed = True
        self._tell_all(("stop",))
        self._stop()

    def _sync_worker(self, worker_id: int) -> None:
        self._ask(worker_id, "sync")

    def sync_worker_0(self) -> None:
        """Wait until worker 0 has done all it was told."""
        self._sync_worker(0)

    def copy_from_worker_0(self, host_array: NDArray, remote_array: DRef) -> None:
        """Read worker 0's array."""
        host_array.copyfrom(self._ask(0, "contents", remote_array.register))

    def copy_to_worker_0(self, host_array: NDArray, remote_array: DRef | None = None) -> DRef:
        """Write worker 0's array; a new one if none is given."""
        if remote_array is None:
            remote_array = self.empty(host_array.shape, host_array.dtype, worker0_only=True, in_group=False)
        self._ask(0, "copy", remote_array.register, host_array.numpy())
        return remote_array

    def load_vm_module(self, path: str, device: Device | None = None) -> DModule:
        """A model, loaded by each worker from its file."""
        made = self._retyped(self.call_packed(self._method("runtime.disco.load_vm_module"), path, device), DModule)
        return made

    def init_ccl(self, ccl: str, *device_ids: int) -> None:
        """Let workers use GPUs and the communication library ``nccl`` or ``rccl``. On CPUs this is not needed."""
        if len(device_ids) == 1 and not isinstance(device_ids[0], int):
            device_ids = tuple(device_ids[0])
        self.call_packed(self._method("runtime.disco.init_ccl"), ccl, ShapeTuple(device_ids))
        for worker_id in range(self._num_workers):
            self._sync_worker(worker_id)

    def broadcast(self, src: NDArray | np.ndarray[Any, Any], dst: DRef | None = None, in_group: bool = True) -> DRef:
        """An array of the controller on each worker."""
        source = src if isinstance(src, NDArray) else array(src)
        if dst is None:
            dst = self.empty(source.shape, source.dtype)
        self.broadcast_from_worker0(self.copy_to_worker_0(source), dst, in_group)
        return dst

    def broadcast_from_worker0(self, src: DRef, dst: DRef, in_group: bool = True) -> DRef:
        """Worker 0's array on each worker."""
        self.call_packed(self._method("runtime.disco.broadcast_from_worker0"), src, in_group, dst)
        return dst

    def scatter(self, src: NDArray | np.ndarray[Any, Any], dst: DRef | None = None, in_group: bool = True) -> DRef:
        """The parts ``src[i]`` of an array of the controller, one for each worker."""
        source = src if isinstance(src, NDArray) else array(src)
        if source.shape[0] != self._num_workers:
            raise ValueError(f"there are {self._num_workers} workers for {source.shape[0]} parts")
        if dst is None:
            dst = self.empty(source.shape[1:], source.dtype)
        self.scatter_from_worker0(self.copy_to_worker_0(source), dst, in_group)
        return dst

    def scatter_from_worker0(self, from_array: DRef, to_array: DRef, in_group: bool = True) -> None:
        """The parts of worker 0's array, one for each worker."""
        self.call_packed(self._method("runtime.disco.scatter_from_worker0"), from_array, in_group, to_array)

    def gather_to_worker0(self, from_array: DRef, to_array: DRef, in_group: bool = True) -> None:
        """All workers' arrays, one behind the other, on worker 0."""
        self.call_packed(self._method("runtime.disco.gather_to_worker0"), from_array, in_group, to_array)

    def allreduce(self, src: DRef, dst: DRef, op: str = "sum", in_group: bool = True) -> DRef:
        """All workers' arrays combined: ``sum``, ``prod``, ``min``, ``max`` or ``avg``, on each worker."""
        if op not in collectives.REDUCTIONS:
            raise ValueError(f"Unsupported reduce op: {op}. Available ops are: {collectives.REDUCTIONS}")
        kind = ShapeTuple([collectives.REDUCTIONS.index(op)])
        self.call_packed(self._method("runtime.disco.allreduce"), src, kind, in_group, dst)
        return dst

    def allgather(self, src: DRef, dst: DRef, in_group: bool = True) -> DRef:
        """All workers' arrays, one behind the other, on each worker."""
        self.call_packed(self._method("runtime.disco.allgather"), src, in_group, dst)
        return dst


class ThreadedSession(Session):
    """Workers that are threads of this process."""

    def __init__(self, num_workers: int, num_groups: int = 1) -> None:
        super().__init__(num_workers, num_groups)
        hub = ThreadHub()
        self._inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(num_workers)]
        self._answers: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(num_workers)]
        self._threads = []
        for worker_id in range(num_workers):
            worker = Worker(worker_id, num_workers, num_groups, ThreadLinks(hub, worker_id))
            inbox: Callable[[], Any] = self._inboxes[worker_id].get
            thread = threading.Thread(target=worker.serve, args=(inbox, self._answers[worker_id].put), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _tell(self, worker_id: int, command: tuple[Any, ...]) -> None:
        self._inboxes[worker_id].put(command)

    def _hear(self, worker_id: int) -> tuple[bool, Any]:
        answer: tuple[bool, Any] = self._answers[worker_id].get()
        return answer

    def _stop(self) -> None:
        for thread in self._threads:
            thread.join()


class PeerSession(Session):
    """Workers that are processes, each at the other end of a connection."""

    def __init__(self, num_workers: int, num_groups: int) -> None:
        super().__init__(num_workers, num_groups)
        self._peers: dict[int, Peer] = {}
        self._processes: list[subprocess.Popen[bytes]] = []

    def _tell(self, worker_id: int, command: tuple[Any, ...]) -> None:
        self._peers[worker_id].send(pack(list(command)))

    def _hear(self, worker_id: int) -> tuple[bool, Any]:
        fine, value = self._peers[worker_id].recv()
        return (True, unpack(value)) if fine else (False, as_error(*value))

    def _stop(self) -> None:
        for process in self._processes:
            process.wait()
        for peer in self._peers.values():
            peer.channel.close()
