"""Analyses without a method of their own, under the names by which scripts know them."""

from __future__ import annotations

from .domain_touched import domain_touched as DomainTouched
from .narrow_predicate import narrow_predicate_expression as NarrowPredicateExpression
from .solve_inequalities import solve_inequalities_as_condition as SolveInequalitiesAsCondition

__all__ = ["DomainTouched", "NarrowPredicateExpression", "SolveInequalitiesAsCondition"]
