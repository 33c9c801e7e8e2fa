"""Tensor-core fragments (``nvcuda::wmma``): a fragment buffer is an array of matrices, one after the other.

A program sees fragments only through these calls, so how a fragment lies in its own memory is free: here row-major,
an operand in the orientation in which the product takes it.
"""

from __future__ import annotations


import numpy as np

from .intrinsics import Array, MEANINGS, Pointer, Value

__all__ = ["fragment"]

# A product's call does not name its shape: the shape with which each fragment's memory was last filled or loaded.
_SHAPES: dict[int, tuple[int, int, int]] = {}


def fragment(memory: Array, index: int, rows: int, columns: int) -> Array:
    """The ``index``-th matrix of a fragment buffer, sharing memory."""
    start = int(index) * rows * columns
    return memory[start : start + rows * columns].reshape(rows, columns)


def _rows(pointer: Pointer, stride: int, rows: int, columns: int) -> Array:
    """A matrix in ordinary memory whose rows are ``stride`` elements apart, sharing memory."""
    first = pointer.data[pointer.offset :]
    steps = (int(stride) * first.itemsize, first.itemsize)
    return np.lib.stride_tricks.as_strided(first, (rows, columns), steps)


def _fill(target: Array, m: int, n: int, k: int, index: int, value: Value) -> int:
    _SHAPES[id(target)] = m, n, k
    fragment(target, index, m, n)[...] = value
    return 0


def _load(
    target: Array, m: int, n: int, k: int, index: int, source: Pointer, stride: int, layout: str, scope: str
) -> int:
    _SHAPES[id(target)] = m, n, k
    rows, columns = {"wmma.matrix_a": (m, k), "wmma.matrix_b": (k, n)}.get(scope, (m, n))
    straight = layout in ("row_major", "mem_row_major")
    held = _rows(source, stride, rows, columns) if straight else _rows(source, stride, columns, rows).T
    fragment(target, index, rows, columns)[...] = held
    return 0


def _store(source: Array, m: int, n: int, k: int, index: int, target: Pointer, stride: int, layout: str) -> int:
    held = fragment(source, index, m, n)
    held = held if layout == "row_major" else held.T
    _rows(target, stride, *held.shape)[...] = held
    return 0


def _multiply(d: Array, d_at: int, a: Array, a_at: int, b: Array, b_at: int, c: Array, c_at: int) -> int:
    m, n, k = _SHAPES[id(a)]
    wide = d.dtype if d.dtype.kind != "f" else np.float32
    product = fragment(a, a_at, m, k).astype(wide) @ fragment(b, b_at, k, n).astype(wide)
    fragment(d, d_at, m, n)[...] = (fragment(c, c_at, m, n).astype(wide) + product).astype(d.dtype)
    return 0


MEANINGS.update(
    {
        "tvm_fill_fragment": _fill,
        "tvm_load_matrix_sync": _load,
        "tvm_store_matrix_sync": _store,
        "tvm_mma_sync": _multiply,
    }
)
