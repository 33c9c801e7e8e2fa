"""The table of intrinsics: one record says all that is known of one, whoever asks.

Builders (:mod:`relaxish.tir.op`), vectorization, the rules for narrow floats, default schedules, the interpreter and the
printers read it; how a backend writes an intrinsic is the backend's own row. What device intrinsics mean needs memory
and threads, so that :mod:`relaxish.interp` says it.

    >>> from relaxish.tir.intrinsics import INTRINSICS
    >>> float(INTRINSICS["hypot"].meaning(3.0, 4.0)), INTRINSICS["hypot"].effect.name
    (5.0, 'Pure')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..ir.prim import CallEffectKind
from .op_hopper import HOPPER_CALLS

#: What NumPy computes with: numbers and arrays of them.
Numbers: TypeAlias = "np.ndarray[Any, Any] | np.generic | float"

__all__ = ["COSTLY", "INTRINSICS", "Intrinsic", "named", "np_erf"]

Meaning = Callable[..., Any]
COSTLY = 8.0
"""Operations from which on computing a value again is worse than keeping it."""


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """Record of the intrinsic ``tir.<name>``.

    ``meaning``: the value on NumPy arrays and scalars. ``cost``: of one element, in additions. ``builder``: how
    ``tir.<name>`` makes a call ("float": integers become float32; "same": of the operand's type; "int32": of this type
    for every operand; "plain": arguments as they are, the type is ``result``; "": it has a function of its own).
    ``lanewise``: vectors are computed lane by lane.
    ``widens``: narrow floats may be computed in float32. ``cancels``: so much of the result's digits may be lost later, as
    in ``1 + erf(x)``, that they have to be. ``libm``: the function of the C library ("": it has none).
    """

    name: str
    effect: CallEffectKind
    meaning: Meaning | None = None
    cost: float = 1.0
    builder: str = ""
    result: str = ""
    lanewise: bool = False
    widens: bool = False
    cancels: bool = False
    libm: str = ""


INTRINSICS: dict[str, Intrinsic] = {}
"""Records by name."""


def named(test: Callable[[Intrinsic], object]) -> tuple[str, ...]:
    """The names of the intrinsics for which ``test`` holds, as the table has them."""
    return tuple(name for name, record in INTRINSICS.items() if test(record))


def _add(names: str | Iterable[str], effect: CallEffectKind = CallEffectKind.Pure, **known: Any) -> None:
    for name in names.split() if isinstance(names, str) else names:
        INTRINSICS[name] = Intrinsic(name, effect, **known)


# -- functions of floating-point values ----------------------------------------------------------------------------


def _one(x: Any) -> Numbers:
    return x.dtype.type(1) if hasattr(x, "dtype") else 1.0


def np_erf(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The error function of an array, computed in double precision; NumPy has none."""
    made: np.ndarray[Any, Any] = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)
    return made


def _erf(x: Any) -> Numbers:
    return np_erf(x) if isinstance(x, np.ndarray) else type(x)(math.erf(float(x)))


def _fused(a: Any, b: Any, c: Any) -> Numbers:
    """Product and sum, rounded once (in double precision nearly so)."""
    if not hasattr(a, "dtype") or a.dtype.kind in "iu":
        return a * b + c
    wide = np.asarray(a, np.longdouble) * np.asarray(b, np.longdouble) + np.asarray(c, np.longdouble)
    return wide.astype(a.dtype)[()]


def _function(name: str, meaning: Meaning, cost: float = 20.0, *, libm: bool = True, builder: str = "float") -> None:
    """A function of floating-point values whose results are irrational."""
    known: dict[str, Any] = {
        "lanewise": True,
        "widens": True,
        "cancels": True,
        "builder": builder,
        "libm": name if libm else "",
    }
    _add(name, meaning=meaning, cost=cost, **known)


_function("exp", np.exp)
_function("exp2", np.exp2)
_function("exp10", lambda x: np.power(x.dtype.type(10) if hasattr(x, "dtype") else type(x)(10), x), libm=False)
_function("erf", _erf)
_function("tanh", np.tanh)
_function("sigmoid", lambda x: _one(x) / (_one(x) + np.exp(-x)), libm=False)
_function("log", np.log)
_function("log2", np.log2)
_function("log10", np.log10)
_function("log1p", np.log1p)
_function("tan", np.tan)
_function("cos", np.cos)
_function("cosh", np.cosh)
_function("acos", np.arccos)
_function("acosh", np.arccosh)
_function("sin", np.sin)
_function("sinh", np.sinh)
_function("asin", np.arcsin)
_function("asinh", np.arcsinh)
_function("atan", np.arctan)
_function("atanh", np.arctanh)
_function("sqrt", np.sqrt, 4.0)
_function("rsqrt", lambda x: _one(x) / np.sqrt(x), 4.0, libm=False)
_function("pow", lambda a, b: np.power(a, b), 40.0, builder="")
_function("atan2", np.arctan2, builder="")
_function("hypot", np.hypot, 6.0, builder="")
_function("fmod", np.fmod, builder="")
_function("ldexp", lambda a, b: np.ldexp(a, b), 2.0, builder="")

for _name, _rounded in (
    ("floor", np.floor), ("ceil", np.ceil), ("round", np.rint), ("nearbyint", np.rint), ("trunc", np.trunc),
    ("fabs", np.abs), ("copysign", np.copysign), ("fma", _fused),
):  # fmt: skip
    _add(_name, meaning=_rounded, lanewise=True, widens=True, libm=_name)
_add("nextafter", meaning=np.nextafter, lanewise=True, libm="nextafter")
_add("isnan", meaning=np.isnan, lanewise=True)
_add("isinf", meaning=np.isinf, lanewise=True)
_add("isfinite", meaning=np.isfinite, lanewise=True)


# -- bits and integers ---------------------------------------------------------------------------------------------


def _shift_right(a: Any, b: Any) -> Numbers:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        bits = np.asarray(a).dtype.itemsize * 8
        return np.where((b >= 0) & (b < bits), a >> np.clip(b, 0, bits - 1), np.where(a < 0, -1, 0)).astype(a.dtype)
    return a >> min(int(b) & (1 << 63) - 1, 64)


def _shift_left(a: Any, b: Any) -> Numbers:
    """Without a width, for which the caller cares: by 64 and more (or less than none) nothing is left."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        bits = np.asarray(a).dtype.itemsize * 8
        return np.where((b >= 0) & (b < bits), a << np.clip(b, 0, bits - 1), 0).astype(a.dtype)
    return int(a) << int(b) if 0 <= b < 64 else 0


def _popcount(x: Any) -> Numbers:
    if isinstance(x, np.ndarray):
        return np.vectorize(lambda v: bin(int(v) & (1 << 8 * x.itemsize) - 1).count("1"))(x).astype(x.dtype)
    return bin(int(x) & (1 << 64) - 1).count("1")


def _leading_zeros(x: Any, bits: int = 0) -> Numbers:
    """How many of the highest bits are zero; ``bits``: the operand's width, which Python's integers have not."""
    if isinstance(x, np.ndarray):
        return np.vectorize(lambda v: _leading_zeros(v, 8 * x.itemsize), otypes=[x.dtype])(x)
    bits = bits or 8 * x.itemsize
    return bits - (int(x) & ((1 << bits) - 1)).bit_length()


def _fixed_point(x: Any, y: Any, q: Any, s: Any) -> Numbers:
    shift = int(q) + int(s)
    product = np.int64(x) * np.int64(y) if isinstance(x, np.ndarray) else int(x) * int(y)
    return (product + (1 << (shift - 1))) >> shift


_add("popcount", meaning=_popcount, builder="same", lanewise=True)
_add("clz", meaning=_leading_zeros, builder="int32", lanewise=True)
for _name, _bits in (
    ("bitwise_and", lambda a, b: a & b), ("bitwise_or", lambda a, b: a | b), ("bitwise_xor", lambda a, b: a ^ b),
    ("bitwise_not", lambda a: ~a), ("shift_left", _shift_left), ("shift_right", _shift_right),
):  # fmt: skip
    _add(_name, meaning=_bits, lanewise=True)
_add("large_uint_imm", meaning=lambda low, high: (int(high) << 32) | int(low), cost=0.0)
_add("q_multiply_shift", meaning=_fixed_point, cost=4.0)
_add("q_multiply_shift_per_axis", cost=5.0)


def _elements(words: Any, kind: str) -> np.ndarray[Any, Any]:
    """The neighbours that 32-bit words hold, along a last axis; bfloat16 as float32."""
    words = np.asarray(words, np.uint32)[..., None]
    if kind == "bfloat16":
        return np.concatenate([words << 16, words & np.uint32(0xFFFF0000)], -1).view(np.float32)
    return np.ascontiguousarray(words).view(kind).astype(np.int32)


def _dot_bf16x2(a: Any, b: Any) -> Numbers:
    return (_elements(a, "bfloat16") * _elements(b, "bfloat16")).sum(-1, dtype=np.float32)


def _dot_u8s8x4(a: Any, b: Any) -> Numbers:
    return (_elements(a, "uint8") * _elements(b, "int8")).sum(-1, dtype=np.int32)


# Sums of the products of neighbours, which 32-bit words hold: what ``vdpbf16ps`` and ``vpdpbusd`` add to each lane.
_add("dot_bf16x2", meaning=_dot_bf16x2, builder="plain", result="float32", lanewise=True)
_add("dot_u8s8x4", meaning=_dot_u8s8x4, builder="plain", result="int32", lanewise=True)
_add("dp4a", meaning=lambda a, b, c=0: int(c) + int(np.dot(np.asarray(a, np.int64), np.asarray(b, np.int64))))

# -- values as they are --------------------------------------------------------------------------------------------

_add("likely", CallEffectKind.ExprAnnotation, meaning=lambda x: x, cost=0.0, lanewise=True)
_add("ignore_loop_partition", CallEffectKind.ExprAnnotation, meaning=lambda x: x, cost=0.0)
_add("tvm_thread_invariant", meaning=lambda x: x, cost=0.0)
_add("reinterpret", cost=0.0, lanewise=True)
_add("if_then_else")
_add("vectorlow", meaning=lambda v: v[: len(v) // 2])
_add("vectorhigh", meaning=lambda v: v[len(v) // 2 :])
_add("vectorcombine", meaning=lambda a, b: np.concatenate([a, b]))
_add("vscale", meaning=lambda: 1)
_add("type_annotation", meaning=lambda: None, cost=0.0)
_add("isnullptr", meaning=lambda p: p is None)
_add("undef", CallEffectKind.ReadState, meaning=lambda: 0, cost=0.0)
_add("assume", CallEffectKind.EmbedInfo, meaning=lambda *_: 0, cost=0.0)
_add("start_profile_intrinsic end_profile_intrinsic", CallEffectKind.Opaque, meaning=lambda *_: 0)
_add("ret thread_return", CallEffectKind.ControlJump)
_add("tvm_access_ptr", CallEffectKind.SpecialCallArg)
_add("address_of tvm_tuple get_active_lane_mask prefetch_shape tvm_thread_context llvm_lookup_intrinsic_id")
LLVM_LANEWISE = frozenset(
    "fma fmuladd sqrt floor ceil trunc round rint nearbyint fabs copysign minnum maxnum smax smin umax umin ctpop"
    " bswap bitreverse sadd.sat uadd.sat ssub.sat usub.sat exp exp2 log log2 log10 pow sin cos fshl fshr".split()
)
"""Intrinsics of LLVM that vectors of every length have, lane by lane, under a name that ends in the type."""
_add("call_pure_extern call_llvm_pure_intrin call_spirv_pure_glsl450 call_pure_packed")
_add("call_extern call_llvm_intrin prefetch atomic_add", CallEffectKind.Opaque)

# -- the host ------------------------------------------------------------------------------------------------------

_add(
    "tvm_call_packed tvm_call_cpacked tvm_call_packed_lowered tvm_call_cpacked_lowered tvm_call_trace_packed"
    " tvm_call_trace_packed_lowered tvm_static_handle nd_mem_alloc_with_scope texture2d_alloca",
    CallEffectKind.Opaque,
)
_add("tvm_context_id tvm_struct_get anylist_getitem texture2d_load", CallEffectKind.ReadState)
_add("lookup_param anylist_resetitem", CallEffectKind.UpdateState)
_add(
    "tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array",
    CallEffectKind.ReadState,
    builder="plain",
    result="handle",
)
_add("tvm_throw_last_error TVMBackendAllocWorkspace", CallEffectKind.Opaque, builder="plain", result="handle")
_add("tvm_check_return TVMBackendFreeWorkspace", CallEffectKind.Opaque, builder="plain", result="int32")
_add(
    "tvm_struct_set anylist_setitem_call_packed anylist_setitem_call_cpacked",
    CallEffectKind.UpdateState,
    builder="plain",
    result="int32",
)
_add("handle_add_byte_offset", builder="plain", result="handle")

# -- threads and memory of devices ---------------------------------------------------------------------------------

_add("tvm_storage_sync", CallEffectKind.Opaque, meaning=lambda *_: 0, builder="plain", result="int32")
_add("ptx_commit_group ptx_wait_group", CallEffectKind.Opaque, meaning=lambda *_: 0, builder="plain")
_add("tvm_warp_activemask", builder="plain", result="uint32")
_add(
    "tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down tvm_warp_shuffle_xor ptx_mma ptx_mma_sp ptx_ldmatrix"
    " ptx_cp_async ptx_cp_async_bulk mma_store mma_fill ptx_ldg32 dma_copy dma_wait dma_start_group dma_end_group",
    CallEffectKind.Opaque,
)
_add(
    "tvm_thread_allreduce tvm_load_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_fill_fragment tvm_store_matrix_sync"
    " make_filled_simdgroup_matrix simdgroup_load simdgroup_store simdgroup_multiply_accumulate texture2d_store",
    CallEffectKind.Opaque,
    builder="plain",
    result="handle",
)
_add(
    "ptx_cp_async_barrier ptx_init_barrier_thread_count ptx_arrive_barrier ptx_arrive_barrier_expect_tx"
    " ptx_wait_barrier create_barriers",
    CallEffectKind.Opaque,
    builder="plain",
)
for _name, _result in HOPPER_CALLS.items():
    _add(_name, CallEffectKind.Opaque, builder="plain", result=_result)
