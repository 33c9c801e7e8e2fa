"""FlattenBuffer: multi-dimensional accesses become flat, the form machine memory has.

Before: ``A[i, j]`` of a ``(16, 8)`` buffer.
After: ``A_1[i * 8 + j]`` of a ``(128,)`` buffer on the same pointer. Truth values are kept as bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....arith import Analyzer, IterMapLevel, iter_map_simplify
from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Cast, IntImm, IterVar, Var
from ...buffer import Buffer, flat_offsets
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, Block, BufferRegion, BufferStore, DeclBuffer, Evaluate, For, IfThenElse, Stmt
from ..base import LoweringError, is_call, FunctionRewrite
from ..simplify.simplify import ExprAnalyzerMutator


class _Flatten(ExprAnalyzerMutator):
    def __init__(self, params: Collection[Buffer]) -> None:
        super().__init__(Analyzer())
        self.params = params
        self.flat: dict[Buffer, Buffer] = {}
        self.iters: dict[Var, Range] = {}
        self.conditions: list[Any] = []

    # -- what is known around an access --------------------------------------------------------------------

    def visit_For(self, loop: For) -> Stmt:
        self.iters[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        made = super().visit_For(loop)
        self.iters.pop(loop.loop_var, None)
        return made

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key in ("thread_extent", "virtual_thread") and isinstance(attr.node, IterVar):
            self.iters[attr.node.var] = Range.from_min_extent(B.const(attr.value.dtype, 0), attr.value)
        return super().visit_AttrStmt(attr)

    @contextmanager
    def _given(self, condition: PrimExpr) -> Iterator[None]:
        self.conditions.append(condition.args[0] if is_call(condition, "likely") else condition)
        yield
        self.conditions.pop()

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        condition = self.visit(stmt.condition)
        fact = condition.args[0] if is_call(condition, "likely") else condition
        with self.analyzer.constraint_scope(fact), self._given(fact):
            then = self.visit(stmt.then_case)
        other = stmt.else_case
        if other is not None:
            with self.analyzer.constraint_scope(self.analyzer.rewrite_simplify(B.not_(fact))):
                other = self.visit(other)
        if isinstance(fact, IntImm):
            return then if fact.value else (Evaluate(0) if other is None else other)
        if condition is stmt.condition and then is stmt.then_case and other is stmt.else_case:
            return stmt
        return stmt.with_fields(condition=condition, then_case=then, else_case=other)

    # -- buffers -------------------------------------------------------------------------------------------

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.flattened(buffer)

    def flattened(self, buffer: Buffer) -> Buffer:
        """The buffer on the same pointer with one dimension for each group between axis separators."""
        found = self.flat.get(buffer)
        if found is None:
            found = buffer.get_flattened_buffer()
            if buffer not in self.params and not B.is_zero(found.elem_offset):
                # Indices count from the pointer now.  Where parameters begin is bound when the function is called.
                found = found.with_fields(elem_offset=B.const(found.elem_offset.dtype, 0))
            if dt.is_bool(found.dtype):
                found = found.with_fields(dtype=dt.with_lanes("int8", dt.lanes(found.dtype)))
            shape = tuple(self.analyzer.canonical_simplify(s) for s in found.shape)
            if any(a is not b for a, b in zip(shape, found.shape)):
                found = found.with_fields(shape=shape)
            self.flat[buffer] = found
        return found

    def _indices(self, buffer: Buffer, indices: Sequence[Any]) -> list[Any]:
        plain = Analyzer()
        offsets = [plain.simplify(e) for e in flat_offsets(buffer, indices)]
        predicate: Any = IntImm("bool", 1)
        for condition in self.conditions:
            predicate = B.and_(predicate, condition)
        return iter_map_simplify(offsets, self.iters, predicate, IterMapLevel.Surjective, True, self.analyzer)

    # -- accesses ------------------------------------------------------------------------------------------

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        indices = self.visit(load.indices)
        flat = self.flattened(load.buffer)
        new = BufferLoad(flat, self._indices(load.buffer, indices), self.visit(load.predicate))
        return Cast(load.dtype, new) if dt.is_bool(load.dtype) else new

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value = self.visit(store.value)
        flat = self.flattened(store.buffer)
        if dt.is_bool(value.dtype):
            value = B.cast(dt.with_lanes("int8", dt.lanes(value.dtype)), value)
        indices = self._indices(store.buffer, self.visit(store.indices))
        return BufferStore(flat, value, indices, self.visit(store.predicate), span=store.span)

    def visit_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        flat = self.flattened(region.buffer)
        if flat is region.buffer:
            return region
        first = self._indices(region.buffer, [r.min for r in region.region])
        last = self._indices(region.buffer, [r.min + r.extent - B.const(r.min.dtype, 1) for r in region.region])
        return BufferRegion(flat, [Range(a, b + B.const(b.dtype, 1)) for a, b in zip(first, last)])

    def visit_Block(self, block: Block) -> Block:
        if block.match_buffers:
            raise LoweringError(
                "Unexpected MatchBufferRegion found during tir.transform.FlattenBuffer. All MatchBufferRegion should "
                "be removed in tir.transform.LowerMatchBuffer."
            )
        for iv in block.iter_vars:
            if iv.dom is not None:
                self.analyzer.bind(iv.var, iv.dom, True)
                self.iters[iv.var] = iv.dom
        allocs = tuple(self.flattened(b) for b in block.alloc_buffers)
        reads, writes = self.visit(block.reads), self.visit(block.writes)
        init = None if block.init is None else self.visit(block.init)
        body = self.visit(block.body)
        return block.with_fields(alloc_buffers=allocs, reads=reads, writes=writes, init=init, body=body)

    def visit_Allocate(self, node: Allocate) -> Stmt:
        extents = self._extents(node)
        body = self.visit(node.body)
        dtype = "int8" if node.dtype == "bool" else node.dtype
        if extents is node.extents and dtype == node.dtype and body is node.body:
            return node
        return node.with_fields(dtype=dtype, extents=extents, body=body)

    def _extents(self, node: Allocate) -> tuple[PrimExpr, ...]:
        """Flat extents of an allocation; a declaration right below says how its axes are grouped."""
        if len(node.extents) == 1:
            return node.extents
        below = node.body
        if isinstance(below, DeclBuffer) and below.buffer.data is node.buffer_var and below.buffer.dtype == node.dtype:
            shape = below.buffer.shape
            if len(shape) == len(node.extents) and all(B.deep_equal(a, b) for a, b in zip(node.extents, shape)):
                return self.flattened(below.buffer).shape
        total: Any = B.const("int32", 1)
        for extent in node.extents:
            total = total * extent
        return (total,)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Stmt:
        body = self.visit(node.body)
        flat = self.flattened(node.buffer)
        return node if body is node.body and flat is node.buffer else node.with_fields(buffer=flat, body=body)


def flatten(func: PrimFunc) -> PrimFunc:
    """Flatten all buffers of a function; parameters keep their shapes and get flat aliases."""
    flattener = _Flatten(set(func.buffer_map.values()))
    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            flattener.analyzer.mark_global_non_neg_value(extent)
    body: Stmt = flattener.visit(func.body)
    return func if body is func.body else func.with_body(body)


class FlattenBuffer(FunctionRewrite):
    """Flatten buffers of many dimensions; those with axis separators keep one dimension for each group of axes.

    Before::

        for i, j in T.grid(16, 8): C[i, j] = A[i, j] and B[i, j]          # of truth values

    After::

        A_1 = T.Buffer((128,), "int8", data=A.data)                       # and so on
        for i, j in T.grid(16, 8):
            C_1[i * 8 + j] = T.Cast("int8", T.Cast("bool", A_1[i * 8 + j]) and T.Cast("bool", B_1[i * 8 + j]))

    Indices are normalized as maps of the loops around them. Raises ValueError where a block still matches buffers.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return flatten(func)


__all__ = ["FlattenBuffer", "flatten"]
