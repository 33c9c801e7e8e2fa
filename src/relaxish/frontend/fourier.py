"""Discrete Fourier transforms as products with matrices of sines and cosines, for every frontend."""

from __future__ import annotations

import math

import numpy as np

from .. import op, relax, te, tir
from ..ir.expr import PrimExpr
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Expr, ShapeExpr
from ..relax.scalars import const_int
from ..tir import const
from .loops import bound

__all__ = ["FourierTransform"]


def _waves(
    builder: BlockBuilder, length: PrimExpr, rows: PrimExpr, columns: PrimExpr, sign: int, kind: str
) -> list[Expr]:
    """Cosines and ``sign`` times sines of 2 pi r c / length, for r of ``rows`` and c of ``columns``."""
    known = [const_int(v) for v in (length, rows, columns)]
    if None not in known:
        n, r, c = (int(v or 0) for v in known)
        angle = 2 * np.pi * (np.outer(np.arange(r), np.arange(c)) % max(n, 1)) / max(n, 1)
        return [relax.const(v.astype(kind), kind) for v in (np.cos(angle), sign * np.sin(angle))]

    def table(size: list[PrimExpr]) -> list[te.Tensor]:
        def angle(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            # Whole turns are taken off while the numbers are exact.
            turn = tir.floormod(i * j, tir.max(size[0], 1)).astype("float64") / size[0].astype("float64")
            return turn * const(2 * math.pi, "float64")

        shape = size[1:]
        return [
            te.compute(shape, lambda i, j: tir.cos(angle(i, j)).astype(kind), "cosines"),
            te.compute(shape, lambda i, j: (tir.sin(angle(i, j)) * sign).astype(kind), "sines"),
        ]

    made = builder.emit_te(table, [length, rows, columns], primfunc_name_hint="waves")
    return [builder.emit(made[k]) for k in range(2)]


class FourierTransform:
    """A discrete Fourier transform of rows, not scaled; real and imaginary parts are separate matrices."""

    def __init__(self, builder: BlockBuilder, length: PrimExpr, kind: str, inverse: bool) -> None:
        self.builder, self.length, self.kind, self.inverse = builder, length, kind, inverse

    def emit(self, x: Expr) -> Expr:
        return bound(self.builder, x)

    def product(self, x: Expr, matrix: Expr) -> Expr:
        return self.emit(op.matmul(x, matrix))

    def forward(self, real: Expr, imaginary: Expr | None, bins: PrimExpr) -> list[Expr]:
        """``bins`` values of rows that have ``length`` elements."""
        cosines, sines = _waves(self.builder, self.length, self.length, bins, 1 if self.inverse else -1, self.kind)
        made = [self.product(real, cosines), self.product(real, sines)]
        if imaginary is not None:
            made = [
                self.emit(op.subtract(made[0], self.product(imaginary, sines))),
                self.emit(op.add(made[1], self.product(imaginary, cosines))),
            ]
        return made

    def real_again(self, real: Expr, imaginary: Expr, bins: PrimExpr) -> Expr:
        """The real rows that have these first ``bins`` values, times their length."""
        cosines, sines = _waves(self.builder, self.length, bins, self.length, -1, self.kind)

        def weights(size: list[PrimExpr]) -> te.Tensor:
            def weight(i: PrimExpr, _: PrimExpr) -> PrimExpr:
                alone = tir.Or(i == 0, i * 2 == size[0])  # the others stand for their mirror images, too
                return tir.if_then_else(alone, const(1, self.kind), const(2, self.kind))

            return te.compute([size[1], 1], weight, "weights")

        twice = self.builder.emit_te(weights, [self.length, bins], primfunc_name_hint="weights")
        cosines, sines = (self.emit(op.multiply(m, twice)) for m in (cosines, sines))
        return self.emit(op.add(self.product(real, cosines), self.product(imaginary, sines)))

    def scaled(self, x: Expr) -> Expr:
        """Divided by the number of elements."""
        known = const_int(self.length)
        if known is not None:
            return self.emit(op.divide(x, relax.const(known, self.kind)))
        row = self.emit(op.shape_to_tensor(ShapeExpr([self.length])))
        return self.emit(op.divide(x, self.emit(op.astype(self.emit(op.reshape(row, [])), self.kind))))
