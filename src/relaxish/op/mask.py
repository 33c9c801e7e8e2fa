"""Values in the place of masked elements."""

from __future__ import annotations

from ..ir.plain import plain
from ..relax.expr import Expr, PrimValue, const
from ..relax.struct_info import TensorStructInfo
from .inference import Number, as_expr

__all__ = ["masked_fill"]


def masked_fill(x: Expr, mask: Expr, value: Number) -> Expr:
    """``value`` where the mask holds, else ``x``."""
    from .create import full_like
    from .search import where

    x = as_expr(x)
    if not isinstance(value, Expr) or isinstance(value, PrimValue):
        value = const(plain(plain(value)), _dtype_of(x))  # twice: the value of a PrimValue is a literal
    return where(as_expr(mask), full_like(x, value), x)


def _dtype_of(x: Expr) -> str | None:
    info = x.struct_info_
    return info.dtype if isinstance(info, TensorStructInfo) and info.dtype else None
