"""Two-dimensional convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import te
from ...ir.errors import CheckValueError
from ...ir.expr import PrimExpr
from .base import BaseTemplate, check_sizes

__all__ = ["ConvTemplate"]


@dataclass
class ConvTemplate(BaseTemplate):
    """``[N, H, W, C]`` images by ``[K, K, C, F]`` weights, stride S, dilation D, padding P on every side."""

    N: int
    C: int
    H: int
    W: int
    F: int
    K: int
    S: int
    D: int
    P: int
    in_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float16"
    with_bias: bool = False

    def initialize_function(self) -> None:
        """The convolution by ``te``."""
        check_sizes(self, N=self.N, C=self.C, H=self.H, W=self.W, F=self.F, K=self.K, S=self.S, D=self.D)
        pad, accum = self.P, self.accum_dtype
        if not isinstance(pad, int) or pad < 0:
            raise CheckValueError(f"ConvTemplate: P is the padding, an integer of at least 0; got {pad!r}")
        height, width = ((n + 2 * pad - self.D * (self.K - 1) - 1) // self.S + 1 for n in (self.H, self.W))
        if height < 1 or width < 1:
            raise CheckValueError(
                f"ConvTemplate: a kernel of {self.K} x {self.K} with dilation {self.D} is larger than the padded image of "
                f"{self.H + 2 * pad} x {self.W + 2 * pad}"
            )
        a = te.placeholder((self.N, self.H, self.W, self.C), self.in_dtype, name="A")
        b = te.placeholder((self.K, self.K, self.C, self.F), self.in_dtype, name="B")
        image: Any = a
        if pad:
            padded = (self.N, self.H + 2 * pad, self.W + 2 * pad, self.C)
            image = te.compute(
                padded,
                lambda n, h, w, c: te.if_then_else(
                    te.all(h >= pad, h < self.H + pad, w >= pad, w < self.W + pad),
                    a[n, h - pad, w - pad, c],
                    te.const(0, self.in_dtype),
                ),
                name="Padded",
            )
        kh, kw = te.reduce_axis((0, self.K), name="kh"), te.reduce_axis((0, self.K), name="kw")
        ci = te.reduce_axis((0, self.C), name="c")

        def at(n: PrimExpr, h: PrimExpr, w: PrimExpr, f: PrimExpr) -> PrimExpr:
            pixel = image[n, h * self.S + kh * self.D, w * self.S + kw * self.D, ci]
            return te.sum(pixel.astype(accum) * b[kh, kw, ci, f].astype(accum), axis=[kh, kw, ci])

        shape = (self.N, height, width, self.F)
        out: Any = te.compute(shape, at, name="C")
        args = [a, b]
        if self.with_bias:
            bias = te.placeholder((self.F,), accum, name="Bias")
            args.append(bias)
            plain = out
            out = te.compute(shape, lambda n, h, w, f: plain[n, h, w, f] + bias[f], name="E")
        if self.out_dtype != accum:
            wide = out
            out = te.compute(shape, lambda n, h, w, f: wide[n, h, w, f].astype(self.out_dtype), name="D")
        self.set_function(te.create_prim_func([*args, out]))
