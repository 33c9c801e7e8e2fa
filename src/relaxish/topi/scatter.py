"""Writing updates to positions given by tensors."""

from __future__ import annotations

from typing import Any

from .. import te, tir
from ..tir import const
from .loops import loops, read, seq, write
from .utils import const_int, normalize_axis

__all__ = ["scatter_elements", "scatter_nd"]

_COMBINE = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) * const(0.5, old.dtype) if old.dtype.startswith("float") else tir.truncdiv(old + new, 2),
    "min": lambda old, new: tir.min(old, new),
    "max": lambda old, new: tir.max(old, new),
}  # fmt: skip


def _combiner(mode: str) -> Any:
    if mode not in _COMBINE:
        raise NotImplementedError(f"scatter reduction {mode!r} is none of {sorted(_COMBINE)}")
    return _COMBINE[mode]


def _wrapped(index: Any, extent: Any) -> Any:
    """Negative positions count from the end."""
    index = index.astype(str(extent.dtype))
    return tir.Select(index < const(0, str(index.dtype)), index + extent, index)


def scatter_elements(data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "update") -> Any:
    """``out[indices[i][j]][j] = updates[i][j]`` for axis 0, and so on; repeated positions are combined."""
    axis = normalize_axis(axis, len(data.shape))
    combine = _combiner(reduction)

    def body(ins: Any, outs: Any) -> Any:
        source, where, new = ins
        (out,) = outs
        copy = loops(data.shape, lambda i: write(out, read(source, *i), *i))

        def put(i: list[Any]) -> Any:
            position = _wrapped(read(where, *i), data.shape[axis])
            at = [*i[:axis], position, *i[axis + 1 :]]
            return write(out, combine(read(out, *at), read(new, *i)), *at)

        return seq(copy, loops(indices.shape, put, "u"))

    return te.extern([tuple(data.shape)], [data, indices, updates], body, "scatter_elements", [data.dtype])


def scatter_nd(data: Any, indices: Any, updates: Any, mode: str = "update") -> Any:
    """Slices of ``data`` replaced at the coordinates in the *first* axis of ``indices``."""
    depth = const_int(indices.shape[0])
    if depth is None:
        raise ValueError("scatter_nd needs a constant first dimension of indices")
    outer = len(indices.shape) - 1
    combine = _combiner(mode)

    def body(ins: Any, outs: Any) -> Any:
        source, where, new = ins
        (out,) = outs
        copy = loops(data.shape, lambda i: write(out, read(source, *i), *i))

        def put(i: list[Any]) -> Any:
            kind = str(indices.shape[0].dtype)
            at = [_wrapped(read(where, const(d, kind), *i[:outer]), data.shape[d]) for d in range(depth)]
            at += i[outer:]
            return write(out, combine(read(out, *at), read(new, *i)), *at)

        return seq(copy, loops(updates.shape, put, "u"))

    return te.extern([tuple(data.shape)], [data, indices, updates], body, "scatter_nd_generic", [data.dtype])
