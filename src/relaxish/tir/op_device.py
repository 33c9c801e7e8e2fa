"""Constructors of device intrinsics whose arguments need a second look: shuffles, matrix and copy instructions."""

from __future__ import annotations

from typing import Any

from ..ir.expr import ExprLike, PrimExpr
from .op import call_builtin

__all__ = [
    "mma_fill", "mma_store", "ptx_cp_async", "ptx_cp_async_bulk", "ptx_ldmatrix", "ptx_mma", "ptx_mma_sp",
    "q_multiply_shift_per_axis", "tvm_access_ptr", "tvm_struct_get", "tvm_thread_invariant", "tvm_warp_shuffle",
    "tvm_warp_shuffle_down", "tvm_warp_shuffle_up", "type_annotation", "vectorcombine", "vectorhigh", "vectorlow",
]  # fmt: skip


def type_annotation(dtype: str) -> PrimExpr:
    """A value of no meaning whose type tells the element type of a pointer."""
    return call_builtin(dtype, "type_annotation")


def tvm_access_ptr(
    ptype: str | PrimExpr, data: ExprLike, offset: ExprLike, extent: ExprLike, rw_mask: ExprLike
) -> PrimExpr:
    """A typed pointer into a buffer with the region it may touch."""
    marker = type_annotation(ptype) if isinstance(ptype, str) else ptype
    return call_builtin("handle", "tvm_access_ptr", marker, data, offset, extent, rw_mask)


def tvm_struct_get(arr: ExprLike, index: ExprLike, field: int, dtype: str) -> PrimExpr:
    """A field of a runtime array descriptor."""
    return call_builtin(dtype, "tvm_struct_get", arr, index, field)


def tvm_thread_invariant(cond: PrimExpr) -> PrimExpr:
    """Mark a condition as equal in all threads."""
    return call_builtin(cond.dtype, "tvm_thread_invariant", cond)


def _shuffle(name: str, args: tuple[Any, ...]) -> PrimExpr:
    return call_builtin(args[1].dtype, name, *args)


def tvm_warp_shuffle(
    mask: ExprLike, value: PrimExpr, warp_id: ExprLike, width: ExprLike, warp_size: ExprLike
) -> PrimExpr:
    """The value held by lane ``warp_id``."""
    return _shuffle("tvm_warp_shuffle", (mask, value, warp_id, width, warp_size))


def tvm_warp_shuffle_up(
    mask: ExprLike, value: PrimExpr, offset: ExprLike, width: ExprLike, warp_size: ExprLike
) -> PrimExpr:
    """The value held ``offset`` lanes below."""
    return _shuffle("tvm_warp_shuffle_up", (mask, value, offset, width, warp_size))


def tvm_warp_shuffle_down(
    mask: ExprLike, value: PrimExpr, offset: ExprLike, width: ExprLike, warp_size: ExprLike
) -> PrimExpr:
    """The value held ``offset`` lanes above."""
    return _shuffle("tvm_warp_shuffle_down", (mask, value, offset, width, warp_size))


def ptx_mma(dtype: str, *args: ExprLike) -> PrimExpr:
    """``mma.sync``: shape, layouts, operand types, fragments and offsets."""
    return call_builtin(dtype, "ptx_mma", *args)


def ptx_mma_sp(dtype: str, *args: ExprLike) -> PrimExpr:
    """Sparse ``mma.sync``."""
    return call_builtin(dtype, "ptx_mma_sp", *args)


def ptx_ldmatrix(dtype: str, *args: ExprLike) -> PrimExpr:
    """``ldmatrix``: load 8x8 tiles from shared memory into registers."""
    return call_builtin(dtype, "ptx_ldmatrix", *args)


def ptx_cp_async(dtype: str, *args: ExprLike) -> PrimExpr:
    """``cp.async``: copy global memory to shared memory without waiting."""
    return call_builtin(dtype, "ptx_cp_async", *args)


def ptx_cp_async_bulk(dtype: str, *args: ExprLike) -> PrimExpr:
    """``cp.async.bulk``: bulk copy that signals a barrier."""
    return call_builtin(dtype, "ptx_cp_async_bulk", *args)


def mma_store(dtype: str, *args: ExprLike) -> PrimExpr:
    """Store an accumulator fragment."""
    return call_builtin(dtype, "mma_store", *args)


def mma_fill(dtype: str, *args: ExprLike) -> PrimExpr:
    """Zero an accumulator fragment."""
    return call_builtin(dtype, "mma_fill", *args)


def vectorlow(dtype: str, vec: ExprLike) -> PrimExpr:
    """The lower half of a vector."""
    return call_builtin(dtype, "vectorlow", vec)


def vectorhigh(dtype: str, vec: ExprLike) -> PrimExpr:
    """The upper half of a vector."""
    return call_builtin(dtype, "vectorhigh", vec)


def vectorcombine(dtype: str, vec1: ExprLike, vec2: ExprLike) -> PrimExpr:
    """Two halves as one vector."""
    return call_builtin(dtype, "vectorcombine", vec1, vec2)


def q_multiply_shift_per_axis(*args: ExprLike) -> PrimExpr:
    """Fixed-point multiplication with one scale for each slice of an axis."""
    return call_builtin("int32", "q_multiply_shift_per_axis", *args)
