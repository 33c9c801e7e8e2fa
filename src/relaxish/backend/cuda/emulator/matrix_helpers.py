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
from .matrix_layouts import Shape, Sparse
from .nibbles import is_nibble, unpacked

__all__ = [
    "atomic_update", "fragment_fill", "fragment_load", "fragment_product", "fragment_store", "load_bytes_transposed", "load_matrices",
    "mma", "mma_sparse", "nibble_fragment_load", "store_accumulators",
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
                    with T.LetStmt(
                        T.call_extern("int64", check, thread, start + row * stride + column, T.int64(count), site)
                    ) as first:
                        for e in range(count):
                            F[at + T.int64(e)] = S[first + T.int64(e)]
                else:
                    with T.LetStmt(
                        T.call_extern(
                            "int64", strided, thread, start + column * stride + row, T.int64(count), stride, site
                        )
                    ) as first:
                        for e in range(count):
                            F[at + T.int64(e)] = S[first + T.int64(e) * stride]

    return load


def nibble_fragment_load(dtype: str, columns: int, count: int, by_rows: bool, checked: bool) -> PrimFunc:
    """``fragment_load`` of elements of 4 bits, two to a byte; ``start`` counts bytes, ``stride`` elements."""
    check, signed = _check(checked), dtype == "int4"

    @T.prim_func(private=True)
    def load(
        thread: T.handle("int64"), fragment: T.handle("int8"), at: T.int64,
        source: T.handle("uint8"), start: T.int64, stride: T.int64, site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        F = T.decl_buffer((_MANY,), "int8", data=fragment)
        S = T.decl_buffer((_MANY,), "uint8", data=source)
        with T.LetStmt(W[_LANE] * count // columns) as row:
            with T.LetStmt(W[_LANE] * count % columns) as column:
                for e in range(count):
                    with T.LetStmt(row * stride + column + e if by_rows else (column + e) * stride + row) as element:
                        with T.LetStmt(
                            T.call_extern("int64", check, thread, start + element // 2, T.int64(1), site)
                        ) as byte:
                            F[at + T.int64(e)] = T.cast(
                                unpacked(
                                    T.shift_right(T.cast(S[byte], "int32"), T.cast(element % 2 * 4, "int32")), signed
                                ),
                                "int8",
                            )

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
                    with T.LetStmt(
                        T.call_extern("int64", check, thread, start + row * stride + column, T.int64(count), site)
                    ) as first:
                        for e in range(count):
                            D[first + T.int64(e)] = F[at + T.int64(e)]
                else:
                    with T.LetStmt(
                        T.call_extern(
                            "int64", strided, thread, start + column * stride + row, T.int64(count), stride, site
                        )
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
                    + X[lane * c_count // n * k + T.int64(r)]
                    * X[m * k + T.int64(r) * n + lane * c_count % n + T.int64(e)]
                )
        for e in range(c_count):
            D[d_at + T.int64(e)] = T.cast(total[e], c_dtype)

    return product


def _held(dtype: str) -> str:
    """The type in which a thread's registers are read."""
    return "uint8" if is_nibble(dtype) else dtype


def _operand(buffer: Any, first: Any, i: int, dtype: str, wide: str) -> Any:
    """Element ``i`` of a thread's registers; elements of 4 bits are two to a byte."""
    if not is_nibble(dtype):
        return T.cast(buffer[first + T.int64(i)], wide)
    raw = T.shift_right(T.cast(buffer[first + T.int64(i // 2)], "int32"), T.int32(i % 2 * 4))
    return T.cast(unpacked(raw, dtype == "int4"), wide)


def _in_matrix(position: Any, lane: Any, i: int, across: int, by_columns: bool = False) -> Any:
    """Where a lane's element ``i`` goes in a matrix of rows (or columns) of ``across`` elements."""
    row, column = position(lane, T.int64(i))
    return column * across + row if by_columns else row * across + column


def mma(shape: Shape, a_dtype: str, b_dtype: str, c_dtype: str, wide: str) -> PrimFunc:
    """``c += a * b`` with elements held as ``mma.sync`` says."""
    m, n, k = shape.m, shape.n, shape.k

    @T.prim_func(private=True)
    def multiply(
        thread: T.handle("int64"), a: T.handle(_held(a_dtype)), a_first: T.int64, b: T.handle(_held(b_dtype)), b_first: T.int64,
        c: T.handle(c_dtype), c_first: T.int64,
        site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        A = T.decl_buffer((_MANY,), _held(a_dtype), data=a)
        B = T.decl_buffer((_MANY,), _held(b_dtype), data=b)
        C = T.decl_buffer((_MANY,), c_dtype, data=c)
        scratch: T.handle(wide) = T.reinterpret("handle", T.call_extern("int64", "rx_scratch", thread))
        X = T.decl_buffer((m * k,), wide, data=scratch)
        Y = T.decl_buffer((k * n,), wide, data=scratch, elem_offset=m * k)
        total = T.decl_buffer((1,), wide)
        lane = W[_LANE]
        for i in range(shape.a_count):
            X[_in_matrix(shape.a, lane, i, k)] = _operand(A, a_first, i, a_dtype, wide)
        for i in range(shape.b_count):
            Y[_in_matrix(shape.b, lane, i, k, True)] = _operand(B, b_first, i, b_dtype, wide)
        T.evaluate(T.call_extern("int64", "rx_gather", thread, site))
        for i in range(shape.c_count):
            total[0] = T.cast(C[c_first + T.int64(i)], wide)
            for r in range(k):
                total[0] = (
                    total[0]
                    + X[shape.c(lane, T.int64(i))[0] * k + T.int64(r)]
                    * Y[shape.c(lane, T.int64(i))[1] * k + T.int64(r)]
                )
            C[c_first + T.int64(i)] = T.cast(total[0], c_dtype)

    return multiply


def mma_sparse(
    shape: Sparse, selector: int, a_dtype: str, b_dtype: str, c_dtype: str, wide: str, checked: bool
) -> PrimFunc:
    """``c += a * b`` where half of a's elements are left out, as ``mma.sp`` says; ``e`` is a word of metadata."""
    held = shape.held
    m, n, k, left = held.m, held.n, 2 * held.k, held.k
    each = left * shape.chunk // k  # elements of a chunk that are there

    @T.prim_func(private=True)
    def multiply(
        thread: T.handle("int64"), a: T.handle(_held(a_dtype)), a_first: T.int64, b: T.handle(_held(b_dtype)), b_first: T.int64,
        c: T.handle(c_dtype), c_first: T.int64, e: T.handle("uint32"), e_first: T.int64,
        site: T.int64,
    ):  # fmt: skip
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        A = T.decl_buffer((_MANY,), _held(a_dtype), data=a)
        B = T.decl_buffer((_MANY,), _held(b_dtype), data=b)
        C = T.decl_buffer((_MANY,), c_dtype, data=c)
        E = T.decl_buffer((_MANY,), "uint32", data=e)
        scratch: T.handle(wide) = T.reinterpret("handle", T.call_extern("int64", "rx_scratch", thread))
        X = T.decl_buffer((m * left,), wide, data=scratch)
        Y = T.decl_buffer((k * n,), wide, data=scratch, elem_offset=m * left)
        words: T.handle("uint32") = T.reinterpret(
            "handle", T.reinterpret("int64", scratch) + T.int64(layout.SCRATCH_BYTES - 128)
        )
        M = T.decl_buffer((32,), "uint32", data=words)
        total = T.decl_buffer((1,), wide)
        lane = W[_LANE]
        for i in range(held.a_count):
            X[_in_matrix(held.a, lane, i, left)] = _operand(A, a_first, i, a_dtype, wide)
        for i in range(shape.b_count):
            Y[_in_matrix(held.b, lane, i, k, True)] = _operand(B, b_first, i, b_dtype, wide)
        M[lane] = E[e_first]
        if checked and lane % 4 // shape.threads == T.int64(selector):
            T.evaluate(
                T.call_extern(
                    "int64", "rx_check_metadata", thread, T.cast(M[lane], "int64"), T.int64(shape.chunk), site
                )
            )
        T.evaluate(T.call_extern("int64", "rx_gather", thread, site))
        for i in range(held.c_count):
            total[0] = T.cast(C[c_first + T.int64(i)], wide)
            for r in range(left):
                with T.LetStmt(held.c(lane, T.int64(i))[0]) as row:
                    with T.LetStmt(
                        T.shift_right(
                            T.cast(M[shape.where(row, T.int64(r) // each, selector)[0]], "int64"),
                            shape.where(row, T.int64(r) // each, selector)[1],
                        )
                        % 16
                    ) as bits:
                        total[0] = (
                            total[0]
                            + X[row * left + T.int64(r)]
                            * Y[held.c(lane, T.int64(i))[1] * k + shape.column(bits, T.int64(r))]
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
                start
                + T.int64(i % 8 // 4 * 16 + i % 4) * pitch
                + lane % 4 * 4 * pitch
                + lane // 4
                + T.int64(i // 8 * 8)
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
    """Change an element in one step, ``how`` as the device's functions say; what was there is left for the thread."""
    between = "float32" if wide == "float64" and dtype != "float64" else "uint64" if dtype == "uint64" else wide

    def combined(old: Any, expected: Any, value: Any) -> Any:
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
        W = T.decl_buffer((_WORDS,), "int64", data=thread)
        D = T.decl_buffer((_MANY,), dtype, data=data)
        old = T.decl_buffer((1,), between)
        old[0] = T.cast(D[at], between)
        W[layout.FIBER_ANSWER // 8] = T.reinterpret("int64", T.cast(old[0], wide))
        D[at] = T.cast(combined(old[0], T.cast(expected, between), T.cast(value, between)), dtype)

    return update
