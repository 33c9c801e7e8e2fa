"""Tasks for the kernels of a compiled graph, and configurations of theirs found again by what a kernel computes.

A kernel whose anchor has a template of its own (:func:`register_kernel_template`) is tuned by that; all others have the
space of multi-level tiling that ``meta_schedule`` would search, as parameters: a split for each tiled loop, options for
the rest (unrolling, say).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir import IRModule
from ...ir.plain import plain_int, plain_ints
from ...ir.structural import structural_hash
from ...meta_schedule import TuneContext
from ...meta_schedule.analysis.schedules import normalize_mod, schedule_for_tuning
from ...meta_schedule.search_strategy.replay import apply_trace
from ...meta_schedule.space_generator.hints import SketchEstimate, estimate_sketch
from ...support.errors import RelaxishError
from ...support.sequences import of_kind
from ...target import Target
from ...tir import PrimFunc, Schedule
from ...tir.analysis import estimate_tir_flops, find_anchor_block
from ...tir.schedule import Instruction, Trace
from .dispatcher import ApplyConfig
from .entity import InstantiationError
from .space import ConfigSpace
from .subspace import VirtualAxis
from .task import TASK_TABLE, Task, taken
from ...ir.prim import const_int

__all__ = ["KernelTask", "kernel_task", "kernel_workload", "register_kernel_template"]

_TEMPLATES: dict[tuple[str, str], Callable[[Any, Schedule], None]] = {}
_SAMPLED = 2048


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
    """What names a kernel in logs: its anchor, its parameters, and the hash of what it computes."""
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


class _Sketch:
    """One sketch as parameters: a name for each sampling instruction that is tuned."""

    def __init__(self, context: TuneContext, trace: Trace) -> None:
        self.context = context
        self.trace = trace.simplified(remove_postproc=True)
        self.tiles: dict[str, tuple[Instruction, int, int, int]] = {}  # name: instruction, extent, parts, innermost
        self.options: dict[str, tuple[Instruction, list[int]]] = {}
        for inst in self.trace.insts:
            decision = self.trace.get_decision(inst)
            if inst.kind.name == "SamplePerfectTile" and decision is not None:
                sizes = plain_ints(decision)
                limit = plain_int(inst.attrs[1])
                self.tiles[f"tile_{len(self.tiles)}"] = (inst, prod(sizes), len(sizes), limit)
            elif inst.kind.name == "SampleCategorical":
                values = list(plain_ints(inst.attrs[0]))
                self.options[f"option_{len(self.options)}"] = (inst, values)
        self.estimate: SketchEstimate | None = estimate_sketch(context, self.trace)

    def define(self, cfg: ConfigSpace) -> None:
        """The parameters."""
        for name, (_, extent, parts, limit) in self.tiles.items():
            cfg.define_split(
                name, VirtualAxis(extent, name), policy="factors", num_outputs=parts, filter=_innermost(limit)
            )  # fmt: skip
        for name, (_, values) in self.options.items():
            cfg.define_knob(name, values)

    def apply(self, cfg: Any) -> Schedule:
        """The scheduled kernel. Raises InstantiationError if a primitive or a limit refuses it."""
        trace = self.trace
        decisions = dict(trace.decisions)
        for name, (inst, extent, _, _) in self.tiles.items():
            size = list(cfg[name].size)
            size[0] = extent // prod(size[1:])
            decisions[inst] = size
        for name, (inst, values) in self.options.items():
            decisions[inst] = values.index(cfg[name].val)
        failures: dict[str, int] = {}
        sch = apply_trace(self.context, Trace(trace.insts, decisions), 1, failures)
        if sch is None:
            raise InstantiationError(f"the configuration is refused by {', '.join(failures) or 'a primitive'}")
        return sch

    def cycles(self, space: ConfigSpace, points: Sequence[int] | np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """Estimated cycles of configurations; None where there is no model of the kernel."""
        if self.estimate is None:
            return None
        digits = space.columns.digits(points)
        factors = {}
        for j, (name, table) in enumerate(zip(space.space_map, space.columns.tables, strict=True)):
            if name in self.tiles:
                inst, extent, _, _ = self.tiles[name]
                sizes = table[digits[:, j]].astype(np.int64)
                sizes[:, 0] = extent // sizes[:, 1:].prod(axis=1)
                factors[inst] = sizes
        return np.asarray(self.estimate.cycles(factors)) if factors else None


def _innermost(limit: int) -> Callable[[Any], bool]:
    return lambda entity: entity.size[-1] <= limit


def _sketch_for(mod: IRModule, target: Target) -> _Sketch:
    """Of all sketches the one from which the model of the machine expects most; else that with most parameters."""
    context = TuneContext(mod, target=target, space_generator="post-order-apply", rand_state=1, num_threads=1)
    found = [_Sketch(context, s.trace) for s in context.generate_design_space() if s.trace is not None]
    if not found:
        raise RelaxishError("there is no sketch for this kernel")
    best, best_key = found[0], (-1.0, -1.0)
    rng = np.random.default_rng(0)
    for sketch in found:
        space = ConfigSpace()
        sketch.define(space)
        cycles = None
        if sketch.tiles:
            columns = space.columns
            cycles = sketch.cycles(space, columns.points(rng.integers(0, columns.dims, (_SAMPLED, len(columns.dims)))))
        key = (1.0 / float(cycles.min()) if cycles is not None else 0.0, float(len(sketch.tiles)))
        if key > best_key:
            best, best_key = sketch, key
    return best


_SKETCHES: OrderedDict[Any, _Sketch] = OrderedDict()
_KEPT = 64


def _remembered_sketch(mod: IRModule, target: Target) -> _Sketch:
    key = (structural_hash(mod), str(target))
    if key not in _SKETCHES:
        _SKETCHES[key] = _sketch_for(mod, target)
        while len(_SKETCHES) > _KEPT:
            _SKETCHES.popitem(last=False)
    return _SKETCHES[key]


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
        self._found: _Sketch | None = None

    @property
    def sketch(self) -> _Sketch:
        """The sketch whose decisions are the parameters."""
        if self._found is None:
            self._found = _remembered_sketch(self.mod, self.target)
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
        self.sketch.define(cfg)
        return self.sketch.apply(cfg), buffers

    def cycles(self, points: Sequence[int] | np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """What an analytic model of the machine expects of configurations (any unit); None where there is none."""
        if _template_of(self.anchor, self.target) is not None:
            return None
        return self.sketch.cycles(self.config_space, points)

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
