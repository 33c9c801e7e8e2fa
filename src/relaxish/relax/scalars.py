"""Scalar expressions at the graph level: proving equality, substituting, collecting variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..arith.analyzer import Analyzer
from ..ir.expr import PrimExpr
from ..ir.functor import Mutator, Visitor
from ..ir.prim import IntImm
from ..ir.prim import const_int as const_int
from ..ir.prim import Var as TirVar

__all__ = [
    "const_int",
    "fresh_analyzer",
    "prim_vars",
    "product",
    "prove_equal",
    "prove_equal_shapes",
    "rename_prim",
    "simplify",
    "substitute_prim",
]


def fresh_analyzer() -> Analyzer:
    """A new arithmetic analyzer."""
    from ..arith import Analyzer

    return Analyzer()


class _Shared:
    analyzer: Any = None


def _shared() -> Analyzer:
    if _Shared.analyzer is None:
        _Shared.analyzer = fresh_analyzer()
    return _Shared.analyzer


def prove_equal(lhs: PrimExpr | int, rhs: PrimExpr | int, analyzer: Analyzer | None = None) -> bool:
    """Whether both are provably equal."""
    if lhs is rhs:
        return True
    left, right = const_int(lhs), const_int(rhs)
    if left is not None and right is not None:
        return left == right
    if isinstance(lhs, TirVar) and isinstance(rhs, (TirVar, IntImm)) and analyzer is None:
        return False
    if isinstance(rhs, TirVar) and isinstance(lhs, IntImm) and analyzer is None:
        return False
    return bool((analyzer or _shared()).can_prove_equal(lhs, rhs))


def prove_equal_shapes(
    lhs: Iterable[PrimExpr | int], rhs: Iterable[PrimExpr | int], analyzer: Analyzer | None = None
) -> bool:
    """Whether two lists of dimensions are provably equal."""
    left, right = tuple(lhs), tuple(rhs)
    return len(left) == len(right) and all(prove_equal(a, b, analyzer) for a, b in zip(left, right))


def simplify(value: PrimExpr, analyzer: Analyzer | None = None) -> PrimExpr:
    """The expression simplified."""
    if isinstance(value, (IntImm, TirVar)):
        return value
    made: PrimExpr = (analyzer or _shared()).simplify(value)
    return made


def product(dims: Iterable[PrimExpr]) -> PrimExpr:
    """The product of dimensions, int64."""
    total: Any = IntImm("int64", 1)
    for dim in dims:
        total = total * dim
    result: PrimExpr = total
    return result


class _Vars(Visitor):
    def __init__(self) -> None:
        self.found: dict[Any, None] = {}

    def visit_Var(self, node: TirVar) -> None:
        if isinstance(node, TirVar):
            self.found[node] = None


def prim_vars(value: PrimExpr) -> list[TirVar]:
    """The variables of a scalar expression, in order of appearance."""
    match value:
        case TirVar():
            return [value]
        case IntImm():
            return []
    visitor = _Vars()
    visitor.visit(value)
    return list(visitor.found)


class _Substitute(Mutator):
    def __init__(self, lookup: Callable[[TirVar], PrimExpr | None]) -> None:
        self.lookup = lookup

    def visit_Var(self, node: TirVar) -> PrimExpr:
        new = self.lookup(node)
        return node if new is None else new


def substitute_prim(
    value: PrimExpr, mapping: Mapping[TirVar, PrimExpr] | Callable[[TirVar], PrimExpr | None]
) -> PrimExpr:
    """The expression with variables replaced (and constants folded by a simplification where anything changed)."""
    if isinstance(value, IntImm):
        return value
    lookup = mapping if callable(mapping) else mapping.get
    if isinstance(value, TirVar):
        new = lookup(value)
        return value if new is None else new
    changed = _Substitute(lookup).visit(value)
    return changed if changed is value else simplify(changed)


def rename_prim(value: PrimExpr, mapping: Mapping[TirVar, TirVar]) -> PrimExpr:
    """The expression with other variables, in the very form it has."""
    return _Substitute(mapping.get).visit(value)
