"""Legacy static types of the graph level: what is known of a value without any shape.

Struct info says more and is what passes use; these remain for ``expr.checked_type`` and type patterns.

>>> from relaxish import relax
>>> relax.analysis.get_static_type(relax.TensorStructInfo([2, 3], "float32")).ndim
2
"""

from __future__ import annotations

from ..ir.node import field
from ..ir.types import FuncType, TupleType, Type

__all__ = ["DynTensorType", "FuncType", "ObjectType", "PackedFuncType", "ShapeType", "TensorType", "TupleType", "Type"]


class ObjectType(Type):
    """Any run-time object."""


class ShapeType(Type):
    """A shape value of ``ndim`` dimensions, -1 when unknown."""

    ndim: int = field(role="attr", default=-1)


class DynTensorType(Type):
    """A tensor of ``ndim`` dimensions (-1: unknown) and ``dtype`` (empty: unknown)."""

    ndim: int = field(role="attr", default=-1)
    dtype: str = field(role="attr", default="float32", conv=str)


TensorType = DynTensorType


class PackedFuncType(Type):
    """A function that takes and returns run-time objects."""
