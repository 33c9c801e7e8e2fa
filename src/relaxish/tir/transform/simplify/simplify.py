"""Simplify: arithmetic simplification of every expression, under what loops and conditions say.

Before: ``for i in range(16): if i < 20: A[i * 4 + 0] = ...``.
After: ``for i in range(16): A[i * 4] = ...``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ....arith import Analyzer, Extension
from ....arith import build as B
from ....arith.effects import is_pure
from ....arith.functor import free_vars, substitute
from ....arith.sharing import Sharing
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Visitor
from ....ir.prim import Call, FloatImm, IntImm, Let, Select, SizeVar, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...function import PrimFunc
from ...stmt import AssertStmt, AttrStmt, Block, BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt
from ..base import SeqMutator, is_call, options, FunctionRewrite

_LEAVES = (Var, SizeVar, IntImm, FloatImm)
_INLINED = ("int8", "int16", "int32", "int64")


def _has_lets(stmt: Stmt) -> bool:
    class Find(Visitor):
        found = False

        def visit_PrimExpr(self, e: PrimExpr) -> None:
            return

        def visit_Buffer(self, buffer: Buffer) -> None:
            return

        def visit_LetStmt(self, node: LetStmt) -> None:
            self.found = True

    find = Find()
    find.visit(stmt)
    return find.found


def _plain_condition(cond: PrimExpr) -> PrimExpr:
    """What a condition says, without the hint that it usually holds."""
    return cond.args[0] if is_call(cond, "likely") else cond


class AnalyzerMutator(SeqMutator):
    """A statement mutator whose analyzer knows the enclosing loops, lets, threads and conditions."""

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        self.analyzer = analyzer or Analyzer()

    def _given(self, fact: PrimExpr) -> AbstractContextManager[Any]:
        """Within it a condition holds."""
        return self.analyzer.constraint_scope(fact)

    def _unless(self, fact: PrimExpr) -> AbstractContextManager[Any]:
        """Within it a condition does not hold."""
        return self.analyzer.constraint_scope(self.analyzer.rewrite_simplify(B.not_(fact)))

    def visit_For(self, loop: For) -> Stmt:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(low, extent), True)
        body = self.visit(loop.body)
        if low is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return loop.with_fields(min=low, extent=extent, body=body)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.attr_key in ("thread_extent", "virtual_thread"):
            zero = B.const(attr.value.dtype, 0)
            self.analyzer.bind(attr.node.var, Range.from_min_extent(zero, attr.value), True)
            value, body = self.visit(attr.value), self.visit(attr.body)
            return attr if value is attr.value and body is attr.body else attr.with_fields(value=value, body=body)
        return self.default_visit(attr)

    def visit_Block(self, block: Block) -> Block:
        for iv in block.iter_vars:
            if iv.dom is not None:
                self.analyzer.bind(iv.var, iv.dom, True)
        return self.default_visit(block)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        cond = self.visit(node.condition)
        fact = _plain_condition(cond)
        with self._given(fact):
            then = self.visit(node.then_case)
        other = node.else_case
        if other is not None:
            with self._unless(fact):
                other = self.visit(other)
        if isinstance(fact, IntImm):
            return then if fact.value else (Evaluate(0) if other is None else other)
        if cond is node.condition and then is node.then_case and other is node.else_case:
            return node
        return node.with_fields(condition=cond, then_case=then, else_case=other)

    def visit_AssertStmt(self, node: AssertStmt) -> Stmt:
        cond = self.visit(node.condition)
        with self._given(cond):
            body = self.visit(node.body)
        if cond is node.condition and body is node.body:
            return node
        return node.with_fields(condition=cond, body=body)


class ExprAnalyzerMutator(AnalyzerMutator):
    """Visits expressions as well: the branches of conditional values know their condition."""

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        return self.default_visit(e)

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return e

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def _branches(self, cond: PrimExpr, then: PrimExpr, other: PrimExpr) -> tuple[Any, Any]:
        fact = _plain_condition(cond)
        with self._given(fact):
            made = self.visit(then)
        with self._unless(fact):
            return made, self.visit(other)

    def visit_Select(self, e: Select) -> PrimExpr:
        cond = self.visit(e.condition)
        then, other = self._branches(cond, e.true_value, e.false_value)
        if cond is e.condition and then is e.true_value and other is e.false_value:
            return e
        return Select(cond, then, other)

    def visit_Call(self, e: Call) -> PrimExpr:
        if not is_call(e, "if_then_else"):
            return self.default_visit(e)
        cond = self.visit(e.args[0])
        then, other = self._branches(cond, e.args[1], e.args[2])
        if isinstance(cond, IntImm):
            return then if cond.value else other
        same = cond is e.args[0] and then is e.args[1] and other is e.args[2]
        return e if same else e.with_fields(args=(cond, then, other))

    def visit_Let(self, e: Let) -> PrimExpr:
        value = self.visit(e.value)
        if is_pure(value):
            self.analyzer.bind(e.var, value, True)
        body = self.visit(e.body)
        return e if value is e.value and body is e.body else Let(e.var, value, body)


class _InBuffers(Visitor):
    """Variables that buffers mention: their definitions must stay."""

    def __init__(self) -> None:
        self.found: set[Any] = set()

    def visit_Buffer(self, buffer: Buffer) -> None:
        self.found.update(free_vars((buffer.data, buffer.shape, buffer.strides, buffer.elem_offset)))


class StmtSimplifier(AnalyzerMutator):
    """Simplifies expressions and drops branches that conditions decide."""

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        super().__init__(analyzer)
        self.share = Sharing()
        self.lets: dict[Any, Any] = {}
        self.in_buffers: set[Any] = set()

    def run(self, stmt: Stmt) -> Stmt:
        """Simplify a statement."""
        if _has_lets(stmt):
            look = _InBuffers()
            look.visit(stmt)
            self.in_buffers = look.found
        return self.visit(stmt)

    def visit_PrimExpr(self, e: PrimExpr) -> PrimExpr:
        if type(e) in _LEAVES and e not in self.analyzer.rewrite.bindings:
            return e
        # Indices are made by substitution, which repeats what it puts in.
        shared = self.share(e)
        simple = self.analyzer.simplify(shared)
        return e if simple is shared else simple

    def visit_IntImm(self, e: IntImm) -> PrimExpr:
        return e

    def visit_Var(self, e: Var) -> PrimExpr:
        if e.dtype == "bool" and self.analyzer.rewrite.literals:
            return self.analyzer.rewrite_simplify(e)
        return self.analyzer.rewrite.bindings.get(e, e)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def _decided(self, condition: PrimExpr) -> bool | None:
        """Whether a condition certainly holds, or certainly does not."""
        simple = self.analyzer.simplify(condition)
        if self.lets and not isinstance(simple, IntImm):
            simple = self.analyzer.simplify(substitute(condition, self.lets))
        return bool(simple.value) if isinstance(simple, IntImm) else None

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        decided = self._decided(node.condition)
        if decided is None:
            return super().visit_IfThenElse(node)
        if decided:
            return self.visit(node.then_case)
        return self.visit(node.else_case) if node.else_case is not None else Evaluate(0)

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        value = self.visit(node.value)
        constant = isinstance(value, (IntImm, FloatImm, Var))
        if constant or (value.dtype in _INLINED and is_pure(value)):
            # Simplification puts the value in place of the variable; only buffers may still need it.
            self.analyzer.bind(node.var, value, True)
            body = self.visit(node.body)
            if node.var not in self.in_buffers:
                return body
        else:
            if is_pure(value):
                self.lets[node.var] = value
            body = self.visit(node.body)
        return node if value is node.value and body is node.body else node.with_fields(value=value, body=body)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        new = self.default_visit(store)
        value = new.value
        # Storing what is already there does nothing.
        if isinstance(value, BufferLoad) and value.buffer is new.buffer and value.predicate is None:
            if len(value.indices) == len(new.indices) and all(map(B.deep_equal, value.indices, new.indices)):
                return Evaluate(0)
        return new


DEFAULTS = {
    "transitively_prove_inequalities": False,
    "propagate_knowns_to_prove_conditional": False,
    "propagate_knowns_to_simplify_expressions": False,
    "convert_boolean_to_and_of_ors": False,
    "apply_constraints_to_boolean_branches": False,
}
_EXTENSIONS = {
    "transitively_prove_inequalities": Extension.TransitivelyProveInequalities,
    "convert_boolean_to_and_of_ors": Extension.ConvertBooleanToAndOfOrs,
    "apply_constraints_to_boolean_branches": Extension.ApplyConstraintsToBooleanBranches,
}


def _simplifier(chosen: dict[str, Any]) -> StmtSimplifier:
    conditions = bool(chosen.get("propagate_knowns_to_prove_conditional"))
    expressions = bool(chosen.get("propagate_knowns_to_simplify_expressions"))
    if not (conditions or expressions):
        return StmtSimplifier()
    from .simplify_knowns import KnowingSimplifier

    return KnowingSimplifier(conditions, expressions)


def simplify(func: PrimFunc, chosen: dict[str, Any] | None = None) -> PrimFunc:
    """Simplify the body of a function; ``chosen`` holds the options of ``tir.Simplify``."""
    simplifier = _simplifier(chosen or {})
    flags = Extension.NoExtensions
    for name, flag in _EXTENSIONS.items() if chosen else ():
        flags |= flag if chosen and chosen.get(name) else Extension.NoExtensions
    if flags:
        simplifier.analyzer.enabled_extensions = flags
    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            simplifier.analyzer.mark_global_non_neg_value(extent)
    body = simplifier.run(func.body)
    return func if body is func.body else func.with_body(body)


class Simplify(FunctionRewrite):
    """Simplify expressions and remove decided branches.

    Before::

        for i in range(16):
            if i < 20:
                A[i * 1 + 0] = 1.0

    After::

        for i in range(16):
            A[i] = 1.0

    The option ``tir.Simplify`` turns on more: ``transitively_prove_inequalities``, ``convert_boolean_to_and_of_ors``,
    ``apply_constraints_to_boolean_branches``, ``propagate_knowns_to_prove_conditional`` and
    ``propagate_knowns_to_simplify_expressions``.
    """

    def rewrite(self, func: PrimFunc) -> PrimFunc:
        return simplify(func, options("tir.Simplify", DEFAULTS))
