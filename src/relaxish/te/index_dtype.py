"""Makes every loop variable, extent, block variable, shape and buffer index of a function one integer type."""

from __future__ import annotations

from typing import Any

from ..ir import PrimExpr, Range
from ..ir.functor import Mutator, post_order_visit
from ..arith.build import is_one
from ..ir.prim import BinaryOp
from ..tir import (
    AttrStmt, Block, BlockRealize, Buffer, BufferLoad, BufferRegion, BufferStore, Cast, For, IntImm, IterVar,
    PrimFunc, SizeVar, Var,
)  # fmt: skip
from ..tir.schedule.walk import uses_var
from ..tir.stmt import Stmt

__all__ = ["normalize_index_dtype"]


class _IndexTyper(Mutator):
    """Rewrites inside index positions only; values computed from other types keep theirs."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.vars: dict[Any, Any] = {}
        self.buffers: dict[Any, Buffer] = {}
        self.in_index = False

    def index(self, expr: PrimExpr) -> PrimExpr:
        saved, self.in_index = self.in_index, True
        made = self.visit(expr)
        self.in_index = saved
        if str(made.dtype) != self.dtype and str(made.dtype).startswith(("int", "uint")):
            made = Cast(self.dtype, made)
        return made

    def fresh_var(self, var: Var) -> Var:
        if str(var.dtype) == self.dtype or not str(var.dtype).startswith("int"):
            return var
        made = self.vars.get(var)
        if made is None:
            made = (SizeVar if isinstance(var, SizeVar) else Var)(var.name, self.dtype)
            self.vars[var] = made
        return made

    def visit_Var(self, var: Var) -> PrimExpr:
        return self.vars.get(var, var)

    def visit_IntImm(self, imm: IntImm) -> PrimExpr:
        if self.in_index and str(imm.dtype).startswith("int") and str(imm.dtype) != self.dtype:
            return IntImm(self.dtype, imm.value)
        return imm

    def visit_Cast(self, cast: Cast) -> PrimExpr:
        if self.in_index and str(cast.dtype).startswith("int"):
            value = self.visit(cast.value)
            return value if str(value.dtype) == self.dtype else Cast(self.dtype, value)
        saved, self.in_index = self.in_index, False
        value = self.visit(cast.value)
        self.in_index = saved
        return cast if value is cast.value else Cast(cast.dtype, value)

    def _binary(self, node: BinaryOp) -> BinaryOp:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        if str(a.dtype) != str(b.dtype):
            # A variable of the index type met a constant or value of the old one.
            if isinstance(a, IntImm):
                a = IntImm(b.dtype, a.value)
            elif isinstance(b, IntImm):
                b = IntImm(a.dtype, b.value)
            else:
                a, b = (x if str(x.dtype) == self.dtype else Cast(self.dtype, x) for x in (a, b))
        return type(node)(a, b)

    visit_Add = visit_Sub = visit_Mul = visit_Div = visit_Mod = visit_FloorDiv = visit_FloorMod = _binary
    visit_Min = visit_Max = visit_EQ = visit_NE = visit_LT = visit_LE = visit_GT = visit_GE = _binary

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        buffer = self.visit_Buffer(load.buffer)
        made = BufferLoad(buffer, tuple(self.index(i) for i in load.indices))
        same = buffer is load.buffer and all(a is b for a, b in zip(made.indices, load.indices))
        return load if same else made

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        saved, self.in_index = self.in_index, False
        value = self.visit(store.value)
        self.in_index = saved
        if str(value.dtype) != str(store.value.dtype):
            value = Cast(store.value.dtype, value)
        indices = tuple(self.index(i) for i in store.indices)
        return BufferStore(self.visit_Buffer(store.buffer), value, indices)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        made = self.buffers.get(buffer)
        if made is None:
            shape = tuple(self.index(e) for e in buffer.shape)
            offset = self._offset(buffer)
            same = offset is buffer.elem_offset and all(a is b for a, b in zip(shape, buffer.shape))
            made = buffer if same else buffer.with_fields(shape=shape, elem_offset=offset)
            self.buffers[buffer] = made
        return made

    def _offset(self, buffer: Buffer) -> PrimExpr:
        if isinstance(buffer.elem_offset, Var):
            return self.fresh_var(buffer.elem_offset)
        # Without dimensions there is no index type to follow.
        return self.index(buffer.elem_offset) if buffer.shape else buffer.elem_offset

    def visit_Range(self, dom: Range) -> Range:
        return Range.from_min_extent(self.index(dom.min), self.index(dom.extent))

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        return BufferRegion(self.visit_Buffer(region.buffer), tuple(self.visit_Range(r) for r in region.region))

    def visit_IterVar(self, axis: IterVar) -> IterVar:
        var = self.fresh_var(axis.var)
        dom = None if axis.dom is None else self.visit_Range(axis.dom)
        return IterVar(dom, var, axis.iter_type, axis.thread_tag)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key not in ("thread_extent", "virtual_thread"):
            return self.default_visit(attr)
        extent = self.index(attr.value)
        axis = self.visit_IterVar(attr.node)
        return AttrStmt(axis, attr.attr_key, extent, self.visit(attr.body))

    def visit_For(self, loop: For) -> Stmt:
        var = self.fresh_var(loop.loop_var)
        low, extent = self.index(loop.min), self.index(loop.extent)
        return For(var, low, extent, loop.kind, self.visit(loop.body), loop.thread_binding, loop.annotations)

    def visit_Block(self, block: Block) -> Block:
        # The axis that stands for no axis keeps its type, unless loaded values index here.
        iters = tuple(
            block.iter_vars
            if _is_scalar(block) and not _indexed_by_data(block)
            else map(self.visit_IterVar, block.iter_vars)
        )
        alloc = tuple(self.visit_Buffer(b) for b in block.alloc_buffers)
        reads = tuple(self.visit(r) for r in block.reads)
        writes = tuple(self.visit(w) for w in block.writes)
        init = None if block.init is None else self.visit(block.init)
        notes = {k: _swap(v, self) for k, v in block.annotations.items()}
        return Block(
            iters, reads, writes, block.name_hint, self.visit(block.body), init, alloc, block.match_buffers, notes
        )

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        block = self.visit(realize.block)
        values = tuple(self.index(v) for v in realize.iter_values)
        return BlockRealize(values, self.visit(realize.predicate), block)


def _is_scalar(block: Block) -> bool:
    """Whether the block computes one element, so that its only axis is a dummy of extent 1 which nothing uses."""
    if len(block.iter_vars) != 1:
        return False
    (axis,) = block.iter_vars
    return is_one(axis.dom.extent) and not uses_var((*block.writes, block.body), lambda var: var is axis.var)


def _indexed_by_data(block: Block) -> bool:
    found: list[bool] = []

    def look(node: object) -> None:
        if isinstance(node, BufferLoad):
            found.append(any(uses_load(index) for index in node.indices))

    def uses_load(index: PrimExpr) -> bool:
        inner: list[bool] = []
        post_order_visit(index, lambda n: inner.append(isinstance(n, BufferLoad)))
        return any(inner)

    post_order_visit(block.body, look)
    return any(found)


def _swap(value: Any, typer: _IndexTyper) -> object:
    match value:
        case Buffer():
            return typer.visit_Buffer(value)
        case list() | tuple():
            return tuple(_swap(v, typer) for v in value)
    return value


def normalize_index_dtype(func: PrimFunc, dtype: str) -> PrimFunc:
    """``func`` with all its index arithmetic in ``dtype``."""
    typer = _IndexTyper(dtype)
    buffer_map = {p: typer.visit_Buffer(b) for p, b in func.buffer_map.items()}
    return func.with_fields(buffer_map=buffer_map, body=typer.visit(func.body))
