"""Python values as expressions of the graph, and constants of the graph as literals in kernels."""

from __future__ import annotations

from typing import Any

from ..ir import dtype as dt
from ..relax.expr import Constant, DataTypeImm, Expr, PrimValue, ShapeExpr, StringImm
from ..relax.expr import const as graph_const
from ..tir import PrimExpr, const
from .inference import Number, ShapeLike

__all__ = ["const_like", "dtype_expr", "prim_expr", "scalar_const", "shape_expr", "string_expr"]


def const_like(value: float, expr: Expr) -> Constant:
    """A number as a constant of the tensor's dtype."""
    return graph_const(value, expr.struct_info.dtype)


def prim_expr(value: Number) -> Expr:
    """A scalar as an expression; expressions stay as they are."""
    return value if isinstance(value, Expr) else PrimValue(value)


def shape_expr(value: ShapeLike) -> Expr:
    """Dimensions as an expression; expressions stay as they are."""
    return value if isinstance(value, Expr) else ShapeExpr(value)


def dtype_expr(value: Expr | str) -> Expr:
    """The name of a dtype as an expression; expressions stay as they are."""
    return value if isinstance(value, Expr) else DataTypeImm(value)


def string_expr(value: Expr | str) -> Expr:
    """A string as an expression; expressions stay as they are."""
    return value if isinstance(value, Expr) else StringImm(value)


def scalar_const(value: object, python_native: bool = False) -> Any:
    """The literal a rank-0 constant stands for, else None; or a scalar's expression."""
    match value:
        case Constant() if value.struct_info.ndim == 0:
            number = value.data.numpy()[()].item()
            kind = str(value.struct_info.dtype)
            if python_native:
                return number
            if dt.is_bool(kind):
                return const(bool(number), "bool")
            return const(number, kind)
        case PrimValue():
            return value.value
        case PrimExpr():
            return value
    return None
