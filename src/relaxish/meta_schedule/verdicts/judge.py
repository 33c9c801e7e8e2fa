"""Whether a scheduled program computes what the unscheduled one does.

Both run on random legal arguments in a process of their own, since a wrong program may crash, hang or eat memory. The
unscheduled program, compiled as it stands, is the reference; where naive loops would run for minutes, the default
schedule is. What this machine cannot run (other processors, GPUs that are not there) is emulated or interpreted if it is
small, and else nothing can be said about it.
"""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...ir.op import op_name_of
from ...ir import IRModule
from ...ir import dtype as dt
from ...ir.functor import all_nodes, pre_order_visit
from ...ir.node import Node
from ...support.log import get_logger
from ...support.workers import TaskResult, WorkerPool
from ...target import Target
from ...tir import Block, IterVar, PrimFunc
from ...tir.analysis import estimate_tir_flops
from ..arg_info import ArgInfo, entry_func
from ..builder.device_artifact import build_for_device, is_device_target
from ..runner.local_runner import LocalRunner, run_guarded
from ..runner.arguments import alloc_arguments, difference
from ..utils import PRELOAD
from ...ir.prim import const_int

__all__ = ["Judge", "Verdict", "tolerance"]

_log = get_logger("meta_schedule")
# Naive loops do about 1e9 operations in a second, an emulated device 1e6, the interpreter 1e5.
_NAIVE_FLOPS = 4e9
# Beyond this, one set of arguments has to do where signs make no difference to what is defined.
_QUICK_FLOPS = 5e8
_EMULATED_FLOPS = 3e7
_INTERPRETED_FLOPS = 3e6
# Runs have limits of their own: this is for compilers, on machines that are busy with something else.
_SECONDS = 300.0
_MEMORY = 8 << 30
# Half the distance between 1 and the next number, by dtype.
_ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Least and largest relative difference that rounding explains, and its growth with the root of the reduction length.
_FLOORS = {"float64": (1e-9, 1e-6, 64.0), "float32": (5e-5, 5e-3, 64.0), "float16": (4e-3, 5e-2, 3.0)}
_COARSE = (2e-2, 2e-1, 1.0)
# A race shows in some runs only: as many as this time allows, of each set of arguments.
_RUNS, _RUN_SECONDS = 12, 0.5
# A candidate that takes so many times longer than the naive program, and this long at least, never ends.
_SLOWER, _PATIENCE = 50.0, 5.0


_PARTIAL = (
    "sqrt",
    "rsqrt",
    "log",
    "log2",
    "log10",
    "log1p",
    "pow",
    "power",
    "asin",
    "acos",
    "acosh",
    "atanh",
    "call_extern",
)


class Verdict(NamedTuple):
    """``valid`` is None where nothing could be found out; ``reason`` says why, or what is wrong."""

    valid: bool | None
    reason: str = ""


def tolerance(func: PrimFunc) -> float:
    """The relative difference (to the largest value of an output) that rounding in another order explains.

    It grows with the root of the length of the program's reductions, and with the coarsest type of numbers in it.
    """
    found = 0.0

    def allow(dtype: str, length: int) -> None:
        nonlocal found
        if dt.is_float(dtype):
            low, high, growth = _FLOORS.get(dtype, _COARSE)
            found = max(found, min(high, max(low, growth * _ROUNDING.get(dtype, 2.0**-4) * (1 + length**0.5))))

    def visit(node: Node) -> bool:
        if isinstance(node, Block):
            length = 1
            for var in node.iter_vars:
                extent = const_int(var.dom.extent, 1024) if var.dom is not None else 1024
                length *= extent if int(var.iter_type) == IterVar.CommReduce else 1
            for region in node.writes:
                allow(region.buffer.dtype, length)
        return True

    for param in func.params:
        if param in func.buffer_map:
            allow(func.buffer_map[param].dtype, 1)
    pre_order_visit(func.body, visit)
    return found


class Judge:
    """Compares programs; keeps its processes and the reference's last results. ``shutdown`` ends them."""

    def __init__(self, timeout_sec: float = _SECONDS) -> None:
        self.timeout_sec = timeout_sec
        self._pool: WorkerPool | None = None
        self._devices: LocalRunner | None = None
        self._owner = os.getpid()
        self._folder: str | None = None
        self._reference: tuple[Any, Verdict] | None = None
        self._seconds = 0.0
        self._signs: tuple[bool, ...] = (False, True)

    def __del__(self) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """End the processes and remove the reference's results."""
        if self._owner != os.getpid():
            return
        if self._pool is not None:
            self._pool.shutdown(kill=True)
        if self._devices is not None:
            self._devices.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._pool = self._devices = self._folder = self._reference = None

    def _submit(self, func: Callable[..., Any], *args: Any) -> TaskResult:
        if self._pool is None:
            self._pool = WorkerPool(1, preload=PRELOAD, memory_limit=_MEMORY)
        return self._pool.submit(func, *args, timeout_sec=self.timeout_sec).result()

    def compare(self, before: IRModule, after: IRModule, target: Target) -> Verdict:
        """Whether ``after`` computes what ``before`` does, on ``target`` if it can be had."""
        try:
            args = _arguments_of(before)
        except ValueError as err:
            return Verdict(None, str(err))
        if is_device_target(target):
            return self._compare_on_device(before, after, target, args)
        reference = self._run_reference(before, target, args)
        if reference.valid is None:
            return reference
        assert self._folder is not None
        limit = _PATIENCE + _SLOWER * self._seconds
        done = self._submit(
            _check_native,
            after,
            _runnable_here(target),
            args,
            self._folder,
            tolerance(entry_func(before)),
            limit,
            self._signs,
        )
        if done.ok:
            valid, reason = done.value
            # What does not build here may be right all the same.
            return Verdict(valid, reason) if valid is not None else self._interpret(before, after, args, reason)
        if done.signal == signal.SIGILL:
            return self._interpret(before, after, args, "it has instructions that this machine lacks")
        if done.signal == signal.SIGALRM:
            return Verdict(False, f"it does not end in {limit:.0f} s, the unscheduled program in {self._seconds:.3g} s")
        if done.status in ("error", "timeout"):  # running has its own limit: this is the compiler
            return Verdict(None, f"it cannot be built: {_last_line(done.error)}")
        return Verdict(False, f"{done.status}: {done.error}")

    # ---- the reference

    def _run_reference(self, before: IRModule, target: Target, args: Sequence[ArgInfo]) -> Verdict:
        """Have the reference's results in the folder."""
        if self._reference is not None and self._reference[0] is before:
            return self._reference[1]
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="relaxish-judge-")
        self._signs = (True,) if _flops(before) > _QUICK_FLOPS and not _needs_positive(before) else (False, True)
        verdict = Verdict(None, "the unscheduled program takes too long")
        for program in self._references(before, target):
            done = self._submit(_run_native, program, _runnable_here(target), list(args), self._folder, self._signs)
            if done.ok and done.value is not None:
                self._seconds, verdict = done.value, Verdict(True)
                break
            verdict = Verdict(None, f"the program itself does not run: {done.status}: {_last_line(done.error)}")
        self._reference = (before, verdict)
        return verdict

    def _references(self, before: IRModule, target: Target) -> list[IRModule]:
        from .baseline import default_schedule

        default = [] if is_device_target(target) else [default_schedule(before, target)]
        return [before, *default] if _flops(before) <= _NAIVE_FLOPS else default

    # ---- elsewhere than on this machine's processor

    def _interpret(self, before: IRModule, after: IRModule, args: Sequence[ArgInfo], reason: str) -> Verdict:
        """What the interpreter says about small programs."""
        if _flops(before) > _INTERPRETED_FLOPS:
            return Verdict(None, reason)
        done = self._submit(_check_interpreted, before, after, list(args), tolerance(entry_func(before)))
        if not done.ok:
            return Verdict(None, f"{reason}; the interpreter: {done.status}: {_last_line(done.error)}")
        return Verdict(*done.value)

    def _compare_on_device(self, before: IRModule, after: IRModule, target: Target, args: Sequence[ArgInfo]) -> Verdict:
        from ...runtime.nvidia import providers
        from ..builder.local_builder import build_whole

        provider = providers.chosen() if target.kind.name == "cuda" else target.kind.name
        if not self._has_device(provider):
            if target.kind.name != "cuda" or _flops(before) > _EMULATED_FLOPS:
                return self._interpret(before, after, args, f"there is no {target.kind.name} device to run it on")
            provider = "emulator"
        host = target.host if target.host is not None and not is_device_target(target.host) else Target("llvm")
        assert self._devices is not None
        try:
            artifact = build_for_device(after, target, provider)
        except Exception as err:  # whatever the compiler says about it
            return self._interpret(before, after, args, f"it cannot be built: {_last_line(str(err))}")
        from .baseline import default_schedule

        program = before if _flops(before) <= _NAIVE_FLOPS else default_schedule(before, host)
        with providers.use(provider) if provider == "emulator" else _nothing():
            valid, reason = self._devices.check(
                artifact, build_whole(program, _runnable_here(host)), args, tolerance(entry_func(before))
            )
        if valid is None and not reason.startswith(("error", "the null")):
            return Verdict(False, reason)  # it crashed or never ended
        return Verdict(valid, reason) if valid is not None else self._interpret(before, after, args, reason)

    def _has_device(self, provider: str) -> bool:
        if self._devices is None:
            self._devices = LocalRunner(timeout_sec=self.timeout_sec / 4)
        return provider != "null" and self._devices.count_devices(provider) > 0


class _nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def _flops(mod: IRModule) -> float:
    try:
        return float(estimate_tir_flops(mod))
    except Exception:  # the extent of a loop is known only at run time: arguments are small then
        return 0.0


def _needs_positive(mod: IRModule) -> bool:
    """Whether the program calls something that is not defined for every number, a root or a logarithm say."""
    return any(op_name_of(node).removeprefix("tir.") in _PARTIAL for node in all_nodes(entry_func(mod).body))


def _runnable_here(target: Target) -> Target:
    """The target, or this machine in its place where it is another architecture."""
    triple = str(target.attrs.get("mtriple") or "")
    if target.kind.name == "llvm" and (not triple or triple.split("-")[0] == platform.machine()):
        return target
    return Target("llvm")


def _arguments_of(mod: IRModule) -> list[ArgInfo]:
    return ArgInfo.from_prim_func(entry_func(mod))


# ---- in the worker


def _sets(args: Sequence[ArgInfo], signs: Sequence[bool] = (False, True)) -> list[list[np.ndarray[Any, Any]]]:
    """Sets of arguments: once with numbers that a root or logarithm accepts, once with negative ones too."""
    return [alloc_arguments(args, 17 + signed, signed=signed) for signed in signs]


def _run_native(mod: IRModule, target: Target, args: list[ArgInfo], folder: str, signs: Sequence[bool]) -> float | None:
    """Run a program on all sets of arguments and keep what it leaves; seconds of a run, None where it refuses them."""
    from ..builder.local_builder import build_whole
    from ..runner.local_runner import load_kernel

    bind = load_kernel(build_whole(mod, target))
    seconds = 0.0
    for number, arrays in enumerate(_sets(args, signs)):
        run = bind(arrays)
        begin = time.perf_counter()
        if run():
            return None
        seconds = max(seconds, time.perf_counter() - begin)
        for index, array in enumerate(arrays):
            array.tofile(Path(folder) / f"{number}_{index}")
    return seconds


def _results(folder: str, number: int, like: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    return [
        np.fromfile(Path(folder) / f"{number}_{index}", dtype=a.dtype).reshape(a.shape) for index, a in enumerate(like)
    ]


def _check_native(
    mod: IRModule, target: Target, args: list[ArgInfo], folder: str, rtol: float, limit: float, signs: Sequence[bool]
) -> tuple[bool | None, str]:
    """Compare with the results in the folder; a run of more than ``limit`` seconds ends the process by SIGALRM."""
    from ..builder.local_builder import build_whole
    from ..runner.local_runner import load_kernel

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        bind = load_kernel(build_whole(mod, target))
    except Exception as err:
        return None, f"it cannot be built: {_last_line(str(err)) or type(err).__name__}"
    for number, arrays in enumerate(_sets(args, signs)):
        expected = _results(folder, number, arrays)
        begin = time.perf_counter()
        for turn in range(_RUNS):
            if turn and time.perf_counter() - begin > _RUN_SECONDS:
                break
            signal.setitimer(signal.ITIMER_REAL, limit)
            ours, reason = run_guarded(bind, arrays)
            signal.setitimer(signal.ITIMER_REAL, 0)
            reason = reason or difference(ours, expected, rtol)
            if reason:
                return False, reason
    return True, ""


def _check_interpreted(before: IRModule, after: IRModule, args: list[ArgInfo], rtol: float) -> tuple[bool, str]:
    from ...interp import run_prim_func

    for arrays in _sets(args):
        ours, theirs = [a.copy() for a in arrays], [a.copy() for a in arrays]
        run_prim_func(entry_func(before), theirs)
        run_prim_func(entry_func(after), ours)
        reason = difference(ours, theirs, rtol)
        if reason:
            return False, reason
    return True, ""


_SHARED: list[Judge] = []


def shared_judge() -> Judge:
    """The judge of this process, for whoever applies a record."""
    if not _SHARED or _SHARED[0]._owner != os.getpid():
        _SHARED[:] = [Judge()]
    return _SHARED[0]


@atexit.register
def _end() -> None:
    for judge in _SHARED:
        judge.shutdown()
