"""The names of intrinsics by family, with what a call of each may do."""

from __future__ import annotations

from ..ir.prim import CallEffectKind
from .op_hopper import HOPPER_CALLS

__all__ = ["EFFECTS", "FLOAT_UNARY", "HANDLE_CALLS", "PLAIN_UNARY"]

# Functions of floating-point values; integer operands become float32.
FLOAT_UNARY = (
    "exp", "exp2", "exp10", "erf", "tanh", "sigmoid", "log", "log2", "log10", "log1p", "tan", "cos", "cosh", "acos",
    "acosh", "sin", "sinh", "asin", "asinh", "atan", "atanh", "sqrt", "rsqrt",
)  # fmt: skip
# Functions that keep the operand's type.
PLAIN_UNARY = ("popcount", "clz")
# Low-level calls that take their arguments as they are: name -> result type.
HANDLE_CALLS = {
    "tvm_stack_alloca": "handle", "tvm_stack_make_shape": "handle", "tvm_stack_make_array": "handle",
    "tvm_throw_last_error": "handle", "tvm_check_return": "int32", "tvm_struct_set": "int32",
    "tvm_thread_allreduce": "handle", "tvm_load_matrix_sync": "handle", "tvm_mma_sync": "handle",
    "tvm_bmma_sync": "handle", "tvm_fill_fragment": "handle", "tvm_store_matrix_sync": "handle",
    "tvm_storage_sync": "int32", "ptx_wait_group": "", "ptx_commit_group": "", "ptx_cp_async_barrier": "",
    "ptx_init_barrier_thread_count": "", "ptx_arrive_barrier": "", "ptx_arrive_barrier_expect_tx": "",
    "ptx_wait_barrier": "", "create_barriers": "", "make_filled_simdgroup_matrix": "handle",
    "simdgroup_load": "handle", "simdgroup_store": "handle", "simdgroup_multiply_accumulate": "handle",
    "TVMBackendAllocWorkspace": "handle", "TVMBackendFreeWorkspace": "int32", "tvm_warp_activemask": "uint32",
    "anylist_setitem_call_packed": "int32", "anylist_setitem_call_cpacked": "int32", "texture2d_store": "handle",
    "handle_add_byte_offset": "handle",
} | HOPPER_CALLS  # fmt: skip

_PURE = CallEffectKind.Pure
_READ = CallEffectKind.ReadState
_OPAQUE = CallEffectKind.Opaque
_UPDATE = CallEffectKind.UpdateState
_ANNOTATION = CallEffectKind.ExprAnnotation
_SPECIAL = CallEffectKind.SpecialCallArg

_PURE_NAMES = (
    *FLOAT_UNARY, *PLAIN_UNARY, "floor", "ceil", "round", "nearbyint", "trunc", "fabs", "fma", "isnan", "isnullptr", "isinf",
    "isfinite", "pow", "fmod", "atan2", "copysign", "hypot", "nextafter", "ldexp", "if_then_else", "reinterpret",
    "address_of", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right",
    "large_uint_imm", "q_multiply_shift", "q_multiply_shift_per_axis", "call_pure_extern", "call_llvm_pure_intrin",
    "call_spirv_pure_glsl450", "call_pure_packed", "type_annotation", "vectorlow", "vectorhigh", "vectorcombine",
    "dp4a", "vscale", "get_active_lane_mask", "tvm_warp_activemask", "tvm_tuple", "prefetch_shape",
)  # fmt: skip
_OPAQUE_NAMES = (
    "call_extern", "call_llvm_intrin", "tvm_call_packed", "tvm_call_cpacked", "tvm_call_packed_lowered",
    "tvm_call_cpacked_lowered", "tvm_call_trace_packed", "tvm_call_trace_packed_lowered", "tvm_storage_sync",
    "tvm_throw_last_error", "tvm_check_return", "tvm_thread_allreduce", "tvm_load_matrix_sync", "tvm_mma_sync",
    "tvm_bmma_sync", "tvm_fill_fragment", "tvm_store_matrix_sync", "tvm_warp_shuffle", "tvm_warp_shuffle_up",
    "tvm_warp_shuffle_down", "tvm_warp_shuffle_xor", "ptx_mma", "ptx_mma_sp", "ptx_ldmatrix", "ptx_cp_async",
    "ptx_cp_async_bulk",
    "ptx_commit_group", "ptx_wait_group", "ptx_cp_async_barrier", "ptx_init_barrier_thread_count",
    "ptx_arrive_barrier", "ptx_arrive_barrier_expect_tx", "ptx_wait_barrier", "create_barriers", "mma_store",
    "mma_fill", "ptx_ldg32", "make_filled_simdgroup_matrix", "simdgroup_load", "simdgroup_store",
    "simdgroup_multiply_accumulate", "start_profile_intrinsic", "end_profile_intrinsic", "nd_mem_alloc_with_scope",
    "prefetch", "dma_copy", "dma_wait", "dma_start_group", "dma_end_group", "texture2d_alloca",
)  # fmt: skip

EFFECTS: dict[str, CallEffectKind] = {
    **dict.fromkeys(_PURE_NAMES, _PURE),
    **dict.fromkeys(_OPAQUE_NAMES, _OPAQUE),
    **dict.fromkeys(HOPPER_CALLS, _OPAQUE),
    "tvm_thread_context": _PURE,
    "likely": _ANNOTATION,
    "ignore_loop_partition": _ANNOTATION,
    "assume": CallEffectKind.EmbedInfo,
    "undef": _READ,
    "ret": CallEffectKind.ControlJump,
    "thread_return": CallEffectKind.ControlJump,
    "lookup_param": _UPDATE,
    "tvm_access_ptr": _SPECIAL,
    "tvm_static_handle": _OPAQUE,
    "tvm_context_id": _READ,
    "tvm_struct_get": _READ,
    "tvm_struct_set": _UPDATE,
    "tvm_stack_alloca": _READ,
    "tvm_stack_make_shape": _READ,
    "tvm_stack_make_array": _READ,
    "tvm_thread_invariant": _PURE,
    "TVMBackendAllocWorkspace": _OPAQUE,
    "TVMBackendFreeWorkspace": _OPAQUE,
    "anylist_getitem": _READ,
    "anylist_resetitem": _UPDATE,
    "anylist_setitem_call_packed": _UPDATE,
    "anylist_setitem_call_cpacked": _UPDATE,
    "llvm_lookup_intrinsic_id": _PURE,
    "texture2d_load": _READ,
    "texture2d_store": _OPAQUE,
}
