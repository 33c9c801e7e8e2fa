"""The library call ``mkl.gemm``: matrix products on this processor by Intel MKL, one library loaded through ctypes."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...support.errors import MissingExtraError
from .external import register_kernel
from ..arrays.ndarray import NDArray

__all__ = ["load_mkl", "use_mkl"]

_ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE = 101, 111, 112
_IN_PLACE: list[Any] = []
_GEMM = {"float32": ("cblas_sgemm", ctypes.c_float), "float64": ("cblas_dgemm", ctypes.c_double)}


@functools.cache
def _found() -> ctypes.CDLL | None:
    folders = [Path(sys.prefix) / "lib", *(Path(p).parent.parent for p in sys.path if p.endswith("site-packages"))]
    names = [str(f) for folder in folders for f in sorted(folder.glob("libmkl_rt.so*"))]
    elsewhere = ctypes.util.find_library("mkl_rt")
    for name in [*names, *([elsewhere] if elsewhere else [])]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def load_mkl() -> ctypes.CDLL | None:
    """MKL's single dynamic library, or what :func:`use_mkl` has put in its place.

    Raises MissingExtraError if it is nowhere to be found.
    """
    if _IN_PLACE:
        return _IN_PLACE[-1]
    library = _found()
    if library is None:
        raise MissingExtraError("mkl", "mkl", "the library mkl")
    return library


@contextmanager
def use_mkl(stand_in: object) -> Iterator[Any]:
    """Within the block ``stand_in`` is the library: any object with ``cblas_sgemm`` and ``cblas_dgemm``."""
    _IN_PLACE.append(stand_in)
    try:
        yield stand_in
    finally:
        _IN_PLACE.remove(stand_in)


def _shape(shapes: Sequence[tuple[int, ...]], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    lhs, rhs = shapes[0], shapes[1]
    columns = rhs[-2] if attrs["transposed_rhs"] else rhs[-1]
    return (*lhs[:-1], columns)


def _run(inputs: Sequence[NDArray], out: NDArray, attrs: Mapping[str, Any]) -> None:
    lhs, rhs, *rest = (np.ascontiguousarray(a.numpy()) for a in inputs)
    result = np.empty(out.shape, out.dtype)
    transposed = bool(attrs["transposed_rhs"])
    columns, depth = result.shape[-1], lhs.shape[-1]
    # One matrix on the right is for all rows on the left; else there are as many on both sides.
    batches = int(np.prod(rhs.shape[:-2], dtype=np.int64))
    left, right = lhs.reshape(batches, -1, depth), rhs.reshape(batches, *rhs.shape[-2:])
    into = result.reshape(batches, -1, columns)
    for a, b, c in zip(left, right, into, strict=True):
        _product(a, b, c, transposed)
    if attrs["bias"]:
        result += rest[0].reshape(-1)
    if attrs["activation"] == "relu":
        np.maximum(result, 0, out=result)
    out.copyfrom(result)


def _product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], c: np.ndarray[Any, Any], transposed: bool) -> None:
    if not c.size:
        return
    name, scalar = _GEMM[str(a.dtype)]
    (m, k), n = a.shape, c.shape[1]
    pointer = ctypes.POINTER(scalar)
    gemm = getattr(load_mkl(), name)
    gemm(
        _ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE if transposed else _NO_TRANSPOSE, m, n, k, scalar(1.0),
        a.ctypes.data_as(pointer), max(1, k), b.ctypes.data_as(pointer), max(1, k if transposed else n), scalar(0.0),
        c.ctypes.data_as(pointer), n,
    )  # fmt: skip


register_kernel("mkl.gemm", _shape, _run)
