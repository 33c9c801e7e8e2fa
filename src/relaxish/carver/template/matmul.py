"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import te
from ...ir.expr import PrimExpr
from ...tir import PrimFunc
from .base import BaseTemplate, check_sizes

__all__ = ["GEMVTemplate", "MatmulTemplate"]


@dataclass
class MatmulTemplate(BaseTemplate):
    """``C[M, N] = A[M, K] @ B[N, K]^T (+ Bias[N])``, added up in ``accum_dtype``, given in ``out_dtype``.

    ``trans_A``: A is stored as [K, M]; not ``trans_B``: B is stored as [K, N].
    """

    M: int
    N: int
    K: int
    trans_A: bool = False
    trans_B: bool = True
    in_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float16"
    with_bias: bool = False

    def initialize_function(self) -> None:
        """The product by ``te``."""
        check_sizes(self, M=self.M, N=self.N, K=self.K)
        self.set_function(_product(self, self.M, self.trans_A))


@dataclass
class GEMVTemplate(BaseTemplate):
    """``C[1, N] = A[1, K] @ B[N, K]^T (+ Bias[N])``: a product of one row."""

    N: int
    K: int
    trans_B: bool = True
    in_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float16"
    with_bias: bool = False

    def initialize_function(self) -> None:
        """The product by ``te``."""
        check_sizes(self, N=self.N, K=self.K)
        self.set_function(_product(self, 1, False))


def _product(t: Any, rows: int, trans_a: bool) -> PrimFunc:
    columns, depth, accum = t.N, t.K, t.accum_dtype
    a = te.placeholder((depth, rows) if trans_a else (rows, depth), t.in_dtype, name="A")
    b = te.placeholder((columns, depth) if t.trans_B else (depth, columns), t.in_dtype, name="B")
    k = te.reduce_axis((0, depth), name="k")

    def at(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        left = a[k, i] if trans_a else a[i, k]
        right = b[j, k] if t.trans_B else b[k, j]
        return te.sum(left.astype(accum) * right.astype(accum), axis=k)

    c = te.compute((rows, columns), at, name="C")
    args = [a, b]
    if t.with_bias:
        bias = te.placeholder((columns,), accum, name="Bias")
        args.append(bias)
        before = c
        c = te.compute((rows, columns), lambda i, j: before[i, j] + bias[j], name="D")
    if t.out_dtype != accum:
        wide = c
        c = te.compute((rows, columns), lambda i, j: wide[i, j].astype(t.out_dtype), name="E" if t.with_bias else "D")
    return te.create_prim_func([*args, c])
