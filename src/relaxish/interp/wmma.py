"""Tensor-core fragments (``nvcuda::wmma``): a fragment buffer is an array of matrices, one after the other.

A program sees fragments only through these calls, so how a fragment lies in its own memory is free: here row-major,
an operand in the orientation in which the product takes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .intrinsics import INTRINSICS, Pointer

__all__ = ["fragment"]


def fragment(memory: Any, index: int, rows: int, columns: int) -> Any:
    """The ``index``-th matrix of a fragment buffer, sharing memory."""
    start = int(index) * rows * columns
    return memory[start : start + rows * columns].reshape(rows, columns)


def _rows(pointer: Pointer, stride: int, rows: int, columns: int) -> Any:
    """A matrix in ordinary memory whose rows are ``stride`` elements apart, sharing memory."""
    first = pointer.data[pointer.offset :]
    steps = (int(stride) * first.itemsize, first.itemsize)
    return np.lib.stride_tricks.as_strided(first, (rows, columns), steps)


def _fill(target: Any, m: int, n: int, k: int, index: int, value: Any) -> int:
    fragment(target, index, m, n)[...] = value
    return 0


def _load(target: Any, m: int, n: int, k: int, index: int, source: Pointer, stride: int, layout: str) -> int:
    # Row-major operands are A (m, k), and B where n = m; column-major ones are B (n, k), and A where n = m.
    held = _rows(source, stride, m, k) if layout == "row_major" else _rows(source, stride, n, k).T
    fragment(target, index, *held.shape)[...] = held
    return 0


def _store(source: Any, m: int, n: int, k: int, index: int, target: Pointer, stride: int, layout: str) -> int:
    held = fragment(source, index, m, n)
    held = held if layout == "row_major" else held.T
    _rows(target, stride, *held.shape)[...] = held
    return 0


def _multiply(d: Any, d_at: int, a: Any, a_at: int, b: Any, b_at: int, c: Any, c_at: int) -> int:
    # The call does not name the shape; 4-bit operands are the only ones that are not 16 x 16 x 16.
    m, n, k = (8, 8, 32) if a.dtype.itemsize == 1 and str(a.dtype) in ("int4", "uint4") else (16, 16, 16)
    wide = d.dtype if d.dtype.kind != "f" else np.float32
    product = fragment(a, a_at, m, k).astype(wide) @ fragment(b, b_at, k, n).astype(wide)
    fragment(d, d_at, m, n)[...] = (fragment(c, c_at, m, n).astype(wide) + product).astype(d.dtype)
    return 0


INTRINSICS.update(
    {
        "tvm_fill_fragment": _fill,
        "tvm_load_matrix_sync": _load,
        "tvm_store_matrix_sync": _store,
        "tvm_mma_sync": _multiply,
    }
)
