"""Lowering passes over tensor programs, under their public names."""

from __future__ import annotations

from .simplify.assume import RemoveAssume, RemoveStoreUndef
from .base import PrimFuncPass, prim_func_pass
from .numerics.bound_checkers import InstrumentBoundCheckers
from .simplify.common_subexpr import CommonSubexprElimTIR
from .blocks.compact_buffer import CompactBufferAllocation
from .blocks.convert_blocks_to_opaque import ConvertBlocksToOpaque
from .simplify.convert_ssa import ConvertSSA
from .blocks.default_gpu_schedule import DefaultGPUSchedule
from .device.device_kernel_launch import LowerDeviceKernelLaunch
from .device.device_regions import AnnotateDeviceRegions, DecorateDeviceScope
from .device.device_storage import CombineContextCall, LegalizePackedCalls, LowerDeviceStorageAccessInfo
from .numerics.empty_reductions import FillEmptyReductions
from .numerics.exact_extremes import ExactExtremes
from .simplify.extract_constants import ExtractPrimFuncConstants
from .memory.flatten_buffer import FlattenBuffer
from .function_passes import (
    AnnotateEntryFunc,
    Apply,
    BindTarget,
    ConvertForLoopsToSerial,
    Filter,
    SkipAssert,
    VerifyMemory,
)
from .numerics.guard_indices import ClampIndices, GuardIndices
from .loops.hoist_expression import HoistExpression, HoistIfThenElse, HoistedConditionals, HoistedLetBindings
from .device.infer_fragment import InferFragment
from .loops.inject_double_buffer import InjectDoubleBuffer
from .blocks.inject_permuted_layout import InjectPermutedLayout
from .blocks.inject_rolling_buffer import InjectRollingBuffer
from .loops.inject_software_pipeline import InjectSoftwarePipeline
from .loops.inject_virtual_thread import InjectVirtualThread
from .host.inline_private_functions import InlinePrivateFunctions
from .numerics.legalize_compute import BF16ComputeLegalize, FP8ComputeLegalize
from .numerics.legalize_storage import BF16StorageLegalize, FP8StorageLegalize
from .blocks.lift_thread_binding import LiftThreadBinding
from .loops.loop_partition import LoopPartition
from .device.lower_async_dma import LowerAsyncDMA
from .blocks.lower_auto_copy import LowerAutoCopy
from .blocks.lower_cross_thread_reduction import LowerCrossThreadReduction
from .numerics.lower_custom_datatypes import LowerCustomDatatypes
from .blocks.lower_init_block import LowerInitBlock
from .numerics.lower_intrin import LowerIntrin
from .blocks.lower_match_buffer import LowerMatchBuffer
from .blocks.lower_opaque_block import LowerOpaqueBlock
from .device.lower_thread_allreduce import LowerThreadAllreduce
from .host.lower_tvm_builtin import LowerTVMBuiltin
from .device.lower_warp_memory import LowerWarpMemory
from .host.make_packed_api import MakePackedAPI
from .host.make_unpacked_api import MakeUnpackedAPI
from .blocks.manifest_local_stage import ManifestSharedMemoryLocalStage
from .memory.merge_shared_memory import MergeSharedMemoryAllocations
from .blocks.mma_buffer_layout import TransformMmaBufferLayout
from .simplify.narrow_data_type import ForceNarrowIndexToInt32, NarrowDataType
from .pipeline import default_tir_pipeline, get_default_tir_pipeline, get_tir_pipeline, lower_for_cpu
from .blocks.plan_allocation import PlanAndUpdateBufferAllocationLocation
from .memory.pointer_value_type import PointerValueTypeRewrite
from .host.profile_intrinsics import InstrumentProfileIntrinsics
from .device.ptx_copies import InjectPTXAsyncCopy, InjectPTXLDG32
from .simplify.reduce_branching import ReduceBranchingThroughOvercompute
from .simplify.remove_no_op import RemoveNoOp
from .blocks.remove_weight_layout_rewrite_block import RemoveWeightLayoutRewriteBlock
from .simplify.renormalize_split_pattern import RenormalizeSplitPattern
from .simplify.rewrite_unsafe_select import RewriteUnsafeSelect
from .simplify.simplify import Simplify
from .device.split_host_device import SplitHostDevice
from .memory.storage_rewrite import StorageRewrite
from .device.thread_sync import ThreadSync
from .device.unify_thread_binding import UnifyThreadBinding
from .loops.unroll_loop import UnrollLoop
from .simplify.use_assume import UseAssumeToReduceBranches
from .loops.vectorize_loop import VectorizeLoop
from .memory.vtcm import LowerVtcmAlloc, VerifyVTCMLimit

__all__ = [
    "AnnotateDeviceRegions", "AnnotateEntryFunc", "Apply", "BF16ComputeLegalize", "BF16StorageLegalize", "BindTarget",
    "ClampIndices",
    "CombineContextCall", "CommonSubexprElimTIR", "CompactBufferAllocation", "ConvertBlocksToOpaque",
    "ConvertForLoopsToSerial", "ConvertSSA", "DecorateDeviceScope", "DefaultGPUSchedule", "ExactExtremes", "ExtractPrimFuncConstants",
    "FP8ComputeLegalize", "FP8StorageLegalize", "FillEmptyReductions", "Filter", "FlattenBuffer", "ForceNarrowIndexToInt32",
    "GuardIndices",
    "HoistExpression", "HoistIfThenElse", "HoistedConditionals", "HoistedLetBindings", "InferFragment",
    "InjectDoubleBuffer", "InjectPTXAsyncCopy", "InjectPTXLDG32", "InjectPermutedLayout", "InjectRollingBuffer",
    "InjectSoftwarePipeline", "InjectVirtualThread", "InlinePrivateFunctions", "InstrumentBoundCheckers",
    "InstrumentProfileIntrinsics", "LegalizePackedCalls", "LiftThreadBinding", "LoopPartition", "LowerAsyncDMA",
    "LowerAutoCopy", "LowerCrossThreadReduction", "LowerCustomDatatypes", "LowerDeviceKernelLaunch",
    "LowerDeviceStorageAccessInfo", "LowerInitBlock", "LowerIntrin", "LowerMatchBuffer", "LowerOpaqueBlock",
    "LowerTVMBuiltin", "LowerThreadAllreduce", "LowerVtcmAlloc", "LowerWarpMemory", "MakePackedAPI",
    "MakeUnpackedAPI", "ManifestSharedMemoryLocalStage", "MergeSharedMemoryAllocations", "NarrowDataType",
    "PlanAndUpdateBufferAllocationLocation", "PointerValueTypeRewrite", "PrimFuncPass",
    "ReduceBranchingThroughOvercompute", "RemoveAssume", "RemoveNoOp", "RemoveStoreUndef",
    "RemoveWeightLayoutRewriteBlock", "RenormalizeSplitPattern", "RewriteUnsafeSelect", "Simplify", "SkipAssert",
    "SplitHostDevice", "StorageRewrite", "ThreadSync", "TransformMmaBufferLayout", "UnifyThreadBinding", "UnrollLoop",
    "UseAssumeToReduceBranches", "VectorizeLoop", "VerifyMemory", "VerifyVTCMLimit", "default_tir_pipeline",
    "get_default_tir_pipeline", "get_tir_pipeline", "lower_for_cpu", "prim_func_pass",
]  # fmt: skip
