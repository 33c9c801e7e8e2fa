"""InstrumentBoundCheckers: stores are guarded by checks of all indices they use."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.prim import And, Call, Cast, GE, IntImm, LT, Ramp, StringImm
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import Allocate, AssertStmt, AttrStmt, BufferStore, Evaluate, IfThenElse, Stmt
from ..base import StmtExprMutator, StmtExprVisitor, is_call, FunctionRewrite


class _Bounds(StmtExprVisitor):
    """Shapes announced by ``buffer_bound`` attributes."""

    def __init__(self) -> None:
        self.shapes: dict[Any, tuple[Any, ...]] = {}

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "buffer_bound" and is_call(attr.value, "tvm_tuple"):
            self.shapes[attr.node] = tuple(attr.value.args)
        self.visit(attr.body)


class _Instrument(StmtExprMutator):
    def __init__(self, shapes: dict[Any, tuple[Any, ...]]) -> None:
        self.shapes = shapes
        self.analyzer = Analyzer()
        self.checks: list[tuple[Any, Any]] = []
        self.storing = False
        self.guarded = False

    def visit_Allocate(self, stmt: Allocate) -> Stmt:
        if stmt.buffer_var in self.shapes:
            # What is stored is the allocation, vector elements counted one by one.
            lanes = dt.lanes(stmt.dtype)
            extents = [e * lanes if lanes > 1 else e for e in stmt.extents]
            self.shapes[stmt.buffer_var] = tuple(extents)
        return self.default_visit(stmt)

    def _note(self, access: BufferLoad | BufferStore) -> None:
        shape = self.shapes.get(access.buffer.data)
        if shape is None or len(shape) != len(access.indices):
            return
        for index, size in zip(access.indices, shape):
            if isinstance(index, Ramp):
                index = index.base + index.stride * index.lanes
            if dt.lanes(index.dtype) == 1:
                self.checks.append((index, size))

    def visit_Call(self, e: Call) -> PrimExpr:
        if self.storing and is_call(e, "if_then_else"):
            # The branch not taken may well be out of bounds.
            self.guarded = True
        return self.default_visit(e)

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made = self.default_visit(load)
        if self.storing and not self.guarded:
            self._note(load)
        return made

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        self.checks, self.storing, self.guarded = [], True, False
        made: Any = self.default_visit(store)
        self.storing = False
        self._note(store)
        if not self.checks:
            return made
        condition: Any = None
        zero = IntImm("int64", 0)
        for index, size in self.checks:
            index = Cast("int64", self.analyzer.simplify(index))
            size = Cast("int64", self.analyzer.simplify(size))
            one = And(GE(index, zero), LT(index, size))
            condition = one if condition is None else And(condition, one)
        return IfThenElse(condition, made, AssertStmt(condition, StringImm("OUT OF THE BOUNDS"), Evaluate(1)))


def instrument(func: PrimFunc) -> PrimFunc:
    """Guard the stores of a function."""
    bounds = _Bounds()
    bounds.visit(func.body)
    if not bounds.shapes:
        return func
    body = _Instrument(bounds.shapes).visit(func.body)
    return func if body is func.body else func.with_body(body)


class InstrumentBoundCheckers(FunctionRewrite):
    """Check the indices of loads and stores of buffers whose size ``buffer_bound`` attributes tell.

    Before::

        T.attr(A.data, "buffer_bound", T.tvm_tuple(n))
        A[i] = 1.0

    After::

        T.attr(A.data, "buffer_bound", T.tvm_tuple(n))
        if T.Cast("int64", i) >= T.int64(0) and T.Cast("int64", i) < T.Cast("int64", n):
            A[i] = 1.0
        else:
            assert ..., "OUT OF THE BOUNDS"
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return instrument(func)
