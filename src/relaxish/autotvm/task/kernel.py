"""Tasks for the kernels of a compiled graph, and configurations of theirs found again by what a kernel computes.

A kernel whose anchor has a template of its own (:func:`register_kernel_template`) is tuned by that; all others have the
parameters that :mod:`.kernel_spaces` finds for them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir import IRModule
from ...ir.structural import structural_hash
from ...meta_schedule.analysis.schedules import normalize_mod, schedule_for_tuning
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ...target import Target
from ...tir import PrimFunc, Schedule
from ...tir.analysis import estimate_tir_flops, find_anchor_block
from .dispatcher import ApplyConfig
from .entity import InstantiationError
from .kernel_spaces import KernelSpace, kernel_space
from .space import ConfigSpace
from .task import TASK_TABLE, Task, taken
from ...ir.prim import const_int

__all__ = ["KernelTask", "kernel_task", "kernel_workload", "register_kernel_template"]

_TEMPLATES: dict[tuple[str, str], Callable[[Any, Schedule], None]] = {}
_KEPT = 64


def register_kernel_template(anchor: str, key: str = "", func: Callable[..., None] | None = None) -> Callable[..., Any]:
    """Decorate ``f(cfg, sch)``, which schedules kernels whose anchor block is called ``anchor``.

    ``sch`` is a ``tir.Schedule`` of the whole fused kernel; ``key`` ("cpu", "gpu", ...) restricts the template to
    targets that have the key. Raises ValueError if there is one already.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        if (anchor, key) in _TEMPLATES:
            raise taken(f"{anchor}.{key}" if key else anchor, "the kernel template")
        _TEMPLATES[anchor, key] = function
        return function

    return decorate(func) if func is not None else decorate


def _template_of(anchor: str, target: Target) -> Callable[..., None] | None:
    for key in (*target.keys, ""):
        if (anchor, key) in _TEMPLATES:
            return _TEMPLATES[anchor, key]
    return None


def _function(mod: IRModule) -> PrimFunc:
    return next(of_kind(mod.functions.values(), PrimFunc))


def anchor_of(mod: IRModule) -> str:
    """The name of the block that a kernel is about."""
    block = find_anchor_block(mod)
    return str(block.name_hint) if block is not None else "elementwise"


def kernel_workload(mod: IRModule) -> tuple[Any, ...]:
    """Workload of a kernel in logs: its anchor, its parameters, and the structural hash."""
    func = _function(mod)
    tensors: list[tuple[Any, ...]] = []
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            tensors.append(("SCALAR", str(param.dtype)))
            continue
        shape = tuple(int(n.value) if hasattr(n, "value") else str(n) for n in buffer.shape)
        tensors.append(("TENSOR", shape, str(buffer.dtype)))
    return (f"relax.{anchor_of(mod)}", *tensors, f"{structural_hash(mod) & (1 << 64) - 1:016x}")


class KernelTask(Task):
    """The task of one kernel: its program is here, and comes from no function of the arguments."""

    def __init__(self, mod: IRModule, target: Target) -> None:
        self.mod = normalize_mod(mod)
        workload = kernel_workload(self.mod)
        name = workload[0]
        self.anchor = name.removeprefix("relax.")
        known = name in TASK_TABLE
        super().__init__(name, workload[1:])
        if not known:
            TASK_TABLE.pop(name, None)  # the name stands for no function
        self.target = target
        self.target_host = target.host
        self._bind()
        self.config_space = ConfigSpace()
        with target, ApplyConfig(self.config_space):
            self.func(*self.args)
        self.flop = self.config_space.flop or float(estimate_tir_flops(self.mod)) or float(_stores(self.mod))

    def _bind(self) -> None:
        self.func = self._make
        self._programs: OrderedDict[str, IRModule] = OrderedDict()
        self._found: KernelSpace | None = None

    @property
    def space(self) -> KernelSpace:
        """Configuration space of a kernel without a template of its own."""
        if self._found is None:
            self._found = kernel_space(self.mod, self.target)
        return self._found

    def _make(self, *args: Any, **kwargs: Any) -> tuple[Schedule, list[Any]]:
        from .task import get_config

        cfg = get_config()
        func = _function(self.mod)
        buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
        own = _template_of(self.anchor, self.target)
        if own is not None:
            sch = schedule_for_tuning(self.mod, 1)
            own(cfg, sch)
            return sch, buffers
        self.space.define(cfg)
        return self.space.apply(cfg), buffers

    def cycles(self, points: Sequence[int] | np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """Cycles that an analytic model of the machine estimates for configurations (any unit); None without a model."""
        if _template_of(self.anchor, self.target) is not None:
            return None
        return self.space.cycles(self.config_space, points)

    def program(self, config: Any) -> IRModule:
        """The scheduled program of a configuration, one of the last few remembered."""
        key = repr(config)
        found: IRModule | None = self._programs.get(key)
        if found is None:
            found = self._programs[key] = super().program(config)
            while len(self._programs) > _KEPT:
                self._programs.popitem(last=False)
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k not in ("_programs", "_found")}

    def admits(self, index: int) -> bool:
        """Whether a configuration makes a program at all: primitives and limits of the target may refuse it."""
        try:
            with self.target:
                self.program(self.config_space.get(index))
        except Exception:  # templates may be the user's
            return False
        return True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()
        self.config_space = None


def _stores(mod: IRModule) -> int:
    """Elements of the outputs, for kernels that compute nothing but move data."""
    func = _function(mod)
    buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
    sizes = [const_int(n, 1) for n in buffers[-1].shape] if buffers else []
    return prod(sizes)


def kernel_task(mod: IRModule, target: Target) -> KernelTask:
    """The task of a kernel. Raises RelaxishError if its shapes are not known, or nothing of it can be tuned."""
    func = _function(mod)
    for buffer in func.buffer_map.values():
        if any(const_int(n) is None for n in buffer.shape):
            raise RelaxishError(f"buffer {buffer.name} has a symbolic shape; tuning needs shapes that are known")
    return KernelTask(mod, target)


def instantiate(mod: IRModule, target: Target, config: Any) -> Schedule:
    """The schedule that a configuration of a kernel's task gives, without counting or sampling anything."""
    made = KernelTask.__new__(KernelTask)
    made.mod, made.target = normalize_mod(mod), target
    made.anchor = anchor_of(made.mod)
    made._bind()
    with target, ApplyConfig(config):
        sch, _ = made._make()
    if not config.valid():
        raise InstantiationError(config.errors[0])
    return sch
