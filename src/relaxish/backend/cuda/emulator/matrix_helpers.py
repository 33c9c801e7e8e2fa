"""What a lane does in the operations of a warp on matrices, as PrimFuncs that are compiled once.

Lanes that need each other's elements put theirs into the warp's scratch room, meet, and compute their own part of
the result. Fragments (wmma) are spread so that a lane holds the elements ``lane * count ..`` in row-major order.
"""

# Annotations of these programs are their own language's.
# mypy: disable-error-code="valid-type, no-untyped-def, call-arg, operator"
from __future__ import annotations

from typing import Any

from ....script import tir as T
from ....tir import PrimFunc
from . import layout
from .matrix_layouts import Shape

__all__ = [
    "atomic_update", "fragment_fill", "fragment_load", "fragment_product", "fragment_store", "load_bytes_transposed", "load_matrices",
    "mma", "store_accumulators",
]  # fmt: skip

_MANY = 1 << 30
_LANE = layout.FIBER_LANE // 8
_WORDS = layout.FIBER_BYTES // 8


def _check(checked: bool) -> str:
    return "rx_check" if checked else "rx_index"


def fragment_fill(dtype: str, count: int) -> PrimFunc:
    """Set a lane's elements of a fragment."""
    wide = "float64" if "float" in dtype else "int64"
    # No processor makes 16-bit numbers of doubles.
    between = "float32" if dtype not in ("float64", "int64") and "float" in dtype else wide

    @T.prim_func(private=True)
    def fill(thread: T.handle("int64"), fragment: T.handle(dtype), at: T.int64, value: T.var(wide)):
        F = T.decl_buffer((_MANY,), dtype, data=fragment)
        for e in range(count):
            F[at + T.int64(e)] = T.cast(T.cast(value, between), dtype)

    return fill


def fragment_load(dtype: str, columns: int, count: int, by_rows: bool, checked: bool) -> PrimFunc:
    """Read a lane's elements of a matrix in memory; ``by_rows`` says which way it lies there."""
    check, strided = _check(checked), "rx_check_strided" if checked else "rx_index_strided"

    @T.prim_func(private=True)
    def load(
        thread: T.handle("int64"), fragment: T.handle(dtype), at: T.int64,
        source: T.handle(dtype), start: T.int64, stride: T.int64, site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        F = T.decl_buffer((_MANY,), dtype, data=fragment)
        S = T.decl_buffer((_MANY,), dtype, data=source)
        with T.LetStmt(W[_LANE] * count // columns) as row:
            with T.LetStmt(W[_LANE] * count % columns) as column:
                if by_rows:
                    with T.LetStmt(T.call_extern("int64", check, thread, start + row * stride + column, T.int64(count), site)) as first:
                        for e in range(count):
                            F[at + T.int64(e)] = S[first + T.int64(e)]
                else:
                    with T.LetStmt(
                        T.call_extern("int64", strided, thread, start + column * stride + row, T.int64(count), stride, site)
                    ) as first:
                        for e in range(count):
                            F[at + T.int64(e)] = S[first + T.int64(e) * stride]

    return load


def fragment_store(dtype: str, columns: int, count: int, by_rows: bool, checked: bool) -> PrimFunc:
    """Write a lane's elements of a result to memory."""
    check, strided = _check(checked), "rx_check_strided" if checked else "rx_index_strided"

    @T.prim_func(private=True)
    def store(
        thread: T.handle("int64"), fragment: T.handle(dtype), at: T.int64,
        target: T.handle(dtype), start: T.int64, stride: T.int64, site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        F = T.decl_buffer((_MANY,), dtype, data=fragment)
        D = T.decl_buffer((_MANY,), dtype, data=target)
        with T.LetStmt(W[_LANE] * count // columns) as row:
            with T.LetStmt(W[_LANE] * count % columns) as column:
                if by_rows:
                    with T.LetStmt(T.call_extern("int64", check, thread, start + row * stride + column, T.int64(count), site)) as first:
                        for e in range(count):
                            D[first + T.int64(e)] = F[at + T.int64(e)]
                else:
                    with T.LetStmt(
                        T.call_extern("int64", strided, thread, start + column * stride + row, T.int64(count), stride, site)
                    ) as first:
                        for e in range(count):
                            D[first + T.int64(e) * stride] = F[at + T.int64(e)]

    return store


def fragment_product(m: int, n: int, k: int, a_dtype: str, b_dtype: str, c_dtype: str, wide: str) -> PrimFunc:
    """``d = a * b + c`` on fragments, computed in ``wide``."""
    a_count, b_count, c_count = m * k // 32, k * n // 32, m * n // 32

    @T.prim_func(private=True)
    def product(
        thread: T.handle("int64"), d: T.handle(c_dtype), d_at: T.int64, a: T.handle(a_dtype), a_at: T.int64,
        b: T.handle(b_dtype), b_at: T.int64,
        c: T.handle(c_dtype), c_at: T.int64, site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        A = T.decl_buffer((_MANY,), a_dtype, data=a)
        B = T.decl_buffer((_MANY,), b_dtype, data=b)
        C = T.decl_buffer((_MANY,), c_dtype, data=c)
        D = T.decl_buffer((_MANY,), c_dtype, data=d)
        scratch: T.handle(wide) = T.reinterpret("handle", T.call_extern("int64", "rx_scratch", thread))
        X = T.decl_buffer((m * k + k * n,), wide, data=scratch)
        total = T.decl_buffer((c_count,), wide)
        lane = W[_LANE]
        for e in range(a_count):
            X[lane * a_count + T.int64(e)] = T.cast(A[a_at + T.int64(e)], wide)
        for e in range(b_count):
            X[m * k + lane * b_count + T.int64(e)] = T.cast(B[b_at + T.int64(e)], wide)
        T.evaluate(T.call_extern("int64", "rx_gather", thread, site))
        for e in range(c_count):
            total[e] = T.cast(C[c_at + T.int64(e)], wide)
        for r in range(k):
            for e in range(c_count):
                total[e] = (
                    total[e]
                    + X[lane * c_count // n * k + T.int64(r)] * X[m * k + T.int64(r) * n + lane * c_count % n + T.int64(e)]
                )
        for e in range(c_count):
            D[d_at + T.int64(e)] = T.cast(total[e], c_dtype)

    return product


def mma(shape: Shape, a_dtype: str, b_dtype: str, c_dtype: str, wide: str) -> PrimFunc:
    """``c += a * b`` with elements held as ``mma.sync`` says."""
    m, n, k = shape.m, shape.n, shape.k
    a_at, b_at, c_at = shape.a, shape.b, shape.c

    def row(position: Any, lane: Any, i: Any) -> Any:
        return position(lane, T.int64(i))[0]

    def column(position: Any, lane: Any, i: Any) -> Any:
        return position(lane, T.int64(i))[1]

    @T.prim_func(private=True)
    def multiply(
        thread: T.handle("int64"), a: T.handle(a_dtype), a_first: T.int64, b: T.handle(b_dtype), b_first: T.int64,
        c: T.handle(c_dtype), c_first: T.int64,
        site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        A = T.decl_buffer((_MANY,), a_dtype, data=a)
        B = T.decl_buffer((_MANY,), b_dtype, data=b)
        C = T.decl_buffer((_MANY,), c_dtype, data=c)
        scratch: T.handle(wide) = T.reinterpret("handle", T.call_extern("int64", "rx_scratch", thread))
        X = T.decl_buffer((m * k,), wide, data=scratch)
        Y = T.decl_buffer((k * n,), wide, data=scratch, elem_offset=m * k)
        total = T.decl_buffer((1,), wide)
        lane = W[_LANE]
        for i in range(shape.a_count):
            X[row(a_at, lane, i) * k + column(a_at, lane, i)] = T.cast(A[a_first + T.int64(i)], wide)
        for i in range(shape.b_count):
            Y[column(b_at, lane, i) * k + row(b_at, lane, i)] = T.cast(B[b_first + T.int64(i)], wide)
        T.evaluate(T.call_extern("int64", "rx_gather", thread, site))
        for i in range(shape.c_count):
            total[0] = T.cast(C[c_first + T.int64(i)], wide)
            for r in range(k):
                total[0] = (
                    total[0]
                    + X[row(c_at, lane, i) * k + T.int64(r)] * Y[column(c_at, lane, i) * k + T.int64(r)]
                )
            C[c_first + T.int64(i)] = T.cast(total[0], c_dtype)

    return multiply


def load_matrices(count: int, transposed: bool, checked: bool) -> PrimFunc:
    """``ldmatrix``: lane i brings row i of ``count`` 8 x 8 matrices of 16 bits; offsets count 16-bit elements."""
    check = _check(checked)

    @T.prim_func(private=True)
    def load(
        thread: T.handle("int64"), local: T.handle("uint16"), local_at: T.int64,
        source: T.handle("uint16"), start: T.int64, unit: T.int64, site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        R = T.decl_buffer((_MANY,), "uint16", data=local)
        S = T.decl_buffer((_MANY,), "uint16", data=source)
        scratch: T.handle("uint16") = T.reinterpret("handle", T.call_extern("int64", "rx_scratch", thread))
        X = T.decl_buffer((256,), "uint16", data=scratch)
        lane = W[_LANE]
        if lane < count * 8:
            # ``start`` counts elements of ``unit`` bytes, as the check does.
            with T.LetStmt(T.call_extern("int64", check, thread, start, T.int64(16) // unit, site)) as first:
                for e in range(8):
                    X[lane * 8 + T.int64(e)] = S[first * unit // T.int64(2) + T.int64(e)]
        T.evaluate(T.call_extern("int64", "rx_gather", thread, site))
        for i in range(count):
            for j in range(2):
                if transposed:
                    R[local_at + T.int64(i * 2 + j)] = X[(8 * T.int64(i) + lane % 4 * 2 + T.int64(j)) * 8 + lane // 4]
                else:
                    R[local_at + T.int64(i * 2 + j)] = X[(8 * T.int64(i) + lane // 4) * 8 + lane % 4 * 2 + T.int64(j)]

    return load


def load_bytes_transposed(checked: bool) -> PrimFunc:
    """``ldmatrix`` cannot transpose bytes: each lane reads its own; the last argument is the row pitch."""
    check = _check(checked)

    @T.prim_func(private=True)
    def load(
        thread: T.handle("int64"), local: T.handle("uint8"), local_at: T.int64,
        source: T.handle("uint8"), start: T.int64, pitch: T.int64, site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        R = T.decl_buffer((_MANY,), "uint8", data=local)
        S = T.decl_buffer((_MANY,), "uint8", data=source)
        lane = W[_LANE]
        for i in range(16):
            with T.LetStmt(
                start + T.int64(i % 8 // 4 * 16 + i % 4) * pitch + lane % 4 * 4 * pitch + lane // 4 + T.int64(i // 8 * 8)
            ) as at:
                R[local_at + T.int64(i)] = S[T.call_extern("int64", check, thread, at, T.int64(1), site)]

    return load


def store_accumulators(dtype: str, checked: bool) -> PrimFunc:
    """``mma_store``: a lane's eight elements of a 16 x 16 tile to memory."""
    check = _check(checked)

    @T.prim_func(private=True)
    def store(
        thread: T.handle("int64"), local: T.handle(dtype), local_at: T.int64,
        target: T.handle(dtype), start: T.int64, stride: T.int64, site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        R = T.decl_buffer((_MANY,), dtype, data=local)
        D = T.decl_buffer((_MANY,), dtype, data=target)
        lane = W[_LANE]
        for i in range(8):
            with T.LetStmt(
                start + (8 * T.int64(i % 4 // 2) + lane // 4) * stride + T.int64(8 * (i // 4) + i % 2) + lane % 4 * 2
            ) as at:
                D[T.call_extern("int64", check, thread, at, T.int64(1), site)] = R[local_at + T.int64(i)]

    return store


def atomic_update(how: str, dtype: str, wide: str) -> PrimFunc:
    """Add to an element, or make it the larger, the smaller or another one; what was there is left for the thread."""
    between = "float32" if wide == "float64" and dtype != "float64" else wide

    def combined(old: Any, value: Any) -> Any:
        return {"add": lambda: old + value, "max": lambda: T.max(old, value), "min": lambda: T.min(old, value)}.get(
            how, lambda: value
        )()

    @T.prim_func(private=True)
    def update(thread: T.handle("int64"), data: T.handle(dtype), at: T.int64, value: T.var(wide)):
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        D = T.decl_buffer((_MANY,), dtype, data=data)
        old = T.decl_buffer((1,), between)
        old[0] = T.cast(D[at], between)
        W[layout.FIBER_ANSWER // 8] = T.reinterpret("int64", T.cast(old[0], wide))
        D[at] = T.cast(combined(old[0], T.cast(value, between)), dtype)

    return update
