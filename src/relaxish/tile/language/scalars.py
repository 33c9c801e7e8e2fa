"""Functions of TVMScript's ``T`` that take a type, with the types' short names ("float" is float32)."""

from __future__ import annotations

from typing import Any

from ...script.ir_builder import tir as B
from ...tir import infinity as _infinity
from ...tir import max_value as _max_value
from ...tir import min_value as _min_value
from .regions import as_dtype
from ...ir.expr import PrimExpr

__all__ = ["cast", "infinity", "max_value", "min_value"]


def cast(src: Any, dtype: Any, span: Any = None) -> PrimExpr:
    """``src`` as ``dtype``."""
    return B.cast(src, as_dtype(dtype), span)


def infinity(dtype: Any) -> PrimExpr:
    """Infinity, as a number of a type."""
    return _infinity(as_dtype(dtype))


def max_value(dtype: Any) -> PrimExpr:
    """The largest number of a type."""
    return _max_value(as_dtype(dtype))


def min_value(dtype: Any) -> PrimExpr:
    """The smallest number of a type."""
    return _min_value(as_dtype(dtype))
