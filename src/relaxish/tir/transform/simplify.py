"""Simplify: arithmetic simplification of every expression, under what loops and conditions say.

Before: ``for i in range(16): if i < 20: A[i * 4 + 0] = ...``.
After: ``for i in range(16): A[i * 4] = ...``.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer, Extension
from ...arith import build as B
from ...arith.effects import is_pure
from ...ir.expr import Range
from ...ir.functor import Mutator
from ...ir.prim import FloatImm, IntImm, SizeVar, Var
from ..function import PrimFunc
from ..stmt import AssertStmt, AttrStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt
from .base import PrimFuncPass, func_pass, is_noop, options, seq

_LEAVES = (Var, SizeVar, IntImm, FloatImm)


class AnalyzerMutator(Mutator):
    """A statement mutator whose analyzer knows the enclosing loops, lets, threads and conditions."""

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        self.analyzer = analyzer or Analyzer()

    def visit_For(self, loop: For) -> Any:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        self.analyzer.bind(loop.loop_var, Range.from_min_extent(low, extent), True)
        body = self.visit(loop.body)
        if low is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return loop.with_fields(min=low, extent=extent, body=body)

    def visit_AttrStmt(self, attr: AttrStmt) -> Any:
        if attr.attr_key in ("thread_extent", "virtual_thread"):
            zero = B.const(attr.value.dtype, 0)
            self.analyzer.bind(attr.node.var, Range.from_min_extent(zero, attr.value), True)
            body = self.visit(attr.body)
            return attr if body is attr.body else attr.with_fields(body=body)
        return self.default_visit(attr)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        cond = self.visit(node.condition)
        with self.analyzer.constraint_scope(cond):
            then = self.visit(node.then_case)
        other = node.else_case
        if other is not None:
            with self.analyzer.constraint_scope(B.not_(cond)):
                other = self.visit(other)
        if cond is node.condition and then is node.then_case and other is node.else_case:
            return node
        return node.with_fields(condition=cond, then_case=then, else_case=other)

    def visit_AssertStmt(self, node: AssertStmt) -> Any:
        cond = self.visit(node.condition)
        with self.analyzer.constraint_scope(cond):
            body = self.visit(node.body)
        if cond is node.condition and body is node.body:
            return node
        return node.with_fields(condition=cond, body=body)


class StmtSimplifier(AnalyzerMutator):
    """Simplifies expressions and drops branches that conditions decide."""

    def visit_PrimExpr(self, e: Any) -> Any:
        if type(e) in _LEAVES and e not in self.analyzer.rewrite.bindings:
            return e
        return self.analyzer.simplify(e)

    def visit_IntImm(self, e: Any) -> Any:
        return e

    def visit_Var(self, e: Any) -> Any:
        return self.analyzer.rewrite.bindings.get(e, e)

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_For(self, loop: For) -> Any:
        extent = self.visit(loop.extent)
        if isinstance(extent, IntImm) and extent.value <= 0:
            return Evaluate(0)
        return super().visit_For(loop)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        cond = self.visit(node.condition)
        if isinstance(cond, IntImm):
            if cond.value:
                return self.visit(node.then_case)
            return self.visit(node.else_case) if node.else_case is not None else Evaluate(0)
        return super().visit_IfThenElse(node if cond is node.condition else node.with_fields(condition=cond))

    def visit_LetStmt(self, node: LetStmt) -> Any:
        value = self.visit(node.value)
        if isinstance(value, (IntImm, Var)) and is_pure(value):
            self.analyzer.bind(node.var, value, True)
            return self.visit(node.body)
        if value.dtype in ("int32", "int64") and is_pure(value):
            bounds = self.analyzer.const_int_bound
            bounds.update(node.var, bounds.bound(value), True)
            self.analyzer._forget()
        body = self.visit(node.body)
        return node if value is node.value and body is node.body else node.with_fields(value=value, body=body)

    def visit_AssertStmt(self, node: AssertStmt) -> Any:
        cond = self.visit(node.condition)
        if isinstance(cond, IntImm) and cond.value:
            return self.visit(node.body)
        return super().visit_AssertStmt(node)

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        new = self.default_visit(node)
        if new is not node or any(is_noop(s) for s in node.seq):
            return seq(list(new.seq)) if isinstance(new, SeqStmt) else new
        return node

    def visit_BufferStore(self, store: BufferStore) -> Any:
        new = self.default_visit(store)
        value = new.value
        # Storing what is already there does nothing.
        if type(value).__name__ == "BufferLoad" and value.buffer is new.buffer and value.predicate is None:
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


def simplify(func: PrimFunc, chosen: dict[str, Any] | None = None) -> PrimFunc:
    """Simplify the body of a function; ``chosen`` holds the options of ``tir.Simplify``."""
    simplifier = StmtSimplifier()
    flags = Extension.NoExtensions
    for name, flag in _EXTENSIONS.items() if chosen else ():
        flags |= flag if chosen and chosen.get(name) else Extension.NoExtensions
    if flags:
        simplifier.analyzer.enabled_extensions = flags
    for buffer in func.buffer_map.values():
        for extent in buffer.shape:
            simplifier.analyzer.mark_global_non_neg_value(extent)
    body = simplifier.visit(func.body)
    return func if body is func.body else func.with_body(body)


def Simplify() -> PrimFuncPass:  # noqa: N802
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

    def run(func: PrimFunc) -> PrimFunc:
        return simplify(func, options("tir.Simplify", DEFAULTS))

    return func_pass(run, "tir.Simplify")
