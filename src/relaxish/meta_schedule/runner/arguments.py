"""Arguments for measuring and comparing candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arg_info import ArgInfo, TensorInfo
from ..verdicts.legal_values import Values

__all__ = ["alloc_arguments", "arguments_key", "difference", "shifted"]


def _aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    from ...ir.dtype import nbytes, numpy_dtype

    count = int(np.prod(shape, dtype=np.int64))
    size = max(1, count * nbytes(dtype))
    raw = np.zeros(size + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * nbytes(dtype)].view(numpy_dtype(dtype)).reshape(shape)


def alloc_arguments(args_info: Sequence[ArgInfo], seed: int = 0, signed: bool = False) -> list[np.ndarray[Any, Any]]:
    """Aligned arrays with random contents that the program may be given.

    Floats are in [1/64, 1), neither zero nor denormal, with ``signed`` of either sign; integers are within what their
    argument's ``values`` allow, so that an index stays inside of its table and no divisor is zero.
    """
    rng = np.random.default_rng(seed)
    arrays = []
    for info in args_info:
        assert isinstance(info, TensorInfo)
        array = _aligned(info.shape, info.dtype)
        if info.dtype.startswith(("float", "bfloat")):
            values = rng.random(info.shape, dtype=np.float32) * np.float32(63 / 64) + np.float32(1 / 64)
            if signed:
                values *= rng.choice(np.array([-1, 1], np.float32), info.shape)
            array[...] = values.astype(array.dtype)
        elif info.dtype == "bool":
            array[...] = rng.integers(0, 2, info.shape)
        else:
            array[...] = _integers(info, rng, signed)
        arrays.append(array)
    return arrays


def _integers(info: TensorInfo, rng: np.random.Generator, signed: bool) -> np.ndarray[Any, Any]:
    legal = info.values if info.values is not None else Values(0, 8)
    # What is no index may be negative as well.
    low = -4 if signed and legal == Values(0, 8, False, free=True) and not info.dtype.startswith("u") else legal.low
    found = np.asarray(rng.integers(low, max(legal.high, low + 1), info.shape))
    if legal.ascending and found.size:
        flat = np.sort(found.reshape(-1))
        flat[0], flat[-1] = legal.low, max(legal.high - 1, legal.low)
        found = flat.reshape(info.shape)
    return found


def arguments_key(args_info: Sequence[ArgInfo]) -> str:
    """Key of a set of arguments: types, shapes and legal values."""
    return "; ".join(f"{x} {getattr(x, 'values', None)}" for x in args_info)


def shifted(args_info: Sequence[ArgInfo], shift: float) -> list[np.ndarray[Any, Any]]:
    """Random arguments for a comparison; with a ``shift`` they are of either sign."""
    return alloc_arguments(args_info, 17, signed=bool(shift))


# Of integers and truth values computed from floats, this share may fall on the other side of a threshold.
_BORDERLINE = 5e-3


def difference(ours: Sequence[np.ndarray[Any, Any]], theirs: Sequence[np.ndarray[Any, Any]], rtol: float) -> str:
    """Description of the first difference of two lists of arrays beyond rounding; empty if there is none.

    Floats may differ by ``rtol`` of the largest finite value, NaN and infinities must be the same ones. Integers must
    be equal; where there are floats as well, a few may be off by one.
    """
    floats = any(a.dtype.kind not in "iub" for a in theirs)
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype.kind in "iub":
            reason = _integer_difference(a, b, floats)
        else:
            reason = _float_difference(a.astype("float64"), b.astype("float64"), _at_least(a.dtype.itemsize, rtol))
        if reason:
            return f"argument {index}: {reason}"
    return ""


def _at_least(itemsize: int, rtol: float) -> float:
    return rtol if itemsize >= 4 else max(rtol, 4e-3 if itemsize == 2 else 2e-2)


def _integer_difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], floats: bool) -> str:
    wrong = a != b
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    near = floats and bool((np.abs(a[wrong].astype(object) - b[wrong].astype(object)) <= 1).all())
    if near and count <= int(_BORDERLINE * a.size):
        return ""
    return f"{count} of {a.size} integers differ"


def _float_difference(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], rtol: float) -> str:
    if not np.array_equal(np.isnan(x), np.isnan(y)):
        return "different NaNs"
    finite = np.isfinite(y)
    if not finite.all():
        if not np.array_equal(finite, np.isfinite(x)) or not np.array_equal(x[np.isinf(y)], y[np.isinf(y)]):
            return "different infinities"
        x, y = x[finite], y[finite]
    elif not np.isfinite(x).all():
        return "different infinities"
    scale = max(float(np.max(np.abs(y), initial=0.0)), 1e-6)
    error = float(np.max(np.abs(x - y), initial=0.0)) / scale
    return "" if error <= rtol else f"relative error {error:.3g}"
