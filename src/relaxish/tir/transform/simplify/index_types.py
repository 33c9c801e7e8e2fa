"""Changing the integer types of index arithmetic: where an index stands, and what must agree with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import (
    Add,
    BinaryOp,
    Broadcast,
    Call,
    CmpOp,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    Var,
)  # fmt: skip
from ....ir.types import PointerType
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import (
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    For,
    IfThenElse,
    LetStmt,
    MatchBufferRegion,
    Stmt,
)  # fmt: skip
from ..base import SeqMutator, is_call

_BUILD: dict[type, Callable[[Any, Any], Any]] = {
    Add: B.add, Sub: B.sub, Mul: B.mul, FloorDiv: B.floordiv, FloorMod: B.floormod, Min: B.minimum, Max: B.maximum,
}  # fmt: skip
_OF_WIDTH = (
    "clz", "popcount", "reinterpret", "call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin",
)  # fmt: skip


def match_types(a: PrimExpr, b: PrimExpr) -> tuple[Any, Any]:
    """Two operands in their wider type; constants take the type of the other side."""
    if a.dtype == b.dtype or not (dt.is_integral(a.dtype) and dt.is_integral(b.dtype)):
        return a, b
    wide = a.dtype if dt.bits(a.dtype) >= dt.bits(b.dtype) else b.dtype
    return B.cast(wide, a), B.cast(wide, b)


class IndexTypeRewriter(SeqMutator):
    """Rewrites types bottom up: operands of one operation, loop bounds and buffer shapes follow their variables.

    ``in_index`` tells a subclass that an expression is an index (of a buffer, a loop bound, a compared condition);
    values that a program stores keep their types.
    """

    def __init__(self) -> None:
        self.in_index = False
        self.in_condition = False
        self.variables: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.axes: dict[IterVar, IterVar] = {}

    # -- expressions ---------------------------------------------------------------------------------------

    def visit_Var(self, var: Var) -> Var:
        return self.variables.get(var, var)

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        if a is e.a and b is e.b:
            return e
        a, b = match_types(a, b)
        build = _BUILD.get(type(e))
        return build(a, b) if build is not None else type(e)(a, b)

    def visit_CmpOp(self, e: CmpOp) -> PrimExpr:
        saved = self.in_index
        self.in_index = self.in_condition and dt.is_int(e.a.dtype) and dt.is_int(e.b.dtype)
        a, b = self.visit(e.a), self.visit(e.b)
        self.in_index = saved
        return e if a is e.a and b is e.b else type(e)(*match_types(a, b))

    def _condition(self, e: PrimExpr) -> PrimExpr:
        saved, self.in_condition = self.in_condition, True
        made = self.visit(e)
        self.in_condition = saved
        return made

    def _index(self, e: PrimExpr | Sequence[PrimExpr]) -> Any:
        saved, self.in_index = self.in_index, True
        made = self.visit(e)
        self.in_index = saved
        return made

    def visit_Select(self, e: Select) -> PrimExpr:
        cond, a, b = self._condition(e.condition), self.visit(e.true_value), self.visit(e.false_value)
        if cond is e.condition and a is e.true_value and b is e.false_value:
            return e
        return Select(cond, *match_types(a, b))

    def visit_Ramp(self, e: Ramp) -> PrimExpr:
        base, stride = self.visit(e.base), self.visit(e.stride)
        if base is e.base and stride is e.stride:
            return e
        return Ramp(*match_types(base, stride), e.lanes)

    def visit_Broadcast(self, e: Broadcast) -> PrimExpr:
        value = self.visit(e.value)
        return e if value is e.value else Broadcast(value, e.lanes)

    def visit_Call(self, e: Call) -> PrimExpr:
        if is_call(e, "if_then_else"):
            cond, a, b = self._condition(e.args[0]), self.visit(e.args[1]), self.visit(e.args[2])
            if cond is e.args[0] and a is e.args[1] and b is e.args[2]:
                return e
            a, b = match_types(a, b)
            return Call(a.dtype, e.op, (cond, a, b), e.annotations)
        made = self.default_visit(e)
        if made is not e and is_call(e, *_OF_WIDTH):
            return self._of_width(e, made)
        if made is e or not is_call(e, "shift_right", "shift_left", "bitwise_and", "bitwise_or", "bitwise_xor", "pow"):
            return made
        a, b = match_types(*made.args)
        return Call(a.dtype, e.op, (a, b), e.annotations)

    @staticmethod
    def _of_width(e: Call, made: Call) -> PrimExpr:
        """What a call gives depends on how wide its operands are, or somebody else has declared them."""
        if is_call(e, "clz"):
            before, after = dt.bits(e.args[0].dtype), dt.bits(made.args[0].dtype)
            count = Call(e.dtype, e.op, made.args, e.annotations)
            return count if before == after else count - after + before
        args = [
            B.cast(old.dtype, new) if dt.is_integral(old.dtype) and new.dtype != old.dtype else new
            for old, new in zip(e.args, made.args, strict=True)
        ]
        return Call(e.dtype, e.op, args, e.annotations)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        buffer, indices = self.buffer(load.buffer), self._index(load.indices)
        predicate = load.predicate if load.predicate is None else self.visit(load.predicate)
        if buffer is load.buffer and indices is load.indices and predicate is load.predicate:
            return load
        return BufferLoad(buffer, indices, predicate)

    # -- buffers -------------------------------------------------------------------------------------------

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffer(buffer)

    def buffer(self, buffer: Buffer) -> Buffer:
        """Substitute of a buffer; parameters of the function keep their shapes."""
        return self.buffers.get(buffer, buffer)

    def define(self, buffer: Buffer) -> Buffer:
        """A buffer that is defined here, with the new types of its shape, strides and offset."""
        if buffer not in self.buffers:
            fields = {name: self._index(getattr(buffer, name)) for name in ("shape", "strides", "elem_offset")}
            if isinstance(buffer.elem_offset, IntImm) and buffer.shape:
                # A constant offset has the type that buffers of this shape have by default.
                fields["elem_offset"] = B.cast(fields["shape"][0].dtype, buffer.elem_offset)
            same = all(fields[name] is getattr(buffer, name) for name in fields)
            self.buffers[buffer] = buffer if same else buffer.with_fields(**fields)
        return self.buffers[buffer]

    # -- statements ----------------------------------------------------------------------------------------

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        buffer, value, indices = self.buffer(store.buffer), self.visit(store.value), self._index(store.indices)
        if value.dtype != store.value.dtype and dt.is_scalar(value.dtype):
            value = B.cast(store.value.dtype, value)
        predicate = store.predicate if store.predicate is None else self.visit(store.predicate)
        same = value is store.value and indices is store.indices and predicate is store.predicate
        if same and buffer is store.buffer:
            return store
        return BufferStore(buffer, value, indices, predicate, span=store.span)

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        buffer = self.buffer(region.buffer)
        ranges = []
        for old in region.region:
            low, extent = match_types(self._index(old.min), self._index(old.extent))
            ranges.append(old if low is old.min and extent is old.extent else Range.from_min_extent(low, extent))
        if buffer is region.buffer and all(a is b for a, b in zip(ranges, region.region)):
            return region
        return BufferRegion(buffer, ranges)

    def visit_MatchBufferRegion(self, match: MatchBufferRegion) -> MatchBufferRegion:
        buffer, source = self.define(match.buffer), self.visit(match.source)
        same = buffer is match.buffer and source is match.source
        return match if same else MatchBufferRegion(buffer, source)

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        cond = self._condition(stmt.condition)
        then, other = self.visit(stmt.then_case), self.visit(stmt.else_case)
        if cond is stmt.condition and then is stmt.then_case and other is stmt.else_case:
            return stmt
        return IfThenElse(cond, then, other, span=stmt.span)

    def visit_For(self, loop: For) -> Stmt:
        var = self._index(loop.loop_var)
        low, extent = B.cast(var.dtype, self._index(loop.min)), B.cast(var.dtype, self._index(loop.extent))
        binding = loop.thread_binding
        if binding is not None and var is not loop.loop_var:
            axis = Var(binding.var.name, var.dtype)
            binding = IterVar(binding.dom, axis, binding.iter_type, binding.thread_tag)
        body = self.visit(loop.body)
        if var is loop.loop_var and low is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return loop.with_fields(loop_var=var, min=low, extent=extent, body=body, thread_binding=binding)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key not in ("thread_extent", "virtual_thread"):
            return self.default_visit(attr)
        value, body = self.visit(attr.value), self.visit(attr.body)
        axis = self._axis(attr.node)
        if axis is attr.node and value is attr.value and body is attr.body:
            return attr
        return AttrStmt(axis, attr.attr_key, B.cast(axis.var.dtype, value), body)

    def _axis(self, axis: IterVar) -> IterVar:
        if axis not in self.axes:
            var = self._index(axis.var)
            made = axis
            if var is not axis.var:
                dom = axis.dom
                if dom is not None:
                    dom = Range.from_min_extent(B.cast(var.dtype, dom.min), B.cast(var.dtype, dom.extent))
                made = IterVar(dom, var, axis.iter_type, axis.thread_tag)
            self.axes[axis] = made
        return self.axes[axis]

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        value = self.visit(stmt.value)
        var: Var = stmt.var
        if value.dtype != stmt.value.dtype and not isinstance(var.type_annotation, PointerType):
            self.variables[var] = var = Var(var.name, value.dtype)
        body = self.visit(stmt.body)
        if value is stmt.value and body is stmt.body and var is stmt.var:
            return stmt
        return LetStmt(var, value, body, span=stmt.span)

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        buffer, body = self.define(stmt.buffer), self.visit(stmt.body)
        return stmt if buffer is stmt.buffer and body is stmt.body else DeclBuffer(buffer, body)

    def visit_BlockRealize(self, realize: BlockRealize) -> Stmt:
        predicate = self._condition(realize.predicate)
        block = self.visit(realize.block)
        values = []
        for iv, old in zip(block.iter_vars, realize.iter_values):
            values.append(B.cast(iv.var.dtype, self._index(old)))
        if predicate is realize.predicate and block is realize.block:
            if all(a is b for a, b in zip(values, realize.iter_values)):
                return realize
        return BlockRealize(values, predicate, block)

    def visit_Block(self, block: Block) -> Block:
        iter_vars = tuple(self._block_axis(iv) for iv in block.iter_vars)
        fields: dict[str, Any] = {
            "alloc_buffers": tuple(self.define(b) for b in block.alloc_buffers),
            "match_buffers": self.visit(block.match_buffers), "reads": self.visit(block.reads),
            "writes": self.visit(block.writes), "body": self.visit(block.body),
            "init": None if block.init is None else self.visit(block.init),
        }  # fmt: skip
        same = all(a is b for a, b in zip(iter_vars, block.iter_vars)) and all(
            v is getattr(block, k) or k == "alloc_buffers" and all(a is b for a, b in zip(v, block.alloc_buffers))
            for k, v in fields.items()
        )
        return block if same else block.with_fields(iter_vars=iter_vars, **fields)

    def _block_axis(self, iv: IterVar) -> IterVar:
        var, dom = self._index(iv.var), iv.dom
        if dom is not None:
            low, extent = B.cast(var.dtype, self._index(dom.min)), B.cast(var.dtype, self._index(dom.extent))
            if low is not dom.min or extent is not dom.extent:
                dom = Range.from_min_extent(low, extent)
        return iv if var is iv.var and dom is iv.dom else IterVar(dom, var, iv.iter_type, iv.thread_tag)


__all__ = ["IndexTypeRewriter", "match_types"]
