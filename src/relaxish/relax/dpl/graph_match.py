"""Matching a PatternContext against a dataflow block.

Patterns and bound values are two graphs whose edges are uses.  Every pattern without a producer is tried on every
value; from there the match grows along the use constraints, and is taken back where it gets stuck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.op import Op
from ..expr import (
    Call,
    Constant,
    DataTypeImm,
    DataflowBlock,
    Expr,
    Function,
    If,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from .context import PatternContext
from .matcher import Matcher
from .pattern import DFPattern, WildcardPattern

__all__ = ["match_graph"]

_Match = dict[DFPattern, Any]


def _operands(value: Expr) -> list[Any]:
    """Leaves used by a value, in order, repeats included; callees that are functions of the module do not count."""
    match value:
        case Var() | Constant() | ShapeExpr() | PrimValue() | StringImm() | DataTypeImm():
            return [value]
        case Call():
            callee = [] if isinstance(value.op, Op) else _operands(value.op)
            return callee + [leaf for arg in value.args for leaf in _operands(arg)]
        case Tuple():
            return [leaf for item in value.fields for leaf in _operands(item)]
        case TupleGetItem():
            return _operands(value.tuple_value)
        case If() | Function():
            from ..analysis.variables import free_vars

            return list(free_vars(value))
    return []


class _Uses:
    """Who uses what in the block."""

    def __init__(self, bindings: Sequence[Any]) -> None:
        self.users: dict[Any, list[Var]] = {}
        self.operands: dict[Any, list[Any]] = {}
        order: dict[Any, None] = {}
        for binding in bindings:
            operands = self.operands[binding.var] = _operands(binding.value)
            for operand in operands:
                users = self.users.setdefault(operand, [])
                if binding.var not in users:
                    users.append(binding.var)
                order[operand] = None
            order[binding.var] = None
        self.order = list(order)


class _GraphMatcher:
    def __init__(self, context: PatternContext, bindings: Sequence[Any], var2val: Mapping[Var, Any]) -> None:
        self.context = context
        self.uses = _Uses(bindings)
        self.matcher = Matcher(var2val)
        self.patterns: dict[DFPattern, None] = {}
        consumers: set[DFPattern] = set()
        for producer, uses in context.edges.items():
            self.patterns[producer] = None
            for consumer in uses:
                self.patterns[consumer] = None
                consumers.add(consumer)
        self.roots = [p for p in self.patterns if p not in consumers]

    def single(self, pattern: DFPattern, node: Expr) -> bool:
        self.matcher.memo = {}
        return self.matcher.match(pattern, node)

    def grow(self, pattern: DFPattern, node: Expr, matched: _Match, taken: set[Any]) -> _Match | None:
        """Everything that follows from ``pattern`` matching ``node``, or None."""
        if not self.single(pattern, node):
            return None
        found: _Match = {pattern: node}
        for consumer, demands in self.context.edges.get(pattern, {}).items():
            step = self._along(consumer, demands, node, {**matched, **found}, taken | set(found.values()))
            if step is None:
                return None
            found.update(step)
        return found

    def _along(
        self, consumer: DFPattern, demands: list[tuple[bool, int]], node: Expr, matched: _Match, taken: set[Any]
    ) -> _Match | None:
        users = self.uses.users.get(node, [])
        if consumer in matched:
            return {} if matched[consumer] in users and self._allowed(demands, node, matched[consumer]) else None
        for user in users:
            if user in taken or not self._allowed(demands, node, user):
                continue
            step = self.grow(consumer, user, matched, taken)
            if step is not None:
                return step
        return None

    def _allowed(self, demands: list[tuple[bool, int]], node: Expr, user: Var) -> bool:
        operands = self.uses.operands[user]
        for only, index in demands:
            if only and len(self.uses.users.get(node, ())) != 1:
                return False
            if index != -1 and (index >= len(operands) or operands[index] is not node):
                return False
        return True

    def run(self, position: int, matched: _Match) -> _Match | None:
        """Match the roots from ``position`` on, given what has matched."""
        while position < len(self.roots) and self.roots[position] in matched:
            position += 1
        if position == len(self.roots):
            return matched
        taken = set(matched.values())
        root = self.roots[position]
        if _is_hole(root):
            # ``matmul >> relu(wildcard())``: the wildcard stands for what another pattern matches.
            taken = {node for pattern, node in matched.items() if _is_hole(pattern)}
        for node in self.uses.order:
            if node in taken:
                continue
            step = self.grow(root, node, matched, taken)
            if step is None:
                continue
            together = {**matched, **step}
            if not all(rule.holds(together) for rule in self.context.validations):
                continue
            rest = self.run(position + 1, together)
            if rest is not None:
                return rest
        return None


def _is_hole(pattern: DFPattern) -> bool:
    return isinstance(pattern, WildcardPattern) and pattern.pattern is None


def match_graph(
    context: PatternContext, dfb: DataflowBlock, var2val: Mapping[Var, Any] | None = None
) -> dict[DFPattern, Var] | None:
    """A match of every pattern of the context to a variable of the block, or None."""
    if var2val is None:
        var2val = {b.var: b.value for b in dfb.bindings}
    return _GraphMatcher(context, dfb.bindings, var2val).run(0, {})
