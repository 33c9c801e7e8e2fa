"""LoopPartition: a loop whose conditions hold in its middle is split, so that the middle needs no test.

Before: ``for i in range(n): if T.likely(i < 60): ...``.
After: a loop to 60 without the test, and one for the rest.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...arith.functor import substitute, uses_var
from ...arith.linear import detect_clip_bound
from ...ir.expr import Range
from ...ir.functor import Mutator, Visitor
from ...ir.prim import Call, IntImm
from ..function import PrimFunc
from ..stmt import AttrStmt, For, ForKind, IfThenElse, SeqStmt
from .base import PrimFuncPass, func_pass, is_noop, options
from .remove_no_op import remove_no_op
from .simplify import StmtSimplifier

DEFAULTS = {
    "partition_const_loop": False,
    "no_unroll_loop_with_extent_one": False,
    "unroll_loop_with_partition_hint_no_interval": False,
}
HINT = "pragma_loop_partition_hint"


class _Conditions(Visitor):
    """Conditions marked likely (or all, under a hint) that mention one loop variable."""

    def __init__(self, var: Any, hinted: bool) -> None:
        self.var = var
        self.hinted = hinted
        self.found: list[Any] = []

    def visit_Call(self, e: Call) -> None:
        if getattr(e.op, "name", "") == "tir.likely" and uses_var(e.args[0], self.var):
            self.found.append(e.args[0])
        if self.hinted and getattr(e.op, "name", "") == "tir.if_then_else" and uses_var(e.args[0], self.var):
            self.found.append(e.args[0])
        for arg in e.args:
            self.visit(arg)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        if self.hinted and uses_var(stmt.condition, self.var):
            self.found.append(stmt.condition)
        self.default_visit(stmt)

    def visit_Buffer(self, buffer: Any) -> None:
        return


class _Partition(Mutator):
    def __init__(self, const_loops: bool) -> None:
        self.const_loops = const_loops
        self.analyzer = Analyzer()
        self.hinted: set[Any] = set()

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        if attr.attr_key != HINT:
            return self.default_visit(attr)
        self.hinted.add(getattr(attr.node, "var", attr.node))
        return self.visit(attr.body)

    def visit_For(self, loop: For) -> Any:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        new = self.default_visit(loop)
        hinted = HINT in loop.annotations or loop.loop_var in self.hinted
        constant = isinstance(loop.extent, IntImm)
        if loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED) or (constant and not (self.const_loops or hinted)):
            return new
        collect = _Conditions(loop.loop_var, hinted)
        collect.visit(new.body)
        return self._split(new, collect.found) if collect.found else new

    def _split(self, loop: For, conditions: list[Any]) -> Any:
        var = loop.loop_var
        low, end = loop.min, B.add(loop.min, loop.extent)
        start: Any = low
        stop: Any = end
        for cond in conditions:
            bounds = detect_clip_bound(cond, [var])
            if not bounds:
                return loop
            one = B.const(var.dtype, 1)
            if bounds[0] is not None:
                start = B.maximum(start, bounds[0])
            if bounds[1] is not None:
                stop = B.minimum(stop, B.add(bounds[1], one))
        start, stop = self.analyzer.simplify(start), self.analyzer.simplify(stop)
        pieces = []
        for first, last in ((low, start), (start, stop), (stop, end)):
            extent = self.analyzer.simplify(B.sub(last, first))
            if B.is_zero(extent) or self.analyzer.can_prove(B.le(extent, B.const(extent.dtype, 0))):
                continue
            pieces.append(self._piece(loop, first, extent))
        pieces = [p for p in pieces if not is_noop(p)]
        return pieces[0] if len(pieces) == 1 else SeqStmt(pieces)

    def _piece(self, loop: For, first: Any, extent: Any) -> Any:
        fresh = loop.loop_var.with_fields()
        kept = {k: v for k, v in loop.annotations.items() if k != HINT}
        body = substitute(loop.body, {loop.loop_var: B.add(fresh, first)})
        piece = For(fresh, B.const(fresh.dtype, 0), extent, loop.kind, body, None, kept)
        simplifier = StmtSimplifier()
        return remove_no_op(simplifier.visit(piece))


def partition(func: PrimFunc, const_loops: bool = False) -> PrimFunc:
    """Partition the loops of a function."""
    body = _Partition(const_loops).visit(func.body)
    return func if body is func.body else func.with_body(body)


def LoopPartition() -> PrimFuncPass:  # noqa: N802
    """Split loops at the bounds of likely conditions.

    Before::

        for i in range(n):
            if T.likely(i < 60): A[i] = 1.0

    After::

        for i in range(T.min(60, n)): A[i] = 1.0

    Loops of constant extent are split with ``tir.LoopPartition = {"partition_const_loop": True}`` or under
    ``pragma_loop_partition_hint``, which makes any condition count.
    """

    def run(func: PrimFunc) -> PrimFunc:
        return partition(func, bool(options("tir.LoopPartition", DEFAULTS)["partition_const_loop"]))

    return func_pass(run, "tir.LoopPartition")
