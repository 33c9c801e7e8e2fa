"""Inside the process that owns one GPU: timing candidates and comparing what they compute.

A kernel that crashes takes the device's context with it, so that nothing else can run in the process: it ends, and the
pool starts another.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime import NDArray, nd
from ...runtime import device as device_of
from ...runtime.vm.benchmark import HostTimer
from ...runtime.device import Clock
from ...runtime.nvidia import providers
from ...runtime.nvidia.errors import CUDAError
from ...runtime.nvidia.module import CUDAModule
from ...runtime.nvidia.state import CUDAState
from ...runtime.nvidia.timeline import Graph
from ..arg_info import ArgInfo
from ..builder.artifact import unpacked
from ..builder.device_artifact import DeviceArtifact
from ..utils import get_global_func_with_default_on_worker
from . import plain_device
from .arguments import alloc_arguments, arguments_key, difference, shifted
from .runner import EvaluatorConfig
from .steps import loaded_module

__all__ = [
    "DEVICE_LOST", "OTHER_KINDS", "compare_on_device", "count_devices", "execute_on_device", "measure_on_device",
]  # fmt: skip

# Kinds of devices without CUDA's driver; where a provider is asked for, their name takes its place.
OTHER_KINDS = ("opencl", "rocm", "metal", "vulkan", "webgpu", "nvptx")
# How a process ends whose device is lost.
DEVICE_LOST = 70
_FLUSHED_TIMES = 2
# Copies of small arguments that runs take in turns; tasks that need more of them are bound by launches, not by memory.
_MOST_COPIES = 64
_MOST_RUNS = 100_000
_OPEN: dict[str, contextlib.ExitStack] = {}


def _open(provider: str) -> CUDAState:
    """The state of a provider; it stays in use for the life of the process."""
    if provider not in _OPEN:
        stack = contextlib.ExitStack()
        stack.enter_context(providers.use(provider))
        _OPEN[provider] = stack
    return providers.current()


def count_devices(provider: str) -> int:
    """Number of the provider's devices; for other devices than CUDA's the kind stands for it."""
    if provider in OTHER_KINDS:
        return plain_device.count_devices(provider)
    return int(_open(provider).driver.device_count())


@contextlib.contextmanager
def _ends_with_the_device() -> Iterator[None]:
    """End the process when the device is lost; the message is the last line of its log."""
    try:
        yield
    except CUDAError as error:
        if not error.sticky:
            raise
        text = str(error).strip().splitlines()
        print(f"the device is lost: {text[0] if text else type(error).__name__}", file=sys.stderr, flush=True)
        os._exit(DEVICE_LOST)


@contextlib.contextmanager
def _loaded(artifact: bytes | str) -> Iterator[tuple[DeviceArtifact, CUDAModule]]:
    """A candidate's module; the device forgets it at the end, since thousands follow."""
    found = unpacked(artifact)
    if not isinstance(found, DeviceArtifact) or found.kind != "cuda":
        raise ValueError("no loader for this artifact on a device; give f_run_evaluator")
    module = CUDAModule.from_json(found.manifest, found.binaries)
    try:
        yield found, module
    finally:
        module.unload()


def _bound(module: CUDAModule, name: str, sets: Sequence[Sequence[NDArray]]) -> Callable[[], None]:
    """A run with each set of arguments, one after the other."""
    call = module.get_function(name)

    def run() -> None:
        for arrays in sets:
            call(*arrays)

    return run


def _on_device(arrays: Sequence[np.ndarray[Any, Any]], index: int) -> list[NDArray]:
    return [nd.array(a, device_of("cuda", index)) for a in arrays]


# ---- timing


_LAST_ARGUMENTS: list[tuple[str, list[list[NDArray]]]] = []
# Copies of a set of arguments, by the address of its first array; they belong to the arguments above.
_COPIES: dict[int, list[list[NDArray]]] = {}


def _arguments(args_info: Sequence[ArgInfo], index: int, repeat: int) -> list[list[NDArray]]:
    """Sets of arguments on the device; candidates of one task get the same ones, which would take seconds to draw."""
    key = f"{index} {repeat} {arguments_key(args_info)}"
    if not _LAST_ARGUMENTS or _LAST_ARGUMENTS[0][0] != key:
        _LAST_ARGUMENTS.clear()  # before the next ones are made: both may not fit
        _COPIES.clear()
        _LAST_ARGUMENTS.append((key, [_on_device(alloc_arguments(args_info, seed), index) for seed in range(repeat)]))
        return _LAST_ARGUMENTS[0][1]
    # An index that one candidate overwrote would send the next one out of its arrays.
    integers = [i for i, info in enumerate(args_info) if getattr(info, "values", None) is not None]
    for seed, arrays in enumerate(_LAST_ARGUMENTS[0][1] if integers else ()):
        fresh = alloc_arguments([args_info[i] for i in integers], seed)
        for i, array in zip(integers, fresh, strict=True):
            for one in (arrays, *_COPIES.get(arrays[0].ptr, ())):
                one[i].copyfrom(array)
    return _LAST_ARGUMENTS[0][1]


def _in_turns(
    state: CUDAState, index: int, arrays: Sequence[NDArray], once: Callable[[], None], config: EvaluatorConfig
) -> list[Sequence[NDArray]]:
    """The sets of arguments that timed runs take in turns, so that each finds its own out of the second-level cache.

    One set where it does not fit into the cache, or where a run takes so long that the time to fill allows no more.
    """
    cache = int(state.driver.attribute(index, "l2_cache_size_bytes") or 0)
    nbytes = sum(array.nbytes for array in arrays)
    ours = bool(_LAST_ARGUMENTS) and any(arrays is known for known in _LAST_ARGUMENTS[0][1])
    if not ours or nbytes == 0 or nbytes >= cache or config.enable_cpu_cache_flush:
        return [arrays]
    timer = device_of("cuda", index).api.timer(index) or HostTimer()
    try:
        timer.start()
        once()
        seconds = max(float(timer.stop()), 1e-7)
    finally:
        timer.close()
    allowed = int(config.min_repeat_ms / 1000 / seconds) if config.min_repeat_ms > 0 else config.number
    count = max(1, min(-(-_FLUSHED_TIMES * cache // nbytes), _MOST_COPIES, allowed))
    copies = _COPIES.setdefault(arrays[0].ptr, [])
    while len(copies) < count - 1:
        copies.append([array.copyto(array.device) for array in arrays])
    return [arrays, *copies[: count - 1]]


def measure_on_device(
    artifact: bytes | str,
    device_type: str,
    index: int,
    args_info: Sequence[ArgInfo],
    config: tuple[Any, ...],
    alloc_repeat: int,
    cooldown_sec: float,
    hooks: tuple[Any, Any, Any],
    provider: str,
) -> list[float]:
    """Seconds of every repeat, for each set of arguments."""
    if provider in OTHER_KINDS:
        return plain_device.measure(artifact, device_type, index, args_info, config, alloc_repeat, cooldown_sec, hooks)
    evaluator = EvaluatorConfig(*config)
    alloc, evaluate, cleanup = (get_global_func_with_default_on_worker(h, None) for h in hooks)
    with _ends_with_the_device():
        state = _open(provider)
        try:
            if alloc is not None:
                sets = alloc(device_of(device_type, index), args_info, alloc_repeat)
            else:
                sets = _arguments(args_info, index, alloc_repeat)
            if evaluate is not None:
                times = [
                    float(x) for x in evaluate(loaded_module(artifact), device_of(device_type, index), evaluator, sets)
                ]
            else:
                with _loaded(artifact) as (found, module):
                    times = [t for arrays in sets for t in _measure(state, index, found, module, arrays, evaluator)]
        finally:
            if cleanup is not None:
                cleanup()
    if cooldown_sec > 0:
        time.sleep(cooldown_sec)
    return times


def _measure(
    state: CUDAState,
    index: int,
    artifact: DeviceArtifact,
    module: CUDAModule,
    arrays: Sequence[NDArray],
    config: EvaluatorConfig,
) -> list[float]:
    once = _bound(module, artifact.name, [arrays])
    once()
    state.driver.synchronize(index)
    if state.driver.image_format in ("null", "emulated"):
        # Nothing here takes as long as on a device.
        return [artifact.simulated_seconds] * max(1, config.repeat)
    sets = _in_turns(state, index, arrays, once, config)
    run = _bound(module, artifact.name, sets)
    with _own_stream(state, index) as stream:
        graph = _captured(state, index, stream, run)
        timer = device_of("cuda", index).api.timer(index) or HostTimer()
        try:
            replay = run if graph is None else lambda: state.driver.launch_graph(graph, stream)
            return _time(state, index, replay, len(sets), timer, config)
        finally:
            timer.close()
            if graph is not None:
                state.driver.destroy_graph(graph)


@contextlib.contextmanager
def _own_stream(state: CUDAState, index: int) -> Iterator[int]:
    """A stream for a while, since the default one cannot be captured; its pools of memory end with it."""
    stream = state.driver.create_stream(index)
    state.set_stream(index, stream)
    try:
        yield stream
    finally:
        state.set_stream(index, 0)
        state.driver.destroy_stream(index, stream)
        state.take_pools(index, stream)


def _captured(state: CUDAState, index: int, stream: int, run: Callable[[], None]) -> Graph | None:
    """The run as a graph, so that the host's work is not timed; None where it cannot be captured."""
    try:
        run()
        state.driver.synchronize_stream(index, stream)
        state.begin_capture(index, stream)
        try:
            run()
        finally:
            graph = state.end_capture(index, stream)
    except CUDAError as error:
        if error.sticky:
            raise
        return None
    return graph


def _time(
    state: CUDAState, index: int, run: Callable[[], None], each: int, timer: Clock, config: EvaluatorConfig
) -> list[float]:
    """Averages of many runs between two events; before each, the second-level cache is emptied.

    ``run`` does ``each`` of them.
    """
    driver = state.driver
    nbytes = _FLUSHED_TIMES * int(driver.attribute(index, "l2_cache_size_bytes") or 0)
    flush = driver.allocate(index, nbytes) if nbytes else 0

    def timed(number: int) -> float:
        if flush:
            driver.fill(index, flush, 0, nbytes, state.stream(index))
        timer.start()
        for _ in range(number):
            run()
        return float(timer.stop())

    try:
        first = max(timed(1) / each, 1e-7)
        number = max(1, config.number)
        if config.enable_cpu_cache_flush:
            # Every run is to find the cache empty.
            return [sum(timed(1) for _ in range(number)) / number for _ in range(config.repeat)]
        if config.min_repeat_ms > 0:
            number = max(number, min(int(config.min_repeat_ms / 1000 / first) + 1, _MOST_RUNS))
            # A slow candidate is known to be slow after one run.
            number = 1 if first * 1000 > config.min_repeat_ms else number
        turns = -(-number // each)
        return [timed(turns) / (turns * each) for _ in range(config.repeat)]
    finally:
        if flush:
            driver.free(index, flush)


# ---- what is computed


def execute_on_device(
    artifact: bytes | str, make: Callable[[str], Sequence[Any]], wanted: Sequence[int], index: int, provider: str
) -> list[np.ndarray[Any, Any]]:
    """Run an artifact once; the arguments ``wanted`` as arrays of the host after it.

    Raises RuntimeError where nothing is computed.
    """
    if provider in OTHER_KINDS:
        return plain_device.execute(artifact, make, wanted, provider, index)
    with _ends_with_the_device():
        state = _open(provider)
        if state.driver.image_format == "null":
            raise RuntimeError("the null driver computes nothing")
        place = device_of("cuda", index)
        values = [nd.array(v, place) if isinstance(v, np.ndarray) else v for v in make("cuda")]
        with _loaded(artifact) as (found, module):
            module.get_function(found.name)(*values)
            state.driver.synchronize(index)
        return [v.numpy() if isinstance(v, NDArray) else np.asarray(v) for v in (values[i] for i in wanted)]


def compare_on_device(
    artifact: bytes | str, reference: bytes | str, args_info: list[ArgInfo], rtol: float, index: int, provider: str
) -> tuple[bool | None, str]:
    """Whether a candidate computes what the reference does, on random inputs; ``reference`` may be host code."""
    if provider in OTHER_KINDS:
        return plain_device.compare(artifact, reference, args_info, rtol, provider, index)
    with _ends_with_the_device():
        state = _open(provider)
        if state.driver.image_format == "null":
            return None, "the null driver computes nothing"
        for shift in (0.0, 0.5):
            ours = shifted(args_info, shift)
            _run_once(state, artifact, ours, index)
            reason = difference(ours, _reference(state, reference, args_info, shift, index), rtol)
            if reason:
                return False, reason
    return True, ""


_REFERENCES: dict[tuple[bytes, str, float], list[np.ndarray[Any, Any]]] = {}


def _reference(
    state: CUDAState, reference: bytes | str, args_info: list[ArgInfo], shift: float, index: int
) -> list[np.ndarray[Any, Any]]:
    """What the reference computes: once for all finalists of a task, since the host may take long for it."""
    key = (
        hashlib.sha256(reference if isinstance(reference, bytes) else reference.encode()).digest(),
        arguments_key(args_info),
        shift,
    )
    if key not in _REFERENCES:
        if any(kept[:2] != key[:2] for kept in _REFERENCES):
            _REFERENCES.clear()
        arrays = shifted(args_info, shift)
        _run_once(state, reference, arrays, index)
        _REFERENCES[key] = arrays
    return _REFERENCES[key]


def _run_once(state: CUDAState, artifact: bytes | str, arrays: list[np.ndarray[Any, Any]], index: int) -> None:
    """Run host or device code on host arrays, in place."""
    if not isinstance(unpacked(artifact), DeviceArtifact):
        from .local_runner import load_kernel

        if load_kernel(artifact)(arrays)():
            raise RuntimeError("the reference returned an error code")
        return
    values = _on_device(arrays, index)
    with _loaded(artifact) as (found, module):
        _bound(module, found.name, [values])()
        state.driver.synchronize(index)
    for array, value in zip(arrays, values, strict=True):
        array[...] = value.numpy()
