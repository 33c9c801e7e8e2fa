"""Fourier transforms, as sums of their definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import te, tir
from ..te.tensor import Dim, ExprLike
from ..tir import const, floormod, PrimExpr
from .utils import const_int

__all__ = ["dft", "stft"]


def _angle(a: PrimExpr, b: PrimExpr, length: PrimExpr) -> PrimExpr:
    """``2 pi a b / length`` in double precision; whole turns are taken off while the numbers are exact."""
    size = tir.max(length.astype("int64"), const(1, "int64"))
    turn = floormod(a.astype("int64") * b.astype("int64"), size).astype("float64") / size.astype("float64")
    return turn * const(2 * math.pi, "float64")


def dft(re_data: te.Tensor, im_data: te.Tensor, inverse: ExprLike) -> list[te.Tensor]:
    """Discrete Fourier transforms along the last axis; the inverse one is divided by the number of elements.

    >>> from relaxish import te, topi
    >>> [t.shape for t in topi.dft(te.placeholder((2, 8)), te.placeholder((2, 8)), False)]
    [(2, 8), (2, 8)]
    """
    length, kind = re_data.shape[-1], re_data.dtype
    back = bool(const_int(inverse) if isinstance(inverse, PrimExpr) else inverse)
    sign = 1.0 if back else -1.0

    def wave(name: str) -> te.Tensor:
        function = tir.cos if name == "cosines" else tir.sin
        return te.compute((length, length), lambda i, j: function(_angle(i, j, length)).astype(kind), name)

    cosines, sines = wave("cosines"), wave("sines")

    def part(name: str, first: te.Tensor, second: te.Tensor, factor: float) -> te.Tensor:
        k = te.reduce_axis((0, length), "k")
        made = te.compute(
            re_data.shape,
            lambda *at: te.sum(
                first(*at[:-1], k.var) * cosines(k.var, at[-1])
                + second(*at[:-1], k.var) * sines(k.var, at[-1]) * const(factor, kind),
                axis=k,
            ),
            name,
        )
        if not back:
            return made
        return te.compute(made.shape, lambda *at: made(*at) / length.astype(kind), f"{name}_scaled")

    return [part("dft_re", re_data, im_data, -sign), part("dft_im", im_data, re_data, sign)]


def stft(
    data: te.Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: te.Tensor,
    normalized: bool,
    onesided: bool,
    output_shape: Sequence[Dim],
) -> te.Tensor:
    """Transforms of windows of signals ``[batch, length]``: ``[batch, frequencies, frames, 2]``, which is
    ``output_shape``, real and imaginary parts in the last dimension.

    A window shorter than ``n_fft`` stands in the middle of its frame. ``normalized`` divides by the root of ``n_fft``;
    whether frequencies are ``onesided`` is seen in the shape.
    """
    kind = data.dtype
    margin = (n_fft - win_length) // 2
    scale = 1 / math.sqrt(n_fft) if normalized else 1.0
    k = te.reduce_axis((0, win_length), "k")

    def body(batch: PrimExpr, frequency: PrimExpr, frame: PrimExpr, part: PrimExpr) -> PrimExpr:
        angle = _angle(frequency, k.var + margin, const(n_fft, "int64"))
        wave = tir.if_then_else(part == 0, tir.cos(angle), -tir.sin(angle)).astype(kind)
        here = data(batch, frame * hop_length + k.var + margin) * window(k.var).astype(kind)
        return te.sum(here * (wave * const(scale, kind)), axis=k)

    return te.compute(list(output_shape), body, "stft")
