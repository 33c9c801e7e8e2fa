"""Compact shapes for staging buffers: an index such as ``x // 4 % 8`` covers few values, which alone are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....arith import build as B
from ....ir.functor import Visitor
from ....ir.prim import BinaryOp, FloorDiv, FloorMod, IntImm, Mul, Var


class _Pattern(Visitor):
    """The terms of one index: for each variable, how many values it takes there, and which."""

    def __init__(self, extents: Mapping[Any, int | None]) -> None:
        self.extents = extents
        self.operators: list[tuple[type, int]] = []
        self.shape: list[int] = []
        self.indices: list[Any] = []
        self.fine = True

    def visit_Mul(self, e: Mul) -> None:
        self._under(e)

    def visit_FloorDiv(self, e: FloorDiv) -> None:
        self._under(e)

    def visit_FloorMod(self, e: FloorMod) -> None:
        self._under(e)

    def _under(self, e: BinaryOp) -> None:
        operand = B.as_int(e.b)
        if operand is None:
            self.fine = False
            return
        self.operators.append((type(e), operand))
        self.visit(e.a)
        self.operators.pop()

    def visit_Var(self, var: Var) -> None:
        extent = self.extents.get(var)
        if not self.fine or extent is None:
            return
        top = extent
        index: Any = var
        for kind, operand in reversed(self.operators):
            step = self._apply(kind, operand, top, extent)
            if step is None:
                self.fine = False
                return
            top, extent = step
            literal = IntImm(var.dtype, operand)
            build = B.mul if kind is Mul else B.floordiv if kind is FloorDiv else B.floormod
            index = build(index, literal)
        if extent > 1:
            self.shape.append(extent)
            self.indices.append(B.floordiv(index, IntImm(var.dtype, top // extent)))

    @staticmethod
    def _apply(kind: type, operand: int, top: int, extent: int) -> tuple[int, int] | None:
        """The bound and the number of values after one operation; None where they are not evenly spread."""
        if kind is Mul:
            return top * operand, extent
        if kind is FloorDiv:
            if top % operand and (not top or operand % top):
                return None
            top //= operand
            extent = min(extent, max(1, top))
            return None if top % extent else (top, extent)
        step = top // extent
        if step and step % operand and operand % step:
            return None
        if not step or step % operand == 0:
            return 0, 1
        extent = max(1, min(extent, operand // step))
        return extent * step, extent


def promoted_shape(indices: Sequence[Any], extents: Mapping[Any, int | None]) -> tuple[list[Any], list[Any]] | None:
    """Indices and shape of a buffer that keeps only the elements reached while the variables of ``extents`` run."""
    made: list[Any] = []
    shape: list[Any] = []
    for index in indices:
        pattern = _Pattern(extents)
        pattern.visit(index)
        if not pattern.fine:
            return None
        size = 1
        flat: Any = IntImm("int32", 0)
        for extent, part in zip(pattern.shape, pattern.indices):
            size *= extent
            flat = B.add(B.mul(flat, IntImm(part.dtype, extent)), part)
        shape.append(IntImm("int32", size))
        made.append(flat)
    return made, shape
