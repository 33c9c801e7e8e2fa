"""Builds candidates in worker processes of this machine.

What the search asks for travels back as bytes, no files, no linker; what a caller of ``build`` asks for is a file.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir import IRModule
from ...runtime.nvidia import providers
from ...runtime.registry import get_global_func
from ...support.workers import TaskFuture, WorkerPool
from ...target import Target
from ..measure.status import reason_of, status_of_task
from ..utils import PRELOAD, Hook, cpu_count, get_global_func_with_default_on_worker
from .artifact import new_folder, write_artifact
from .builder import Builder, BuilderFuture, BuilderInput, BuilderResult
from .device_artifact import build_for_device, is_device_target

__all__ = ["LocalBuilder", "default_build"]


class LocalBuilder(Builder):
    """``max_workers`` processes, each build stopped after ``timeout_sec``.

    ``f_build(mod, target, params)`` and ``f_export(module) -> path`` replace the defaults; either is a function or
    the name of a packed function, resolved in the worker.
    """

    def __init__(
        self,
        *,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: Hook = None,
        f_export: Hook = None,
        initializer: Callable[[], None] | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.max_workers = max_workers or cpu_count(logical=True)
        self.timeout_sec = timeout_sec
        for given in (f_build, f_export):
            # An initializer may register functions in the workers only.
            if initializer is None and isinstance(given, str) and get_global_func(given, allow_missing=True) is None:
                raise ValueError(f"LocalBuilder: there is no packed function {given!r}; register it first")
        self.f_build = f_build
        self.f_export = f_export
        self.initializer = initializer
        self.memory_limit = memory_limit
        self._pool: WorkerPool | None = None

    @property
    def pool(self) -> WorkerPool:
        """The worker pool, started on first use."""
        if self._pool is None:
            self._pool = WorkerPool(
                self.max_workers, initializer=self.initializer, preload=PRELOAD, memory_limit=self.memory_limit
            )
        return self._pool

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Build a batch; artifacts are files, each in a temporary folder of its own that is the caller's to delete."""
        return [future.result() for future in self._submit(build_inputs, as_file=True)]

    @property
    def streams(self) -> bool:
        # A subclass that builds in its own way is asked in that way.
        return type(self).build is LocalBuilder.build

    def start(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderFuture]:
        return self._submit(build_inputs) if self.streams else super().start(build_inputs)

    def _submit(self, build_inputs: Sequence[BuilderInput], as_file: bool = False) -> list[BuilderFuture]:
        futures = [
            self.pool.submit(
                _build_in_worker,
                x.mod,
                x.target,
                x.params,
                self.f_build,
                self.f_export,
                providers.chosen(),
                as_file,
                timeout_sec=self.timeout_sec,
            )
            for x in build_inputs
        ]
        return [BuilderFuture(f.done, functools.partial(result_of_build, f)) for f in futures]

    def shutdown(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(kill=True)
            self._pool = None


def result_of_build(future: TaskFuture) -> BuilderResult:
    """Wait for a build in a worker; whatever became of it is a result."""
    outcome = future.result()
    status = status_of_task(outcome.status, building=True)
    if outcome.ok:
        return BuilderResult(outcome.value, None, status, outcome.seconds)
    return BuilderResult(
        None, f"LocalBuilder: {reason_of(outcome.status, outcome.error, outcome.seconds)}", status, outcome.seconds
    )


def _build_in_worker(
    mod: IRModule,
    target: Target,
    params: Mapping[str, Any] | None,
    f_build: Hook,
    f_export: Hook,
    provider: str,
    as_file: bool,
) -> str | bytes:
    made = _built(mod, target, params, f_build, f_export, provider)
    return write_artifact(made) if as_file and isinstance(made, bytes) else made


def _built(
    mod: IRModule, target: Target, params: Mapping[str, Any] | None, f_build: Hook, f_export: Hook, provider: str
) -> str | bytes:
    if f_build is None and f_export is None and is_device_target(target):
        return build_for_device(mod, target, provider)
    build = get_global_func_with_default_on_worker(f_build, default_build)
    export = get_global_func_with_default_on_worker(f_export, None)
    built = build(mod, target, params)
    if export is not None:
        return str(export(built))
    return built if isinstance(built, (str, bytes)) else default_export(built)


@functools.lru_cache(maxsize=1)
def _lowering() -> Callable[..., IRModule]:
    from ...tir.transform.pipeline import lower_for_cpu

    func: Callable[..., IRModule] = lower_for_cpu
    return func


def default_build(mod: IRModule, target: Target, params: Mapping[str, Any] | None = None) -> bytes:
    """Lower and compile to object code, weight repacking dropped; for GPUs, to kernels in machine code."""
    if is_device_target(target):
        return build_for_device(mod, target, providers.chosen())
    from ...backend.llvm.compile import compile_primfuncs
    from ..analysis.schedules import remove_weight_layout_rewrite

    mod = remove_weight_layout_rewrite(mod)
    compiled = compile_primfuncs(_lowering()(mod, target), target)
    compiled.llvm_text = ""
    return pickle.dumps(compiled)


def default_export(built: Any) -> str:
    """Write any other build result to a file."""
    path = str(new_folder() / "module.so")
    built.export_library(path)
    return path


def build_whole(mod: IRModule, target: Target) -> bytes:
    """Lower and compile everything for the host, weight repacking included."""
    from ...backend.llvm.compile import compile_primfuncs

    compiled = compile_primfuncs(_lowering()(mod, target), target)
    compiled.llvm_text = ""
    return pickle.dumps(compiled)
