"""Lowering passes over tensor programs, under their public names."""

from __future__ import annotations

from .base import PrimFuncPass, prim_func_pass
from .compact_buffer import CompactBufferAllocation
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .convert_ssa import ConvertSSA
from .flatten_buffer import FlattenBuffer
from .function_passes import (
    AnnotateEntryFunc,
    Apply,
    BindTarget,
    ConvertForLoopsToSerial,
    Filter,
    SkipAssert,
    VerifyMemory,
)
from .hoist_if_then_else import HoistIfThenElse
from .lower_init_block import LowerInitBlock
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .pipeline import default_tir_pipeline, get_default_tir_pipeline, get_tir_pipeline, lower_for_cpu
from .plan_allocation import PlanAndUpdateBufferAllocationLocation
from .remove_no_op import RemoveNoOp
from .rewrite_unsafe_select import RewriteUnsafeSelect
from .simplify import Simplify
from .unroll_loop import UnrollLoop
from .vectorize_loop import VectorizeLoop

__all__ = [
    "AnnotateEntryFunc", "Apply", "BindTarget", "CompactBufferAllocation", "ConvertBlocksToOpaque",
    "ConvertForLoopsToSerial", "ConvertSSA", "Filter", "FlattenBuffer", "HoistIfThenElse", "LowerInitBlock",
    "LowerMatchBuffer", "LowerOpaqueBlock", "PlanAndUpdateBufferAllocationLocation", "PrimFuncPass", "RemoveNoOp",
    "RewriteUnsafeSelect", "Simplify", "SkipAssert", "UnrollLoop", "VectorizeLoop", "VerifyMemory",
    "default_tir_pipeline", "get_default_tir_pipeline", "get_tir_pipeline", "lower_for_cpu", "prim_func_pass",
]  # fmt: skip
