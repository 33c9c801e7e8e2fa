"""The lowering pipelines of tensor programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.module import IRModule
from ...ir.prim import IntImm
from ...ir.transform import Pass, PassContext, Sequential, module_pass
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
from .base import config, options
from .tiles.cpu import lower_for_cpu as lower_tiles_for_cpu
from .tiles.program import has_kernels

__all__ = [
    "default_tir_pipeline", "finalize_device_passes", "finalize_host_passes", "get_default_tir_pipeline",
    "get_tir_pipeline", "lower_for_cpu", "lower_function_for_cpu",
]  # fmt: skip


def lower_function_for_cpu(func: PrimFunc, vector_bits: int = 512) -> PrimFunc:
    """One function from blocks to flat loops; vectorized loops expanded, loops to unroll marked as such."""
    check_unrolled(func.body)
    sizes = named_sizes.name_sizes(func)
    func = sizes.func
    if has_kernels(func):
        func = lower_tiles_for_cpu(func, vector_bits)
    func = exact_logarithms.exact_logarithms(exact_extremes.exact_extremes(func))
    func = empty_reductions.fill_empty_reductions(func)
    func = wide_accumulators.widen_accumulators(func)
    func = exact_variances.exact_variances(func)
    func = _body(func, lower_init_block._Lower().visit)
    func = plan_allocation.plan(func)
    func = convert_blocks_to_opaque.convert(func)
    func = compact_buffer.compact(func)
    func = lower_match_buffer.lower(func)
    func = guard_indices.guard(func, all_accesses=checks_memory())
    func = lower_opaque_block.lower(func)
    func = flatten_buffer.flatten(func)
    if _has_sizes(func):
        func = shape_arithmetic.simplify_shape_arithmetic(func, named=sizes.values)
        func = sizes.restore(func, named_sizes.is_sum)
    func = simplify.simplify(func)
    func = whole_vectors.whole_vectors(func)
    func = _body(func, lambda s: vectorize_loop.vectorize(s, not config("tir.disable_vectorize", False)))
    func = _body(func, hoist_if_then_else.hoist)
    settings = options("tir.UnrollLoop", unroll_loop.DEFAULTS)
    if _has_vectors(func):
        func = simplify.simplify(func)
    func = _body(func, lambda s: mark_unroll.mark_unrolled(s, settings, vector_bits))
    func = _body(func, remove_no_op.remove_no_op)
    return sizes.bind(_body(func, rewrite_unsafe_select.rewrite))


def _has_sizes(func: PrimFunc) -> bool:
    """Whether extents of parameters are known only at run time."""
    return any(not isinstance(extent, IntImm) for buffer in func.buffer_map.values() for extent in buffer.shape)


def _has_vectors(func: PrimFunc) -> bool:
    from ...ir.functor import all_nodes
    from ...ir.prim import Ramp

    return any(type(node) is Ramp for node in all_nodes(func.body))


def _body(func: PrimFunc, run: Callable[[Any], Any]) -> PrimFunc:
    body = run(func.body)
    return func if body is func.body else func.with_body(body)


def lower_for_cpu(mod: IRModule, target: Target | None = None) -> IRModule:
    """Lower every PrimFunc of ``mod`` for a CPU: the default pipeline without the steps that only devices need."""
    changes: dict[Any, PrimFunc] = {}
    vector_bits = getattr(target, "vector_bits", None) or 512
    for var, func in mod.functions.items():
        if not isinstance(func, PrimFunc):
            continue
        new = lower_function_for_cpu(func, vector_bits)
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


def default_tir_pipeline() -> Pass:
    """The default lowering pipeline as a module pass."""

    @module_pass(opt_level=0, name="default_tir_pipeline")  # type: ignore[untyped-decorator]
    def pipeline(mod: IRModule, ctx: PassContext) -> IRModule:
        from .steps import default_passes

        return Sequential(default_passes(ctx))(mod)

    return pipeline


def finalize_host_passes() -> Pass:
    """What host functions still need after the default pipeline."""
    from .steps import host_passes

    return Sequential(host_passes(), name="finalize_host")


def finalize_device_passes() -> Pass:
    """What device functions still need after the default pipeline."""
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
