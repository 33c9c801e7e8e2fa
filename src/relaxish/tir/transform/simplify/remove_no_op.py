"""RemoveNoOp: statements without effect go away.

Before: ``for i in range(4): pass``, ``if c: pass``, ``x = T.evaluate(0)`` in a sequence.
After: nothing of it.
"""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer, eval_set
from ....arith import build as B
from ....arith.effects import CallEffectKind, side_effect
from ....arith.functor import uses_var
from ....arith.int_set import from_min_extent
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.node import Node
from ....ir.prim import IntImm, Not, const_int
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AttrStmt, BufferStore, DeclBuffer, Evaluate, For, IfThenElse, LetStmt, Stmt  # fmt: skip
from ..base import StmtMutator, flatten_seq, options, FunctionRewrite
from .buffer_flow import BufferFlow, in_context
from .dead_stores import DeadStores
from .simplify import AnalyzerMutator


def is_noop(stmt: Stmt) -> bool:
    """Whether a statement certainly does nothing."""
    return stmt is None or isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)


_WAITS = ("async_wait_queue_scope", "async_wait_inflight_count")


class _Remove(StmtMutator):
    """Removes statements whose form alone shows that they do nothing."""

    def __init__(self) -> None:
        self.ranges: dict[Any, Any] = {}

    @staticmethod
    def _effect(*values: Any) -> Stmt:
        """What evaluating the values does, apart from their results."""
        return flatten_seq([Evaluate(e) for e in values if side_effect(e) > CallEffectKind.ReadState])

    def visit_LetStmt(self, stmt: LetStmt) -> Stmt:
        new = self.default_visit(stmt)
        if is_noop(new.body):
            return self._effect(new.value)
        if uses_var(new.body, new.var):
            return new
        return flatten_seq([self._effect(new.value), new.body])

    def visit_AttrStmt(self, stmt: AttrStmt) -> Stmt:
        if stmt.attr_key == "pragma_debug_skip_region":
            return Evaluate(0)
        if stmt.attr_key == "async_wait_queue_scope" and isinstance(stmt.body, AttrStmt):
            count = stmt.body.value
            if Analyzer().can_prove(B.lt(count, B.const(count.dtype, 0))):
                # Counts that depend on a loop variable may fall below zero once it is unrolled: nothing to wait for.
                return self.visit(stmt.body.body)
        new = self._attribute(stmt)
        if stmt.attr_key in _WAITS:
            # What follows relies on the wait even if the statement that it was put before has gone.
            return new
        return self._effect(new.value) if isinstance(new, AttrStmt) and is_noop(new.body) else new

    def _attribute(self, stmt: AttrStmt) -> Stmt:
        return self.default_visit(stmt)

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        return self._branches(self.default_visit(stmt))

    def _branches(self, new: Stmt) -> Stmt:
        if not isinstance(new, IfThenElse):
            return new
        if isinstance(new.condition, IntImm):
            return new.then_case if new.condition.value else (new.else_case or Evaluate(0))
        if new.else_case is not None and is_noop(new.else_case):
            new = IfThenElse(new.condition, new.then_case, None)
        if is_noop(new.then_case):
            if new.else_case is None:
                return self._effect(new.condition)
            return IfThenElse(Not(new.condition), new.else_case, None)
        return new

    def visit_For(self, stmt: For) -> Stmt:
        if not isinstance(stmt.extent, IntImm):
            top = eval_set(stmt.extent, self.ranges).max_value
            if top.dtype != "handle" and Analyzer().can_prove(B.le(top, B.const(top.dtype, 0))):
                return Evaluate(0)
        elif stmt.extent.value <= 0:
            return Evaluate(0)
        self.ranges[stmt.loop_var] = from_min_extent(stmt.min, stmt.extent)
        new = self._loop(stmt)
        del self.ranges[stmt.loop_var]
        return self._effect(new.min, new.extent) if isinstance(new, For) and is_noop(new.body) else new

    def _loop(self, stmt: For) -> Stmt:
        return self.default_visit(stmt)

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        new = self.default_visit(stmt)
        return self._effect(*new.extents) if is_noop(new.body) else new

    def visit_DeclBuffer(self, stmt: DeclBuffer) -> Stmt:
        new = self.default_visit(stmt)
        if is_noop(new.body):
            return Evaluate(0)
        return new if _uses_buffer(new.body, new.buffer) else new.body

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        if isinstance(stmt.value, IntImm):
            return stmt
        return Evaluate(0) if side_effect(stmt.value) <= CallEffectKind.ReadState else stmt

    def visit_BufferStore(self, stmt: BufferStore) -> Stmt:
        value: Any = stmt.value
        if isinstance(value, BufferLoad) and self._same_buffer(value.buffer, stmt.buffer) and value.predicate is None:
            if all(self._equal(a, b) for a, b in zip(value.indices, stmt.indices)):
                return self._effect(*stmt.indices)
        return stmt

    def _equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        return B.deep_equal(a, b)

    @staticmethod
    def _same_buffer(a: Buffer, b: Buffer) -> bool:
        """Whether equal indices mean the same place: one buffer, or two views of the same memory alike."""
        if a is b:
            return True
        if a.data is not b.data or a.dtype != b.dtype or len(a.shape) != len(b.shape) or a.strides or b.strides:
            return False
        pairs = [*zip(a.shape, b.shape), (a.elem_offset, b.elem_offset)]
        return all(x is y or (x is not None and y is not None and B.deep_equal(x, y)) for x, y in pairs)


class Remover(AnalyzerMutator, _Remove):
    """Also removes stores that arithmetic, or what is known of buffers, shows to do nothing.

    ``context`` is the statement of the analysed program in whose place the rewritten one stands, if not its own.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        flow: BufferFlow | None = None,
        dead: DeadStores | None = None,
        context: Stmt | None = None,
    ) -> None:
        AnalyzerMutator.__init__(self, analyzer)
        self.ranges = {}
        self.flow = flow
        self.dead = dead
        self.context = context

    def visit_AttrStmt(self, stmt: AttrStmt) -> Stmt:
        return _Remove.visit_AttrStmt(self, stmt)

    def _attribute(self, stmt: AttrStmt) -> Stmt:
        return AnalyzerMutator.visit_AttrStmt(self, stmt)

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        return self._branches(AnalyzerMutator.visit_IfThenElse(self, stmt))

    def visit_For(self, stmt: For) -> Stmt:
        return _Remove.visit_For(self, stmt)

    def _loop(self, stmt: For) -> Stmt:
        return AnalyzerMutator.visit_For(self, stmt)

    def _equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        return bool(self.analyzer.can_prove_equal(a, b))

    def visit_BufferStore(self, stmt: BufferStore) -> Stmt:
        here = stmt if self.context is None else self.context
        if self.dead is not None and self.dead.is_dead(stmt, here, self.analyzer):
            return self._effect(stmt.value, *stmt.indices)
        if (self.flow is not None or self.dead is None) and not self._differs(stmt, here):
            own = BufferLoad(stmt.buffer, stmt.indices)
            nothing_new = B.eq(stmt.value - own, B.const(stmt.value.dtype, 0)) if stmt.predicate is None else B.false()
            facts = [] if self.flow is None else self.flow.before(here)
            if isinstance(nothing_new, IntImm):
                known: Any = nothing_new
            else:
                known = in_context(nothing_new, facts, self.analyzer) if facts else self.analyzer.simplify(nothing_new)
            if const_int(known, 0):
                return self._effect(stmt.value, *stmt.indices)
        return _Remove.visit_BufferStore(self, stmt)

    def _differs(self, stmt: BufferStore, here: Stmt) -> bool:
        """Whether a number that may be anything is stored: conditions say nothing of floats in memory."""
        facts = self.flow is not None and self.flow.before(here)
        return not facts and dt.is_float(stmt.value.dtype) and not _uses_buffer(stmt.value, stmt.buffer)


def _uses_buffer(body: Stmt | PrimExpr, buffer: Buffer) -> bool:
    """Whether ``body`` accesses a buffer by that declaration."""
    stack: list[Any] = [body]
    while stack:
        x = stack.pop()
        if x is buffer:
            return True
        match x:
            case Node():
                if not isinstance(x, (IntImm, Buffer)):
                    stack.extend(child for name in x._child_fields if (child := getattr(x, name)) is not None)
            case tuple() | list():
                stack.extend(x)
            case dict():
                stack.extend(x)
                stack.extend(x.values())
    return False


def remove_no_op(stmt: Stmt) -> Stmt:
    """Remove what plainly does nothing."""
    return _Remove().visit(stmt)


def remove_by_dataflow(stmt: Stmt) -> Stmt:
    """Remove also stores that are overwritten before they are read, and those of values already there."""
    while True:
        dead = DeadStores()
        dead.visit(stmt)
        made = Remover(Analyzer(), None, dead).visit(stmt)
        if made is stmt:
            flow = BufferFlow()
            flow.visit(stmt)
            made = Remover(Analyzer(), flow).visit(stmt)
        if made is stmt:
            return stmt
        stmt = made


DEFAULTS = {"use_dataflow_analysis": False, "max_simplification_steps": 0}


class RemoveNoOp(FunctionRewrite):
    """Remove statements without effect.

    Before::

        for i in range(16):
            if i < 8: T.evaluate(0)
            else: A[i] = 42
        x: T.int32 = 5

    After::

        for i in range(16):
            if not (i < 8): A[i] = 42

    The option ``tir.RemoveNoOp`` turns on ``use_dataflow_analysis``: stores that are overwritten before anything
    reads them, and stores of values that are there already, go away too.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        chosen = options("tir.RemoveNoOp", DEFAULTS)
        body = (
            remove_by_dataflow(func.body) if chosen["use_dataflow_analysis"] else Remover(Analyzer()).visit(func.body)
        )
        return func if body is func.body else func.with_body(body)
