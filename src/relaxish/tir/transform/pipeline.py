"""The lowering pipelines of tensor programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.module import IRModule
from ...ir.functor import all_nodes
from ...ir.prim import Ramp, Var, const_ints
from ...ir.transform import Pass, PassContext, PassInfo, Sequential, module_pass
from ...support.config import checks_memory
from ...target.target import Target
from ..function import PrimFunc
from ..limits import check_unrolled
from .blocks import (
    compact_buffer,
    convert_blocks_to_opaque,
    lower_init_block,
    lower_match_buffer,
    lower_opaque_block,
    plan_allocation,
)
from .numerics import (
    empty_reductions,
    exact_extremes,
    exact_logarithms,
    exact_variances,
    guard_indices,
    wide_accumulators,
)
from .memory import flatten_buffer
from .loops import hoist_if_then_else, mark_unroll, unroll_loop, vectorize_loop, whole_vectors
from .simplify import named_sizes, remove_no_op, rewrite_unsafe_select, shape_arithmetic, simplify  # fmt: skip
from .base import PrimFuncPass, config, options
from .tiles.cpu import lower_for_cpu as lower_tiles_for_cpu
from .tiles.program import has_kernels

__all__ = [
    "default_tir_pipeline", "finalize_device_passes", "finalize_host_passes", "get_default_tir_pipeline",
    "get_tir_pipeline", "lower_for_cpu", "lower_function_for_cpu",
]  # fmt: skip


def lower_function_for_cpu(func: PrimFunc, target: Target | None = None) -> PrimFunc:
    """One function from blocks to flat loops; vectorized loops expanded, loops to unroll marked as such."""
    for _, step in _cpu_steps(target):
        func = step(func)
    return func


def _cpu_steps(target: Target | None) -> list[tuple[str, Callable[[PrimFunc], PrimFunc]]]:
    """The steps of lowering for a CPU and the names of their passes."""
    vector_bits = getattr(target, "vector_bits", None) or 512
    settings = options("tir.UnrollLoop", unroll_loop.DEFAULTS)

    def on_body(run: Callable[[Any], Any]) -> Callable[[PrimFunc], PrimFunc]:
        return lambda func: _body(func, run)

    def tiles(func: PrimFunc) -> PrimFunc:
        check_unrolled(func.body)
        return lower_tiles_for_cpu(func, vector_bits) if has_kernels(func) else func

    sizes = _Sizes()
    return [
        ("NameSizes", sizes.name),
        ("LowerTiles", tiles),
        ("ExactExtremes", exact_extremes.exact_extremes),
        ("ExactLogarithms", exact_logarithms.exact_logarithms),
        ("FillEmptyReductions", empty_reductions.fill_empty_reductions),
        ("WidenAccumulators", wide_accumulators.widen_accumulators),
        ("ExactVariances", exact_variances.exact_variances),
        ("LowerInitBlock", on_body(lambda s: lower_init_block._InitBlockLowerer().visit(s))),
        ("PlanAndUpdateBufferAllocationLocation", plan_allocation.plan),
        ("ConvertBlocksToOpaque", convert_blocks_to_opaque.convert),
        ("CompactBufferAllocation", compact_buffer.compact),
        ("LowerMatchBuffer", lower_match_buffer.lower),
        ("GuardIndices", lambda func: guard_indices.guard(func, all_accesses=checks_memory())),
        ("LowerOpaqueBlock", lower_opaque_block.lower),
        ("FlattenBuffer", flatten_buffer.flatten),
        ("SimplifyShapeArithmetic", sizes.simplify),
        ("Simplify", simplify.simplify),
        ("WholeVectors", lambda func: whole_vectors.whole_vectors(func, _masked_bits(target))),
        ("VectorizeLoop", on_body(lambda s: vectorize_loop.vectorize(s, not config("tir.disable_vectorize", False)))),
        ("HoistIfThenElse", on_body(hoist_if_then_else.hoist)),
        ("Simplify", lambda func: simplify.simplify(func) if _has_vectors(func) else func),
        ("UnrollLoop", on_body(lambda s: mark_unroll.mark_unrolled(s, settings, vector_bits))),
        ("RemoveNoOp", on_body(remove_no_op.remove_no_op)),
        ("RewriteUnsafeSelect", on_body(rewrite_unsafe_select.rewrite)),
        ("BindSizes", sizes.bind),
    ]


def _masked_bits(target: Target | None) -> int | None:
    """Bits of the narrowest elements that a target stores vectors of under a mask; None: it does not."""
    if target is None or target.kind.name != "llvm" or target.vector_bits < 256:
        return None
    return 32 if target.vector_bits < 512 else 8


class _Sizes:
    """The names that computed sizes have between the first step and the last, found again by their variables."""

    def __init__(self) -> None:
        self.named: dict[Any, named_sizes.NamedSizes] = {}

    def name(self, func: PrimFunc) -> PrimFunc:
        if not _has_sizes(func):
            return func
        made = named_sizes.name_sizes(func)
        self.named.update(dict.fromkeys(made.values, made))
        return made.func

    def _of(self, func: PrimFunc) -> named_sizes.NamedSizes | None:
        if not self.named:
            return None
        return next((self.named[x] for x in all_nodes(func.body) if isinstance(x, Var) and x in self.named), None)

    def simplify(self, func: PrimFunc) -> PrimFunc:
        if not _has_sizes(func):
            return func
        made = self._of(func)
        if made is None:
            return shape_arithmetic.simplify_shape_arithmetic(func)
        func = shape_arithmetic.simplify_shape_arithmetic(func, named=made.values)
        return made.restore(func, named_sizes.is_sum)

    def bind(self, func: PrimFunc) -> PrimFunc:
        made = self._of(func)
        return func if made is None else made.bind(func)


def _has_sizes(func: PrimFunc) -> bool:
    """Whether extents of parameters are known only at run time."""
    return any(const_ints(buffer.shape) is None for buffer in func.buffer_map.values())


def _has_vectors(func: PrimFunc) -> bool:
    return any(type(node) is Ramp for node in all_nodes(func.body))


def _body(func: PrimFunc, run: Callable[[Any], Any]) -> PrimFunc:
    body = run(func.body)
    return func if body is func.body else func.with_body(body)


def lower_for_cpu(mod: IRModule, target: Target | None = None) -> IRModule:
    """Lower every PrimFunc of ``mod`` for a CPU: the default pipeline without the steps that only devices need.

    Functions go through all steps one after another; under instruments each step is a pass over all functions.
    """
    changes: dict[Any, PrimFunc] = {}
    watched = bool(PassContext.current().instruments)
    if watched:
        mod = Sequential([_as_pass(name, step) for name, step in _cpu_steps(target)])(mod)
    for var, func in mod.functions.items():
        if not isinstance(func, PrimFunc):
            continue
        new = func if watched else lower_function_for_cpu(func, target)
        if target is not None and new.get_attr("target") is None:
            new = new.with_attr("target", target)
        if new is not func:
            changes[var] = new
    if not changes:
        return mod
    out = mod.clone()
    for var, new in changes.items():
        out.update_func(var, new)
    return out


def _as_pass(name: str, step: Callable[[PrimFunc], PrimFunc]) -> Pass:
    return PrimFuncPass(lambda func, mod, ctx: step(func), PassInfo(0, f"tir.{name}"))


def default_tir_pipeline() -> Pass:
    """The default lowering pipeline as a module pass."""

    @module_pass(opt_level=0, name="default_tir_pipeline")  # type: ignore[untyped-decorator]
    def pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
        from .steps import default_passes

        return Sequential(default_passes(ctx))(mod)

    return pipeline


def finalize_host_passes() -> Pass:
    """Passes over host functions after the default pipeline."""
    from .steps import host_passes

    return Sequential(host_passes(), name="finalize_host")


def finalize_device_passes() -> Pass:
    """Passes over device functions after the default pipeline."""
    from .steps import device_passes

    return Sequential(device_passes(), name="finalize_device")


PIPELINES: dict[str, Callable[[], Pass]] = {"default": default_tir_pipeline}


def get_tir_pipeline(name: str | None = None, **kwargs: Any) -> Pass:
    """A registered pipeline by name. Raises ValueError for an unknown name."""
    if name is None:
        name = "default"
    if name not in PIPELINES:
        raise ValueError(f"Unknown pre-built pipeline {name},candidates are {list(PIPELINES)}")
    return PIPELINES[name](**kwargs)


def get_default_tir_pipeline(target: Target) -> Pass:
    """The pipeline used for ``target`` where none is named."""
    del target
    return default_tir_pipeline()
