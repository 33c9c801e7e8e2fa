"""Search for split points of LoopPartition: the candidate loops, and the ranges of values over which a condition is
settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.functor import uses_var
from ....arith.int_set import IntervalSet, everything, from_min_extent, intersect, intersect_all, nothing
from ....arith.deduce import deduce_bound
from ....ir.expr import PrimExpr
from ....ir.prim import Call, CmpOp, EQ, GE, GT, IntImm, IterVar, LE, LT, NE, Var
from ...stmt import AttrStmt, For, SeqStmt, Stmt
from ..base import StmtExprVisitor, is_call

HINT = "pragma_loop_partition_hint"
Domains = dict[Var, IntervalSet]

_INVERSES: dict[type, type] = {LT: GE, GE: LT, GT: LE, LE: GT, EQ: NE, NE: EQ}


def thread_domain(attr: AttrStmt) -> IntervalSet:
    """The values of the axis of a ``thread_extent`` attribute."""
    return from_min_extent(B.const(attr.value.dtype, 0), attr.value)


class Candidates(StmtExprVisitor):
    """Collects the loops and block axes whose variable a ``likely`` condition uses, or that carry a hint."""

    def __init__(self, constant_loops: bool) -> None:
        self.constant_loops = constant_loops
        self.found: set[Stmt] = set()
        self.hinted: set[Var] = set()
        self._used: dict[Var, bool] = {}
        self._likely = False
        self._whole = False  # an all-reduction below must not be torn apart

    def _consider(self, stmt: Stmt, var: Var) -> None:
        if var in self.hinted:
            self.found.add(stmt)
            self.default_visit(stmt)
            return
        self._used.setdefault(var, False)
        self.default_visit(stmt)
        if self._used.pop(var) and not self._whole:
            self.found.add(stmt)

    def visit_For(self, loop: For) -> None:
        constant = isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)
        if constant and not self.constant_loops:
            self.default_visit(loop)
        else:
            self._consider(loop, loop.loop_var)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        node = attr.node
        if attr.attr_key == "thread_extent" and isinstance(node, IterVar) and node.thread_tag.startswith("blockIdx"):
            if self.constant_loops or not isinstance(attr.value, IntImm):
                self._consider(attr, node.var)
                return
        elif attr.attr_key == HINT and Analyzer().can_prove(_truth(attr.value)):
            self.hinted.add(node.var if isinstance(node, IterVar) else node)
        self.default_visit(attr)

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        before, after = self._whole, self._whole
        for child in stmt.seq:
            self._whole = before
            self.visit(child)
            after = after or self._whole
        self._whole = after

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "tvm_thread_allreduce"):
            self._whole = True
            return
        outer = self._likely
        self._likely = outer or is_call(e, "likely")
        self.visit(e.args)
        self._likely = outer

    def visit_Var(self, var: Var) -> None:
        if self._likely and var in self._used:
            self._used[var] = True


class Intervals(StmtExprVisitor):
    """For each condition on one variable: the values for which it certainly holds, and for which it does not."""

    def __init__(
        self, var: Var, hints: Mapping[Var, IntervalSet], relax: Mapping[Var, IntervalSet], all_: bool
    ) -> None:
        self.var = var
        self.found: list[tuple[Any, bool, IntervalSet]] = []
        self._all = all_
        self._outer = {*hints, *relax}
        self._hints: Domains = dict(hints)
        self._relax: Domains = dict(relax)

    @contextmanager
    def _inside(self, var: Var, dom: IntervalSet) -> Iterator[None]:
        self._hints.setdefault(var, dom)
        self._relax.setdefault(var, dom)
        yield
        self._relax.pop(var, None)
        self._hints.pop(var, None)

    def visit_For(self, loop: For) -> None:
        if any(uses_var(e, v) for e in (loop.min, loop.extent) for v in self._outer):
            return
        with self._inside(loop.loop_var, from_min_extent(loop.min, loop.extent)):
            self.default_visit(loop)

    def visit_AttrStmt(self, attr: AttrStmt) -> None:
        if attr.attr_key == "thread_extent" and isinstance(attr.node, IterVar):
            with self._inside(attr.node.var, thread_domain(attr)):
                self.default_visit(attr)
        else:
            self.default_visit(attr)

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "likely"):
            self._deduce(e.args[0])
        else:
            self.visit(e.args)

    def visit_CmpOp(self, e: CmpOp) -> None:
        if self._all:
            self._deduce(e)
        else:
            self.default_visit(e)

    def _deduce(self, condition: CmpOp) -> None:
        if not uses_var(condition, self.var):
            return
        self._note(condition, True, condition)
        inverse = _INVERSES.get(type(condition))
        if inverse is not None:
            self._note(condition, False, inverse(condition.a, condition.b))

    def _note(self, condition: PrimExpr, value: bool, holds: PrimExpr) -> None:
        dom = deduce_bound(self.var, holds, self._hints, self._relax)
        if dom.is_nothing():
            return
        for i, (known, of, _) in enumerate(self.found):
            if of == value and B.deep_equal(known, condition):
                self.found[i] = (known, of, dom)
                return
        self.found.append((condition, value, dom))


def settled(
    found: list[tuple[Any, bool, IntervalSet]], dom: IntervalSet, value: bool, hinted: bool, analyzer: Analyzer
) -> tuple[IntervalSet, list[Any]]:
    """The values for which conditions are all ``value``, and those conditions.

    Where no values suit all of them, a hinted loop is content with the first few conditions.
    """
    usable = [(c, s) for c, of, s in found if of == value and not intersect(analyzer, s, dom).is_nothing()]
    common = intersect_all(s for _, s in usable) if usable else nothing()
    if not common.is_nothing() or not hinted:
        return common, [c for c, _ in usable]
    chosen: list[Any] = []
    running = everything()
    for condition, s in usable:
        running = intersect(analyzer, running, s)
        if running.is_nothing():
            break
        chosen.append(condition)
        common = IntervalSet(analyzer.simplify(running.min_value), analyzer.simplify(running.max_value))
    return common, chosen


def points_outside(found: list[tuple[Any, bool, IntervalSet]], dom: IntervalSet, analyzer: Analyzer) -> bool:
    """Whether all conditions are settled at single points only, none of which the loop reaches."""
    for _, _, s in found:
        if s.min_value is not s.max_value and not (s.has_lower() and B.deep_equal(s.min_value, s.max_value)):
            return False
        point = s.min_value
        if analyzer.can_prove(B.ge(point, dom.min_value)) and analyzer.can_prove(B.le(point, dom.max_value)):
            return False
    return True


def _truth(value: PrimExpr) -> PrimExpr:
    return value if value.dtype == "bool" else B.ne(value, B.const(value.dtype, 0))
