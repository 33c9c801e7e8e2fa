"""LoopPartition: loops are cut where a condition in them becomes certain, so that most pieces need not check it."""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.int_set import IntervalSet
from ....ir.expr import PrimExpr, Range
from ....ir.prim import Call, IntImm, Var
from ...function import PrimFunc
from ...functor import substitute
from ...stmt import AttrStmt, For, ForKind, IfThenElse, Stmt, stmt_seq
from ..base import StmtExprMutator, StmtMutator, is_call, options, FunctionRewrite
from ..simplify.convert_ssa import convert_body
from .partition_search import HINT, Candidates, Domains, Intervals, points_outside, settled, thread_domain

DEFAULTS = {
    "partition_const_loop": False,
    "no_unroll_loop_with_extent_one": False,
    "unroll_loop_with_partition_hint_no_interval": False,
}


class _Settle(StmtExprMutator):
    """Replaces conditions by the value they have."""

    def __init__(self, conditions: list[Any], value: bool) -> None:
        self.conditions = conditions
        self.value = value

    def visit(self, x: Any) -> Any:
        if getattr(x, "dtype", None) == "bool" and any(B.deep_equal(x, c) for c in self.conditions):
            return IntImm("bool", int(self.value))
        return super().visit(x)


class _Branch(StmtMutator):
    """Puts a branch inside the innermost thread axis: where it is taken, the conditions are certain."""

    def __init__(self, conditions: list[Any], taken: PrimExpr) -> None:
        self.conditions = conditions
        self.taken = taken
        self.innermost = False

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key != "thread_extent":
            return self.default_visit(attr)
        self.innermost = True
        made: Any = self.default_visit(attr)
        if self.innermost:
            free = _Settle(self.conditions, True).visit(attr.body)
            made = attr.with_fields(body=IfThenElse(self.taken, free, attr.body))
        self.innermost = False
        return made


class _Strip(StmtExprMutator):
    """Removes ``likely`` and hints."""

    def visit_Call(self, e: Call) -> PrimExpr:
        return self.visit(e.args[0]) if is_call(e, "likely") else self.default_visit(e)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return self.visit(attr.body) if attr.attr_key == HINT else self.default_visit(attr)


class _Partition(StmtMutator):
    def __init__(self, settings: dict[str, Any]) -> None:
        self.keep_single = bool(settings["no_unroll_loop_with_extent_one"])
        self.unroll_hinted = bool(settings["unroll_loop_with_partition_hint_no_interval"])
        self.candidates = Candidates(bool(settings["partition_const_loop"]))
        self.analyzer = Analyzer()
        self.hints: Domains = {}
        self.relax: Domains = {}

    def run(self, stmt: Stmt) -> Stmt:
        """Partition all candidates of a statement."""
        self.candidates.visit(stmt)
        return self.visit(stmt)

    def visit_For(self, loop: For) -> Stmt:
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent), True)
        dom = _dom(loop.min, B.sub(B.add(loop.min, loop.extent), B.const(loop.min.dtype, 1)))
        if loop in self.candidates.found:
            made = self._partition(loop, loop.loop_var, dom, loop.body, False)
            if made is not None:
                return made
        return self._keep(loop, loop.loop_var, dom, self.hints)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key != "thread_extent":
            return self.default_visit(attr)
        var, dom = attr.node.var, thread_domain(attr)
        if attr in self.candidates.found:
            made = self._partition(attr, var, dom, attr.body, True)
            if made is not None:
                return made
        # Threads must not diverge, so what holds must hold for all of them.
        block = attr.node.thread_tag.startswith("blockIdx")
        return self._keep(attr, var, dom, self.hints if block else self.relax)

    def _keep(self, stmt: Stmt, var: Var, dom: IntervalSet, domains: Domains) -> Stmt:
        domains.setdefault(var, dom)
        made = self.default_visit(stmt)
        domains.pop(var, None)
        return made

    # -- one loop ------------------------------------------------------------------------------------------

    def _partition(self, stmt: Stmt, var: Var, dom: IntervalSet, body: Stmt, threads: bool) -> Stmt | None:
        """The pieces of a loop; None where nothing is certain anywhere."""
        hinted = var in self.candidates.hinted
        self.hints.setdefault(var, dom)
        intervals = Intervals(var, self.hints, self.relax, hinted)
        intervals.visit(body)
        self.hints.pop(var, None)
        found = intervals.found
        if not found:
            return None
        for value in (True, False):
            middle, conditions = settled(found, dom, value, hinted, self.analyzer)
            if not middle.is_nothing():
                return self._pieces(stmt, var, dom, body, middle, _Settle(conditions, value), threads)
        if points_outside(found, dom, self.analyzer):
            return stmt
        span = B.sub(dom.max_value, dom.min_value)
        if hinted and self.unroll_hinted and self.analyzer.can_prove(B.gt(span, B.const(span.dtype, 0))):
            extent = B.add(span, B.const(span.dtype, 1))
            return For(var, dom.min_value, extent, ForKind.UNROLLED, self.run(body))
        return None

    def _pieces(
        self, stmt: Stmt, var: Var, dom: IntervalSet, body: Stmt, middle: IntervalSet, settle: _Settle, threads: bool
    ) -> Stmt:
        prove, low = self.analyzer.can_prove, dom.min_value
        end = B.add(dom.max_value, B.const(dom.max_value.dtype, 1))
        begin, stop = low, end
        before = after = None
        split_before = split_after = True
        if middle.has_lower():
            begin = self.analyzer.simplify(middle.min_value)
            if not prove(B.eq(begin, low)):
                extent = self.analyzer.simplify(B.sub(begin, low))
                nothing = B.const(extent.dtype, 0)
                if not prove(B.gt(extent, nothing)):
                    begin, split_before = B.maximum(begin, low), False
                if not prove(B.le(extent, nothing)) and not threads:
                    before = self._loop(stmt, B.sub(begin, low), substitute(body, {var: B.add(var, low)}))
        if middle.has_upper():
            stop = self.analyzer.simplify(B.add(middle.max_value, B.const(middle.max_value.dtype, 1)))
            if not prove(B.eq(middle.max_value, dom.max_value)):
                extent = self.analyzer.simplify(B.sub(end, stop))
                nothing = B.const(extent.dtype, 0)
                if not prove(B.gt(extent, nothing)):
                    stop, split_after = B.minimum(stop, end), False
                if not prove(B.le(extent, nothing)) and not threads:
                    after = self._loop(stmt, extent, substitute(body, {var: B.add(var, stop)}))
        if threads:
            return convert_body(_Branch(settle.conditions, self._range(var, begin, stop, low, end)).visit(stmt))
        center: Stmt | None = None
        if not prove(B.ge(begin, stop)):
            center = self._loop(stmt, B.sub(stop, begin), substitute(settle.visit(body), {var: B.add(var, begin)}))
            center = self.run(center)
            before = self.run(before) if before is not None and split_before else before
            after = self.run(after) if after is not None and split_after else after
        return convert_body(stmt_seq(*(s for s in (before, center, after) if s is not None)))

    def _range(self, var: Var, begin: PrimExpr, stop: PrimExpr, low: PrimExpr, end: PrimExpr) -> PrimExpr:
        """The condition that a thread lies in the middle."""
        condition: Any = IntImm("bool", 1)
        if not self.analyzer.can_prove(B.eq(begin, low)):
            condition = B.and_(condition, B.ge(var, begin))
        if not self.analyzer.can_prove(B.eq(stop, end)):
            condition = B.and_(condition, B.lt(var, stop))
        return condition

    def _loop(self, loop: Stmt, extent: PrimExpr, body: Stmt) -> Stmt:
        """The loop over part of its values, counted from zero; a single value needs no loop."""
        assert isinstance(loop, For)
        single = self.analyzer.can_prove(B.eq(extent, B.const(extent.dtype, 1)))
        if single and not self.keep_single and not loop.annotations:
            return substitute(body, {loop.loop_var: B.const(loop.loop_var.dtype, 0)})
        low = IntImm(loop.min.dtype, 0)
        return For(loop.loop_var, low, extent, loop.kind, body, loop.thread_binding, loop.annotations)


def _dom(low: PrimExpr, high: PrimExpr) -> IntervalSet:
    return IntervalSet(low, high)


def partition(func: PrimFunc, settings: dict[str, Any] | None = None) -> PrimFunc:
    """Partition the loops of a function."""
    body = _Strip().visit(_Partition({**DEFAULTS, **(settings or {})}).run(func.body))
    return func if body is func.body else func.with_body(body)


class LoopPartition(FunctionRewrite):
    """Cut loops at the bounds of ``T.likely`` conditions.

    Before::

        for i in range(n):
            if T.likely(i < 60): A[i] = 1.0

    After::

        for i in range(T.min(60, n)):
            if T.bool(True): A[i] = 1.0
        for i in range(n - 60):
            if i + T.min(60, n) < 60: A[i + T.min(60, n)] = 1.0

    Pieces that the bounds show to be empty are left out; Simplify removes what has become certain. Options
    ``tir.LoopPartition = {...}``:

    * ``partition_const_loop``: loops of constant extent too;
    * ``no_unroll_loop_with_extent_one``: a piece of one iteration stays a loop;
    * ``unroll_loop_with_partition_hint_no_interval``: a hinted loop that cannot be cut is marked unrolled.

    Under ``T.attr(i, "pragma_loop_partition_hint", 1)`` every comparison counts, likely or not.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return partition(func, options("tir.LoopPartition", DEFAULTS))
