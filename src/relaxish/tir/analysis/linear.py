"""How index expressions depend on a variable."""

from __future__ import annotations

from typing import Any

from ...arith.functor import uses_var
from ...ir.prim import Add, Cast, IntImm, Mul, Sub, Var

__all__ = ["coefficient"]


def coefficient(expr: Any, var: Any) -> int | None:
    """The factor of ``var`` in a linear index; ``None`` when the index is not linear in it.

    >>> from relaxish import tir
    >>> i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    >>> coefficient(i * 8 + j, i), coefficient(i * 8 + j, j), coefficient(i * j, i)
    (8, 1, None)
    """
    if expr is var:
        return 1
    if isinstance(expr, (IntImm, Var)):
        return 0
    if isinstance(expr, Cast):
        return coefficient(expr.value, var)
    if isinstance(expr, (Add, Sub)):
        a, b = coefficient(expr.a, var), coefficient(expr.b, var)
        if a is None or b is None:
            return None
        return a + b if isinstance(expr, Add) else a - b
    if isinstance(expr, Mul):
        for x, y in ((expr.a, expr.b), (expr.b, expr.a)):
            if isinstance(y, IntImm):
                inner = coefficient(x, var)
                return None if inner is None else inner * y.value
    return None if uses_var(expr, var) else 0
