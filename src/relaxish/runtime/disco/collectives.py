"""Functions that workers call: their identity, and collective operations on arrays (``runtime.disco.*``)."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from ..arrays.container import ShapeTuple
from ..device import Device, cuda, rocm
from ..exports.export import load_module
from ..exports.machines import is_machines_file, load_machine
from ..arrays.ndarray import NDArray, empty
from ..registry import register_func
from ..vm.machine import VirtualMachine
from .worker import Worker, current_worker

__all__ = ["REDUCTIONS"]

#: Names of reductions, in the order of their numbers.
REDUCTIONS = ("sum", "prod", "min", "max", "avg")

_COMBINE: tuple[Callable[..., Any], ...] = (np.add.reduce, np.multiply.reduce, np.min, np.max, np.mean)


def _on_workers(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register ``runtime.disco.<name>``; the function gets the worker first."""

    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> object:
            return function(current_worker(), *args)

        register_func(f"runtime.disco.{name}", call, override=True)
        return function

    return attach


@_on_workers("worker_id")
def _worker_id(worker: Worker) -> ShapeTuple:
    return ShapeTuple([worker.worker_id])


@_on_workers("worker_rank")
def _worker_rank(worker: Worker) -> int:
    return worker.worker_id


@_on_workers("device")
def _device(worker: Worker) -> Device:
    return worker.device


@_on_workers("init_ccl")
def _init_ccl(worker: Worker, library: str, device_ids: Sequence[int]) -> None:
    kinds = {"nccl": cuda, "rccl": rocm}
    if library not in kinds:
        raise RelaxishError(f"unknown communication library {library!r}; known: {', '.join(kinds)}")
    device = kinds[library](int(device_ids[worker.worker_id]))
    if not device.exist:
        raise RelaxishError(f"{library} needs {device}, which this machine does not have; on CPUs no library is needed")
    worker.device = device


@_on_workers("bind_worker_to_cpu_core")
def _bind(worker: Worker, cores: Sequence[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(cores[worker.worker_id])})


@_on_workers("empty")
def _empty(
    worker: Worker,
    shape: Sequence[int],
    dtype: str,
    device: Device | None,
    worker0_only: bool = False,
    in_group: bool = True,
) -> NDArray | None:
    first = worker.group[0] if in_group else 0
    if worker0_only and worker.worker_id != first:
        return None
    return empty(tuple(int(d) for d in shape), dtype, device or worker.device)


@_on_workers("sync_worker")
def _sync(worker: Worker) -> None:
    worker.device.sync()


def _members(worker: Worker, in_group: bool) -> range:
    return worker.group if in_group else worker.everybody


def _numpy(array: NDArray | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.numpy() if isinstance(array, NDArray) else array


@_on_workers("allreduce")
def _allreduce(worker: Worker, send: NDArray, kind: Sequence[int], in_group: bool, receive: NDArray) -> None:
    heard = worker.links.exchange(_members(worker, in_group), send.numpy().copy())
    receive.copyfrom(_COMBINE[int(kind[0])](np.stack(heard), axis=0).astype(send.dtype))


@_on_workers("allgather")
def _allgather(worker: Worker, send: NDArray, in_group: bool, receive: NDArray) -> None:
    heard = worker.links.exchange(_members(worker, in_group), send.numpy().copy())
    receive.copyfrom(np.concatenate([h.reshape(-1) for h in heard]).reshape(receive.shape))


def _from_first(worker: Worker, send: NDArray | None, in_group: bool) -> tuple[Any, int]:
    """What the first member has, and this worker's place among the members."""
    members = _members(worker, in_group)
    place = worker.worker_id - members[0]
    mine = None
    if place == 0:
        if send is None:
            raise RelaxishError("the first worker must have an array to send")
        mine = send.numpy().copy()
    return worker.links.exchange(members, mine)[0], place


@_on_workers("broadcast_from_worker0")
def _broadcast(worker: Worker, send: NDArray | None, in_group: bool, receive: NDArray) -> None:
    value, _ = _from_first(worker, send, in_group)
    receive.copyfrom(value.reshape(receive.shape))


@_on_workers("scatter_from_worker0")
def _scatter(worker: Worker, send: NDArray | None, in_group: bool, receive: NDArray) -> None:
    value, place = _from_first(worker, send, in_group)
    parts = value.reshape(len(_members(worker, in_group)), -1)
    receive.copyfrom(parts[place].reshape(receive.shape))


@_on_workers("gather_to_worker0")
def _gather(worker: Worker, send: NDArray, in_group: bool, receive: NDArray | None) -> None:
    members = _members(worker, in_group)
    heard = worker.links.exchange(members, send.numpy().copy())
    if worker.worker_id == members[0]:
        if receive is None:
            raise RelaxishError("the first worker must have an array to receive into")
        receive.copyfrom(np.concatenate([h.reshape(-1) for h in heard]).reshape(receive.shape))


@_on_workers("import_python_module")
def _import_python_module(worker: Worker, name: str) -> None:
    importlib.import_module(name)


@_on_workers("load_vm_module")
def _load_vm_module(worker: Worker, path: str, device: Device | None) -> VirtualMachine:
    several = is_machines_file(path)
    loaded: Any = load_machine(path, worker.worker_id, worker.num_workers) if several else load_module(path)
    return VirtualMachine(loaded, device or worker.device)


@_on_workers("module_get_function")
def _module_get_function(worker: Worker, module: Mapping[str, Any], name: str) -> Callable[..., Any]:
    return module[name]
