"""Expressions that touch memory, and the scalar nodes under their tir names."""

from __future__ import annotations

from typing import Any

from ..ir.errors import CheckValueError
from ..ir import dtype as dt
from ..ir.expr import EqualOp, ExprLike, ExprOps, NotEqualOp, PrimExpr, ShapeLike, as_exprs, convert, optional_expr
from ..ir.node import Converted, field
from ..ir.prim import (
    EQ, GE, GT, LE, LT, NE, Add, And, Any_, BinaryOp, Broadcast, Call, CallEffectKind, Cast, CmpOp, CommReducer,
    ConstExpr, Div, FloatImm, FloorDiv, FloorMod, IntImm, IterVar, Let, LogicalOp, Max, Min, Mod, Mul, Not, Or, Ramp,
    Reduce, Select, Shuffle, SizeVar, StringImm, Sub, Var,
)  # fmt: skip
from .buffer import INDEXING, Buffer

__all__ = [
    "Add", "And", "Any_", "BinaryOp", "BinaryOpExpr", "Broadcast", "BufferLoad", "Call", "CallEffectKind", "Cast",
    "CmpExpr", "CmpOp", "CommReducer", "ConstExpr", "Div", "EQ", "EqualOp", "ExprOp", "FloatImm", "FloorDiv",
    "FloorMod", "GE", "GT", "IntImm", "IterVar", "LE", "LT", "Let", "LogicalExpr", "LogicalOp", "Max", "Min", "Mod",
    "Mul", "NE", "Not", "NotEqualOp", "Or", "PrimExprWithOp", "ProducerLoad", "Ramp", "Reduce", "Select", "Shuffle",
    "SizeVar", "StringImm", "Sub", "Var", "convert",
]  # fmt: skip

# The classes that the public API names otherwise.
ExprOp, PrimExprWithOp = ExprOps, PrimExpr
BinaryOpExpr, CmpExpr, LogicalExpr = BinaryOp, CmpOp, LogicalOp


def _index_lanes(indices: tuple[PrimExpr, ...], dtype: str) -> str:
    if not indices:
        return dtype
    for index in indices[:-1]:
        if dt.lanes(index.dtype) != 1:
            raise CheckValueError("Only the last index of a buffer access may be a vector type.")
    lanes = dt.lanes(indices[-1].dtype)
    return dt.with_lanes(dtype, lanes * dt.lanes(dtype)) if lanes != 1 else dtype


def check_predicate(predicate: PrimExpr | None, vector: str, verb: str) -> None:
    """A mask has one truth value for every element of the ``vector`` type that is loaded or stored."""
    if predicate is None:
        return
    have, want = dt.lanes(predicate.dtype), dt.lanes(vector)
    if (have < 0) != (want < 0):
        raise CheckValueError(f"Predicate mask dtype and {verb} indices must both be scalable.")
    if have != want:
        raise CheckValueError(
            f"Got a predicate mask with {abs(have)} lanes, but trying to {verb} a vector with {abs(want)} lanes. "
            "The number of lanes must match."
        )
    if not dt.is_bool(predicate.dtype):
        element = dt.element_of(predicate.dtype)
        raise CheckValueError(f"Predicate mask elements must be boolean values, but got {element}.")


class BufferLoad(PrimExpr, checked=True):
    """The element (or vector of elements) of a buffer at ``indices``."""

    buffer: Buffer
    indices: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)
    predicate: Converted[PrimExpr | None, ExprLike | None] = field(default=None, conv=optional_expr)

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.buffer.shape):
            raise CheckValueError(
                f"Buffer {self.buffer.name} is {len(self.buffer.shape)}-dimensional, "
                f"cannot be indexed with the {len(self.indices)}-dimensional indices provided."
            )
        self.dtype = _index_lanes(self.indices, self.buffer.dtype)
        check_predicate(self.predicate, self.dtype, "load")


class ProducerLoad(PrimExpr):
    """An element of something that is computed, not yet stored (a te tensor)."""

    producer: Any = field(role="attr")
    indices: Converted[tuple[PrimExpr, ...], ShapeLike] = field(conv=as_exprs)

    def __post_init__(self) -> None:
        self.dtype = self.producer.dtype


def _load(buffer: Buffer, indices: ShapeLike, predicate: ExprLike | None = None) -> BufferLoad:
    return BufferLoad(buffer, indices, predicate)


INDEXING["load"] = _load
