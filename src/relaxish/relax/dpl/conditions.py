"""Conditions on symbolic dimensions under which a pattern matches.

A pattern with dimensions ``(m, n)`` matches a tensor of shape ``(16, 32)`` if ``m == 16`` and ``n == 32``.  A match
stands as long as its conditions do not contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.expr import PrimExpr
from ...ir.prim import Var as TirVar
from ...ir.structural import structural_equal
from ..expr import ShapeExpr
from ..scalars import const_int, fresh_analyzer, prim_vars, substitute_prim
from ..struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

__all__ = ["Conditions", "subtype_conditions"]

Equal = tuple[PrimExpr, PrimExpr]


def subtype_conditions(base: StructInfo, derived: StructInfo) -> list[Equal] | None:
    """Equalities under which ``base`` describes everything that ``derived`` does; None if there are none."""
    if base is derived or isinstance(base, ObjectStructInfo):
        return []
    match base:
        case PrimStructInfo() if isinstance(derived, PrimStructInfo):
            if base.dtype != derived.dtype:
                return None
            known, given = ((info.value,) if info.value is not None else None for info in (base, derived))
            return _pairs(known, given)
        case ShapeStructInfo() if isinstance(derived, ShapeStructInfo):
            if base.ndim not in (-1, derived.ndim):
                return None
            return _pairs(base.values, derived.values)
        case TensorStructInfo() if isinstance(derived, TensorStructInfo):
            return _tensor(base, derived)
        case TupleStructInfo() if isinstance(derived, TupleStructInfo):
            return _all(base.fields, derived.fields)
        case FuncStructInfo() if isinstance(derived, FuncStructInfo):
            return [] if base.is_base_of(derived) else None
    return [] if type(base) is type(derived) and structural_equal(base, derived) else None


def _pairs(base: Sequence[PrimExpr] | None, derived: Sequence[PrimExpr] | None) -> list[Equal] | None:
    if base is None:
        return []
    if derived is None or len(base) != len(derived):
        return None
    return list(zip(base, derived))


def _tensor(base: TensorStructInfo, derived: TensorStructInfo) -> list[Equal] | None:
    if (base.dtype and base.dtype != derived.dtype) or base.ndim not in (-1, derived.ndim):
        return None
    if base.vdevice is not None and not structural_equal(base.vdevice, derived.vdevice):
        return None
    if base.shape is None or base.shape is derived.shape:
        return []
    if not isinstance(base.shape, ShapeExpr) or not isinstance(derived.shape, ShapeExpr):
        return None
    return _pairs(base.shape.values, derived.shape.values)


def _all(bases: Sequence[StructInfo], deriveds: Sequence[StructInfo]) -> list[Equal] | None:
    if len(bases) != len(deriveds):
        return None
    out: list[Equal] = []
    for base, derived in zip(bases, deriveds):
        found = subtype_conditions(base, derived)
        if found is None:
            return None
        out.extend(found)
    return out


class Conditions:
    """Equations that hold together: what variables stand for, and what is left to show."""

    def __init__(self, values: Mapping[TirVar, PrimExpr] | None = None, left: Sequence[Equal] = ()) -> None:
        self.values = dict(values or {})
        self.left = tuple(left)

    def with_equal(self, equations: Sequence[Equal]) -> Conditions | None:
        """These conditions and more, or None if they contradict each other."""
        values = dict(self.values)
        left: list[Equal] = []
        waiting = [*self.left, *equations]
        while waiting:
            lhs, rhs = (substitute_prim(side, values) for side in waiting.pop(0))
            difference = const_int(fresh_analyzer().simplify(lhs - rhs))
            if difference is not None:
                if difference != 0:
                    return None
                continue
            var, value = (lhs, rhs) if isinstance(lhs, TirVar) else (rhs, lhs)
            if isinstance(var, TirVar) and var not in prim_vars(value):
                values[var] = value
                values = {v: substitute_prim(e, {var: value}) for v, e in values.items()}
                waiting, left = [*waiting, *left], []
            else:
                left.append((lhs, rhs))
        return Conditions(values, left)
