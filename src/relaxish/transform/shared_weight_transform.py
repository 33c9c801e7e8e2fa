"""Common weight computations of several functions: the plan behind ``LiftTransformParams(shared_transform=True)``.

The weights of all functions correspond by position.  A binding is shared if every function has one with the same value
once its variables are renamed to those of the first function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..ir.structural import structural_equal, structural_hash
from ..relax.copying import SymbolSubstitutor
from ..relax.expr import Expr, MatchCast, Var
from ..support.errors import RelaxishError

if TYPE_CHECKING:
    from .lift_transform_params import Plan

__all__ = ["FunctionShare", "SharedPlan", "plan_shared"]


@dataclass
class FunctionShare:
    """One function's own variables for what is shared, in the common order."""

    weights: list[Var]
    lifted: list[Any] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)
    symbols: list[Any] = field(default_factory=list)


class SharedPlan:
    """The shares of all functions."""

    def __init__(self, shares: Mapping[str, FunctionShare]) -> None:
        self._shares = dict(shares)

    def variables_of(self, name: str) -> FunctionShare:
        """The share of one function."""
        return self._shares[name]


class _ToFirst(SymbolSubstitutor):
    """Renames one function's variables to the first function's."""

    def __init__(self, variables: dict[Var, Var], symbols: dict[Any, Any]) -> None:
        super().__init__(symbols)
        self.variables = variables

    def visit_var_(self, op: Var) -> Expr:
        return self.variables.get(op, op)

    def visit_expr(self, expr: Any) -> Any:
        from ..relax.expr_functor import ExprFunctor

        return ExprFunctor.visit_expr(self, expr)


def _check_weights(first: Plan, other: Plan, names: tuple[str, str]) -> dict[Any, Any]:
    """The other function's symbolic variables in terms of the first's. Raises RelaxishError if the weights differ."""
    if len(first.weights) != len(other.weights):
        raise RelaxishError(
            f"LiftTransformParams: functions that share a transform take the same weights, but {names[0]} takes "
            f"{len(first.weights)} and {names[1]} takes {len(other.weights)}"
        )
    symbols: dict[Any, Any] = {}
    for mine, theirs in zip(other.weights, first.weights):
        if not structural_equal(mine.struct_info, theirs.struct_info, map_free_vars=True):
            raise RelaxishError(
                f"LiftTransformParams: functions that share a transform take the same weights, but "
                f"{theirs.name_hint} of {names[0]} is {theirs.struct_info} and {mine.name_hint} of {names[1]} is "
                f"{mine.struct_info}"
            )
        mine.struct_info.bind(theirs.struct_info, symbols, {})
    return symbols


def _values_in_terms_of_first(
    plan: Plan, symbols: dict[Any, Any], renamed: dict[Var, Var], known: dict[int, list[Any]]
) -> dict[Var, Any]:
    """From a variable of the first function to the equal binding of this one."""
    found: dict[Var, Any] = {}
    to_first = _ToFirst(renamed, symbols)
    for binding in plan.lifted:
        value = to_first.visit_expr(binding.value)
        info = to_first.visit_struct_info_node(binding.struct_info) if isinstance(binding, MatchCast) else None
        for candidate in known.get(structural_hash(value, map_free_vars=False), ()):
            if isinstance(candidate, MatchCast) is not (info is not None) or candidate.var in found:
                continue
            if info is not None and not structural_equal(candidate.struct_info, info):
                continue
            if structural_equal(candidate.value, value):
                found[candidate.var] = binding
                renamed[binding.var] = candidate.var
                break
    return found


def plan_shared(plans: Mapping[str, Plan]) -> SharedPlan:
    """Decide what is shared, and settle every function's plan on it."""
    names = list(plans)
    first = plans[names[0]]
    by_value: dict[int, list[Any]] = {}
    for binding in first.lifted:
        by_value.setdefault(structural_hash(binding.value, map_free_vars=False), []).append(binding)
    matches: dict[str, dict[Var, Any]] = {names[0]: {b.var: b for b in first.lifted}}
    back: dict[str, dict[Any, Any]] = {names[0]: {}}
    for name in names[1:]:
        plan = plans[name]
        symbols = _check_weights(first, plan, (names[0], name))
        renamed = dict(zip(plan.weights, first.weights))
        matches[name] = _values_in_terms_of_first(plan, symbols, renamed, by_value)
        back[name] = {theirs: mine for mine, theirs in symbols.items()}
    common = [b for b in first.lifted if all(b.var in matches[n] for n in names)]
    needed: set[int] = set()
    for name in names:
        plan = plans[name]
        plan.lifted = [matches[name][b.var] for b in common]
        plan.settle()
        needed.update(i for i, v in enumerate(plan.candidates) if v in plan.used)
    shares = {}
    for name in names:
        plan = plans[name]
        share = FunctionShare(plan.weights, plan.lifted)
        share.outputs = [v for i, v in enumerate(plan.candidates) if i in needed]
        share.symbols = [back[name].get(s, s) for s in first.symbols]
        shares[name] = share
    return SharedPlan(shares)
