"""Rejects candidates that a GPU could not launch."""

from __future__ import annotations

import math
from collections.abc import Sequence, Iterable
from typing import TYPE_CHECKING, Any

from ...ir import IRModule
from ...ir.functor import post_order_visit
from ...ir.node import Node
from ...ir.transform import PassContext, Sequential
from ...support.errors import RelaxishError
from ...target.limits import attrs_with_limits
from ...target.shared_memory import static_limit
from ...target.target import Target
from ...tir import Allocate, Block, For, PrimFunc, Schedule
from ...tir.stmt import Stmt, BlockRealize
from ...tir.transform.base import pointer_scope
from ...tir.transform.hopper.tiles import HopperError
from ...tir.transform.blocks.inject_permuted_layout import CheckPermutedLayout
from ...tir.transform.hopper.lower import has_tiles, lower_tiles
from ..analysis import blocks as ba
from ..analysis.thread_binding import thread_tag
from .postproc import Postproc
from ...ir.prim import const_int

if TYPE_CHECKING:
    from ..search_strategy.column_program import ColumnProgram
    from ..task import Task

__all__ = ["MAX_VTHREAD", "VerifyGPUCode", "allocated_elements", "lowered_for_checks"]

MAX_VTHREAD = 8

_STEPS = (
    "LowerCrossThreadReduction",
    "LowerInitBlock",
    "PlanAndUpdateBufferAllocationLocation",
    "ConvertBlocksToOpaque",
    "LiftThreadBinding",
    "ManifestSharedMemoryLocalStage",
    "CompactBufferAllocation",
    "CheckPermutedLayout",
    "Simplify",
    "UnifyThreadBinding",
    "LowerMatchBuffer",
    "InjectSoftwarePipeline",
    "LowerOpaqueBlock",
    "FlattenBuffer",
    "BF16ComputeLegalize",
    "NarrowDataType",
    "Simplify",
    "VectorizeLoop",
    "InjectVirtualThread",
    "InjectDoubleBuffer",
    "StorageRewrite",
    "MergeSharedMemoryAllocations",
)
# Not part of the lowering: what a later step would refuse is found out before that step's work is done.
_OWN = {"CheckPermutedLayout": CheckPermutedLayout}
_ARGUMENTS: dict[str, tuple[Any, ...]] = {"NarrowDataType": (32,), "VectorizeLoop": (True,)}


def lowered_for_checks(func: PrimFunc, target: Target, steps: Sequence[str] = _STEPS) -> PrimFunc | None:
    """A function lowered as far as its resources can be counted; None where lowering refuses it."""
    from ...tir import transform

    func = func.with_attrs({"global_symbol": "main", "tir.noalias": True, "target": target})
    passes = [_OWN[name]() if name in _OWN else getattr(transform, name)(*_ARGUMENTS.get(name, ())) for name in steps]
    try:
        with PassContext.current():
            return Sequential(passes)(IRModule({"main": func}))["main"]
    except (RelaxishError, ValueError):
        return None


def allocated_elements(mod: IRModule, target: Target) -> dict[str, int]:
    """The elements of every buffer in shared memory as a kernel allocates it, not yet merged; empty where lowering
    refuses the module."""
    found: dict[str, int] = {}

    def look(node: Node) -> None:
        # A copy that goes through registers has those under the name of its buffer.
        if isinstance(node, Allocate) and pointer_scope(node.buffer_var).startswith("shared"):
            found[node.buffer_var.name] = math.prod(const_int(extent, 1) for extent in node.extents)

    for func in mod.functions.values():
        if isinstance(func, PrimFunc):
            lowered = lowered_for_checks(func, target, [step for step in _STEPS[:-1] if step not in _OWN])
            if lowered is not None:
                post_order_visit(lowered.body, look)
    return found


class VerifyGPUCode(Postproc):
    """Lowers the candidate in part and compares it with the target's limits of memory, threads and vectors."""

    changes_features = False

    def __init__(self) -> None:
        self._target: Any = None
        self._limits: dict[str, int] = {}
        self._warp_size = -1

    def _initialize_with_tune_context(self, context: Task) -> None:
        attrs: Any = attrs_with_limits(context.target)
        self._target = context.target
        for name in ("max_shared_memory_per_block", "max_threads_per_block"):
            if name not in attrs:
                raise ValueError(f"missing attribute `{name}` in the target")
            self._limits[name] = int(attrs[name])
        self._limits.update(max_vthread=MAX_VTHREAD, max_vector_bytes=16)
        self._limits["max_static_shared_memory_per_block"] = static_limit(context.target)
        self._warp_size = int(attrs.get("thread_warp_size", -1))

    def on_columns(self, program: ColumnProgram) -> bool:
        if program.launchable is None:
            return False
        program.admit(self, program.launchable)
        return True

    def apply(self, sch: Schedule) -> bool:
        from ...tir.analysis import verify_gpu_code

        for func in sch.mod.functions.values():
            if not isinstance(func, PrimFunc):
                continue
            if has_tiles(func.body):
                if not _tiles_fit(func):
                    return False
                continue
            if not _extents_fit(func.body, {"x": 1, "y": 1, "z": 1}, self._warp_size):
                return False
            lowered = lowered_for_checks(func, self._target)
            if lowered is None or not verify_gpu_code(lowered, self._limits):
                return False
        return True


def _tiles_fit(func: PrimFunc) -> bool:
    """Whether a program of whole tiles can be lowered; its limits are not those of programs by threads."""
    try:
        lower_tiles(func)
    except HopperError:
        return False
    return True


def _extents_fit(stmt: Stmt, extents: dict[str, int], warp: int) -> bool:
    """Whether the threads around each block are as many as its annotations allow, and virtual threads few enough."""
    if isinstance(stmt, For) and thread_tag(stmt).startswith("vthread"):
        # Asked here, since lowering unrolls virtual threads within innermost loops.
        extent = ba.int_extent(stmt)
        if extent is None or extent > MAX_VTHREAD:
            return False
    if isinstance(stmt, For) and thread_tag(stmt).startswith("threadIdx."):
        extent = ba.int_extent(stmt)
        if extent is None:
            return False
        extents = {**extents, thread_tag(stmt)[-1]: extent}
    if isinstance(stmt, Block):
        if ba.annotation(stmt, "warp_execution"):
            extents = {**extents, "x": warp}
        low = ba.annotation(stmt, "meta_schedule.thread_extent_low_inclusive")
        high = ba.annotation(stmt, "meta_schedule.thread_extent_high_inclusive")
        threads = extents["x"] * extents["y"] * extents["z"]
        if low is not None and high is not None and not low <= threads <= high:
            return False
    children: Iterable[Stmt] = [stmt.block] if isinstance(stmt, BlockRealize) else ba._children(stmt)
    return all(_extents_fit(child, extents, warp) for child in children)
