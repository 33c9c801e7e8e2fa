"""The steps of the default pipeline, in order."""

from __future__ import annotations

from typing import Any

from ...ir.transform import Pass, PassContext
from . import (
    assume, common_subexpr, compact_buffer, convert_blocks_to_opaque, flatten_buffer, function_passes,
    hoist_if_then_else, legalize_float, loop_partition, lower_init_block, lower_match_buffer, lower_opaque_block,
    narrow_data_type, plan_allocation, remove_no_op, renormalize_split_pattern, rewrite_unsafe_select, simplify,
    storage_rewrite, threads, unroll_loop, vectorize_loop,
)  # fmt: skip


def default_passes(ctx: PassContext) -> list[Pass]:
    """Passes from scheduled blocks to flat loops, as the options of ``ctx`` ask."""
    config: dict[str, Any] = ctx.config
    passes: list[Pass] = [
        lower_init_block.LowerInitBlock(),
        plan_allocation.PlanAndUpdateBufferAllocationLocation(),
        convert_blocks_to_opaque.ConvertBlocksToOpaque(),
        compact_buffer.CompactBufferAllocation(),
        threads.UnifyThreadBinding(),
        lower_match_buffer.LowerMatchBuffer(),
        simplify.Simplify(),
        lower_opaque_block.LowerOpaqueBlock(),
        flatten_buffer.FlattenBuffer(),
        narrow_data_type.NarrowDataType(32),
        loop_partition.LoopPartition(),
        vectorize_loop.VectorizeLoop(not bool(config.get("tir.disable_vectorize", False))),
    ]
    if not config.get("tir.disable_storage_rewrite", False):
        passes.append(storage_rewrite.StorageRewrite())
    passes += [
        hoist_if_then_else.HoistIfThenElse(),
        unroll_loop.UnrollLoop(),
        renormalize_split_pattern.RenormalizeSplitPattern(),
        simplify.Simplify(),
        assume.RemoveAssume(),
        remove_no_op.RemoveNoOp(),
        rewrite_unsafe_select.RewriteUnsafeSelect(),
        common_subexpr.CommonSubexprElimTIR(not bool(config.get("tir.disable_cse_tir", False))),
        legalize_float.FP8ComputeLegalize(),
        function_passes.VerifyMemory(),
        function_passes.AnnotateEntryFunc(),
    ]
    return passes
