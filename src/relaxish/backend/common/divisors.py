"""Integer divisors that need no check for zero."""

from __future__ import annotations


from ...ir import dtype as dt
from ...ir.expr import PrimExpr
from ...ir.prim import BinaryOp, Broadcast, const_int

__all__ = ["constant_of", "is_safe_divisor"]


def constant_of(expr: PrimExpr) -> int | None:
    """The value of a constant, or of one in all lanes."""
    if isinstance(expr, Broadcast):
        expr = expr.value
    return const_int(expr)


def is_safe_divisor(node: BinaryOp) -> bool:
    """Whether a division by this divisor is legal whatever is divided."""
    divisor = constant_of(node.b)
    return bool(divisor) and (divisor != -1 or not dt.is_int(node.dtype))
