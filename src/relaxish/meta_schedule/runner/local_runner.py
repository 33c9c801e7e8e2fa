"""Measures candidates in one persistent worker process of this machine."""

from __future__ import annotations

import ctypes
import functools
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...support.workers import TaskFuture, WorkerPool
from ..arg_info import ArgInfo, TensorInfo
from ..utils import get_global_func_with_default_on_worker
from .runner import EvaluatorConfig, Runner, RunnerFuture, RunnerInput, RunnerResult

# A candidate this many times slower than the fastest one is not worth waiting for.
_HOPELESS = 50.0

__all__ = ["LocalRunner", "LocalRunnerFuture", "alloc_arguments", "load_kernel"]

PRELOAD = ("numpy", "relaxish.meta_schedule.runner.local_runner", "relaxish.backend.llvm.compile", "llvmlite.binding")


class LocalRunnerFuture(RunnerFuture):
    """The result of one measurement in the worker."""

    def __init__(self, future: TaskFuture, note: Callable[[float], None] | None = None) -> None:
        super().__init__()
        self._future = future
        self._note = note

    def done(self) -> bool:
        return self._future.done()

    def result(self) -> RunnerResult:
        outcome = self._future.result()
        if outcome.ok:
            seconds = [float(x) for x in outcome.value]
            if seconds and self._note is not None:
                self._note(min(seconds))
            return RunnerResult(seconds, None)
        return RunnerResult(None, f"LocalRunner: {outcome.status}: {outcome.error}")


class LocalRunner(Runner):
    """One worker at a time, so that measurements do not disturb each other; replaced when it dies or hangs.

    The hooks ``f_alloc_argument(device, args_info, alloc_repeat)``, ``f_run_evaluator(module, device, config, args)``
    and ``f_cleanup()`` are functions or names of packed functions, resolved in the worker.
    """

    def __init__(
        self, timeout_sec: float = 30.0, evaluator_config: EvaluatorConfig | None = None, cooldown_sec: float = 0.0,
        alloc_repeat: int = 1, f_alloc_argument: Any = None, f_run_evaluator: Any = None, f_cleanup: Any = None,
        initializer: Callable[[], None] | None = None, *, memory_limit: int | None = 8 << 30,
        num_threads: int | None = None,
    ) -> None:
        self.timeout_sec = timeout_sec
        self.evaluator_config = EvaluatorConfig._normalized(evaluator_config)
        self.cooldown_sec = cooldown_sec
        self.alloc_repeat = alloc_repeat
        self.hooks = (f_alloc_argument, f_run_evaluator, f_cleanup)
        self.initializer = initializer
        self.memory_limit = memory_limit
        self.num_threads = num_threads
        self._fastest: dict[str, float] = {}
        self._pool: WorkerPool | None = None

    @property
    def pool(self) -> WorkerPool:
        """The worker, started on first use."""
        if self._pool is None:
            self._pool = WorkerPool(1, initializer=self.initializer, preload=PRELOAD, memory_limit=self.memory_limit)
        return self._pool

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        futures: list[RunnerFuture] = []
        for x in runner_inputs:
            key = str(x.args_info)
            future = self.pool.submit(
                _measure_in_worker, x.artifact_path, x.device_type, x.args_info, tuple(self.evaluator_config),
                self.alloc_repeat, self.cooldown_sec, self.hooks, self.num_threads, timeout_sec=self._limit(key))
            futures.append(LocalRunnerFuture(future, functools.partial(self._note, key)))
        return futures

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
        self, artifact: bytes, reference: bytes, args_info: Sequence[ArgInfo], rtol: float = 1e-4
    ) -> tuple[bool | None, str]:
        """Whether two artifacts compute the same on random inputs; None where that could not be found out."""
        outcome = self.pool.submit(_compare_in_worker, artifact, reference, list(args_info), rtol,
                                   timeout_sec=4 * self.timeout_sec).result()
        return outcome.value if outcome.ok else (None, f"{outcome.status}: {outcome.error}")

    def shutdown(self) -> None:
        """Stop the worker."""
        if self._pool is not None:
            self._pool.shutdown(kill=True)
            self._pool = None


# ---- inside the worker


def load_kernel(artifact: str | bytes) -> Callable[[Sequence[np.ndarray[Any, Any]]], Callable[[], int]]:
    """A binder: given argument arrays, a function that runs the kernel once."""
    if isinstance(artifact, str):
        raise ValueError(f"no loader for the artifact {artifact}; give f_run_evaluator")
    from ...backend.llvm.compile import jit_load
    from ...runtime.kernel import PACKED_SUFFIX

    compiled = pickle.loads(artifact)
    library = jit_load(compiled)
    name = next(iter(compiled.kernels))
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(library.address(name + PACKED_SUFFIX))

    def bind(arrays: Sequence[np.ndarray[Any, Any]]) -> Callable[[], int]:
        slots = (ctypes.c_int64 * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
        address = ctypes.addressof(slots)

        def run() -> int:
            code: int = entry(address)
            return code

        run.keep = (slots, library, arrays)  # type: ignore[attr-defined]
        return run

    return bind


def _aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    from ...ir.dtype import nbytes, numpy_dtype

    count = int(np.prod(shape, dtype=np.int64))
    size = max(1, count * nbytes(dtype))
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start:start + count * nbytes(dtype)].view(numpy_dtype(dtype)).reshape(shape)


def alloc_arguments(args_info: Sequence[ArgInfo], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Aligned arrays with random contents: values in [0, 1) for floats, small numbers for integers."""
    rng = np.random.default_rng(seed)
    arrays = []
    for info in args_info:
        assert isinstance(info, TensorInfo)
        array = _aligned(info.shape, info.dtype)
        if info.dtype.startswith(("float", "bfloat")):
            array[...] = rng.random(info.shape, dtype=np.float32).astype(array.dtype)
        elif info.dtype == "bool":
            array[...] = rng.integers(0, 2, info.shape)
        else:
            array[...] = rng.integers(0, 8, info.shape)
        arrays.append(array)
    return arrays


def _time(run: Callable[[], int], config: EvaluatorConfig) -> list[float]:
    begin = time.perf_counter()
    code = run()
    first = time.perf_counter() - begin
    if code != 0:
        raise RuntimeError(f"the kernel returned the error code {code}")
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
    return results


_LAST_ARGUMENTS: list[tuple[str, list[list[np.ndarray[Any, Any]]]]] = []


def _arguments(args_info: Sequence[ArgInfo], repeat: int) -> list[list[np.ndarray[Any, Any]]]:
    """Argument arrays for timing; candidates of one task get the same ones."""
    key = f"{repeat} {args_info}"
    if not _LAST_ARGUMENTS or _LAST_ARGUMENTS[0][0] != key:
        # What a candidate may have overwritten are results, or values that another run updates just as fast.
        _LAST_ARGUMENTS[:] = [(key, [alloc_arguments(args_info, seed) for seed in range(repeat)])]
    return _LAST_ARGUMENTS[0][1]


def _measure_in_worker(
    artifact: str | bytes, device_type: str, args_info: Sequence[ArgInfo], config: tuple[Any, ...], alloc_repeat: int,
    cooldown_sec: float, hooks: tuple[Any, Any, Any], num_threads: int | None,
) -> list[float]:
    evaluator = EvaluatorConfig(*config)
    if num_threads is not None:
        from ...backend.llvm.engine import set_num_threads

        set_num_threads(num_threads)
    alloc, evaluate, cleanup = (get_global_func_with_default_on_worker(h, None) for h in hooks)
    try:
        sets = _arguments(args_info, alloc_repeat) if alloc is None else alloc(device_type, args_info, alloc_repeat)
        if evaluate is not None:
            times = [float(x) for x in evaluate(artifact, device_type, evaluator, sets)]
        else:
            bind = load_kernel(artifact)
            times = [t for arrays in sets for t in _time(bind(arrays), evaluator)]
    finally:
        if cleanup is not None:
            cleanup()
    if cooldown_sec > 0:
        time.sleep(cooldown_sec)
    return times


def _compare_in_worker(
    artifact: bytes, reference: bytes, args_info: list[ArgInfo], rtol: float
) -> tuple[bool, str]:
    bind, bind_reference = load_kernel(artifact), load_kernel(reference)
    # Once with numbers a root or logarithm accepts, once with negative ones too, which a ReLU or maximum tells apart.
    for shift in (0.0, 0.5):
        ours, theirs = _shifted(args_info, shift), _shifted(args_info, shift)
        # What a program does not write must not look equal by chance, what it writes must be written.
        if bind(ours)() or bind_reference(theirs)():
            return False, "a kernel returned an error code"
        reason = _difference(ours, theirs, rtol)
        if reason:
            return False, reason
    return True, ""


def _shifted(args_info: Sequence[ArgInfo], shift: float) -> list[np.ndarray[Any, Any]]:
    arrays = alloc_arguments(args_info, 17)
    for array, info in zip(arrays, args_info, strict=True):
        if shift and isinstance(info, TensorInfo) and info.dtype.startswith(("float", "bfloat")):
            array -= np.asarray(shift, array.dtype)
    return arrays


def _difference(ours: Sequence[np.ndarray[Any, Any]], theirs: Sequence[np.ndarray[Any, Any]], rtol: float) -> str:
    """Where two lists of arrays differ by more than rounding; empty if nowhere."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        x, y = a.astype("float64"), b.astype("float64")
        scale = max(float(np.max(np.abs(y), initial=0.0)), 1e-6)
        loose = rtol if a.dtype.itemsize >= 4 else 2e-2
        if not np.array_equal(np.isnan(x), np.isnan(y)):
            return f"argument {index}: different NaNs"
        error = float(np.nanmax(np.abs(x - y), initial=0.0)) / scale
        if not error <= loose:
            return f"argument {index}: relative error {error:.3g}"
    return ""
