"""Analyses without a method of their own, under the names by which scripts know them."""

from __future__ import annotations

from .domain_touched import domain_touched as DomainTouched  # noqa: N812
from .narrow_predicate import narrow_predicate_expression as NarrowPredicateExpression  # noqa: N812
from .solve_inequalities import solve_inequalities_as_condition as SolveInequalitiesAsCondition  # noqa: N812

__all__ = ["DomainTouched", "NarrowPredicateExpression", "SolveInequalitiesAsCondition"]
