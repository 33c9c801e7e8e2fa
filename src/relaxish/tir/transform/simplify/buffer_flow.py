"""Values of buffers at each statement of a program, found by following stores, assumptions and branches."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from ....arith import Analyzer
from ....arith import build as B
from ....arith.effects import CallEffectKind, side_effect
from ....arith.functor import substitute, uses_var
from ....ir.expr import PrimExpr, Range
from ....ir.functor import Mutator
from ....ir.prim import BinaryOp, Call, EQ, Var
from ...buffer import Buffer
from ...expr import BufferLoad
from ...stmt import (
    AssertStmt, AttrStmt, BlockRealize, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt, While,
)  # fmt: skip
from ..base import StmtExprVisitor, is_call
from .regions import (
    Where,
    conjuncts,
    disjuncts,
    joined,
    negations,
    new_analyzer,
    point,
    project,
    refine,
    subtract_all,
)  # fmt: skip

_MOST_FACTS = 48


@dataclass(frozen=True)
class Fact:
    """``buffer[axes] == value`` for all ``axes`` that satisfy ``where``."""

    buffer: Any
    axes: tuple[Var, ...]
    where: Where
    value: Any

    def at(self, indices: Iterable[Any]) -> tuple[Any, Any]:
        """The condition and the value for one element."""
        values = dict(zip(self.axes, indices))
        return substitute(joined(self.where), values), substitute(self.value, values)


def pure(e: PrimExpr) -> bool:
    """Whether an expression depends on variables only."""
    return side_effect(e) <= CallEffectKind.Pure


class Axes:
    """The variables that number the elements of each buffer."""

    def __init__(self) -> None:
        self._of: dict[Any, tuple[Var, ...]] = {}

    def __call__(self, buffer: Buffer) -> tuple[Var, ...]:
        if buffer not in self._of:
            names = enumerate(buffer.shape)
            self._of[buffer] = tuple(Var(f"{buffer.name}_axis_{i}", extent.dtype) for i, extent in names)
        return self._of[buffer]


class _Insert(Mutator):
    def __init__(self, facts: Iterable[Fact], analyzer: Analyzer) -> None:
        self.facts = list(facts)
        self.analyzer = analyzer

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BufferLoad(self, load: BufferLoad) -> PrimExpr:
        made: Any = self.default_visit(load)
        found: list[tuple[Any, Any]] = []
        for fact in self.facts:
            if fact.buffer is made.buffer and made.predicate is None:
                condition, value = fact.at(made.indices)
                if self.analyzer.can_prove(condition):
                    return value
                found.append((condition, value))
        for _, value in found:
            # Several pieces of knowledge may cover the element together.
            same = [c for c, v in found if B.deep_equal(v, value)]
            whole: Any = B.false()
            for condition in same:
                whole = B.or_(whole, condition)
            if len(same) > 1 and self.analyzer.can_prove(whole):
                return value
        return made


class _FoldZeros(Mutator):
    """Constant folding that simplification leaves to others for floating-point numbers: ``0 * x`` and ``x + 0``."""

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_BinaryOp(self, e: BinaryOp) -> PrimExpr:
        a, b = self.visit(e.a), self.visit(e.b)
        build = B.BUILDERS.get(type(e))
        return e if a is e.a and b is e.b else build(a, b) if build is not None else type(e)(a, b)


def in_context(e: PrimExpr, facts: Iterable[Fact], analyzer: Analyzer) -> PrimExpr:
    """An expression with known loads replaced, simplified under what the analyzer knows."""
    return analyzer.simplify(_FoldZeros().visit(_Insert(facts, analyzer).visit(e)))


class TouchedRegions(StmtExprVisitor):
    """All elements that a statement may write (or read), inner loops projected out; None stands for "anything"."""

    def __init__(self, axes: Axes, analyzer: Analyzer, reads: bool) -> None:
        self.axes = axes
        self.analyzer = analyzer
        self.reads = reads
        self.found: list[tuple[Any, Where]] = []
        self.opaque = False
        self.conditions: list[Any] = []

    def _touch(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> None:
        exact = all(pure(i) for i in indices)
        where = point(self.axes(buffer), indices) if exact else ()
        self.found.append((buffer, (*where, *self.conditions)))

    def visit_BufferStore(self, store: BufferStore) -> None:
        if not self.reads:
            self._touch(store.buffer, store.indices)
        self.visit(store.value)
        self.visit(store.indices)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        if self.reads:
            self._touch(load.buffer, load.indices)
        self.visit(load.indices)

    def visit_Call(self, e: Call) -> None:
        if is_call(e, "assume"):
            return
        if side_effect(e) > CallEffectKind.ReadState:
            self.opaque = True
        for arg in e.args:
            self.visit(arg)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self.visit(stmt.condition)
        if not pure(stmt.condition):
            self.visit(stmt.then_case)
            self.visit(stmt.else_case)
            return
        self.conditions.append(stmt.condition)
        self.visit(stmt.then_case)
        self.conditions[-1] = self.analyzer.rewrite_simplify(B.not_(stmt.condition))
        self.visit(stmt.else_case)
        self.conditions.pop()

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        start = len(self.found)
        self.visit(loop.body)
        inner, self.found = self.found[start:], self.found[:start]
        for buffer, where in inner:
            made = project(where, loop.loop_var, loop.min, loop.min + loop.extent, self.analyzer, True)
            if made is not None:
                self.found.append((buffer, made.where))

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        start = len(self.found)
        self.visit(realize.iter_values)
        self.visit(realize.block.init)
        self.visit(realize.block.body)
        values = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values)}
        self.found[start:] = [(b, tuple(substitute(c, values) for c in w)) for b, w in self.found[start:]]


class _Loads(StmtExprVisitor):
    def __init__(self) -> None:
        self.found: set[Any] = set()

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.found.add(load.buffer.data)
        self.visit(load.indices)


def read_variables(body: Stmt) -> set[Any]:
    """The variables of the buffers that a statement loads from."""
    loads = _Loads()
    loads.visit(body)
    return loads.found


class BufferFlow(StmtExprVisitor):
    """Follows a program; :meth:`before` then tells what is known where a statement begins.

    With ``read``, what is asked is the value of loads of these variables only, and nothing else is remembered.
    """

    def __init__(self, read: Container[Any] | None = None) -> None:
        self.read = read
        self.axes = Axes()
        self.analyzer = new_analyzer()
        self.facts: list[Fact] = []
        self.looking_ahead = False
        self._before: dict[Any, list[Fact]] = {}

    def before(self, stmt: Stmt) -> list[Fact]:
        """Known values of buffers at the beginning of ``stmt``."""
        return self._before.get(stmt, [])

    def knows(self, stmt: Stmt) -> bool:
        """Whether ``stmt`` is a statement of the program."""
        return stmt in self._before

    def visit_Stmt(self, stmt: Stmt) -> None:
        self._enter(stmt)
        self.default_visit(stmt)

    def visit_PrimExpr(self, e: PrimExpr) -> None:
        return

    def _enter(self, stmt: Stmt) -> None:
        self._before[stmt] = self.facts

    def _regions(self, stmt: Stmt) -> TouchedRegions:
        found = TouchedRegions(self.axes, self.analyzer, False)
        found.visit(stmt)
        return found

    # -- single statements -----------------------------------------------------------------------------------

    def _without(self, facts: Iterable[Fact], regions: list[tuple[Any, Where]]) -> list[Fact]:
        out: list[Fact] = []
        for fact in facts:
            mine = [where for buffer, where in regions if buffer.data is fact.buffer.data]
            if not mine:
                out.append(fact)
            elif all(buffer is fact.buffer for buffer, _ in regions if buffer.data is fact.buffer.data):
                for piece in subtract_all(fact.where, mine, self.analyzer):
                    out.append(fact if piece is fact.where else replace(fact, where=piece))
        return out[:_MOST_FACTS]

    def _learn(self, buffer: Buffer, where: Where, value: PrimExpr) -> None:
        made = None if self.read is not None and buffer.data not in self.read else refine(where, self.analyzer)
        if made is not None:
            self.facts = [*self.facts, Fact(buffer, self.axes(buffer), made, value)][-_MOST_FACTS:]

    def visit_BufferStore(self, store: BufferStore) -> None:
        self._enter(store)
        if self.read is not None and store.buffer.data not in self.read:
            return
        value = store.value if pure(store.value) else in_context(store.value, self.facts, self.analyzer)
        exact = all(pure(i) for i in store.indices) and store.predicate is None
        where = point(self.axes(store.buffer), store.indices) if exact else ()
        self.facts = self._without(self.facts, [(store.buffer, where)])
        if exact and value.dtype == store.buffer.dtype:
            for guards, part in self._alternatives(value):
                if pure(part):
                    self._learn(store.buffer, (*where, *guards), part)

    def _alternatives(self, value: PrimExpr) -> list[tuple[list[Any], Any]]:
        """A conditional value that reads memory, by its sides; other values as they are."""
        if pure(value) or not is_call(value, "if_then_else") or not pure(value.args[0]):
            return [([], value)]
        condition, then, other = value.args
        out: list[tuple[list[Any], Any]] = [(conjuncts(condition), then)]
        held: list[Any] = []
        for part in conjuncts(condition):
            out += [([*held, negated], other) for negated in negations(part, self.analyzer)]
            held.append(part)
        return out

    def visit_Evaluate(self, stmt: Evaluate) -> None:
        self._enter(stmt)
        if is_call(stmt.value, "assume"):
            self.assume(stmt.value.args[0])
        elif side_effect(stmt.value) > CallEffectKind.ReadState:
            self.facts = []

    def assume(self, condition: PrimExpr) -> None:
        """Learn from a condition that holds: clauses of the form ``... or buffer[indices] == value``."""
        for clause in conjuncts(condition):
            parts = disjuncts(clause)
            loads = [p for p in parts if not pure(p)]
            if len(loads) != 1 or not isinstance(loads[0], EQ):
                continue
            load, value = loads[0].a, loads[0].b
            if not isinstance(load, BufferLoad):
                load, value = value, load
            if not isinstance(load, BufferLoad) or not pure(value) or not all(map(pure, load.indices)):
                continue
            guards: list[Any] = []
            for part in parts:
                if part is not loads[0]:
                    guards += conjuncts(self.analyzer.rewrite_simplify(B.not_(part)))
            self._learn(load.buffer, (*point(self.axes(load.buffer), load.indices), *guards), value)

    # -- scopes ----------------------------------------------------------------------------------------------

    def visit_SeqStmt(self, stmt: SeqStmt) -> None:
        self._enter(stmt)
        with ExitStack() as held:
            for part in stmt.seq:
                self.visit(part)
                assumed = getattr(part, "value", None)
                if is_call(assumed, "assume"):
                    for condition in conjuncts(assumed.args[0]):
                        if pure(condition):
                            held.enter_context(self.analyzer.constraint_scope(condition))

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        self._enter(stmt)
        with ExitStack() as held:
            if pure(stmt.condition):
                held.enter_context(self.analyzer.constraint_scope(stmt.condition))
            self.visit(stmt.body)

    def visit_AttrStmt(self, stmt: AttrStmt) -> None:
        self._enter(stmt)
        if stmt.attr_key in ("thread_extent", "virtual_thread"):
            zero = B.const(stmt.value.dtype, 0)
            self.analyzer.bind(stmt.node.var, Range.from_min_extent(zero, stmt.value), True)
        self.visit(stmt.body)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self._enter(stmt)
        self._inside(stmt.body, {stmt.var: stmt.value} if pure(stmt.value) else {}, [stmt.var])

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        self._enter(realize)
        block = realize.block
        values = {iv.var: v for iv, v in zip(block.iter_vars, realize.iter_values)}
        self._before[block] = self.facts
        for iv in block.iter_vars:
            self.analyzer.bind(iv.var, iv.dom, True)
        if block.init is not None:
            written = self._regions(block.init)
            self.facts = self._without(self.facts, written.found)
        self._inside(block.body, values, list(values))

    def _inside(self, body: Stmt, values: dict[Any, Any], variables: list[Any]) -> None:
        """A body in which variables stand for values; what is known after it no longer mentions them."""
        with ExitStack() as held:
            for var, value in values.items():
                held.enter_context(self.analyzer.constraint_scope(EQ(var, value)))
            self.visit(body)
        out = []
        for fact in self.facts:
            if any(uses_var((fact.where, fact.value), v) for v in variables):
                where = tuple(substitute(c, values) for c in fact.where)
                fact = replace(fact, where=where, value=substitute(fact.value, values))
            if not any(uses_var((fact.where, fact.value), v) for v in variables):
                out.append(fact)
        self.facts = out

    def visit_While(self, stmt: While) -> None:
        written = self._regions(stmt.body)
        self.facts = [] if written.opaque else self._without(self.facts, [(b, ()) for b, _ in written.found])
        self._enter(stmt)
        kept = self.facts
        self.visit(stmt.body)
        self.facts = kept

    # -- branches --------------------------------------------------------------------------------------------

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self._enter(stmt)
        condition = stmt.condition.args[0] if is_call(stmt.condition, "likely") else stmt.condition
        known = [c for c in conjuncts(condition) if pure(c)]
        start = self.facts
        with ExitStack() as held:
            for part in known:
                held.enter_context(self.analyzer.constraint_scope(part))
            self.assume(condition)
            self.visit(stmt.then_case)
        then, self.facts = self.facts, start
        if stmt.else_case is not None:
            with ExitStack() as held:
                if pure(condition):
                    opposite = self.analyzer.rewrite_simplify(B.not_(condition))
                    held.enter_context(self.analyzer.constraint_scope(opposite))
                self.visit(stmt.else_case)
        self.facts = self._merge(condition, then, self.facts)

    def _merge(self, condition: PrimExpr, then: list[Fact], other: list[Fact]) -> list[Fact]:
        out = [f for f in then if f in other]
        then, other = [f for f in then if f not in out], [f for f in other if f not in out]
        for fact in list(then):
            twin = next((f for f in other if _same(f, fact)), None)
            if twin is not None:
                out.append(fact)
                then.remove(fact)
                other.remove(twin)
        if pure(condition):
            for fact in then:
                self._add(out, fact, conjuncts(condition))
            for fact in other:
                self._outside(out, fact, condition)
        return out[:_MOST_FACTS]

    def _outside(self, out: list[Fact], fact: Fact, condition: PrimExpr) -> None:
        held: list[Any] = []
        for part in conjuncts(condition):
            for negated in negations(part, self.analyzer):
                self._add(out, fact, [*held, negated])
            held.append(part)

    def _add(self, out: list[Fact], fact: Fact, conditions: list[Any]) -> None:
        where = refine((*fact.where, *conditions), self.analyzer)
        if where is not None:
            out.append(replace(fact, where=where))

    # -- loops -----------------------------------------------------------------------------------------------

    def visit_For(self, loop: For) -> None:
        self._enter(loop)
        var, low = loop.loop_var, loop.min
        high = self.analyzer.simplify(low + loop.extent)
        written = self._regions(loop.body)
        start = [] if written.opaque else self.facts
        self.analyzer.bind(var, Range.from_min_extent(low, loop.extent), True)
        kept = self._without(start, self._earlier(written.found, var, low, var))
        self.facts = kept
        if not self.looking_ahead and not written.opaque:
            # What earlier iterations leave is found without asking the same of the loops within: each loop would be
            # followed twice for every loop around it.
            self.looking_ahead = True
            self.visit(loop.body)
            self.looking_ahead = False
            self.facts = [*kept, *self._generalize(self.facts, written.found, var, low, var)]
        self.visit(loop.body)
        self.analyzer.unbind(var)
        if written.opaque:
            self.facts = []
            return
        learned = self._generalize(self.facts, written.found, var, low, high)
        after = self._without(start, self._earlier(written.found, var, low, high))
        self.facts = [*after, *(f for f in learned if not any(_same(f, g) for g in after))][:_MOST_FACTS]

    def _earlier(
        self, regions: list[tuple[Any, Where]], var: Var, low: PrimExpr, high: PrimExpr
    ) -> list[tuple[Any, Where]]:
        """What the iterations in ``[low, high)`` touch."""
        out = []
        fresh = Var(var.name, var.dtype)
        for buffer, where in regions:
            renamed = tuple(substitute(c, {var: fresh}) for c in where)
            made = project(renamed, fresh, low, high, self.analyzer, True)
            if made is not None:
                out.append((buffer, made.where))
        return out

    def _generalize(
        self, facts: list[Fact], regions: list[tuple[Any, Where]], var: Var, low: PrimExpr, high: PrimExpr
    ) -> list[Fact]:
        """What holds once all iterations in ``[low, high)`` have run, from what holds at the end of each."""
        touched = {buffer.data for buffer, _ in regions}
        out: list[Fact] = []
        fresh = Var(var.name, var.dtype)
        for fact in facts:
            mentions = uses_var((fact.where, fact.value), var)
            if not mentions and fact.buffer.data not in touched:
                continue
            renamed = replace(
                fact, where=tuple(substitute(c, {var: fresh}) for c in fact.where),
                value=substitute(fact.value, {var: fresh}),
            )  # fmt: skip
            with self.analyzer.constraint_scope(B.and_(B.le(low, fresh), B.lt(fresh, high))):
                pieces = self._without([renamed], self._earlier(regions, var, fresh + 1, high))
            for piece in pieces:
                made = project(piece.where, fresh, low, high, self.analyzer, False)
                if made is None:
                    continue
                value = piece.value
                if uses_var(value, fresh):
                    if made.value is None:
                        continue
                    value = self.analyzer.simplify(substitute(value, {fresh: made.value}))
                out.append(replace(piece, where=made.where, value=value))
        return out


def _same(a: Fact, b: Fact) -> bool:
    return (
        a.buffer is b.buffer and len(a.where) == len(b.where) and B.deep_equal(a.value, b.value)
        and all(map(B.deep_equal, a.where, b.where))
    )  # fmt: skip
