"""Structure of programs: equality of expressions, free variables, where buffers live, the main block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.functor import Visitor
from ...ir.module import IRModule
from ...ir.prim import Call, IterVar, Let, Reduce, Var
from ...ir.structural import same_expression
from ..buffer import Buffer
from ..expr import CallEffectKind, IntImm
from ..function import PrimFunc
from ..op import effect_of
from ..stmt import Allocate, AllocateConst, AttrStmt, Block, BlockRealize, BufferStore, DeclBuffer, For, LetStmt, Stmt

__all__ = [
    "assert_pure_function",
    "contains_block",
    "expr_deep_equal",
    "find_anchor_block",
    "is_pure_function",
    "undefined_vars",
]


def expr_deep_equal(lhs: PrimExpr, rhs: PrimExpr) -> bool:
    """Whether two expressions are the same tree over the very same variables and buffers."""
    return same_expression(lhs, rhs)


def contains_block(stmt: Stmt | Sequence[Stmt]) -> bool:
    """Whether there is a block in a statement."""
    waiting = [stmt]
    while waiting:
        node = waiting.pop()
        match node:
            case BlockRealize():
                return True
            case tuple() | list():
                waiting.extend(node)
            case Stmt():
                waiting.extend(c for c in node.iter_children() if isinstance(c, (Stmt, tuple)))
    return False


class _Undefined(Visitor):
    def __init__(self, defs: Sequence[Any]) -> None:
        self.defined = set(defs)
        self.found: dict[Any, None] = {}

    def visit_Var(self, node: Var) -> None:
        if node not in self.defined:
            self.found[node] = None

    def visit_Buffer(self, node: Buffer) -> None:
        self.visit(node.data)

    def _scoped(self, variables: Sequence[Any], parts: Sequence[Any]) -> None:
        new = [v for v in variables if v not in self.defined]
        self.defined.update(new)
        for part in parts:
            if part is not None:
                self.visit(part)
        self.defined.difference_update(new)

    def visit_For(self, node: For) -> None:
        self.visit(node.min)
        self.visit(node.extent)
        self._scoped([node.loop_var], [node.body])

    def visit_LetStmt(self, node: LetStmt | Let) -> None:
        self.visit(node.value)
        self._scoped([node.var], [node.body])

    visit_Let = visit_LetStmt

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        self.visit(node.value)
        var = getattr(node.node, "var", None)
        if node.attr_key in ("thread_extent", "virtual_thread") and var is not None:
            # The thread axis is defined here, for the first statement and all that come after it.
            self.defined.add(var)
        elif var is None and _is_var(node.node):
            self.visit(node.node)
        self.visit(node.body)

    def visit_IterVar(self, node: IterVar) -> None:
        if node.dom is not None:
            self.visit(node.dom)

    def visit_Allocate(self, node: Allocate) -> None:
        self.visit(node.extents)
        self.visit(node.condition)
        self._scoped([node.buffer_var], [node.body])

    def visit_AllocateConst(self, node: AllocateConst) -> None:
        self._scoped([node.buffer_var], [node.body])

    def visit_DeclBuffer(self, node: DeclBuffer) -> None:
        buffer = node.buffer
        self._scoped([e for e in (buffer.data, buffer.elem_offset, *buffer.strides) if _is_var(e)], [node.body])

    def visit_Reduce(self, node: Reduce) -> None:
        self._scoped([iv.var for iv in node.axis], [node.source, node.condition])

    def visit_Block(self, node: Block) -> None:
        own: list[PrimExpr] = [*[iv.var for iv in node.iter_vars], *[b.data for b in node.alloc_buffers]]
        for match in node.match_buffers:
            own.append(match.buffer.data)
            own += [e for e in (*match.buffer.strides, match.buffer.elem_offset, *match.buffer.shape) if _is_var(e)]
        for iv in node.iter_vars:
            self.visit(iv.dom)
        parts = [*[m.source for m in node.match_buffers], node.reads, node.writes, node.init, node.body]
        self._scoped(own, parts)


def _is_var(expr: PrimExpr) -> bool:
    return getattr(expr, "_is_var", False) or type(expr).__name__ in ("Var", "SizeVar")


def undefined_vars(node: Stmt | PrimExpr | PrimFunc, defs: Sequence[Any] | None = None) -> list[Any]:
    """The variables that a statement or expression uses without defining them, in order of occurrence."""
    visitor = _Undefined(tuple(defs or ()))
    if isinstance(node, PrimFunc):
        visitor.defined.update(node.params)
        for buffer in node.buffer_map.values():
            visitor.defined.add(buffer.data)
            parts = (*buffer.shape, *buffer.strides, buffer.elem_offset)
            visitor.defined.update(d for d in parts if _is_var(d))
        visitor.visit(node.body)
    else:
        visitor.visit(node)
    return list(visitor.found)


def find_anchor_block(mod: IRModule) -> Block | None:
    """The block that does most of a module's work: the reduction with most operations, else the last output."""
    from ..schedule.checks import scope_root
    from ..schedule.primitives.queries import output_blocks
    from ..schedule.state import ScheduleState, blocks_in_order
    from .cost import estimate_tir_flops

    state = ScheduleState(mod)
    best: tuple[float, Block] | None = None
    last_output: Block | None = None
    for root in state.roots:
        for block in blocks_in_order(root.stmt)[1:]:
            sref = state.stmt2ref[block]
            if block.init is None:
                continue
            work = 1.0
            at = sref.parent
            while at is not None:
                if isinstance(at.stmt, For) and isinstance(at.stmt.extent, IntImm):
                    work *= int(at.stmt.extent.value)
                at = at.parent
            try:
                flops = work * max(estimate_tir_flops(block.body), 1.0)
            except ValueError:
                flops = work
            if best is None or flops > best[0]:
                best = (flops, block)
        outputs = output_blocks(state, root)
        if outputs:
            last_output = outputs[-1].stmt
        del outputs
    del scope_root
    return best[1] if best is not None else last_output


class _Effects(Visitor):
    """Stops at the first write to memory that is not the function's own, or call that changes state."""

    def __init__(self) -> None:
        self.own: set[Any] = set()
        self.impure = ""

    def visit_Allocate(self, node: Allocate) -> None:
        self.own.add(node.buffer_var)
        self.default_visit(node)

    def visit_Block(self, node: Block) -> None:
        self.own.update(buffer.data for buffer in node.alloc_buffers)
        self.default_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        if node.buffer.data not in self.own:
            self.impure = f"Pure functions must not write to buffers, but the function stores to {node.buffer.name}"
        self.default_visit(node)

    def visit_Call(self, node: Call) -> None:
        if effect_of(node) == CallEffectKind.UpdateState:
            self.impure = f"Pure functions must not contain calls to impure operators, but there is {node}"
        self.default_visit(node)


def _impurity(func: PrimFunc) -> str:
    visitor = _Effects()
    visitor.visit(func.body)
    return visitor.impure


def is_pure_function(func: PrimFunc) -> bool:
    """Whether a function neither writes memory other than its own allocations nor has other effects."""
    return not _impurity(func)


def assert_pure_function(func: PrimFunc) -> bool:
    """:func:`is_pure_function` that raises AssertionError instead of answering no."""
    impurity = _impurity(func)
    if impurity:
        raise AssertionError(impurity)
    return True
