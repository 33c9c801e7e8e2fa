"""Tensor intrinsics are written with 32-bit indices; here they take the index type of the program they go into."""

from __future__ import annotations


from ...arith import build as B
from ...ir import dtype as dt
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Mutator
from ...ir.prim import BinaryOp, CmpOp, IntImm, Ramp, Var
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import PrimFunc
from ..stmt import Block, BufferRegion, BufferStore, For, Stmt

__all__ = ["index_dtype_of", "with_index_dtype"]


def index_dtype_of(block: Block) -> str:
    """The widest index type in the regions a block reads and writes; int32 for a block that touches nothing."""
    widths = [
        dt.bits(part.dtype)
        for region in (*block.reads, *block.writes)
        for r in region.region
        for part in (r.min, r.extent)
    ]
    return f"int{max(widths, default=32)}"


def with_index_dtype(func: PrimFunc, dtype: str) -> PrimFunc:
    """``func`` with loops, block iterators, shapes, strides, offsets and indices of ``dtype``; data keeps its types."""
    if dtype == "int32":
        return func
    widen = _Widen(dtype)
    buffers = {param: widen.visit(buffer) for param, buffer in func.buffer_map.items()}
    return PrimFunc(func.params, widen.visit(func.body), func.ret_type, buffers, func.attrs, func.span)


class _Widen(Mutator):
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.variables: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def index(self, expr: PrimExpr) -> PrimExpr:
        """An index expression in the new type."""
        made = self.visit(expr)
        if isinstance(made, IntImm):
            return IntImm(self.dtype, made.value)
        return made if dt.with_lanes(self.dtype, dt.lanes(made.dtype)) == made.dtype else B.cast(self.dtype, made)

    def variable(self, var: Var) -> Var:
        """The new variable for an index variable."""
        return self.variables.setdefault(var, Var(var.name, self.dtype, var.span))

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.variables.get(var, var)

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if a is e.a and b is e.b:
            return e
        if a.dtype != b.dtype:
            wide = a.dtype if dt.bits(a.dtype) >= dt.bits(b.dtype) else b.dtype
            a, b = B.cast(wide, a), B.cast(wide, b)
        return type(e)(a, b) if isinstance(e, CmpOp) else B.BUILDERS[type(e)](a, b)

    def visit_Range(self, r: Range) -> Range:
        return Range.from_min_extent(self.index(r.min), self.index(r.extent))

    def visit_IterVar(self, axis: IterVar) -> IterVar:
        return IterVar(self.visit(axis.dom), self.variable(axis.var), axis.iter_type, axis.thread_tag, axis.span)

    def visit_For(self, loop: For) -> Stmt:
        var = self.variable(loop.loop_var)
        low, extent = self.index(loop.min), self.index(loop.extent)
        return loop.with_fields(loop_var=var, min=low, extent=extent, body=self.visit(loop.body))

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        known = self.buffers.get(buffer)
        if known is None:
            free = (*buffer.shape, *buffer.strides, buffer.elem_offset)
            for part in free:
                if isinstance(part, Var):
                    self.variable(part)
            known = buffer.with_fields(
                shape=tuple(self.index(d) for d in buffer.shape),
                strides=tuple(self.index(s) for s in buffer.strides),
                elem_offset=self.index(buffer.elem_offset) if buffer.elem_offset is not None else None,
            )
            self.buffers[buffer] = known
        return known

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return BufferRegion(self.visit(region.buffer), tuple(self.visit(r) for r in region.region))

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        return load.with_fields(buffer=self.visit(load.buffer), indices=tuple(self.index(i) for i in load.indices))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = tuple(self.index(i) for i in store.indices)
        return store.with_fields(buffer=self.visit(store.buffer), value=self.visit(store.value), indices=indices)

    def visit_Ramp(self, e: Ramp) -> PrimExpr:
        base = self.visit(e.base)
        return e if base is e.base else e.with_fields(base=base, stride=B.cast(base.dtype, e.stride))
