"""Parts of vector expressions: one lane as a scalar, or some neighbouring lanes as a narrower vector.

Languages without vectors (C, WGSL), or without vectors of some width, compute part by part::

    B[Ramp(i*4, 1, 4)] = A[Ramp(i*4, 1, 4)] + Broadcast(1.0, 4)
    B[i*4] = A[i*4] + 1.0;  B[i*4 + 1] = A[i*4 + 1] + 1.0;  ...
"""

from __future__ import annotations

from typing import Any

from ....ir.op import op_name_of
from ....arith import build as B
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....ir.functor import Mutator
from ....ir.prim import Broadcast, Call, Cast, IntImm, Let, Ramp, Shuffle, Var
from ....support.errors import RelaxishError
from ....tir.expr import BufferLoad

__all__ = ["lane", "part"]

_ACROSS_LANES = ("tir.vectorlow", "tir.vectorhigh", "tir.vectorcombine", "tir.texture2d_load")
Scalars = dict[Any, list[Any]]


def lane(expr: PrimExpr, index: int, variables: Scalars | None = None) -> PrimExpr:
    """Lane ``index`` of ``expr``; scalars stay as they are.

    ``variables`` gives the scalar variables of the lanes of vector variables that were bound lane by lane.
    """
    return part(expr, index, 1, variables)


def part(expr: PrimExpr, start: int, width: int, variables: Scalars | None = None) -> PrimExpr:
    """``width`` lanes of ``expr`` from ``start`` on; scalars stay as they are."""
    if dt.lanes(expr.dtype) == 1:
        return _Scalars(variables).visit(expr) if variables else expr
    return _Part(start, width, variables or {}).visit(expr)


class _Scalars(Mutator):
    """A scalar expression with picked lanes of vectors in it (``Shuffle``)."""

    def __init__(self, variables: Scalars) -> None:
        self.variables = variables

    def visit_Shuffle(self, e: Shuffle) -> PrimExpr:
        return _picked(e, 0, self.variables)


class _Part(Mutator):
    def __init__(self, start: int, width: int, variables: Scalars) -> None:
        self.start = start
        self.width = width
        self.variables = variables

    def visit(self, x: Any) -> Any:
        if isinstance(x, PrimExpr) and dt.lanes(x.dtype) == 1:
            return part(x, 0, 1, self.variables)
        return super().visit(x)

    def _whole(self, expr: PrimExpr) -> PrimExpr:
        return part(expr, 0, dt.lanes(expr.dtype), self.variables)

    def _gathered(self, lanes: list[Any]) -> PrimExpr:
        return lanes[0] if self.width == 1 else Shuffle(lanes, list(range(self.width)))

    def visit_Var(self, var: Var) -> PrimExpr:
        if var in self.variables:
            return self._gathered(self.variables[var][self.start : self.start + self.width])
        indices = list(range(self.start, self.start + self.width))
        return var if self.width == dt.lanes(var.dtype) else Shuffle([var], indices)

    def visit_Ramp(self, e: Ramp) -> PrimExpr:
        inner = dt.lanes(e.base.dtype)
        if inner != 1:
            return self._gathered([_lane_of_ramp(e, self.start + i, self.variables) for i in range(self.width)])
        base, stride = self._whole(e.base), self._whole(e.stride)
        first = B.add(base, B.mul(stride, IntImm(stride.dtype, self.start))) if self.start else base
        return first if self.width == 1 else Ramp(first, stride, self.width)

    def visit_Broadcast(self, e: Broadcast) -> PrimExpr:
        inner = dt.lanes(e.value.dtype)
        if inner == 1:
            value = self._whole(e.value)
            return value if self.width == 1 else Broadcast(value, self.width)
        return self._gathered([lane(e.value, (self.start + i) % inner, self.variables) for i in range(self.width)])

    def visit_Shuffle(self, e: Shuffle) -> PrimExpr:
        return self._gathered([_picked(e, self.start + i, self.variables) for i in range(self.width)])

    def visit_Cast(self, e: Cast) -> PrimExpr:
        return Cast(dt.with_lanes(dt.element_of(e.dtype), self.width), self.visit(e.value))

    def visit_BufferLoad(self, e: BufferLoad) -> PrimExpr:
        (index,) = e.indices
        inner = dt.lanes(e.buffer.dtype)
        if inner == 1:
            return BufferLoad(e.buffer, (self.visit(index),))
        scalar = e.buffer.with_fields(dtype=dt.element_of(e.buffer.dtype))
        lanes = []
        for i in range(self.start, self.start + self.width):
            at = lane(index, i // inner, self.variables)
            lanes.append(BufferLoad(scalar, (at * inner + i % inner,)))
        return self._gathered(lanes)

    def visit_Let(self, e: Let) -> PrimExpr:
        if dt.lanes(e.var.dtype) == 1:
            return type(e)(e.var, self._whole(e.value), self.visit(e.body))
        lanes = [lane(e.value, i, self.variables) for i in range(dt.lanes(e.var.dtype))]
        return part(e.body, self.start, self.width, {**self.variables, e.var: lanes})

    def visit_Call(self, e: Call) -> PrimExpr:
        name = op_name_of(e)
        widths = {dt.lanes(a.dtype) for a in e.args}
        if name in _ACROSS_LANES or name == "tir.reinterpret" and widths != {dt.lanes(e.dtype)}:
            raise RelaxishError(f"{name} works on whole vectors, and this language has none of {e.dtype}")
        return Call(dt.with_lanes(dt.element_of(e.dtype), self.width), e.op, [self.visit(a) for a in e.args])


def _lane_of_ramp(e: Any, index: int, variables: Scalars) -> PrimExpr:
    """A lane of a ramp whose base is itself a vector."""
    outer, inner = divmod(index, dt.lanes(e.base.dtype))
    base, stride = lane(e.base, inner, variables), lane(e.stride, inner, variables)
    return B.add(base, B.mul(stride, IntImm(stride.dtype, outer))) if outer else base


def _picked(e: Any, index: int, variables: Scalars) -> PrimExpr:
    position = int(e.indices[index].value)
    for vector in e.vectors:
        width = dt.lanes(vector.dtype)
        if position < width:
            return lane(vector, position, variables)
        position -= width
    raise RelaxishError("a shuffle picks a lane that its vectors do not have")
