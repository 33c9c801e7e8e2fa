"""Measures candidates in persistent worker processes of this machine: one for its processor, one for each device."""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime import NDArray, device
from ...runtime.nvidia import providers
from ...support.workers import TaskFuture, TaskResult, WorkerPool
from ..arg_info import ArgInfo
from ..builder.artifact import unpacked
from ..builder.device_artifact import DeviceArtifact, needs_machine_code
from ..builder.interpreted import InterpretedArtifact
from ..measure.status import reason_of, status_of_task
from ..utils import PRELOAD, get_global_func_with_default_on_worker, Hook
from .arguments import alloc_arguments, arguments_key, difference, shifted
from .runner import EvaluatorConfig, Runner, RunnerFuture, RunnerInput, RunnerResult
from .steps import default_alloc_argument, default_cleanup, default_run_evaluator, loaded_module

# A candidate this many times slower than the fastest one is not worth waiting for.
_HOPELESS = 50.0
# So long a candidate is looked at that may be clearly worse than another.
_GLANCE_SECONDS = 2e-3

__all__ = [
    "LocalRunner", "LocalRunnerFuture", "alloc_arguments", "default_alloc_argument", "default_cleanup",
    "default_run_evaluator", "load_kernel", "run_guarded",
]  # fmt: skip

# Kinds of targets whose code runs in the worker itself.
_HOST_KINDS = ("llvm", "c", "cpu")


class LocalRunnerFuture(RunnerFuture):
    """The result of one measurement in the worker."""

    def __init__(self, future: TaskFuture, note: Callable[[float], None] | None = None) -> None:
        super().__init__()
        self._future = future
        self._note = note

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> RunnerResult:
        return self._converted(self._future.result())

    def on_done(self, callback: Callable[[RunnerResult], None]) -> bool:
        self._future.add_done_callback(lambda outcome: callback(self._converted(outcome)))
        return True

    def _converted(self, outcome: TaskResult) -> RunnerResult:
        status = status_of_task(outcome.status, building=False)
        if not outcome.ok:
            reason = f"LocalRunner: {reason_of(outcome.status, _last_words(outcome), outcome.seconds)}"
            return RunnerResult(None, reason, status, outcome.seconds)
        try:
            seconds = [float(x) for x in outcome.value]
        except (TypeError, ValueError) as err:  # of somebody's f_run_evaluator
            return RunnerResult(None, f"LocalRunner: the evaluator gave no times: {err}", seconds=outcome.seconds)
        if seconds and self._note is not None and min(seconds) > 0:
            self._note(min(seconds))
        return RunnerResult(seconds, None, status, outcome.seconds)


def _last_words(outcome: TaskResult) -> str:
    """Why a task failed; a process that ended says it in the last line of its log."""
    lines = outcome.log.strip().splitlines() if outcome.status == "crash" else []
    return f"{outcome.error}: {lines[-1]}" if lines else outcome.error


class LocalRunner(Runner):
    """One worker at a time, so that measurements do not disturb each other; replaced when it dies or hangs.

    Candidates for GPUs run in one process for each device (all of ``devices``, by default every device there is), each
    with the CUDA provider this process uses. Between timed repeats the device's second-level cache is emptied.

    The hooks ``f_alloc_argument(device, args_info, alloc_repeat)``, ``f_run_evaluator(module, device, config, args)``
    and ``f_cleanup()`` are functions or names of packed functions, resolved in the worker; they may build on
    ``default_alloc_argument``, ``default_run_evaluator`` and ``default_cleanup``.
    """

    def __init__(
        self,
        timeout_sec: float = 30.0,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        alloc_repeat: int = 1,
        f_alloc_argument: Hook = None,
        f_run_evaluator: Hook = None,
        f_cleanup: Hook = None,
        initializer: Callable[[], None] | None = None,
        *,
        memory_limit: int | None = 8 << 30,
        num_threads: int | None = None,
        devices: Sequence[int] | None = None,
    ) -> None:
        self.timeout_sec = timeout_sec
        self.evaluator_config = EvaluatorConfig._normalized(evaluator_config)
        self.cooldown_sec = cooldown_sec
        self.alloc_repeat = alloc_repeat
        self.hooks = (f_alloc_argument, f_run_evaluator, f_cleanup)
        self.initializer = initializer
        self.memory_limit = memory_limit
        self.num_threads = num_threads
        #: Candidates of the next batch that take longer are timed no further than to know it; None times all in full.
        self.worst_seconds: float | None = None
        self._fastest: dict[str, float] = {}
        self._pool: WorkerPool | None = None
        self._devices = None if devices is None else list(devices)
        self._counted: dict[str, int] = {}
        self._device_pools: dict[tuple[str, int], DevicePool] = {}

    @property
    def pool(self) -> WorkerPool:
        """The worker, started on first use."""
        if self._pool is None:
            self._pool = WorkerPool(1, initializer=self.initializer, preload=PRELOAD, memory_limit=self.memory_limit)
        return self._pool

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        futures: list[RunnerFuture] = []
        for x in runner_inputs:
            key = arguments_key(x.args_info)
            if x.device_type not in _HOST_KINDS:
                futures.append(self._run_on_device(x, key))
                continue
            future = self.pool.submit(
                _measure_in_worker,
                x.artifact_path,
                x.device_type,
                x.args_info,
                tuple(self.evaluator_config),
                self.alloc_repeat,
                self.cooldown_sec,
                self.hooks,
                self.num_threads,
                self.worst_seconds,
                timeout_sec=self._limit(key),
            )
            futures.append(LocalRunnerFuture(future, functools.partial(self._note, key)))
        return futures

    def _run_on_device(self, x: RunnerInput, key: str) -> RunnerFuture:
        """Submit to the device with the least to do."""
        provider = _provider_of(x.device_type)
        pool = min(self.device_pools(provider), key=DevicePool.waiting)
        future = pool.submit(
            "measure_on_device",
            x.artifact_path,
            x.device_type,
            pool.index,
            x.args_info,
            tuple(self.evaluator_config),
            self.alloc_repeat,
            self.cooldown_sec,
            self.hooks,
            provider,
            timeout_sec=self._limit(key),
        )
        return LocalRunnerFuture(future, functools.partial(self._note, key))

    def device_pools(self, provider: str) -> list[DevicePool]:
        """A process for each device of a provider, started on first use."""
        limit = None if needs_machine_code(provider) else self.memory_limit
        devices = self._devices if self._devices is not None else list(range(max(1, self.count_devices(provider))))
        return [self._device_pool(provider, index, limit) for index in devices]

    def count_devices(self, provider: str) -> int:
        """Number of devices of a provider; 0 where it cannot be used."""
        if provider not in self._counted:
            first = self._device_pool(provider, 0, None if needs_machine_code(provider) else self.memory_limit)
            counted = first.submit("count_devices", provider, timeout_sec=self.timeout_sec).result()
            self._counted[provider] = int(counted.value) if counted.ok else 0
        return self._counted[provider]

    def _device_pool(self, provider: str, index: int, memory_limit: int | None) -> DevicePool:
        found = self._device_pools.get((provider, index))
        if found is None:
            found = self._device_pools[provider, index] = DevicePool(index, self.initializer, memory_limit)
        return found

    def _note(self, key: str, seconds: float) -> None:
        self._fastest[key] = min(seconds, self._fastest.get(key, seconds))

    def _limit(self, key: str) -> float:
        """Seconds a candidate may take: those far slower than what was seen for the same arguments are stopped."""
        fastest = self._fastest.get(key)
        if fastest is None or any(self.hooks):
            return self.timeout_sec
        config = self.evaluator_config
        usual = self.alloc_repeat * (config.repeat * (config.number * fastest + config.min_repeat_ms / 1000) + fastest)
        return min(self.timeout_sec, 2.0 + self.cooldown_sec + 2 * usual + _HOPELESS * fastest)

    def check(
        self, artifact: bytes | str, reference: bytes | str, args_info: Sequence[ArgInfo], rtol: float = 1e-4
    ) -> tuple[bool | None, str]:
        """Whether two artifacts compute the same on random inputs; None where that could not be found out."""
        made = unpacked(artifact)
        if isinstance(made, DeviceArtifact):
            provider = _provider_of(made.kind)
            pool = self.device_pools(provider)[0]
            checked = pool.submit(
                "compare_on_device",
                artifact,
                reference,
                list(args_info),
                rtol,
                pool.index,
                provider,
                timeout_sec=4 * self.timeout_sec,
            ).result()
            return checked.value if checked.ok else (None, f"{checked.status}: {_last_words(checked)}")
        outcome = self.pool.submit(
            _compare_in_worker, artifact, reference, list(args_info), rtol, timeout_sec=4 * self.timeout_sec
        ).result()
        return outcome.value if outcome.ok else (None, f"{outcome.status}: {outcome.error}")

    def execute(
        self, artifact: str | bytes, make: Callable[[str], Sequence[Any]], wanted: Sequence[int], device_type: str
    ) -> TaskResult:
        """Run an artifact once where candidates are timed; ``value`` holds the arguments ``wanted`` as arrays after it.

        ``make(device_type)`` gives the arguments there: arrays of the host, and numbers.
        """
        if device_type in _HOST_KINDS:
            future = self.pool.submit(_execute_in_worker, artifact, make, list(wanted), timeout_sec=self.timeout_sec)
            return future.result()
        provider = _provider_of(device_type)
        pool = self.device_pools(provider)[0]
        name = "execute_on_device"
        done = pool.submit(name, artifact, make, list(wanted), pool.index, provider, timeout_sec=self.timeout_sec)
        return done.result()

    def shutdown(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(kill=True)
            self._pool = None
        for pool in self._device_pools.values():
            pool.shutdown()
        self._device_pools.clear()


def _provider_of(kind: str) -> str:
    """The CUDA provider in use; other kinds of devices have one way to run, and their name stands for it."""
    return providers.chosen() if kind == "cuda" else kind


class DevicePool:
    """The process that owns one device, and what it has been asked to do."""

    def __init__(self, index: int, initializer: Callable[[], None] | None, memory_limit: int | None) -> None:
        self.index = index
        self._pool = WorkerPool(1, initializer=initializer, preload=PRELOAD, memory_limit=memory_limit)
        self._futures: list[TaskFuture] = []

    def submit(self, name: str, *args: Any, timeout_sec: float) -> TaskFuture:
        """Call a function of ``device_worker`` in the process."""
        future = self._pool.submit(_call_device_worker, name, *args, timeout_sec=timeout_sec)
        self._futures = [f for f in self._futures if not f.done()] + [future]
        return future

    def waiting(self) -> int:
        """Number of unfinished tasks."""
        return sum(not future.done() for future in self._futures)

    def shutdown(self) -> None:
        """Stop the process."""
        self._pool.shutdown(kill=True)


def _call_device_worker(name: str, *args: Any) -> Any:
    from . import device_worker

    return getattr(device_worker, name)(*args)


# ---- inside the worker


def load_kernel(artifact: str | bytes) -> Callable[[Sequence[np.ndarray[Any, Any]]], Callable[[], int]]:
    """A binder: given argument arrays, a function that runs the kernel once.

    An artifact is the code as bytes, or the path of an exported module. Raises ValueError for what is neither.
    """
    from ...runtime.kernels.kernel import PACKED_SUFFIX

    library: Any
    compiled = unpacked(artifact)
    if isinstance(compiled, InterpretedArtifact):
        return compiled.bind
    if compiled is None or isinstance(compiled, DeviceArtifact):
        library, name = _exported(str(artifact))
    else:
        from ...backend.llvm.compile import jit_load

        library, name = jit_load(compiled), next(iter(compiled.kernels))
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address(name + PACKED_SUFFIX))

    def bind(arrays: Sequence[np.ndarray[Any, Any]]) -> Callable[[], int]:
        slots = (ctypes.c_int64 * max(1, len(arrays)))(
            *[a.ptr if isinstance(a, NDArray) else a.ctypes.data for a in arrays]
        )
        address = ctypes.addressof(slots)

        def run() -> int:
            code: int = entry(address)
            return code

        run.keep = (slots, library, arrays)  # type: ignore[attr-defined]
        return run

    return bind


def _execute_in_worker(
    artifact: str | bytes, make: Callable[[str], Sequence[Any]], wanted: Sequence[int]
) -> list[np.ndarray[Any, Any]]:
    from ...runtime.arrays.ndarray import from_numpy

    values = [from_numpy(v) if isinstance(v, np.ndarray) else v for v in make("llvm")]
    call: Any = loaded_module(artifact).entry_func
    call.call(*values)
    return [v.numpy() if isinstance(v, NDArray) else np.asarray(v) for v in (values[i] for i in wanted)]


def _exported(path: str) -> tuple[Any, str]:
    """Library and entry of an exported module."""
    from ...runtime.exports.load import load_module
    from ...runtime.kernels.module import Module

    if not os.path.exists(path):
        raise ValueError(f"no loader for the artifact {path}; give f_run_evaluator")
    module = load_module(path)
    if not isinstance(module, Module) or module.library is None or module.entry_name is None:
        raise ValueError(f"{path} is not a module with one kernel for this processor; give f_run_evaluator")
    return module.library, module.entry_name


def _time(run: Callable[[], int], config: EvaluatorConfig, worst: float | None = None) -> list[float]:
    """The seconds of a run, one figure for each repeat; fewer of a candidate that is slower than ``worst``."""
    begin = time.perf_counter()
    code = run()
    first = time.perf_counter() - begin
    if code != 0:
        raise RuntimeError(f"the kernel returned the error code {code}")
    if worst is not None and first > worst:
        # The first run also reads memory for the first time: a few more say what it really takes.
        number = min(max(1, int(_GLANCE_SECONDS / first)), 1000)
        begin = time.perf_counter()
        for _ in range(number):
            run()
        seconds = (time.perf_counter() - begin) / number
        if seconds > worst:
            return [seconds]
    flush = np.zeros(32 << 20, dtype=np.uint8) if config.enable_cpu_cache_flush else None
    results = []
    for _ in range(config.repeat):
        number = max(1, config.number)
        if config.min_repeat_ms > 0 and flush is None:
            number = max(number, min(int(config.min_repeat_ms / 1000 / max(first, 1e-7)) + 1, 1_000_000))
            # A slow candidate is known to be slow after one run.
            if first * 1000 > config.min_repeat_ms:
                number = 1
        if flush is not None:
            flush += 1
        begin = time.perf_counter()
        for _ in range(number):
            run()
        results.append((time.perf_counter() - begin) / number)
        if worst is not None and results[-1] > worst:
            break
    return results


_Arrays = list[list[np.ndarray[Any, Any]]]
_LAST_ARGUMENTS: list[tuple[str, _Arrays, _Arrays]] = []


def _arguments(args_info: Sequence[ArgInfo], repeat: int) -> list[list[np.ndarray[Any, Any]]]:
    """Argument arrays for timing; candidates of one task get the same ones."""
    key = f"{repeat} {arguments_key(args_info)}"
    if not _LAST_ARGUMENTS or _LAST_ARGUMENTS[0][0] != key:
        _LAST_ARGUMENTS.clear()  # before the next ones are made: both may not fit
        made = [alloc_arguments(args_info, seed) for seed in range(repeat)]
        _LAST_ARGUMENTS.append((key, made, [[a.copy() for a in arrays] for arrays in made]))
        return made
    _, used, fresh = _LAST_ARGUMENTS[0]
    # What one candidate wrote, an index out of range or a denormal say, is not for the next one to read.
    for arrays, originals in zip(used, fresh, strict=True):
        for array, original in zip(arrays, originals, strict=True):
            np.copyto(array, original)
    return used


def _measure_in_worker(
    artifact: str | bytes,
    device_type: str,
    args_info: Sequence[ArgInfo],
    config: tuple[Any, ...],
    alloc_repeat: int,
    cooldown_sec: float,
    hooks: tuple[Any, Any, Any],
    num_threads: int | None,
    worst: float | None = None,
) -> list[float]:
    evaluator = EvaluatorConfig(*config)
    if num_threads is not None:
        from ...backend.llvm.engine import set_num_threads

        set_num_threads(num_threads)
    alloc, evaluate, cleanup = (get_global_func_with_default_on_worker(h, None) for h in hooks)
    try:
        place = device(device_type, 0)
        if evaluate is not None:
            sets = (default_alloc_argument if alloc is None else alloc)(place, args_info, alloc_repeat)
            times = [float(x) for x in evaluate(loaded_module(artifact), place, evaluator, sets)]
        else:
            sets = _arguments(args_info, alloc_repeat) if alloc is None else alloc(place, args_info, alloc_repeat)
            bind = load_kernel(artifact)
            times = [t for arrays in sets for t in _time(bind(arrays), evaluator, worst)]
    finally:
        if cleanup is not None:
            cleanup()
    if cooldown_sec > 0:
        time.sleep(cooldown_sec)
    return times


_GUARD = 4096
_PATTERN = 0xA5


def run_guarded(
    bind: Callable[[Sequence[np.ndarray[Any, Any]]], Callable[[], int]], arrays: Sequence[np.ndarray[Any, Any]]
) -> tuple[list[np.ndarray[Any, Any]], str]:
    """Run a kernel on copies of arrays; what they are then, and what is wrong if something is.

    Each copy lies between two pages of a known pattern, which a kernel that writes outside of its arrays destroys.
    """
    copies, guards = [], []
    for array in arrays:
        raw = np.full(array.nbytes + 2 * _GUARD + 64, _PATTERN, dtype=np.uint8)
        start = _GUARD + -(raw.ctypes.data + _GUARD) % 64
        copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        copies.append(copy)
        guards.append((raw[:start], raw[start + array.nbytes :]))
    code = bind(copies)()
    if code:
        return copies, f"the kernel returned the error code {code}"
    for index, sides in enumerate(guards):
        if any((side != _PATTERN).any() for side in sides):
            return copies, f"argument {index}: the kernel writes outside of it"
    return copies, ""


def _compare_in_worker(
    artifact: bytes | str, reference: bytes | str, args_info: list[ArgInfo], rtol: float
) -> tuple[bool, str]:
    bind, bind_reference = load_kernel(artifact), load_kernel(reference)
    # Once with numbers a root or logarithm accepts, once with negative ones too, which a ReLU or maximum tells apart.
    for shift in (0.0, 0.5):
        ours, theirs = shifted(args_info, shift), shifted(args_info, shift)
        # What a program does not write must not look equal by chance, what it writes must be written.
        if bind_reference(theirs)():
            return False, "the reference returned an error code"
        ours, reason = run_guarded(bind, ours)
        reason = reason or difference(ours, theirs, rtol)
        if reason:
            return False, reason
    return True, ""
