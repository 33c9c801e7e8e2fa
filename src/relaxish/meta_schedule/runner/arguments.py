"""Arguments for measuring and comparing candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arg_info import ArgInfo, TensorInfo

__all__ = ["alloc_arguments", "difference", "shifted"]


def _aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    from ...ir.dtype import nbytes, numpy_dtype

    count = int(np.prod(shape, dtype=np.int64))
    size = max(1, count * nbytes(dtype))
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * nbytes(dtype)].view(numpy_dtype(dtype)).reshape(shape)


def alloc_arguments(args_info: Sequence[ArgInfo], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Aligned arrays with random contents: values in [0, 1) for floats, small numbers for integers."""
    rng = np.random.default_rng(seed)
    arrays = []
    for info in args_info:
        assert isinstance(info, TensorInfo)
        array = _aligned(info.shape, info.dtype)
        if info.dtype.startswith(("float", "bfloat")):
            array[...] = rng.random(info.shape, dtype=np.float32).astype(array.dtype)
        elif info.dtype == "bool":
            array[...] = rng.integers(0, 2, info.shape)
        else:
            array[...] = rng.integers(0, 8, info.shape)
        arrays.append(array)
    return arrays


def shifted(args_info: Sequence[ArgInfo], shift: float) -> list[np.ndarray[Any, Any]]:
    """Random arguments, floats lowered by ``shift``."""
    arrays = alloc_arguments(args_info, 17)
    for array, info in zip(arrays, args_info, strict=True):
        if shift and isinstance(info, TensorInfo) and info.dtype.startswith(("float", "bfloat")):
            array -= np.asarray(shift, array.dtype)
    return arrays


def difference(ours: Sequence[np.ndarray[Any, Any]], theirs: Sequence[np.ndarray[Any, Any]], rtol: float) -> str:
    """Where two lists of arrays differ by more than rounding; empty if nowhere."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        x, y = a.astype("float64"), b.astype("float64")
        scale = max(float(np.max(np.abs(y), initial=0.0)), 1e-6)
        loose = rtol if a.dtype.itemsize >= 4 else 2e-2
        if not np.array_equal(np.isnan(x), np.isnan(y)):
            return f"argument {index}: different NaNs"
        error = float(np.nanmax(np.abs(x - y), initial=0.0)) / scale
        if not error <= loose:
            return f"argument {index}: relative error {error:.3g}"
    return ""
