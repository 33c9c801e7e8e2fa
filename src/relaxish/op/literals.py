"""Constants as literals in kernels."""

from __future__ import annotations

from typing import Any

from ..ir import dtype as dt
from ..relax.expr import Constant, PrimValue
from ..tir import PrimExpr, const

__all__ = ["scalar_const"]


def scalar_const(value: Any, python_native: bool = False) -> Any:
    """The literal a rank-0 constant stands for, else None; or a scalar's expression."""
    if isinstance(value, Constant) and value.struct_info.ndim == 0:
        number = value.data.numpy()[()].item()
        kind = str(value.struct_info.dtype)
        if python_native:
            return number
        if dt.is_bool(kind):
            return const(bool(number), "bool")
        return const(number, kind)
    if isinstance(value, PrimValue):
        return value.value
    if isinstance(value, PrimExpr):
        return value
    return None
