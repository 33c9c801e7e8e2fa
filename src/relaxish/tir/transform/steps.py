"""The steps of the default pipelines, in order; options of the pass context switch some of them on or off."""

from __future__ import annotations

from typing import Any

from ...ir.transform import Pass, PassContext
from .numerics import (
    bound_checkers,
    empty_reductions,
    exact_extremes,
    guard_indices,
    legalize_compute,
    legalize_storage,
    lower_custom_datatypes,
    lower_intrin,
)
from .simplify import (
    common_subexpr,
    narrow_data_type,
    remove_no_op,
    renormalize_split_pattern,
    rewrite_unsafe_select,
    simplify,
)
from .blocks import (
    compact_buffer,
    convert_blocks_to_opaque,
    inject_permuted_layout,
    lift_thread_binding,
    lower_auto_copy,
    lower_cross_thread_reduction,
    lower_init_block,
    lower_match_buffer,
    lower_opaque_block,
    manifest_local_stage,
    mma_buffer_layout,
    plan_allocation,
)
from .device import (
    device_kernel_launch,
    device_regions,
    device_storage,
    infer_fragment,
    lower_async_dma,
    lower_thread_allreduce,
    lower_warp_memory,
    ptx_copies,
    split_host_device,
    thread_sync,
    unify_thread_binding as threads,
)
from .memory import flatten_buffer, merge_shared_memory, storage_rewrite, vtcm
from . import function_passes
from .loops import (
    hoist_expression,
    inject_double_buffer,
    inject_software_pipeline,
    inject_virtual_thread,
    loop_partition,
    unroll_loop,
    vectorize_loop,
)
from .hopper import lower as lower_hopper
from .host import lower_tvm_builtin, make_packed_api, profile_intrinsics  # fmt: skip
from .tiles import lower as tiles_lower

__all__ = ["default_passes", "device_passes", "host_passes", "loop_passes"]


def default_passes(ctx: PassContext) -> list[Pass]:
    """From scheduled blocks to host functions and device kernels."""
    return [*loop_passes(ctx), *_split(ctx.config)]


def loop_passes(ctx: PassContext) -> list[Pass]:
    """The first part: from scheduled blocks to flat loops, functions still whole."""
    return [*_from_blocks(), *_flat_loops(ctx.config)]


def _from_blocks() -> list[Pass]:
    return [
        tiles_lower.LowerTiles(),
        lower_hopper.LowerHopperTiles(),
        lower_cross_thread_reduction.LowerCrossThreadReduction(),
        exact_extremes.ExactExtremes(),
        empty_reductions.FillEmptyReductions(),
        lower_init_block.LowerInitBlock(),
        plan_allocation.PlanAndUpdateBufferAllocationLocation(),
        convert_blocks_to_opaque.ConvertBlocksToOpaque(),
        lift_thread_binding.LiftThreadBinding(),
        manifest_local_stage.ManifestSharedMemoryLocalStage(),
        compact_buffer.CompactBufferAllocation(),
        lower_auto_copy.LowerAutoCopy(),
        threads.UnifyThreadBinding(),
        lower_match_buffer.LowerMatchBuffer(),
        *([guard_indices.ClampIndices()] if guard_indices.index_policy() == "clamp" else []),
        simplify.Simplify(),
        inject_permuted_layout.InjectPermutedLayout(),
        inject_software_pipeline.InjectSoftwarePipeline(),
        mma_buffer_layout.TransformMmaBufferLayout(),
        lower_opaque_block.LowerOpaqueBlock(),
        flatten_buffer.FlattenBuffer(),
    ]


def _flat_loops(config: dict[str, Any]) -> list[Pass]:
    passes: list[Pass] = [
        legalize_compute.BF16ComputeLegalize(),
        narrow_data_type.NarrowDataType(32),
        loop_partition.LoopPartition(),
        vectorize_loop.VectorizeLoop(not config.get("tir.disable_vectorize", False)),
        inject_virtual_thread.InjectVirtualThread(),
        inject_double_buffer.InjectDoubleBuffer(),
    ]
    if not config.get("tir.disable_storage_rewrite", False):
        passes.append(storage_rewrite.StorageRewrite())
    if config.get("tir.use_async_copy", False):
        passes.append(lower_async_dma.LowerAsyncDMA())
    passes += [
        hoist_expression.HoistIfThenElse("inside threads"),
        unroll_loop.UnrollLoop(),
        renormalize_split_pattern.RenormalizeSplitPattern(),
        simplify.Simplify(),
        remove_no_op.RemoveNoOp(),
        rewrite_unsafe_select.RewriteUnsafeSelect(),
    ]
    if config.get("tir.instrument_bound_checkers", False):
        passes.append(bound_checkers.InstrumentBoundCheckers())
    if config.get("tir.ptx_ldg32", False):
        passes.append(ptx_copies.InjectPTXLDG32(True))
    passes.append(
        common_subexpr.CommonSubexprElimTIR(
            not config.get("tir.disable_cse_tir", False), bool(config.get("tir.enable_equiv_terms_in_cse_tir", False))
        )
    )
    if config.get("tir.instrument_lwp", False):
        passes.append(profile_intrinsics.InstrumentProfileIntrinsics())
    return passes


def _split(config: dict[str, Any]) -> list[Pass]:
    passes: list[Pass] = [
        legalize_compute.FP8ComputeLegalize(),
        vtcm.VerifyVTCMLimit(),
        vtcm.LowerVtcmAlloc(),
        function_passes.VerifyMemory(),
        function_passes.AnnotateEntryFunc(),
    ]
    if config.get("tir.detect_global_barrier", False):
        passes.append(thread_sync.ThreadSync("global"))
    passes += [thread_sync.ThreadSync(scope) for scope in ("shared", "shared.dyn", "warp")]
    passes += [infer_fragment.InferFragment(), lower_thread_allreduce.LowerThreadAllreduce()]
    if config.get("tir.use_async_copy", False):
        passes.append(ptx_copies.InjectPTXAsyncCopy())
    if config.get("tir.ptx_ldg32", False):
        passes.append(ptx_copies.InjectPTXLDG32())
    return [
        *passes,
        device_regions.AnnotateDeviceRegions(),
        split_host_device.SplitHostDevice(),
        merge_shared_memory.MergeSharedMemoryAllocations(),
        make_packed_api.MakePackedAPI(),
        legalize_storage.FP8StorageLegalize(),
        legalize_storage.BF16StorageLegalize(),
        device_kernel_launch.LowerDeviceKernelLaunch(),
    ]


def host_passes() -> list[Pass]:
    """Passes over host functions before code generation."""
    return [
        lower_tvm_builtin.LowerTVMBuiltin(),
        lower_custom_datatypes.LowerCustomDatatypes(),
        lower_intrin.LowerIntrin(),
        device_storage.LowerDeviceStorageAccessInfo(),
        device_storage.CombineContextCall(),
    ]


def device_passes(mathematics: bool = True) -> list[Pass]:
    """Passes over device functions before code generation; without ``mathematics`` only divisions are lowered."""
    return [
        lower_warp_memory.LowerWarpMemory(),
        simplify.Simplify(),
        lower_custom_datatypes.LowerCustomDatatypes(),
        device_storage.LowerDeviceStorageAccessInfo(),
        lower_intrin.LowerIntrin() if mathematics else lower_intrin.LowerDivision(),
    ]
