"""Final changes of a kernel when all of it has been written.

- Accesses to arguments that may lie outside are guarded: loads give the safe value, stores do nothing.
- Blocks of tile operators get a variable for each loop around that they speak of, as well-formed blocks must.
"""

from __future__ import annotations

from typing import Any

from ...ir.op import op_name_of
from ...arith import Analyzer
from ...ir import dtype as dt
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Mutator, all_nodes, post_order_visit
from ...ir.prim import And, Call, GE, IntImm, IterVar, LT, Var, const, is_call_of
from ...ir.primops import cast
from ...tir import BlockRealize, BufferLoad, BufferStore, For, if_then_else, IfThenElse, LetStmt, Stmt
from ...tir.functor import substitute
from ...tir.transform.tiles.names import ATOMIC, OP, TILE_SCOPES
from .breaks import end_loops

__all__ = ["finish_kernel"]


def finish_kernel(body: Any, blocks: dict[Any, Range], safe_values: dict[Any, Any], allocated: list[Any]) -> Stmt:
    """The body of a kernel with its accesses guarded and its blocks closed; what it then needs is added to ``allocated``."""
    body = end_loops(_Guard(blocks, safe_values).visit(body), allocated)
    return _Close(blocks).visit(body)


class _Guard(Mutator):
    """Guards accesses to memory outside of the block that cannot be proved to lie inside their buffer."""

    def __init__(self, blocks: dict[Any, Range], safe_values: dict[Any, Any]) -> None:
        super().__init__()
        self.analyzer = Analyzer()
        self.safe_values = safe_values
        for var, dom in blocks.items():
            self.analyzer.bind(var, dom)

    def _outside(self, buffer: Any, indices: Any) -> PrimExpr | None:
        """What must hold for an access to lie inside; None where it always does."""
        if buffer.scope() in TILE_SCOPES:
            return None
        condition: Any = None
        for index, extent in zip(indices, buffer.shape, strict=True):
            if not dt.is_int(index.dtype) or dt.lanes(index.dtype) != 1:
                continue
            index = self.analyzer.simplify(index)
            terms: list[Any] = []
            if not self.analyzer.can_prove(index >= 0):
                terms.append(GE(index, const(0, index.dtype)))
            if not self.analyzer.can_prove(index < extent):
                terms.append(LT(index, extent if extent.dtype == index.dtype else cast(index.dtype, extent)))
            for term in terms:
                condition = term if condition is None else And(condition, term)
        return condition

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        made = self.default_visit(node)
        condition = self._outside(made.buffer, made.indices)
        if condition is None:
            return made
        safe = self.safe_values.get(made.buffer, 0)
        return if_then_else(
            condition, made, cast(made.dtype, safe) if not isinstance(safe, int) else const(safe, made.dtype)
        )

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        made = BufferStore(node.buffer, self.visit(node.value), [self.visit(i) for i in node.indices], node.predicate)
        made.span = node.span
        condition = self._outside(made.buffer, made.indices)
        if condition is None:
            return made
        if isinstance(made.value, BufferLoad) or _updates(made):
            # The element that is updated lies inside where the store does.
            made = _unguarded(made, condition)
        return IfThenElse(condition, made)

    def visit_Call(self, node: Call) -> PrimExpr:
        if op_name_of(node) in ("tir.address_of", "tir.tvm_access_ptr"):
            return node
        if is_call_of(node, "tir.if_then_else"):
            condition = self.visit(node.args[0])
            with self.analyzer.constraint_scope(condition):
                then = self.visit(node.args[1])
            otherwise = self.visit(node.args[2])
            if (condition, then, otherwise) == tuple(node.args):
                return node
            return node.with_fields(args=(condition, then, otherwise))
        return self.default_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        condition = self.visit(node.condition)
        with self.analyzer.constraint_scope(condition):
            then = self.visit(node.then_case)
        other = None if node.else_case is None else self.visit(node.else_case)
        return node.with_fields(condition=condition, then_case=then, else_case=other)

    def visit_For(self, node: For) -> Stmt:
        low, extent = self.visit(node.min), self.visit(node.extent)
        self.analyzer.bind(node.loop_var, Range.from_min_extent(low, extent))
        return node.with_fields(min=low, extent=extent, body=self.visit(node.body))

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        value = self.visit(node.value)
        self.analyzer.bind(node.var, value)
        return node.with_fields(value=value, body=self.visit(node.body))

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = node.block
        for var in block.iter_vars:
            self.analyzer.bind(var.var, var.dom)
        init = None if block.init is None else self.visit(block.init)
        return node.with_fields(block=block.with_fields(body=self.visit(block.body), init=init))


def _updates(store: Any) -> bool:
    return any(isinstance(node, BufferLoad) and node.buffer is store.buffer for node in all_nodes(store.value))


def _unguarded(store: Any, condition: Any) -> BufferStore:
    """The store without guards that its own condition covers."""
    from ...ir.structural import same_expression

    class Plain(Mutator):
        def visit_Call(self, node: Call) -> PrimExpr:
            made = self.default_visit(node)
            if is_call_of(made, "tir.if_then_else") and same_expression(made.args[0], condition):
                return made.args[1]
            return made

    return store.with_fields(value=Plain().visit(store.value))


class _Close(Mutator):
    """Gives blocks a variable for every loop outside of them that they use."""

    def __init__(self, blocks: dict[Any, Range]) -> None:
        super().__init__()
        self.loops: dict[Any, tuple[Range, bool]] = {v: (dom, True) for v, dom in blocks.items()}

    def visit_For(self, node: For) -> Stmt:
        self.loops[node.loop_var] = (Range.from_min_extent(node.min, node.extent), False)
        return self.default_visit(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Stmt:
        block = node.block
        if not ({OP, ATOMIC} & set(block.annotations)):
            return self.default_visit(node)
        used: list[Var] = []

        def look(e: Any) -> None:
            if isinstance(e, Var) and e in self.loops and e not in used:
                used.append(e)

        post_order_visit(block.body, look)
        if block.init is not None:
            post_order_visit(block.init, look)
        if not used:
            return node
        fresh = {v: Var(f"v_{v.name}", v.dtype) for v in used}
        kinds = [IterVar.DataPar if self.loops[v][1] else IterVar.Opaque for v in used]
        outer = [
            IterVar(substitute_range(self.loops[v][0]), fresh[v], kind) for v, kind in zip(used, kinds, strict=True)
        ]
        made = block.with_fields(
            iter_vars=(*block.iter_vars, *outer), body=substitute(block.body, fresh),
            init=None if block.init is None else substitute(block.init, fresh),
        )  # fmt: skip
        return node.with_fields(block=made, iter_values=(*node.iter_values, *used))


def substitute_range(dom: Range) -> Range:
    """The domain of a variable whose loop has it; loops of changing bounds count from zero."""
    return dom if isinstance(dom.min, IntImm) else Range.from_min_extent(const(0, dom.min.dtype), dom.min + dom.extent)
