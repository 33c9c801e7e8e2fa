"""Tables written as chains of selections, as ``topi.utils.const_matrix`` writes matrices.

``Select(i % 2 == 1 and j % 2 == 1, d, Select(i % 2 == 1 and j % 2 == 0, c, ...))`` names an element by constants. When
loops are unrolled each copy of the chain needs one element only; looking it up at once keeps the program small.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ....arith.functor import Substitution
from ....ir.expr import PrimExpr
from ....ir.prim import (
    Add, And, BinaryOp, EQ, FloorDiv, FloorMod, GE, GT, IntImm, LE, LT, Mul, NE, Not, Or, Select, Sub,
)  # fmt: skip
from ...stmt import Stmt

__all__ = ["substitute_in_tables", "truth"]

_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    Add: operator.add, Sub: operator.sub, Mul: operator.mul, EQ: operator.eq, NE: operator.ne, LT: operator.lt,
    LE: operator.le, GT: operator.gt, GE: operator.ge,
}  # fmt: skip
_DIVISIONS: dict[type, Callable[[int, int], int]] = {FloorDiv: operator.floordiv, FloorMod: operator.mod}


def _value(e: PrimExpr) -> int | None:
    """The integer an expression of constants is."""
    match e:
        case IntImm():
            return e.value
        case BinaryOp():
            kind = type(e)
            operation = _OPERATIONS.get(kind) or _DIVISIONS.get(kind)
            if operation is None:
                return None
            a = _value(e.a)
            b = None if a is None else _value(e.b)
            if a is None or b is None or (kind in _DIVISIONS and b == 0):
                return None
            return operation(a, b)
    return None


def truth(cond: PrimExpr) -> bool | None:
    """Value of a condition if constants alone decide it; ``None`` where a variable matters."""
    match cond:
        case Not():
            inner = truth(cond.a)
            return None if inner is None else not inner
        case And() | Or():
            decisive = type(cond) is Or
            sides = truth(cond.a), truth(cond.b)
            if decisive in sides:
                return decisive
            return None if None in sides else not decisive
    value = _value(cond)
    return None if value is None else bool(value)


class _InTables(Substitution):
    """Substitution that walks down a chain of selections by the conditions it decides."""

    def visit_Select(self, e: Select) -> PrimExpr:
        while isinstance(e.false_value, Select):
            cond = self.visit(e.condition)
            known = truth(cond)
            if known is None:
                return Select(cond, self.visit(e.true_value), self.visit(e.false_value))
            if known:
                return self.visit(e.true_value)
            e = e.false_value
        return self.default_visit(e)


def substitute_in_tables(e: Stmt, mapping: Mapping[Any, Any]) -> Stmt:
    """``e`` with variables replaced by constants, and elements looked up in the tables they index."""
    return _InTables(mapping).visit(e)
