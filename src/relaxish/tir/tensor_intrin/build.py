"""Small helpers that build the functions of a tensor intrinsic node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import Range
from ...ir.prim import const
from ..buffer import Buffer, decl_buffer
from ..expr import IterVar, Var
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, Stmt

__all__ = ["copy_nest", "dot_description", "full", "intrin_buffer", "on_lanes", "pointwise", "root_func"]


def intrin_buffer(shape: Sequence[int], dtype: str, name: str, *, strided: bool = False) -> Buffer:
    """A buffer parameter that matches any tile of a larger buffer; ``strided``: with strides and offset as variables."""
    strides = [Var(f"{name}_s{i}", "int32") for i in range(len(shape) - 1)] + [1] if strided else []
    return decl_buffer(
        list(shape),
        dtype,
        name,
        elem_offset=Var(f"{name}_offset", "int32") if strided else None,
        strides=strides,
        offset_factor=1,
        data_alignment=64 if not strided else -1,
    )


def full(buffer: Buffer) -> BufferRegion:
    """The region that covers a whole buffer."""
    return BufferRegion(buffer, tuple(Range.from_min_extent(const(0, d.dtype), d) for d in buffer.shape))


def _element(buffer: Buffer, indices: Sequence[Any]) -> BufferRegion:
    """The region of one element."""
    return BufferRegion(buffer, tuple(Range.from_min_extent(i, const(1, "int32")) for i in indices))


def _serial_nest(loops: Sequence[Var], extents: Sequence[int], body: Stmt) -> Stmt:
    """Serial loops around a statement, the first one outermost."""
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        body = For(var, 0, extent, ForKind.SERIAL, body)
    return body


def root_func(params: Sequence[Buffer], reads: Sequence[Buffer], writes: Sequence[Buffer], body: Stmt) -> PrimFunc:
    """A function of buffers whose body is one root block with the given accesses."""
    block = Block((), tuple(full(b) for b in reads), tuple(full(b) for b in writes), "root", body)
    handles = [Var(b.name, "handle") for b in params]
    return PrimFunc(
        handles,
        BlockRealize((), const(True, "bool"), block),
        None,
        dict(zip(handles, params, strict=True)),
        {"tir.noalias": const(True, "bool")},
    )


def dot_description(
    a: Buffer,
    b: Buffer,
    c: Buffer,
    extents: Sequence[tuple[str, int, str]],
    c_index: Callable[..., Sequence[Any]],
    value: Callable[..., Any],
) -> PrimFunc:
    """``C[...] = C[...] + value`` over named loops ("S"patial or "R"eduction)."""
    loops = [Var(name, "int32") for name, _, _ in extents]
    iter_vars = [
        IterVar(Range(0, n), Var("v" + name, "int32"), IterVar.DataPar if kind == "S" else IterVar.CommReduce)
        for name, n, kind in extents
    ]
    axes = [iv.var for iv in iter_vars]
    target = list(c_index(*axes))
    product, reads = value(*axes)
    store = BufferStore(c, c[tuple(target)] + product, target)
    result = _element(c, target)
    block = Block(tuple(iter_vars), (result, *[_element(buf, idx) for buf, idx in reads]), (result,), "update", store)
    body = _serial_nest(loops, [n for _, n, _ in extents], BlockRealize(tuple(loops), const(True, "bool"), block))
    return root_func([a, b, c], [c, a, b], [c], body)


def pointwise(
    name: str, kinds: str, extents: Sequence[int], store: Callable[..., tuple[Any, Sequence[Any], list[Any]]]
) -> Stmt:
    """Loops around one block of one store.

    ``kinds`` has an "S" (spatial) or "R" (reduction) for each loop. ``store(*axes)`` gives ((buffer, value), indices,
    reads), where reads are pairs of buffer and indices.
    """
    loops = [Var(n, "int32") for n in "ijk"[: len(extents)]]
    axes = [
        IterVar(Range(0, n), Var(f"v{v.name}", "int32"), IterVar.DataPar if kind == "S" else IterVar.CommReduce)
        for v, kind, n in zip(loops, kinds, extents, strict=True)
    ]
    (buffer, value), indices, reads = store(*[a.var for a in axes])
    read = tuple(_element(*access) for access in reads)
    update = BufferStore(buffer, value, list(indices))
    block = Block(tuple(axes), read, (_element(buffer, indices),), name, update)
    return _serial_nest(loops, extents, BlockRealize(tuple(loops), const(True, "bool"), block))


def on_lanes(body: Callable[[Var], Any], lanes: int = 32) -> Stmt:
    """A loop over the lanes of a warp (``threadIdx.x``); ``body`` makes its body from the lane's variable."""
    lane = Var("tx", "int32")
    thread = IterVar(None, Var("threadIdx.x", "int32"), IterVar.ThreadIndex, "threadIdx.x")
    return For(lane, 0, lanes, ForKind.THREAD_BINDING, body(lane), thread)


def copy_nest(name: str, source: Buffer, target: Buffer) -> Stmt:
    """Loops around one block that copies a buffer of two dimensions."""
    shape = [int(d.value) for d in source.shape]  # type: ignore[attr-defined]
    return pointwise(name, "SS", shape, lambda i, j: ((target, source[i, j]), [i, j], [(source, [i, j])]))
