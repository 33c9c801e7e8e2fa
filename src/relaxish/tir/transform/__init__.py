"""Lowering passes over tensor programs, under their public names."""

from __future__ import annotations

from .assume import RemoveAssume, RemoveStoreUndef
from .base import PrimFuncPass, prim_func_pass
from .common_subexpr import CommonSubexprElimTIR
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
from .legalize_float import BF16ComputeLegalize, BF16StorageLegalize, FP8ComputeLegalize
from .loop_partition import LoopPartition
from .lower_init_block import LowerInitBlock
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .narrow_data_type import ForceNarrowIndexToInt32, NarrowDataType
from .pipeline import default_tir_pipeline, get_default_tir_pipeline, get_tir_pipeline, lower_for_cpu
from .plan_allocation import PlanAndUpdateBufferAllocationLocation
from .remove_no_op import RemoveNoOp
from .remove_weight_layout_rewrite_block import RemoveWeightLayoutRewriteBlock
from .renormalize_split_pattern import RenormalizeSplitPattern
from .rewrite_unsafe_select import RewriteUnsafeSelect
from .simplify import Simplify
from .storage_rewrite import StorageRewrite
from .threads import UnifyThreadBinding
from .unroll_loop import UnrollLoop
from .vectorize_loop import VectorizeLoop

__all__ = [
    "AnnotateEntryFunc", "Apply", "BF16ComputeLegalize", "BF16StorageLegalize", "BindTarget",
    "CommonSubexprElimTIR", "CompactBufferAllocation", "ConvertBlocksToOpaque", "ConvertForLoopsToSerial",
    "ConvertSSA", "FP8ComputeLegalize", "Filter", "FlattenBuffer", "ForceNarrowIndexToInt32", "HoistIfThenElse",
    "LoopPartition", "LowerInitBlock", "LowerMatchBuffer", "LowerOpaqueBlock", "NarrowDataType",
    "PlanAndUpdateBufferAllocationLocation", "PrimFuncPass", "RemoveAssume", "RemoveNoOp", "RemoveStoreUndef",
    "RemoveWeightLayoutRewriteBlock", "RenormalizeSplitPattern", "RewriteUnsafeSelect", "Simplify", "SkipAssert",
    "StorageRewrite", "UnifyThreadBinding", "UnrollLoop", "VectorizeLoop", "VerifyMemory", "default_tir_pipeline",
    "get_default_tir_pipeline", "get_tir_pipeline", "lower_for_cpu", "prim_func_pass",
]  # fmt: skip
