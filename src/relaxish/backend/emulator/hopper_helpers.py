"""Product of four warps (``wgmma``) from the view of one lane: its warp computes 16 of the 64 rows."""

# Annotations of these programs are their own language's.
# mypy: disable-error-code="valid-type, no-untyped-def, call-arg, operator"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...script import tir as T
from ...tir import PrimFunc
from ...tir.tensor_intrin.mma_fragments import Shape, warp_result
from .lane_program import LANE, checked_index, elements, fiber_words, scratch_room, wait_for_warp

__all__ = ["Operand", "swizzled", "warpgroup_product"]


@dataclass(frozen=True)
class Operand:
    """Shared-memory layout of an operand, as far as it is constant."""

    dtype: str
    swizzle: int
    by_rows: bool

    @property
    def key(self) -> str:
        """A part of the helper's symbol."""
        return f"{self.dtype}_{self.swizzle}_{int(self.by_rows)}"

    def offset(self, row: PrimExpr, column: PrimExpr, leading: PrimExpr, stride: PrimExpr) -> PrimExpr:
        """Offset of an element in bytes from the operand's address, before swizzling.

        The PTX manual calls the two directions leading and stride; which is which depends on the layout.
        """
        size = dt.nbytes(self.dtype)
        width = self.swizzle or 16
        if not self.by_rows:
            along = column * size
            return row % 8 * width + row // 8 * stride + along // width * leading + along % width
        along = row * size
        far, deep = (leading, stride) if self.swizzle else (stride, leading)
        return along // width * far + along % width + column % 8 * width + column // 8 * deep


def swizzled(address: PrimExpr, width: int) -> PrimExpr:
    """Byte address after swizzling over ``width`` bytes (0: no swizzle)."""
    if not width:
        return address
    bits = T.shift_left(T.bitwise_and(T.shift_right(address, T.int64(7)), T.int64(width // 16 - 1)), T.int64(4))
    return T.bitwise_xor(address, bits)


def _chunks(operand: Operand, rows: int, k: int) -> tuple[int, Any]:
    """Pieces of 16 bytes of ``rows`` by ``k`` elements, and where in the matrix the element of a piece is."""
    run = 16 // dt.nbytes(operand.dtype)
    if operand.by_rows:
        across = rows // run
        return across * k, lambda number, e: (number % across * run + e, number // across)
    across = k // run
    return rows * across, lambda number, e: (number // across, number % across * run + e)


def _begin(
    operand: Any, at: Any, number: PrimExpr, first_row: PrimExpr, start: PrimExpr, leading: PrimExpr, stride: PrimExpr
) -> PrimExpr:
    """The element that a piece begins with, in the operand's memory."""
    row, column = at(number, T.int64(0))
    place = swizzled(start + operand.offset(first_row + row, column, leading, stride), operand.swizzle)
    return place // dt.nbytes(operand.dtype)


def warpgroup_product(n: int, a: Operand | str, b: Operand, c_dtype: str, wide: str, checked: bool) -> PrimFunc:
    """``c = a * b`` or ``c += a * b``; ``a`` is the type of registers, or an operand in shared memory.

    Lanes bring 16 bytes at a time, which swizzling leaves together, to the warp's scratch room.
    """
    a_dtype = a if isinstance(a, str) else a.dtype
    a_size, b_size = dt.nbytes(a_dtype), dt.nbytes(b.dtype)
    k = 32 // a_size
    pack = 4 // a_size
    in_registers = isinstance(a, str)
    a_run, b_run = 16 // a_size, 16 // b_size
    a_count, a_at = (0, None) if isinstance(a, str) else _chunks(a, 16, k)
    b_count, b_at = _chunks(b, n, k)
    held = Shape(16, 8, k, pack)

    def into(at: Any, number: Any, e: PrimExpr) -> PrimExpr:
        """Index of an element of a piece in a row-major matrix of ``k`` columns."""
        row, column = at(number, e)
        return row * k + column

    @T.prim_func(private=True)
    def multiply(
        thread: T.handle("int64"), c: T.handle(c_dtype), c_first: T.int64, add: T.int64,
        a_data: T.handle(a_dtype), a_start: T.int64, a_leading: T.int64, a_stride: T.int64, a_site: T.int64,
        b_data: T.handle(b.dtype), b_start: T.int64, b_leading: T.int64, b_stride: T.int64, b_site: T.int64,
        site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        C = elements(c, c_dtype)
        A = elements(a_data, a_dtype)
        B = elements(b_data, b.dtype)
        scratch: T.handle(wide) = scratch_room(thread)
        X = T.decl_buffer((16 * k,), wide, data=scratch)
        Y = T.decl_buffer((n * k,), wide, data=scratch, elem_offset=16 * k)
        total = T.decl_buffer((1,), wide)
        lane = W[LANE]
        group_row = T.call_extern("int64", "rx_warp_in_group", thread) * 16
        if in_registers:
            for i in range(4 * pack):
                X[into(held.a, lane, T.int64(i))] = T.cast(A[a_start + T.int64(i)], wide)
        else:
            for i in range(a_count // 32):
                number = lane + T.int64(i) * 32
                begin = T.meta_var(_begin(a, a_at, number, group_row, a_start, a_leading, a_stride))
                first = checked_index(checked, thread, begin, a_run, a_site)
                for e in range(a_run):
                    X[into(a_at, number, T.int64(e))] = T.cast(A[first + T.int64(e)], wide)
        for i in range((b_count + 31) // 32):
            number = lane + T.int64(i) * 32
            if number < T.int64(b_count):
                begin = T.meta_var(_begin(b, b_at, number, T.int64(0), b_start, b_leading, b_stride))
                first = checked_index(checked, thread, begin, b_run, b_site)
                for e in range(b_run):
                    Y[into(b_at, number, T.int64(e))] = T.cast(B[first + T.int64(e)], wide)
        wait_for_warp(thread, site)
        for i in range(n // 2):
            total[0] = T.cast(0, wide)
            if add != T.int64(0):
                total[0] = T.cast(C[c_first + T.int64(i)], wide)
            for r in range(k):
                row = T.meta_var(warp_result(lane, T.int64(i))[0])
                column = T.meta_var(warp_result(lane, T.int64(i))[1])
                total[0] = total[0] + X[row * k + T.int64(r)] * Y[column * k + T.int64(r)]
            C[c_first + T.int64(i)] = T.cast(total[0], c_dtype)

    return multiply
