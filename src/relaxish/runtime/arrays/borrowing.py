"""Arguments of kernels that belong to others: NumPy arrays, torch tensors, anything that speaks DLPack.

Kernels work on compact, aligned memory. Other memory is copied for them; where they write, what they wrote goes back to
where it came from, or the call is refused with an error: it is never lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...support.errors import RelaxishError
from .dlpack import import_capsule
from .ndarray import NDArray, _request_capsule, as_ndarray, compact_copy, from_numpy, is_shareable

__all__ = ["GiveBack", "borrow", "separate"]

#: Writes what a kernel wrote to where it belongs.
GiveBack = Callable[[], None]


class BorrowError(RelaxishError, ValueError):
    """An argument cannot be written as a kernel would have to."""


def borrow(value: object, where: str, *, write_back: bool = True) -> tuple[NDArray | None, GiveBack | None]:
    """An array for a kernel to write, and what is to be done afterwards; None for what is no tensor.

    Raises BorrowError for memory that must not be written, or whose elements share it, and without ``write_back`` for
    all that would have to be copied.
    """
    match value:
        case NDArray():
            if value.readonly:
                raise BorrowError(f"{where}: the array is read-only, but the function writes it; pass a copy")
            return value, None
        case np.generic():
            raise BorrowError(
                f"{where}: the function writes this argument, and a {type(value).__name__} cannot be written"
            )
        case np.ndarray():
            return _of_numpy(value, where, write_back)
    if _has_pending_sign(value):
        raise BorrowError(f"{where}: the function writes this tensor, whose sign is still to be applied; pass a copy")
    made = as_ndarray(value)
    if made is None or not made.readonly:
        return made, None
    # What was made is a copy, or the producer forbids writing: a view of the memory itself tells.
    view = import_capsule(_request_capsule(value))[0]
    return _of_numpy(view, where, write_back)


def _has_pending_sign(value: Any) -> bool:
    return hasattr(value, "is_neg") and bool(value.is_neg() or value.is_conj())


def _of_numpy(value: np.ndarray[Any, Any], where: str, write_back: bool) -> tuple[NDArray, GiveBack | None]:
    if not value.flags.writeable:
        raise BorrowError(f"{where}: the array is read-only, but the function writes it; pass a copy")
    if is_shareable(value):
        return from_numpy(value), None
    if not write_back:
        raise BorrowError(f"{where}: the array is strided, but the function writes it; pass a compact one")
    if _elements_overlap(value):
        raise BorrowError(f"{where}: elements of the array share memory, but the function writes it; pass a copy")
    copy = compact_copy(value)

    def give_back() -> None:
        np.copyto(value, copy)

    return from_numpy(copy), give_back


def _elements_overlap(value: np.ndarray[Any, Any]) -> bool:
    """Whether two elements may lie in the same place; in doubt, they do."""
    if not value.size:
        return False
    reach = value.itemsize
    axes = sorted((abs(stride), dim) for stride, dim in zip(value.strides, value.shape, strict=True) if dim > 1)
    for stride, dim in axes:
        if stride < reach:
            return True
        reach += stride * (dim - 1)
    return False


def separate(arrays: Sequence[Any], written: Sequence[int], name: str) -> list[Any]:
    """The arguments, with those that are read copied where they share memory with one that is written.

    The function then computes as if it read everything before it writes anything. Raises BorrowError where two arguments
    that are written share memory.
    """
    out = list(arrays)
    for w in written:
        target = out[w]
        if not isinstance(target, NDArray):
            continue
        begin, end = target.ptr, target.ptr + target.nbytes
        for i, other in enumerate(out):
            if i == w or not isinstance(other, NDArray) or other.device is not target.device:
                continue
            if other.ptr < end and begin < other.ptr + other.nbytes:
                if i in written:
                    raise BorrowError(f"{name}: arguments {min(i, w)} and {max(i, w)} are written and share memory")
                out[i] = other.copyto(other.device)
    return out
