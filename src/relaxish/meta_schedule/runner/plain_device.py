"""Timing and comparing candidates on devices without a driver interface of ours: whatever has a ``DeviceAPI`` (OpenCL)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.vm.benchmark import HostTimer
from ...runtime import NDArray, nd
from ...runtime import Device, device as device_of
from ...runtime.devices.module import DeviceModule
from ..arg_info import ArgInfo
from ..builder.artifact import unpacked
from ..builder.device_artifact import DeviceArtifact
from ..utils import get_global_func_with_default_on_worker
from .arguments import difference, shifted
from .runner import EvaluatorConfig
from .steps import default_alloc_argument, loaded_module

__all__ = ["compare", "count_devices", "execute", "measure"]

_MOST_RUNS = 10_000


def count_devices(kind: str) -> int:
    """Number of devices of a kind."""
    index = 0
    while device_of(kind, index).exist:
        index += 1
    return index


def _bound(artifact: bytes | str, arrays: Sequence[NDArray]) -> Callable[[], None]:
    found = unpacked(artifact)
    if not isinstance(found, DeviceArtifact):
        raise ValueError("no loader for this artifact on a device; give f_run_evaluator")
    call = DeviceModule.from_json(found.manifest, found.binaries).get_function(found.name)
    return lambda: call(*arrays)


def measure(
    artifact: bytes | str,
    kind: str,
    index: int,
    args_info: Sequence[ArgInfo],
    config: tuple[Any, ...],
    alloc_repeat: int,
    cooldown_sec: float,
    hooks: tuple[Any, Any, Any],
) -> list[float]:
    """Seconds of every repeat, for each set of arguments."""
    evaluator, device = EvaluatorConfig(*config), device_of(kind, index)
    alloc, evaluate, cleanup = (get_global_func_with_default_on_worker(h, None) for h in hooks)
    try:
        if alloc is not None:
            sets = alloc(device, args_info, alloc_repeat)
        else:
            sets = default_alloc_argument(device, args_info, alloc_repeat)
        if evaluate is not None:
            times = [float(x) for x in evaluate(loaded_module(artifact), device, evaluator, sets)]
        else:
            times = [t for arrays in sets for t in _time(_bound(artifact, arrays), device, evaluator)]
    finally:
        if cleanup is not None:
            cleanup()
    if cooldown_sec > 0:
        time.sleep(cooldown_sec)
    return times


def execute(
    artifact: bytes | str, make: Callable[[str], Sequence[Any]], wanted: Sequence[int], kind: str, index: int
) -> list[np.ndarray[Any, Any]]:
    """Run an artifact once; the arguments ``wanted`` as arrays of the host after it."""
    device = device_of(kind, index)
    values = [nd.array(v, device) if isinstance(v, np.ndarray) else v for v in make(kind)]
    _bound(artifact, values)()
    device.sync()
    return [v.numpy() if isinstance(v, NDArray) else np.asarray(v) for v in (values[i] for i in wanted)]


def _time(run: Callable[[], None], device: Device, config: EvaluatorConfig) -> list[float]:
    """Averages of many runs between two readings of the device's clock."""
    timer = device.api.timer(device.device_id) or HostTimer()

    def timed(number: int) -> float:
        timer.start()
        for _ in range(number):
            run()
        return float(timer.stop())

    try:
        timed(1)  # builds the kernels
        first = max(timed(1), 1e-7)
        number = max(1, config.number)
        if config.min_repeat_ms > 0:
            enough = min(int(config.min_repeat_ms / 1000 / first) + 1, _MOST_RUNS)
            # A slow candidate is known to be slow after one run.
            number = 1 if first * 1000 > config.min_repeat_ms else max(number, enough)
        return [timed(number) / number for _ in range(config.repeat)]
    finally:
        timer.close()


def compare(
    artifact: bytes | str, reference: bytes | str, args_info: list[ArgInfo], rtol: float, kind: str, index: int
) -> tuple[bool | None, str]:
    """Whether a candidate computes what the reference does, on random inputs; ``reference`` may be host code."""
    for shift in (0.0, 0.5):
        ours, theirs = shifted(args_info, shift), shifted(args_info, shift)
        _run_once(artifact, ours, kind, index)
        _run_once(reference, theirs, kind, index)
        reason = difference(ours, theirs, rtol)
        if reason:
            return False, reason
    return True, ""


def _run_once(artifact: bytes | str, arrays: list[np.ndarray[Any, Any]], kind: str, index: int) -> None:
    """Run host or device code on host arrays, in place."""
    if not isinstance(unpacked(artifact), DeviceArtifact):
        from .local_runner import load_kernel

        if load_kernel(artifact)(arrays)():
            raise RuntimeError("the reference returned an error code")
        return
    values = [nd.array(a, device_of(kind, index)) for a in arrays]
    _bound(artifact, values)()
    for array, value in zip(arrays, values, strict=True):
        array[...] = value.numpy()
