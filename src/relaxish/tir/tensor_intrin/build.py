"""Small helpers that build the functions of a tensor intrinsic node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.expr import Range
from ...ir.prim import const
from ..buffer import Buffer, decl_buffer
from ..expr import IterVar, Var
from ..function import PrimFunc
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind

__all__ = ["copy_nest", "dot_description", "full", "intrin_buffer", "on_lanes", "pointwise", "root_func"]


def intrin_buffer(shape: Sequence[int], dtype: str, name: str, *, strided: bool = False) -> Buffer:
    """A buffer parameter that may stand for any tile of a larger one."""
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
    """All of a buffer."""
    return BufferRegion(buffer, tuple(Range.from_min_extent(const(0, d.dtype), d) for d in buffer.shape))


def root_func(params: Sequence[Buffer], reads: Sequence[Buffer], writes: Sequence[Buffer], body: Any) -> PrimFunc:
    """A function of buffers around one root block."""
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

    def point(buffer: Buffer, indices: Sequence[Any]) -> BufferRegion:
        return BufferRegion(buffer, tuple(Range.from_min_extent(i, const(1, "int32")) for i in indices))

    block = Block(
        tuple(iter_vars),
        (point(c, target), *[point(buf, idx) for buf, idx in reads]),
        (point(c, target),),
        "update",
        store,
    )
    body: Any = BlockRealize(tuple(loops), const(True, "bool"), block)
    for var, (_, extent, _) in reversed(list(zip(loops, extents, strict=True))):
        body = For(var, 0, extent, ForKind.SERIAL, body)
    return root_func([a, b, c], [c, a, b], [c], body)


def pointwise(
    name: str, kinds: str, extents: Sequence[int], store: Callable[..., tuple[Any, Sequence[Any], list[Any]]]
) -> Any:
    """Loops around one block; ``store`` gives the buffer, its indices and the value, then the accesses it reads."""
    loops = [Var(n, "int32") for n in "ijk"[: len(extents)]]
    axes = [
        IterVar(Range(0, n), Var(f"v{v.name}", "int32"), IterVar.DataPar if kind == "S" else IterVar.CommReduce)
        for v, kind, n in zip(loops, kinds, extents, strict=True)
    ]
    (buffer, value), indices, reads = store(*[a.var for a in axes])

    def point(item: Buffer, at: Sequence[Any]) -> BufferRegion:
        return BufferRegion(item, tuple(Range.from_min_extent(i, const(1, "int32")) for i in at))

    block = Block(
        tuple(axes), tuple(point(*read) for read in reads), (point(buffer, indices),), name,
        BufferStore(buffer, value, list(indices)),
    )  # fmt: skip
    body: Any = BlockRealize(tuple(loops), const(True, "bool"), block)
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        body = For(var, 0, extent, ForKind.SERIAL, body)
    return body


def on_lanes(body: Callable[[Var], Any], lanes: int = 32) -> Any:
    """What ``body`` makes of a lane number, for all lanes of a warp."""
    lane = Var("tx", "int32")
    thread = IterVar(None, Var("threadIdx.x", "int32"), IterVar.ThreadIndex, "threadIdx.x")
    return For(lane, 0, lanes, ForKind.THREAD_BINDING, body(lane), thread)


def copy_nest(name: str, source: Buffer, target: Buffer) -> Any:
    """Loops around one block that copies a buffer."""
    shape = [int(d.value) for d in source.shape]  # type: ignore[attr-defined]
    return pointwise(name, "SS", shape, lambda i, j: ((target, source[i, j]), [i, j], [(source, [i, j])]))
