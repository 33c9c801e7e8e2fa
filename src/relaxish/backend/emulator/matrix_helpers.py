"""Matrix operations of a warp from the view of one lane, as PrimFuncs that are compiled once.

Lanes that need each other's elements write theirs to the warp's scratch room, wait for each other, and compute their
own part of the result. In a WMMA fragment a lane holds the elements ``lane * count .. lane * count + count - 1`` of the
matrix in row-major order (the hardware's own distribution is unspecified).
"""

# Annotations of these programs are their own language's.
# mypy: disable-error-code="valid-type, no-untyped-def, call-arg, operator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import PrimExpr
from ...script import tir as T
from ...tir import PrimFunc
from ...tir.buffer import Buffer
from . import layout
from .lane_program import LANE, checked_index, elements, fiber_words, scratch_room, wait_for_warp
from ...tir.tensor_intrin.mma_fragments import Shape, Sparse, pair
from ...tir.tensor_intrin.mma_layouts import mma_32x8_to_shared_16x16_layout
from .nibbles import is_nibble, unpacked

__all__ = [
    "atomic_update",
    "fragment_copy",
    "fragment_fill",
    "fragment_product",
    "load_bytes_transposed",
    "load_matrices",
    "mma",
    "mma_sparse",
    "nibble_fragment_load",
    "store_accumulators",
]


def fragment_fill(dtype: str, count: int) -> PrimFunc:
    """Set the ``count`` elements of a fragment that a lane holds to one value."""
    wide = "float64" if "float" in dtype else "int64"
    # No processor makes 16-bit numbers of doubles.
    between = "float32" if dtype not in ("float64", "int64") and "float" in dtype else wide

    @T.prim_func(private=True)
    def fill(thread: T.handle("int64"), fragment: T.handle(dtype), at: T.int64, value: T.var(wide)):
        F = elements(fragment, dtype)
        for e in range(count):
            F[at + T.int64(e)] = T.cast(T.cast(value, between), dtype)

    return fill


def fragment_copy(dtype: str, columns: int, count: int, row_major: bool, stores: bool, checked: bool) -> PrimFunc:
    """Read a lane's elements of a matrix in memory, or (``stores``) write them to it.

    ``stride`` is the distance of the matrix's rows, or of its columns unless it lies ``row_major``, in elements.
    """

    @T.prim_func(private=True)
    def copy(
        thread: T.handle("int64"), fragment: T.handle(dtype), at: T.int64,
        matrix: T.handle(dtype), start: T.int64, stride: T.int64, site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        F = elements(fragment, dtype)
        M = elements(matrix, dtype)
        row = W[LANE] * count // columns
        column = W[LANE] * count % columns
        begin = T.meta_var(start + (row * stride + column if row_major else column * stride + row))
        step = T.meta_var(T.int64(1) if row_major else stride)
        first = checked_index(checked, thread, begin, count, site, None if row_major else stride)
        for e in range(count):
            if stores:
                M[first + T.int64(e) * step] = F[at + T.int64(e)]
            else:
                F[at + T.int64(e)] = M[first + T.int64(e) * step]

    return copy


def nibble_fragment_load(dtype: str, columns: int, count: int, row_major: bool, checked: bool) -> PrimFunc:
    """``fragment_copy`` from a matrix of 4-bit elements, two to a byte; ``start`` counts bytes, ``stride`` elements."""
    signed = dtype == "int4"

    @T.prim_func(private=True)
    def load(
        thread: T.handle("int64"), fragment: T.handle("int8"), at: T.int64,
        source: T.handle("uint8"), start: T.int64, stride: T.int64, site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        F = elements(fragment, "int8")
        S = elements(source, "uint8")
        row = W[LANE] * count // columns
        column = W[LANE] * count % columns
        for e in range(count):
            element = row * stride + column + e if row_major else (column + e) * stride + row
            byte = checked_index(checked, thread, start + element // 2, 1, site)
            raw = T.meta_var(T.shift_right(T.cast(S[byte], "int32"), T.cast(element % 2 * 4, "int32")))
            F[at + T.int64(e)] = T.cast(unpacked(raw, signed), "int8")

    return load


def fragment_product(m: int, n: int, k: int, a_dtype: str, b_dtype: str, c_dtype: str, wide: str) -> PrimFunc:
    """``d = a * b + c`` on WMMA fragments, accumulated in the type ``wide``."""
    a_count, b_count, c_count = m * k // 32, k * n // 32, m * n // 32

    @T.prim_func(private=True)
    def product(
        thread: T.handle("int64"), d: T.handle(c_dtype), d_at: T.int64, a: T.handle(a_dtype), a_at: T.int64,
        b: T.handle(b_dtype), b_at: T.int64,
        c: T.handle(c_dtype), c_at: T.int64, site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        A = elements(a, a_dtype)
        B = elements(b, b_dtype)
        C = elements(c, c_dtype)
        D = elements(d, c_dtype)
        scratch: T.handle(wide) = scratch_room(thread)
        X = T.decl_buffer((m * k,), wide, data=scratch)
        Y = T.decl_buffer((k * n,), wide, data=scratch, elem_offset=m * k)
        total = T.decl_buffer((c_count,), wide)
        lane = W[LANE]
        row = T.meta_var(lane * c_count // n)
        column = T.meta_var(lane * c_count % n)
        for e in range(a_count):
            X[lane * a_count + T.int64(e)] = T.cast(A[a_at + T.int64(e)], wide)
        for e in range(b_count):
            Y[lane * b_count + T.int64(e)] = T.cast(B[b_at + T.int64(e)], wide)
        wait_for_warp(thread, site)
        for e in range(c_count):
            total[e] = T.cast(C[c_at + T.int64(e)], wide)
        for r in range(k):
            for e in range(c_count):
                left = T.meta_var(X[row * k + T.int64(r)])
                right = T.meta_var(Y[T.int64(r) * n + column + T.int64(e)])
                total[e] = total[e] + left * right
        for e in range(c_count):
            D[d_at + T.int64(e)] = T.cast(total[e], c_dtype)

    return product


def _held(dtype: str) -> str:
    """The type in which a thread's registers are read."""
    return "uint8" if is_nibble(dtype) else dtype


def _operand(buffer: Buffer, first: PrimExpr, i: int, dtype: str, wide: str) -> PrimExpr:
    """Element ``i`` of a thread's registers; elements of 4 bits are two to a byte."""
    if not is_nibble(dtype):
        return T.cast(buffer[first + T.int64(i)], wide)
    raw = T.shift_right(T.cast(buffer[first + T.int64(i // 2)], "int32"), T.int32(i % 2 * 4))
    return T.cast(unpacked(raw, dtype == "int4"), wide)


def _in_matrix(position: Callable[..., Any], lane: PrimExpr, i: int, across: int, by_columns: bool = False) -> PrimExpr:
    """Where a lane's element ``i`` goes in a matrix of rows (or columns) of ``across`` elements."""
    row, column = position(lane, T.int64(i))
    return column * across + row if by_columns else row * across + column


def mma(shape: Shape, a_dtype: str, b_dtype: str, c_dtype: str, wide: str) -> PrimFunc:
    """``c += a * b`` with the register layout of ``mma.sync``, accumulated in the type ``wide``."""
    m, n, k = shape.m, shape.n, shape.k

    @T.prim_func(private=True)
    def multiply(
        thread: T.handle("int64"), a: T.handle(_held(a_dtype)), a_first: T.int64, b: T.handle(_held(b_dtype)), b_first: T.int64,
        c: T.handle(c_dtype), c_first: T.int64,
        site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        A = elements(a, _held(a_dtype))
        B = elements(b, _held(b_dtype))
        C = elements(c, c_dtype)
        scratch: T.handle(wide) = scratch_room(thread)
        X = T.decl_buffer((m * k,), wide, data=scratch)
        Y = T.decl_buffer((k * n,), wide, data=scratch, elem_offset=m * k)
        total = T.decl_buffer((1,), wide)
        lane = W[LANE]
        for i in range(shape.a_count):
            X[_in_matrix(shape.a, lane, i, k)] = _operand(A, a_first, i, a_dtype, wide)
        for i in range(shape.b_count):
            Y[_in_matrix(shape.b, lane, i, k, True)] = _operand(B, b_first, i, b_dtype, wide)
        wait_for_warp(thread, site)
        for i in range(shape.c_count):
            total[0] = T.cast(C[c_first + T.int64(i)], wide)
            row, column = T.meta_var(shape.c(lane, T.int64(i)))
            for r in range(k):
                total[0] = total[0] + X[row * k + T.int64(r)] * Y[column * k + T.int64(r)]
            C[c_first + T.int64(i)] = T.cast(total[0], c_dtype)

    return multiply


def mma_sparse(
    shape: Sparse, selector: int, a_dtype: str, b_dtype: str, c_dtype: str, wide: str, checked: bool
) -> PrimFunc:
    """``c += a * b`` of ``mma.sp``: only half of a's elements are stored, and the metadata word ``e`` says which."""
    held = shape.held
    m, n, k, left = held.m, held.n, 2 * held.k, held.k
    each = left * shape.chunk // k  # elements of a chunk that are there

    @T.prim_func(private=True)
    def multiply(
        thread: T.handle("int64"), a: T.handle(_held(a_dtype)), a_first: T.int64, b: T.handle(_held(b_dtype)), b_first: T.int64,
        c: T.handle(c_dtype), c_first: T.int64, e: T.handle("uint32"), e_first: T.int64,
        site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        A = elements(a, _held(a_dtype))
        B = elements(b, _held(b_dtype))
        C = elements(c, c_dtype)
        E = elements(e, "uint32")
        scratch: T.handle(wide) = scratch_room(thread)
        X = T.decl_buffer((m * left,), wide, data=scratch)
        Y = T.decl_buffer((k * n,), wide, data=scratch, elem_offset=m * left)
        end = T.meta_var(T.reinterpret("int64", scratch) + T.int64(layout.SCRATCH_BYTES))
        words: T.handle("uint32") = T.reinterpret("handle", end - T.int64(128))
        M = T.decl_buffer((32,), "uint32", data=words)
        total = T.decl_buffer((1,), wide)
        lane = W[LANE]
        for i in range(held.a_count):
            X[_in_matrix(held.a, lane, i, left)] = _operand(A, a_first, i, a_dtype, wide)
        for i in range(shape.b_count):
            Y[_in_matrix(held.b, lane, i, k, True)] = _operand(B, b_first, i, b_dtype, wide)
        M[lane] = E[e_first]
        if checked and lane % 4 // shape.threads == T.int64(selector):
            word = T.meta_var(T.cast(M[lane], "int64"))
            T.evaluate(T.call_extern("int64", "rx_check_metadata", thread, word, T.int64(shape.chunk), site))
        wait_for_warp(thread, site)
        for i in range(held.c_count):
            total[0] = T.cast(C[c_first + T.int64(i)], wide)
            row, column = T.meta_var(held.c(lane, T.int64(i)))
            for r in range(left):
                holder, lowest = T.meta_var(shape.where(row, T.int64(r) // each, selector))
                bits = T.shift_right(T.cast(M[holder], "int64"), lowest) % 16
                right = T.meta_var(Y[column * k + shape.column(bits, T.int64(r))])
                total[0] = total[0] + X[row * left + T.int64(r)] * right
            C[c_first + T.int64(i)] = T.cast(total[0], c_dtype)

    return multiply


def load_matrices(count: int, transposed: bool, checked: bool) -> PrimFunc:
    """``ldmatrix``: lane i brings row i of ``count`` 8 x 8 matrices of 16 bits; offsets count 16-bit elements."""

    @T.prim_func(private=True)
    def load(
        thread: T.handle("int64"), local: T.handle("uint16"), local_at: T.int64,
        source: T.handle("uint16"), start: T.int64, unit: T.int64, site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        R = elements(local, "uint16")
        S = elements(source, "uint16")
        scratch: T.handle("uint16") = scratch_room(thread)
        X = T.decl_buffer((256,), "uint16", data=scratch)
        lane = W[LANE]
        if lane < count * 8:
            # ``start`` counts elements of ``unit`` bytes, as the check does.
            first = checked_index(checked, thread, start, T.int64(16) // unit, site)
            for e in range(8):
                X[lane * 8 + T.int64(e)] = S[first * unit // T.int64(2) + T.int64(e)]
        wait_for_warp(thread, site)
        for i in range(count):
            for j in range(2):
                row, column = T.meta_var(pair(lane, T.int64(j)))
                element = T.meta_var(column * 8 + row if transposed else row * 8 + column)
                R[local_at + T.int64(i * 2 + j)] = X[T.int64(i) * 64 + element]

    return load


def load_bytes_transposed(checked: bool) -> PrimFunc:
    """``ldmatrix`` cannot transpose bytes: each lane reads its own; the last argument is the row pitch."""

    @T.prim_func(private=True)
    def load(
        thread: T.handle("int64"), local: T.handle("uint8"), local_at: T.int64,
        source: T.handle("uint8"), start: T.int64, pitch: T.int64, site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        R = elements(local, "uint8")
        S = elements(source, "uint8")
        lane = W[LANE]
        for i in range(16):
            row = T.meta_var(lane % 4 * 4 + T.int64(i % 8 // 4 * 16 + i % 4))
            column = T.meta_var(lane // 4 + T.int64(i // 8 * 8))
            R[local_at + T.int64(i)] = S[checked_index(checked, thread, start + row * pitch + column, 1, site)]

    return load


def store_accumulators(dtype: str, checked: bool) -> PrimFunc:
    """``mma_store``: write a lane's eight elements of a 16 x 16 tile to memory."""

    @T.prim_func(private=True)
    def store(
        thread: T.handle("int64"), local: T.handle(dtype), local_at: T.int64,
        target: T.handle(dtype), start: T.int64, stride: T.int64, site: T.int64,
    ):  # fmt: skip
        W = fiber_words(thread)
        R = elements(local, dtype)
        D = elements(target, dtype)
        lane = W[LANE]
        for i in range(8):
            row, column = T.meta_var(mma_32x8_to_shared_16x16_layout(lane, T.int64(i)))
            D[checked_index(checked, thread, start + row * stride + column, 1, site)] = R[local_at + T.int64(i)]

    return store


def atomic_update(how: str, dtype: str, wide: str) -> PrimFunc:
    """Change an element atomically; ``how`` is the suffix of the device function (``add``, ``max``, ``cas``, ...).

    The old value goes to the thread's record as its answer.
    """
    between = "float32" if wide == "float64" and dtype != "float64" else "uint64" if dtype == "uint64" else wide

    def combined(old: Any, expected: Any, value: Any) -> PrimExpr:
        zero = T.cast(0, between)
        return {
            "add": lambda: old + value, "sub": lambda: old - value, "max": lambda: T.max(old, value),
            "min": lambda: T.min(old, value), "and": lambda: T.bitwise_and(old, value), "exch": lambda: value,
            "or": lambda: T.bitwise_or(old, value), "xor": lambda: T.bitwise_xor(old, value),
            "inc": lambda: T.Select(old >= value, zero, old + T.cast(1, between)),
            "dec": lambda: T.Select(T.Or(old == zero, old > value), value, old - T.cast(1, between)),
            "cas": lambda: T.Select(old == expected, value, old),
        }[how]()  # fmt: skip

    @T.prim_func(private=True)
    def update(
        thread: T.handle("int64"), data: T.handle(dtype), at: T.int64, expected: T.var(wide), value: T.var(wide)
    ):  # fmt: skip
        W = fiber_words(thread)
        D = elements(data, dtype)
        old = T.decl_buffer((1,), between)
        old[0] = T.cast(D[at], between)
        W[layout.FIBER_ANSWER // 8] = T.reinterpret("int64", T.cast(old[0], wide))
        D[at] = T.cast(combined(old[0], T.cast(expected, between), T.cast(value, between)), dtype)

    return update
