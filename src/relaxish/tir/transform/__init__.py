"""Lowering passes over tensor programs, under their public names."""

from __future__ import annotations

from .assume import RemoveAssume, RemoveStoreUndef
from .base import PrimFuncPass, prim_func_pass
from .bound_checkers import InstrumentBoundCheckers
from .common_subexpr import CommonSubexprElimTIR
from .compact_buffer import CompactBufferAllocation
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .convert_ssa import ConvertSSA
from .default_gpu_schedule import DefaultGPUSchedule
from .device_kernel_launch import LowerDeviceKernelLaunch
from .device_regions import AnnotateDeviceRegions, DecorateDeviceScope
from .device_storage import CombineContextCall, LegalizePackedCalls, LowerDeviceStorageAccessInfo
from .empty_reductions import FillEmptyReductions
from .exact_extremes import ExactExtremes
from .extract_constants import ExtractPrimFuncConstants
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
from .guard_indices import ClampIndices, GuardIndices
from .hoist_expression import HoistExpression, HoistIfThenElse, HoistedConditionals, HoistedLetBindings
from .infer_fragment import InferFragment
from .inject_double_buffer import InjectDoubleBuffer
from .inject_permuted_layout import InjectPermutedLayout
from .inject_rolling_buffer import InjectRollingBuffer
from .inject_software_pipeline import InjectSoftwarePipeline
from .inject_virtual_thread import InjectVirtualThread
from .inline_private_functions import InlinePrivateFunctions
from .legalize_compute import BF16ComputeLegalize, FP8ComputeLegalize
from .legalize_storage import BF16StorageLegalize, FP8StorageLegalize
from .lift_thread_binding import LiftThreadBinding
from .loop_partition import LoopPartition
from .lower_async_dma import LowerAsyncDMA
from .lower_auto_copy import LowerAutoCopy
from .lower_cross_thread_reduction import LowerCrossThreadReduction
from .lower_custom_datatypes import LowerCustomDatatypes
from .lower_init_block import LowerInitBlock
from .lower_intrin import LowerIntrin
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .lower_thread_allreduce import LowerThreadAllreduce
from .lower_tvm_builtin import LowerTVMBuiltin
from .lower_warp_memory import LowerWarpMemory
from .make_packed_api import MakePackedAPI
from .make_unpacked_api import MakeUnpackedAPI
from .manifest_local_stage import ManifestSharedMemoryLocalStage
from .merge_shared_memory import MergeSharedMemoryAllocations
from .mma_buffer_layout import TransformMmaBufferLayout
from .narrow_data_type import ForceNarrowIndexToInt32, NarrowDataType
from .pipeline import default_tir_pipeline, get_default_tir_pipeline, get_tir_pipeline, lower_for_cpu
from .plan_allocation import PlanAndUpdateBufferAllocationLocation
from .pointer_value_type import PointerValueTypeRewrite
from .profile_intrinsics import InstrumentProfileIntrinsics
from .ptx_copies import InjectPTXAsyncCopy, InjectPTXLDG32
from .reduce_branching import ReduceBranchingThroughOvercompute
from .remove_no_op import RemoveNoOp
from .remove_weight_layout_rewrite_block import RemoveWeightLayoutRewriteBlock
from .renormalize_split_pattern import RenormalizeSplitPattern
from .rewrite_unsafe_select import RewriteUnsafeSelect
from .simplify import Simplify
from .split_host_device import SplitHostDevice
from .storage_rewrite import StorageRewrite
from .thread_sync import ThreadSync
from .threads import UnifyThreadBinding
from .unroll_loop import UnrollLoop
from .use_assume import UseAssumeToReduceBranches
from .vectorize_loop import VectorizeLoop
from .vtcm import LowerVtcmAlloc, VerifyVTCMLimit

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
