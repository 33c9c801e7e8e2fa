"""Indices of buffer accesses in simplest form, where loops, block variables and conditions around them are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...ir.op import op_name_of
from ...arith import Analyzer, IterMapLevel, iter_map_simplify
from ...ir.expr import PrimExpr, Range
from ...ir.functor import Mutator
from ...ir.prim import IterVar, const
from ..buffer import Buffer
from ..expr import BufferLoad, Call, IntImm, Not, Select, Var
from ..stmt import Block, BufferRegion, BufferStore, For, Stmt
from .subst import and_predicate
from .walk import vars_in

__all__ = ["AccessMutator", "AccessSimplifier"]


class AccessMutator(Mutator):
    """A rewriting that learns domains and conditions on its way, for :meth:`simplest`."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.ranges: dict[Any, Range] = {}
        self.conditions: list[Any] = []

    def simplest(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Indices as what they are: maps of loops and block variables.

        A variable of one value stays: it tells later steps what the dimension belongs to.
        """
        if all(isinstance(e, (Var, IntImm)) for e in indices):
            return tuple(indices)
        used = set(vars_in(tuple(indices)))
        predicate = const(True, "bool")
        for condition in self.conditions:
            predicate = and_predicate(predicate, condition)
            used |= set(vars_in(condition))
        known = {v: r for v, r in self.ranges.items() if v in used}
        made = iter_map_simplify(indices, known, predicate, check_level=IterMapLevel.Surjective)
        return tuple(
            old if isinstance(new, IntImm) and isinstance(old, Var) else new
            for old, new in zip(indices, made, strict=True)
        )

    def learn(self, var: Var, dom: Range) -> None:
        """The domain of a loop or block variable."""
        self.analyzer.bind(var, dom, True)
        self.ranges[var] = dom

    @contextmanager
    def _given(self, condition: PrimExpr) -> Iterator[None]:
        matters = any(v in self.ranges for v in vars_in(condition))
        self.conditions += [condition] if matters else []
        yield
        if matters:
            self.conditions.pop()

    def visit_For(self, node: For) -> Stmt:
        self.learn(node.loop_var, Range.from_min_extent(self.visit(node.min), self.visit(node.extent)))
        return self.default_visit(node)

    def visit_IterVar(self, node: IterVar) -> IterVar:
        if node.dom is None:
            return node
        # Domains of inner blocks may begin at variables of outer ones.
        dom = self.visit(node.dom)
        self.learn(node.var, dom)
        return node if dom is node.dom else node.with_fields(dom=dom)

    def visit_Select(self, node: Select) -> PrimExpr:
        condition = self.visit(node.condition)
        with self._given(condition):
            then = self.visit(node.true_value)
        with self._given(Not(condition)):
            other = self.visit(node.false_value)
        return node.with_fields(condition=condition, true_value=then, false_value=other)

    def visit_Call(self, node: Call) -> PrimExpr:
        if op_name_of(node) != "tir.if_then_else":
            return self.default_visit(node)
        condition = self.visit(node.args[0])
        with self._given(condition):
            then = self.visit(node.args[1])
        with self._given(Not(condition)):
            other = self.visit(node.args[2])
        return node.with_fields(args=(condition, then, other))


class AccessSimplifier(AccessMutator):
    """Replaces variables and simplifies the indices of all accesses below, values and conditions being left alone."""

    def __init__(self, values: dict[Any, Any]) -> None:
        super().__init__()
        self.values = values

    def visit_Var(self, node: Var) -> PrimExpr:
        return self.values.get(node, node)

    def visit_Buffer(self, node: Buffer) -> Buffer:
        return node

    def visit_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return node.with_fields(indices=self.simplest(self.visit(node.indices)))

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        return node.with_fields(value=self.visit(node.value), indices=self.simplest(self.visit(node.indices)))

    def visit_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        lows = self.simplest(self.visit(tuple(d.min for d in node.region)))
        extents = (self.analyzer.simplify(self.visit(d.extent)) for d in node.region)
        region = tuple(Range.from_min_extent(low, e) for low, e in zip(lows, extents, strict=True))
        return BufferRegion(node.buffer, region)

    def visit_Block(self, node: Block) -> Block:
        for iv in node.iter_vars:
            self.visit_IterVar(iv)
        return self.default_visit(node)
