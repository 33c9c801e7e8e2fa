"""Expressions of narrow floats, rewritten to be computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import all_nodes
from ....ir.prim import (
    Add,
    Broadcast,
    Call,
    Cast,
    CmpOp,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    Select,
    Sub,
    Var,
)  # fmt: skip
from ...buffer import Buffer
from ...expr import BufferLoad
from ...intrinsics import named
from ..base import is_call, op_name

__all__ = ["WideFloat", "is_narrow_float", "loses_digits"]

_ARITHMETIC = (Add, Sub, Mul, Div, Mod, FloorDiv, FloorMod, Max, Min)
_FUNCTIONS = frozenset(named(lambda record: record.widens))
_SENSITIVE = frozenset(named(lambda record: record.cancels))
_CHOICES = ("if_then_else", "likely")


def is_narrow_float(dtype: str) -> bool:
    """Whether a type is (a vector of) floats of fewer than 32 bits."""
    return dt.is_float(dtype) and dt.bits(dtype) < 32


class WideFloat:
    """Gives the float32 form of expressions whose type ``match`` says is to be widened.

    ``keep`` rewrites the parts that stay as they are (indices, conditions); ``buffers`` and ``variables`` are those
    that hold float32 now.
    """

    def __init__(
        self,
        match: Callable[[str], bool],
        keep: Callable[[Any], Any],
        buffers: Mapping[Buffer, Buffer] | None = None,
        variables: Mapping[Var, Var] | None = None,
    ) -> None:
        self.match = match
        self.keep = keep
        self.buffers: Mapping[Buffer, Buffer] = {} if buffers is None else buffers
        self.variables: Mapping[Var, Var] = {} if variables is None else variables

    def computes(self, e: PrimExpr) -> bool:
        """Whether ``e`` is an operation on narrow floats, or already there in float32."""
        if not self.match(getattr(e, "dtype", "")):
            return False
        match e:
            case BufferLoad():
                return e.buffer in self.buffers
            case Var():
                return e in self.variables
            case Select():
                return self.computes(e.true_value) or self.computes(e.false_value)
            case Broadcast():
                return self.computes(e.value)
        if is_call(e, *_CHOICES):
            return any(self.computes(a) for a in e.args)
        return isinstance(e, _ARITHMETIC) or op_name(e) in _FUNCTIONS

    def narrow(self, e: PrimExpr) -> PrimExpr:
        """An operation, computed in float32 and rounded to its type."""
        return Cast(e.dtype, self.wide(e))

    def comparison(self, e: CmpOp) -> CmpOp:
        """A comparison of narrow floats; converting them changes nothing about it."""
        return type(e)(self.wide(e.a), self.wide(e.b))

    def wide(self, e: PrimExpr) -> PrimExpr:
        """The value of a narrow expression as float32.

        Nothing is rounded on the way, constants and casts included: how many elements there are, for one, may be more
        than a narrow type can say.
        """
        lanes = dt.lanes(e.dtype)
        full = dt.with_lanes("float32", lanes)
        if not self.match(e.dtype):
            return self.keep(e)
        if isinstance(e, FloatImm):
            return FloatImm("float32", e.value)
        if isinstance(e, _ARITHMETIC):
            return type(e)(self.wide(e.a), self.wide(e.b))
        match e:
            case Select():
                return Select(self.keep(e.condition), self.wide(e.true_value), self.wide(e.false_value))
            case Broadcast():
                return Broadcast(self.wide(e.value), e.lanes)
            case Cast():
                inner = self.wide(e.value) if self.match(e.value.dtype) else self.keep(e.value)
                return inner if inner.dtype == full else Cast(full, inner)
            case Call():
                name = op_name(e)
                if name in _FUNCTIONS or name in _CHOICES:
                    return Call(full, e.op, [self.wide(a) for a in e.args])
        match e:
            case BufferLoad() if e.buffer in self.buffers:
                indices = [self.keep(i) for i in e.indices]
                return BufferLoad(self.buffers[e.buffer], indices, e.predicate)
            case Var() if e in self.variables:
                return self.variables[e]
        return Cast(full, self.keep(e))


def loses_digits(e: PrimExpr) -> bool:
    """Whether an expression has functions whose results later steps may cancel, as ``1 + erf(x)`` does."""
    return any(op_name(item) in _SENSITIVE for item in all_nodes(e))
