"""ReduceBranchingThroughOvercompute and UseAssumeToReduceBranches: computing more, to branch less."""

from __future__ import annotations

from typing import Any

from ...arith import build as B
from ...arith.effects import CallEffectKind, side_effect
from ..function import PrimFunc
from ..stmt import BufferStore, IfThenElse
from .base import PrimFuncPass, func_pass, is_call
from .known_values import Known, assumptions, changes_nothing, in_context
from .simplify import AnalyzerMutator


class _Known(AnalyzerMutator):
    """A mutator that knows the loops around it and what is assumed of buffers."""

    def __init__(self, facts: list[Known]) -> None:
        super().__init__()
        self.facts = facts

    def visit_PrimExpr(self, e: Any) -> Any:
        return e

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_BlockRealize(self, realize: Any) -> Any:
        block = realize.block
        for iv, value in zip(block.iter_vars, realize.iter_values):
            self.analyzer.bind(iv.var, iv.dom if iv.dom is not None else value, True)
        return self.default_visit(realize)


class _Overcompute(_Known):
    def visit_IfThenElse(self, stmt: IfThenElse) -> Any:
        pure = side_effect(stmt.condition) <= CallEffectKind.Pure
        if stmt.else_case is None and pure and changes_nothing(stmt.then_case, stmt.condition, self.facts, self.analyzer):
            return self.visit(stmt.then_case)
        return super().visit_IfThenElse(stmt)


def overcompute(func: PrimFunc) -> PrimFunc:
    """Remove branches of a function whose other side would do nothing anyway."""
    body = _Overcompute(assumptions(func.body)).visit(func.body)
    return func if body is func.body else func.with_body(body)


def ReduceBranchingThroughOvercompute() -> PrimFuncPass:  # noqa: N802
    """Run the body of a branch also where its condition does not hold, if that is known to change nothing.

    Before::

        for i in range(16):
            T.evaluate(T.assume(i < 14 or A[i] == 0))
        for i in range(16):
            if i < 14:
                B[0] = B[0] + A[i]

    After::

        for i in range(16):
            T.evaluate(T.assume(i < 14 or A[i] == 0))
        for i in range(16):
            B[0] = B[0] + A[i]
    """
    return func_pass(overcompute, "tir.ReduceBranchingThroughOvercompute")


class _UseAssume(_Known):
    def visit_BufferStore(self, store: BufferStore) -> Any:
        value: Any = store.value
        if not is_call(value, "if_then_else") or side_effect(value.args[0]) > CallEffectKind.Pure:
            return store
        condition, then, other = value.args
        with self.analyzer.constraint_scope(B.not_(condition)):
            outside = in_context(then, self.facts, self.analyzer)
            same = B.deep_equal(outside, self.analyzer.simplify(other))
        if not same:
            return store
        # What the padding of this buffer holds is now known to those who read it.
        if len(set(store.indices)) == len(store.indices) and all(hasattr(i, "name") for i in store.indices):
            index: Any = tuple(store.indices)
            self.facts = [*self.facts, Known(store.buffer, index, B.not_(condition), other)]
        return store.with_fields(value=then)


def use_assumptions(func: PrimFunc) -> PrimFunc:
    """Remove conditional values of a function whose two sides agree by assumption."""
    facts = assumptions(func.body)
    if not facts:
        return func
    body = _UseAssume(facts).visit(func.body)
    return func if body is func.body else func.with_body(body)


def UseAssumeToReduceBranches() -> PrimFuncPass:  # noqa: N802
    """Drop ``T.if_then_else`` where the value computed from assumed padding is the other side anyway.

    Before (``A`` assumed to be 0 beyond 14)::

        B[i] = T.if_then_else(i < 14, A[i] * 2.0, 0.0)

    After::

        B[i] = A[i] * 2.0
    """
    return func_pass(use_assumptions, "tir.UseAssumeToReduceBranches")
