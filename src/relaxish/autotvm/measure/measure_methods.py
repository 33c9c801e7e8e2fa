"""LocalBuilder, LocalRunner and RPCRunner: what AutoTVM's users say, as settings of the measuring engine."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import secrets
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import meta_schedule as ms
from ...ir import IRModule
from ...meta_schedule.arg_info import TensorInfo
from ...meta_schedule.builder.device_artifact import is_device_target
from ...meta_schedule.builder.interpreted import build_interpreted
from ...meta_schedule.builder.local_builder import default_build
from ...meta_schedule.measure import Candidate, Measured, MeasureEngine, Prebuilt
from ...meta_schedule.postproc.verify_gpu import lowered_for_checks
from ...meta_schedule.runner import EvaluatorConfig, RPCConfig
from ...meta_schedule.runner.steps import is_host
from ...runtime.device import Device
from ...runtime.arrays.ndarray import NDArray
from ...runtime.rpc.client import RPCModule, RPCSession
from ...support.entry_points import load
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ...support.sequences import of_kind
from ...target import Target
from ...tir import PrimFunc, Schedule
from .measure import Builder, BuildResult, MeasureInput, MeasureResult, Runner, error_number

__all__ = [
    "EngineBuilder", "EngineRunner", "LocalBuilder", "LocalRunner", "RPCRunner", "begin_on_engine", "check_remote",
    "gpu_limits", "is_overlapping", "request_remote",
]  # fmt: skip

_log = get_logger("autotvm")
_GPU_LIMITS = ("max_shared_memory_per_block", "max_threads_per_block", "max_thread_x", "max_thread_y", "max_thread_z")
_INVALID_GPU = "Skipped because of invalid gpu kernel"


# ---- programs of configurations


def _program(measure_input: MeasureInput) -> IRModule | PrimFunc | Schedule:
    """What a task's template makes of a configuration."""
    task, config = measure_input.task, measure_input.config
    program = getattr(task, "program", None)
    if program is not None:
        made: IRModule = program(config)
        return made
    sch, _ = task.instantiate(config)
    return sch


def _candidate(measure_input: MeasureInput) -> Candidate:
    target = measure_input.target
    target = target if isinstance(target, Target) else Target(str(target))
    return Candidate(functools.partial(_program, measure_input), target=target, payload=measure_input)


def gpu_limits(target: Target) -> dict[str, int]:
    """Limits of a GPU's kernels, for the builder's ``check_gpu``; empty for other targets."""
    if not is_device_target(target):
        return {}
    known = {"max_thread_x": 1024, "max_thread_y": 1024, "max_thread_z": 64, **dict(target.attrs)}
    return {name: int(known[name]) for name in _GPU_LIMITS if name in known}


def _verify(limits: dict[str, int], module: IRModule, target: Target) -> str | None:
    """Why a program is not worth building: it asks for more than the device has."""
    from ...tir.analysis import verify_gpu_code

    if not limits or not is_device_target(target):
        return None
    for func in module.functions.values():
        lowered = lowered_for_checks(func, target) if isinstance(func, PrimFunc) else None
        # What cannot be lowered is for the compiler to complain about.
        if lowered is not None and not verify_gpu_code(lowered, limits):
            return _INVALID_GPU
    return None


# ---- results


def _as_result(measured: Measured) -> MeasureResult:
    """A measurement as AutoTVM says it."""
    all_cost = measured.build_seconds + measured.run_seconds
    target = getattr(measured.candidate, "target", None)
    number = int(error_number(measured.status, target is not None and is_device_target(target)))
    if not measured.ok:
        text = measured.error or measured.status.value
        return MeasureResult((text, measured.exception or RuntimeError(text)), number, all_cost, measured.timestamp)
    costs = sorted(measured.run_secs)
    # With more than two, the fastest and the slowest are left out.
    kept = costs[1:-1] if len(costs) > 2 else measured.run_secs
    return MeasureResult(tuple(kept), number, all_cost, measured.timestamp)


def begin_on_engine(
    builder: EngineBuilder, runner: EngineRunner, measure_inputs: Sequence[MeasureInput]
) -> Callable[[], list[MeasureResult]]:
    """Build, and have what was built run, on one engine; what is given waits for the results.

    What was built is removed when it has run.
    """
    candidates = [_candidate(x) for x in measure_inputs]
    batch = _engine(builder, runner, candidates[0].target if candidates else None).begin(candidates)

    def finish() -> list[MeasureResult]:
        measured = [batch.result(i) for i in range(len(batch))]
        builder.forget([m.artifact for m in measured])
        return [_as_result(m) for m in measured]

    return finish


def is_overlapping(builder: EngineBuilder, runner: EngineRunner, target: Target) -> bool:
    """Whether candidates may be built while others run."""
    return _engine(builder, runner, target).overlapping([target])


def _engine(builder: EngineBuilder, runner: EngineRunner, target: Target | None) -> MeasureEngine:
    return MeasureEngine(target or "llvm", builder.parts, runner.parts, verify=builder.verify)


# ---- builders


class EngineBuilder(Builder):
    """A builder on the engine's: :attr:`parts` is the builder of ``meta_schedule`` behind it."""

    def __init__(self, timeout: float, n_parallel: int | None, build_kwargs: dict[str, Any] | None) -> None:
        super().__init__(timeout, n_parallel, build_kwargs)
        self._builder: ms.builder.LocalBuilder | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="relaxish-autotvm-")

    def _build_function(self) -> Callable[..., Any] | None:
        return None

    @property
    def parts(self) -> ms.builder.LocalBuilder:
        """The worker processes; they start with the first batch and go on until this builder is forgotten."""
        if self._builder is None:
            self._builder = ms.builder.LocalBuilder(
                max_workers=self.n_parallel, timeout_sec=self.timeout, f_build=self._build_function()
            )
        return self._builder

    def prepare(self) -> None:
        """Begin to start the processes."""
        self.parts.pool.prepare()

    def verify(self, module: IRModule, target: Target) -> str | None:
        """Whether the device can run a program at all."""
        return _verify(self.build_kwargs.get("check_gpu") or {}, module, target)

    def forget(self, artifacts: Sequence[Any]) -> None:
        """Remove files that were built and have run."""
        for path in of_kind(artifacts, str):
            if os.path.dirname(path) == self._folder.name:
                for name in (path, os.path.splitext(path)[0] + ".json"):
                    with contextlib.suppress(OSError):
                        os.unlink(name)

    def build(self, measure_inputs: Sequence[MeasureInput]) -> list[Any]:
        """Build without running, for runners of others."""
        if not measure_inputs:
            return []
        candidates = [_candidate(x) for x in measure_inputs]
        engine = MeasureEngine(candidates[0].target or "llvm", self.parts, verify=self.verify)
        results: list[Any] = []
        for measured in engine.build(candidates):
            if measured.artifact is None:
                results.append(_as_result(measured))
            else:
                infos = [(tuple(i.shape), i.dtype) for i in _infos(measured)]
                results.append(BuildResult(measured.artifact, infos, None, measured.build_seconds))
        return results


def _infos(measured: Measured) -> list[Any]:
    from ...meta_schedule.arg_info import ArgInfo

    assert measured.program is not None
    return ArgInfo.from_entry_func(measured.program)


class LocalBuilder(EngineBuilder):
    """Builds on this machine, in ``n_parallel`` worker processes.

    ``build_func`` is ``"default"``, ``"ndk"`` (for phones, see ``contrib.ndk``), ``"stackvm"`` (no compiler: the
    interpreter runs the program), or a function ``f(output_path, objects)`` with an attribute ``output_format`` that
    links object files, ``contrib.cc.create_shared`` say. Raises ValueError for another word or a function without a
    format. ``do_fork`` and ``runtime`` are accepted: workers are always forked, from a process of their own.
    """

    def __init__(
        self,
        timeout: float = 10,
        n_parallel: int | None = None,
        build_kwargs: dict[str, Any] | None = None,
        build_func: str | Callable[..., Any] = "default",
        do_fork: bool = False,
        runtime: Any = None,
    ) -> None:
        super().__init__(timeout, n_parallel, build_kwargs)
        self.build_func = _link_function(build_func)
        self.do_fork = do_fork
        self.runtime = runtime

    def _build_function(self) -> Callable[..., Any] | None:
        if self.build_func is None:
            return None
        if self.build_func == "stackvm":
            return build_interpreted
        return functools.partial(_build_linked, self.build_func, self._folder.name)


def _link_function(build_func: Any) -> Any:
    if isinstance(build_func, str):
        if build_func in ("default", "stackvm"):
            return None if build_func == "default" else build_func
        if build_func == "ndk":
            return load("contrib.ndk")
        raise ValueError(f"Invalid build_func {build_func!r}; write 'default', 'ndk' or 'stackvm', or give a function")
    if not callable(build_func):
        raise ValueError(f"build_func is a word or a function, not a {type(build_func).__name__}")
    form = getattr(build_func, "output_format", None)
    if form is None:
        name = getattr(build_func, "__name__", type(build_func).__name__)
        raise ValueError(
            f"the build function {name} has no output format; say what it writes: {name}.output_format = 'so'"
        )
    # An archive of objects is made to be linked where it is run; the default does without.
    return None if form == "tar" else build_func


def _build_linked(link: Callable[..., Any], folder: str, mod: IRModule, target: Target, params: Any = None) -> str:
    """In the worker: compile, and have the user's function link the objects; the path of the library."""
    from ...backend.llvm.engine import triple_of
    from ...runtime.kernels.module import Module

    compiled = pickle.loads(default_build(mod, target, params))
    host = target.host if target.host is not None and target.kind.name != "llvm" else target
    path = os.path.join(folder, f"tmp_func_{secrets.token_hex(8)}.{str(link.output_format).lstrip('.')}")  # type: ignore[attr-defined]
    # Parallel loops call the thread pool, which the library brings along.
    objects = [compiled.object_bytes, _pool(triple_of(host))]
    module = Module(compiled.kernels, None, objects=objects, linker=functools.partial(_link_objects, link))
    return module.export_library(path)


@functools.lru_cache(maxsize=4)
def _pool(triple: str) -> bytes:
    """The thread pool as an object file, made once in each worker."""
    from ...backend.llvm.engine import pool_object

    return pool_object(triple)


def _link_objects(link: Callable[..., Any], path: str, objects: Sequence[bytes]) -> None:
    with tempfile.TemporaryDirectory(prefix="relaxish-objects-") as folder:
        files = []
        for number, data in enumerate(objects):
            files.append(os.path.join(folder, f"lib{number}.o"))
            with open(files[-1], "wb") as file:
                file.write(data)
        link(path, files)
    if not os.path.exists(path):
        raise RelaxishError(f"the build function wrote no file {os.path.basename(path)}")


# ---- runners


class EngineRunner(Runner):
    """A runner on the engine's: :attr:`parts` is the runner of ``meta_schedule`` behind it.

    After one warm-up come ``repeat`` costs, each the mean of ``number`` runs, or of as many as fill ``min_repeat_ms``;
    after a measurement the device rests for ``cooldown_interval`` seconds. ``enable_cpu_cache_flush`` empties the caches
    between runs.
    """

    def __init__(
        self, timeout: float, n_parallel: int | None, number: int, repeat: int, min_repeat_ms: int,
        cooldown_interval: float, enable_cpu_cache_flush: bool, module_loader: Callable[..., Any] | None,
    ) -> None:  # fmt: skip
        super().__init__(timeout, n_parallel)
        self.number = number
        self.repeat = repeat
        self.min_repeat_ms = min_repeat_ms
        self.cooldown_interval = cooldown_interval
        self.enable_cpu_cache_flush = enable_cpu_cache_flush
        self.module_loader = module_loader
        self._ref_input: list[Any] | None = None
        self._runner: ms.Runner | None = None

    @property
    def ref_input(self) -> list[Any] | None:
        """The inputs to measure with, where random ones will not do; None for random ones."""
        return self._ref_input

    @ref_input.setter
    def ref_input(self, value: Sequence[Any] | None) -> None:
        if value is not None:
            warnings.warn(
                "You are specifying fixed input for tuning the operator. Be sure your input always fits the operator: "
                "some operators transform layouts while they are tuned",
                RuntimeWarning,
                stacklevel=2,
            )
        self._ref_input = None if value is None else [_as_numpy(v) for v in value]
        self._stop()

    def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None and hasattr(runner, "shutdown"):
            runner.shutdown()

    @property
    def evaluator_config(self) -> EvaluatorConfig:
        """Timing of each candidate."""
        return EvaluatorConfig(self.number, self.repeat, self.min_repeat_ms, self.enable_cpu_cache_flush)

    @property
    def parts(self) -> ms.Runner:
        """Runner of the engine; made with the first batch."""
        if self._runner is None:
            self._runner = self._make()
        return self._runner

    def _make(self) -> ms.Runner:
        raise NotImplementedError

    def prepare(self) -> None:
        """Begin to start the processes that run on this machine."""
        target = getattr(self.task, "target", None)
        on_host = target is not None and not is_device_target(
            target if isinstance(target, Target) else Target(str(target))
        )
        if on_host and isinstance(self.parts, ms.runner.LocalRunner):
            self.parts.pool.prepare()

    def get_build_kwargs(self) -> dict[str, Any]:
        """The limits of the device, for the check before building."""
        target = getattr(self.task, "target", None)
        if target is None:
            return {}
        limits = gpu_limits(target if isinstance(target, Target) else Target(str(target)))
        return {"check_gpu": limits} if limits else {}

    def run(self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[Any]) -> list[MeasureResult]:
        """Run what another builder built."""
        from ...meta_schedule.arg_info import TensorInfo

        results: list[MeasureResult | None] = [r if isinstance(r, MeasureResult) else None for r in build_results]
        todo = [i for i, r in enumerate(results) if r is None]
        prebuilt = []
        for index in todo:
            target = measure_inputs[index].target
            infos = [TensorInfo(dtype, shape) for shape, dtype in build_results[index].arg_info]
            target = target if isinstance(target, Target) else Target(str(target))
            prebuilt.append(Prebuilt(build_results[index].filename, infos, target=target))
        if prebuilt:
            engine = MeasureEngine(prebuilt[0].target or "llvm", runner=self.parts)
            for index, measured in zip(todo, engine.measure(prebuilt), strict=True):
                measured.build_seconds = float(build_results[index].time_cost)
                results[index] = _as_result(measured)
        return [r for r in results if r is not None]


def _as_numpy(value: NDArray | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)


def _given_arguments(
    arrays: list[np.ndarray[Any, Any]], device: Device, args_info: Sequence[TensorInfo], repeat: int
) -> list[Any]:
    """In the worker: copies of the reference inputs, on the device if there is one."""
    if is_host(device):
        return [[a.copy() for a in arrays] for _ in range(repeat)]
    from ...runtime import nd

    return [[nd.array(a, device) for a in arrays] for _ in range(repeat)]


class _PatientRunner(ms.runner.LocalRunner):
    """Gives every candidate its time: slow configurations are results, too."""

    def _limit(self, key: str) -> float:
        return self.timeout_sec


class LocalRunner(EngineRunner):
    """Runs on this machine, in a process of its own."""

    def __init__(
        self,
        timeout: float = 10,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        module_loader: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(
            timeout, 1, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, module_loader
        )

    def _make(self) -> ms.Runner:
        given = functools.partial(_given_arguments, self._ref_input) if self._ref_input is not None else None
        return _PatientRunner(
            timeout_sec=self.timeout,
            evaluator_config=self.evaluator_config,
            cooldown_sec=self.cooldown_interval,
            f_alloc_argument=given,
        )


class RPCRunner(EngineRunner):
    """Runs on servers of the key ``key`` at the tracker ``host:port``, as many at a time as ``n_parallel`` says.

    ``module_loader(remote_kwargs, build_result)`` is a context manager that gives a session and the module loaded in it,
    for devices where loading takes more than uploading a file.
    """

    def __init__(
        self,
        key: str,
        host: str,
        port: int,
        priority: int = 1,
        timeout: float = 10,
        n_parallel: int | None = None,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.1,
        enable_cpu_cache_flush: bool = False,
        module_loader: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(
            timeout, n_parallel, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, module_loader
        )
        self.key = key
        self.host = host
        self.port = int(port)
        self.priority = priority
        self.build_func = "default"

    def set_task(self, task: Any) -> None:
        """Raises RuntimeError where no server of the key is free within ten seconds."""
        super().set_task(task)
        if not check_remote(getattr(task, "target", None), self.key, self.host, self.port):
            raise RuntimeError(
                f"Cannot get remote devices from the tracker at {self.host}:{self.port}: no server of the key "
                f"{self.key!r} is free. Look at its queue with `python -m relaxish.exec.query_rpc_tracker "
                f"--host {self.host} --port {self.port}`"
            )
        return None

    def _make(self) -> ms.Runner:
        config = RPCConfig(self.host, self.port, self.key, self.priority, self.timeout)  # type: ignore[arg-type]
        hooks: dict[str, Any] = {}
        if self.module_loader is not None:
            kwargs = {"device_key": self.key, "host": self.host, "port": self.port, "priority": self.priority,
                      "timeout": self.timeout}  # fmt: skip
            hooks = {
                "f_create_session": lambda _: _LoadedSession(self.module_loader, kwargs),
                "f_upload_module": lambda session, local, remote: session.load(local),
            }
        if self._ref_input is not None:
            hooks["f_alloc_argument"] = functools.partial(_remote_arguments, self._ref_input)
        return ms.runner.RPCRunner(
            config,
            self.evaluator_config,
            cooldown_sec=self.cooldown_interval,
            max_workers=self.n_parallel,
            **hooks,
        )


def _remote_arguments(
    arrays: list[np.ndarray[Any, Any]],
    session: RPCSession,
    device: Device,
    args_info: Sequence[TensorInfo],
    repeat: int,
) -> list[Any]:
    from ...runtime import nd

    return [[nd.array(a, device) for a in arrays] for _ in range(repeat)]


class _LoadedSession:
    """A session that the user's module loader opens when there is a module to load."""

    def __init__(self, loader: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        self._loader = loader
        self._kwargs = kwargs
        self._stack = contextlib.ExitStack()
        self._session: Any = None

    def load(self, path: str) -> RPCModule:
        """The module of a file, in a new session."""
        built = BuildResult(path, None, None, 0.0)
        self._session, module = self._stack.enter_context(self._loader(self._kwargs, built))
        return module

    def device(self, kind: str, index: int = 0) -> Device:
        """A device of the session."""
        return self._session.device(kind, index)

    def close(self) -> None:
        """Leave the loader's context."""
        self._stack.close()


def request_remote(
    device_key: str, host: str | None = None, port: int | None = None, priority: int = 1, timeout: float = 60
) -> RPCSession:
    """A session with a free server of a key. Raises RPCError if there is no tracker, RuntimeError without an address."""
    if host is None or port is None:
        raise RuntimeError("say where the tracker is: request_remote(key, host, port)")
    return RPCConfig(host, int(port), device_key, priority, timeout).connect_server()  # type: ignore[arg-type]


def check_remote(
    target: Any, device_key: str, host: str | None = None, port: int | None = None, priority: int = 100,
    timeout: float = 10,
) -> bool:  # fmt: skip
    """Whether a server of the key answers within ``timeout`` seconds."""
    found = threading.Event()

    def ask() -> None:
        try:
            request_remote(device_key, host, port, priority).close()
            found.set()
        except Exception:  # nobody there, or a stranger
            _log.info("no server of the key %r at %s:%s: %s", device_key, host, port, traceback.format_exc(limit=0))

    thread = threading.Thread(target=ask, name="autotvm-check-remote", daemon=True)
    thread.start()
    thread.join(timeout)
    return found.is_set()
