"""What ``T.assume`` says of buffer contents, and what follows for the branches of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer
from ...arith import build as B
from ...arith.effects import CallEffectKind, side_effect
from ...arith.functor import free_vars, substitute
from ...ir.expr import Range
from ...ir.functor import Mutator
from ...ir.prim import EQ, And, Or, Var
from ..expr import BufferLoad
from ..stmt import BufferStore, Evaluate, For, SeqStmt
from .base import StmtExprVisitor, is_call


@dataclass(frozen=True)
class Known:
    """``buffer[index] == value`` wherever ``condition`` holds; both are written in the variables ``index``."""

    buffer: Any
    index: tuple[Var, ...]
    condition: Any
    value: Any


def _disjuncts(e: Any) -> list[Any]:
    return [*_disjuncts(e.a), *_disjuncts(e.b)] if type(e) is Or else [e]


def _conjuncts(e: Any) -> list[Any]:
    return [*_conjuncts(e.a), *_conjuncts(e.b)] if type(e) is And else [e]


def _equation(e: Any) -> tuple[Any, Any] | None:
    """A comparison of a load with a constant."""
    if type(e) is not EQ:
        return None
    for load, value in ((e.a, e.b), (e.b, e.a)):
        if isinstance(load, BufferLoad) and not free_vars(value):
            return load, value
    return None


class _Assumptions(StmtExprVisitor):
    """Collects the facts that hold for all iterations of the loops around an assumption."""

    def __init__(self) -> None:
        self.found: list[Known] = []
        self.written: set[Any] = set()
        self.loops: dict[Any, Range] = {}

    def visit_For(self, loop: For) -> None:
        self.loops[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        self.visit(loop.body)
        del self.loops[loop.loop_var]

    def visit_BlockRealize(self, realize: Any) -> None:
        block = realize.block
        for iv, value in zip(block.iter_vars, realize.iter_values):
            full = isinstance(value, Var) and value in self.loops
            if full:
                self.loops[iv.var] = self.loops[value]
        self.visit(block.body)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.written.add(store.buffer)

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        value: Any = stmt.value
        if is_call(value, "assume"):
            for clause in _conjuncts(value.args[0]):
                self._clause(clause)

    def _clause(self, clause: Any) -> None:
        parts = _disjuncts(clause)
        for i, part in enumerate(parts):
            found = _equation(part)
            if found is None:
                continue
            load, value = found
            index = tuple(load.indices)
            distinct = len(set(index)) == len(index) and all(isinstance(v, Var) and v in self.loops for v in index)
            rest = parts[:i] + parts[i + 1 :]
            if distinct and all(side_effect(e) <= CallEffectKind.Pure for e in rest):
                condition: Any = B.true()
                for other in rest:
                    condition = B.and_(condition, B.not_(other))
                self.found.append(Known(load.buffer, index, condition, value))
            return


def assumptions(stmt: Any) -> list[Known]:
    """The facts that the assumptions of a statement state, in order."""
    collect = _Assumptions()
    collect.visit(stmt)
    return collect.found


class _Insert(Mutator):
    """Replaces loads by what is known of them."""

    def __init__(self, facts: list[Known], analyzer: Analyzer) -> None:
        self.facts = facts
        self.analyzer = analyzer

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        for fact in reversed(self.facts):
            if fact.buffer is not load.buffer:
                continue
            condition = substitute(fact.condition, dict(zip(fact.index, load.indices)))
            if self.analyzer.can_prove(self.analyzer.simplify(condition)):
                return fact.value
        return self.default_visit(load)


def in_context(e: Any, facts: list[Known], analyzer: Analyzer) -> Any:
    """An expression with known loads replaced, simplified under what the analyzer knows."""
    return analyzer.simplify(_fold_zeros(_Insert(facts, analyzer).visit(e)))


class _FoldZeros(Mutator):
    """Constant folding that simplification leaves to others for floating-point numbers: ``0 * x`` and ``x + 0``."""

    def visit_Buffer(self, buffer: Any) -> Any:
        return buffer

    def visit_BinaryOp(self, e: Any) -> Any:
        a, b = self.visit(e.a), self.visit(e.b)
        build = B.BUILDERS.get(type(e))
        return e if a is e.a and b is e.b else build(a, b) if build is not None else type(e)(a, b)


def _fold_zeros(e: Any) -> Any:
    return _FoldZeros().visit(e)


def changes_nothing(stmt: Any, condition: Any, facts: list[Known], analyzer: Analyzer) -> bool:
    """Whether running ``stmt`` where ``condition`` does not hold would leave all memory as it is."""
    with analyzer.constraint_scope(B.not_(condition)):
        return _no_effect(stmt, facts, analyzer)


def _no_effect(stmt: Any, facts: list[Known], analyzer: Analyzer) -> bool:
    if isinstance(stmt, SeqStmt):
        return all(_no_effect(s, facts, analyzer) for s in stmt.seq)
    if isinstance(stmt, For):
        analyzer.bind(stmt.loop_var, Range.from_min_extent(stmt.min, stmt.extent), True)
        return _no_effect(stmt.body, facts, analyzer)
    if isinstance(stmt, Evaluate):
        return side_effect(stmt.value) <= CallEffectKind.ReadState or is_call(stmt.value, "assume")
    if not isinstance(stmt, BufferStore):
        return False
    value = in_context(stmt.value, facts, analyzer)
    own = BufferLoad(stmt.buffer, stmt.indices)
    if B.deep_equal(value, analyzer.simplify(own)) or B.deep_equal(value, own):
        return True
    return B.deep_equal(value, in_context(own, facts, analyzer))
