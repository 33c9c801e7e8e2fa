"""Copies between shared memory and matrix fragments, written with the matrix instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import build as B
from ....arith import eval_set
from ....arith.int_set import from_min_extent
from ....ir.expr import PrimExpr, Range
from ....ir.prim import IntImm, IterVar, StringImm, Var
from ....ir.types import PointerType, PrimType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...functor import substitute
from ...stmt import (
    unnest,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
)  # fmt: skip
from .auto_copy_nests import Copy, Stage, coalesce, fragment_load, nest, the_store
from ..base import LoweringError, StmtMutator, call

_WMMA, _MMA = 16, 8


def _i32(value: int) -> IntImm:
    return IntImm("int32", value)


def tile(stmt: Stmt, size: int) -> tuple[Stmt, For | None]:
    """Split the two innermost loops by ``size``; also the outermost of the four, if their extents allow it."""
    loops, body = unnest(stmt)
    if len(loops) < 2:
        raise LoweringError("a copy of matrix fragments must have two loops")
    *outer, rows, columns = loops
    extents = [B.as_int(rows.extent), B.as_int(columns.extent)]
    if any(e is None or e % size for e in extents):
        return stmt, None
    step = _i32(size)
    variables = [Var(f"{x.loop_var.name}_{k}", x.loop_var.dtype) for k in (0, 1) for x in (rows, columns)]
    values = {x.loop_var: variables[k] * step + variables[k + 2] for k, x in enumerate((rows, columns))}
    made: Any = substitute(body, values)
    counts = [_i32((e or 0) // size) for e in extents] + [step, step]
    for var, count in reversed(list(zip(variables, counts))):
        made = For(var, _i32(0), count, ForKind.SERIAL, made)
    return nest(outer, made), made


def _regions(loops: list[For], load: BufferLoad, store: BufferStore) -> tuple[BufferRegion, BufferRegion]:
    """What one fragment covers of the source and of the target."""
    inner = {x.loop_var: from_min_extent(x.min, x.extent) for x in loops[-2:]}

    def cover(buffer: Buffer, indices: Sequence[PrimExpr]) -> BufferRegion:
        whole = [Range.from_min_extent(_i32(0), extent) for extent in buffer.shape]
        return BufferRegion(buffer, [eval_set(i, inner).cover_range(r) for i, r in zip(indices, whole)])

    return cover(load.buffer, load.indices), cover(store.buffer, store.indices)


def _view(name: str, buffer: Buffer, dtype: str, size: int, strided: bool) -> Buffer:
    pointer = Var(name, PointerType(PrimType(dtype), buffer.scope()))
    strides = [Var("s1", "int32"), Var("s0", "int32")] if strided else []
    offset = Var(f"{name}_elem_offset", "int32")
    return Buffer(pointer, dtype, [size, size], strides, offset, name, 64, size, "")


def _block(
    name: str, body: Stmt, read: BufferRegion, write: BufferRegion, source: Buffer, target: Buffer
) -> BlockRealize:
    views = (MatchBufferRegion(source, read), MatchBufferRegion(target, write))
    return BlockRealize((), True, Block((), (read,), (write,), name, body, None, (), views))


def _fragment(buffer: Buffer) -> PrimExpr:
    """The number of a 16x16 fragment within its buffer."""
    offset = buffer.elem_offset
    whole = B.floordiv(offset, _i32(256))
    return whole + B.floordiv(B.floormod(offset, _i32(256)), _i32(16))


def _matrix_sync(name: str, fragment: Buffer, memory: Buffer, mask: int, layout: str) -> Evaluate:
    stride = memory.strides[-2]
    kind = call(memory.dtype, "type_annotation")
    pointer = call("handle", "tvm_access_ptr", kind, memory.data, memory.elem_offset, stride * 16, _i32(mask))
    size = _i32(_WMMA)
    return Evaluate(
        call("handle", name, fragment.data, size, size, size, _fragment(fragment), pointer, stride, StringImm(layout))
    )


def load_wmma(stmt: Stmt) -> Stmt:
    """A tiled copy into ``wmma.matrix_a`` or ``wmma.matrix_b``, by ``load_matrix_sync``."""
    loops, body = unnest(stmt)
    store: Any = the_store(body)
    load = store.value
    if not isinstance(load, BufferLoad):
        raise LoweringError("a copy into matrix fragments must store what it loads")
    source = _view("src", load.buffer, "float16", _WMMA, True)
    target = _view("tgt", store.buffer, "float16", _WMMA, False)
    layout = "row_major" if store.buffer.scope() == "wmma.matrix_a" else "col_major"
    read, write = _regions(loops, load, store)
    sync = _matrix_sync("tvm_load_matrix_sync", target, source, 1, layout)
    return nest(loops[:-2], _block("wmma_load", sync, read, write, source, target))


def store_wmma(stmt: Stmt) -> Stmt:
    """A tiled copy out of ``wmma.accumulator``, by ``store_matrix_sync``."""
    loops, body = unnest(stmt)
    store, load = the_store(body), fragment_load(body)
    source = _view("src", load.buffer, load.buffer.dtype, _WMMA, False)
    target = _view("tgt", store.buffer, load.buffer.dtype, _WMMA, True)
    read, write = _regions(loops, load, store)
    sync = _matrix_sync("tvm_store_matrix_sync", source, target, 2, "row_major")
    return nest(loops[:-2], _block("wmma_store", sync, read, write, source, target))


def store_mma(stmt: Stmt) -> Stmt:
    """A tiled copy out of ``m16n8k8.matrixC``: each thread of a warp stores the two elements that it holds."""
    loops, body = unnest(stmt)
    store, load = the_store(body), fragment_load(body)
    source = _view("src", load.buffer, load.buffer.dtype, _MMA, False)
    target = _view("tgt", store.buffer, load.buffer.dtype, _MMA, True)
    read, write = _regions(loops, load, store)
    lane, vec = Var("tx", "int32"), Var("vec", "int32")
    four = _i32(4)
    own = [B.floordiv(lane, four), B.floormod(lane, four) * 2 + vec]
    made: Any = BufferStore(target, BufferLoad(source, own), own)
    made = For(vec, _i32(0), _i32(2), ForKind.VECTORIZED, made)
    warp = IterVar(Range.from_min_extent(_i32(0), _i32(32)), lane, IterVar.ThreadIndex, "threadIdx.x")
    made = AttrStmt(warp, "thread_extent", _i32(32), made)
    return nest(loops[:-2], _block("mma_store", made, read, write, source, target))


def shared_to_wmma(stmt: Stmt, copy: Copy) -> Stmt:
    """Load fragments from shared memory."""
    copy.padding[copy.read.buffer] = 8
    return load_wmma(tile(stmt, _WMMA)[0])


def wmma_to_shared(stmt: Stmt, copy: Copy) -> Stmt:
    """Store fragments to shared memory."""
    copy.padding[copy.write.buffer] = 8
    return store_wmma(tile(stmt, _WMMA)[0])


class _Replace(StmtMutator):
    def __init__(self, old: SeqStmt, new: Stmt) -> None:
        self.old, self.new = old, new

    def visit_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        return self.new if stmt is self.old else super().visit_SeqStmt(stmt)


def fragment_to_global(stmt: Stmt, copy: Copy, mma: bool) -> Stmt:
    """Fragments go to shared memory by matrix instructions, and from there to global memory by coalesced stores."""
    tiled, at = tile(stmt, _MMA if mma else _WMMA)
    # The stage belongs inside the outermost of the four loops that tiling made.
    stage = Stage(tiled, copy, at, "shared.dyn", True)
    copy.padding[stage.buffer] = 8
    first, second = stage.parts.seq
    made = SeqStmt([store_mma(first) if mma else store_wmma(first), coalesce(second, copy)])
    return _Replace(stage.parts, made).visit(stage.stmt)
