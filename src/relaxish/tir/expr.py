"""Expressions that touch memory, and the scalar nodes under their tir names."""

from __future__ import annotations

from typing import Any

from ..ir.errors import CheckValueError
from ..ir import dtype as dt
from ..ir.expr import PrimExpr, as_exprs, optional_expr
from ..ir.node import field
from ..ir.prim import (
    EQ, GE, GT, LE, LT, NE, Add, And, Any_, BinaryOp, Broadcast, Call, CallEffectKind, Cast, CmpOp, CommReducer, Div,
    FloatImm, FloorDiv, FloorMod, IntImm, IterVar, Let, LogicalOp, Max, Min, Mod, Mul, Not, Or, Ramp, Reduce, Select,
    Shuffle, SizeVar, StringImm, Sub, Var,
)  # fmt: skip
from .buffer import INDEXING, Buffer

__all__ = [
    "Add", "And", "Any_", "BinaryOp", "Broadcast", "BufferLoad", "Call", "CallEffectKind", "Cast", "CmpOp",
    "CommReducer", "Div", "EQ", "FloatImm", "FloorDiv", "FloorMod", "GE", "GT", "IntImm", "IterVar", "LE", "LT", "Let",
    "LogicalOp", "Max", "Min", "Mod", "Mul", "NE", "Not", "Or", "ProducerLoad", "Ramp", "Reduce", "Select", "Shuffle",
    "SizeVar", "StringImm", "Sub", "Var",
]  # fmt: skip


def _index_lanes(indices: tuple[PrimExpr, ...], dtype: str) -> str:
    if not indices:
        return dtype
    for index in indices[:-1]:
        if dt.lanes(index.dtype) != 1:
            raise CheckValueError("Only the last index of a buffer access may be a vector type.")
    lanes = dt.lanes(indices[-1].dtype)
    return dt.with_lanes(dtype, lanes * dt.lanes(dtype)) if lanes != 1 else dtype


class BufferLoad(PrimExpr):
    """The element (or vector of elements) of a buffer at ``indices``."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...] = field(conv=as_exprs)
    predicate: PrimExpr | None = field(default=None, conv=optional_expr)

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.buffer.shape):
            raise CheckValueError(
                f"Buffer {self.buffer.name} is {len(self.buffer.shape)}-dimensional, "
                f"cannot be indexed with the {len(self.indices)}-dimensional indices provided."
            )
        self.dtype = _index_lanes(self.indices, self.buffer.dtype)


class ProducerLoad(PrimExpr):
    """An element of something that is computed, not yet stored (a te tensor)."""

    producer: Any = field(role="attr")
    indices: tuple[PrimExpr, ...] = field(conv=as_exprs)

    def __post_init__(self) -> None:
        self.dtype = self.producer.dtype


def _load(buffer: Buffer, indices: Any, predicate: Any = None) -> BufferLoad:
    return BufferLoad(buffer, indices, predicate)


INDEXING["load"] = _load
