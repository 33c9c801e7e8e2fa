"""Fourier transforms, also of windows of a signal, and mel filters."""

from __future__ import annotations

import math
from typing import Any

from .... import op, te, tir
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int, prove_equal
from ....support.errors import OpAttributeInvalid
from ....tir import const
from ...fourier import FourierTransform
from ..context import Context, convert, dtype_name
from .at_run_time import as_matrix, axis_flags, from_matrix, Halves


def _pair(ctx: Context, real: Expr, imaginary: Expr) -> Expr:
    rank = ctx.ndim(real)
    return ctx.emit(op.concat([ctx.emit(op.expand_dims(v, rank)) for v in (real, imaginary)], rank))


def _fitted(ctx: Context, x: Expr, have: PrimExpr, wanted: PrimExpr) -> Expr:
    """Rows cut, or filled with zeros, to a length."""
    if prove_equal(have, wanted):
        return x

    def compute(data: te.Tensor, size: list[PrimExpr]) -> te.Tensor:
        def body(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            there = data(i, tir.max(tir.min(j, size[1] - 1), 0))
            return tir.if_then_else(j < size[1], there, const(0, data.dtype))

        return te.compute([data.shape[0], size[0]], body, "fitted")

    return ctx.builder.emit_te(compute, x, [wanted, have], primfunc_name_hint="fitted")


def _dft_along(ctx: Context, inputs: list[Any], attrs: dict[str, Any], axis: Expr | int, length: Expr | None) -> Expr:
    x = ctx.tensor(inputs[0])
    kind, dims = ctx.dtype(x), ctx.dims(x)
    rank = len(dims) - 1
    inverse, onesided = bool(attrs.get("inverse", 0)), bool(attrs.get("onesided", 0))
    if kind in ("float16", "bfloat16"):
        raise OpAttributeInvalid(f"DFT of {kind}")
    parts = const_int(dims[-1])
    if parts not in (1, 2):
        raise OpAttributeInvalid("the last axis of DFT holds a real number, or a real and an imaginary part")
    real = ctx.emit(op.squeeze(ctx.emit(op.strided_slice(x, [rank], [0], [1])), [rank]))
    imaginary = None
    if parts == 2:
        imaginary = ctx.emit(op.squeeze(ctx.emit(op.strided_slice(x, [rank], [1], [2])), [rank]))
    places = [const(axis, "int64")] if isinstance(axis, int) else ctx.elements(axis)
    # Axes that count from the end count the one of the parts, too.
    places = [tir.if_then_else(a < 0, a + rank + 1, a) for a in places]
    flags = axis_flags(ctx, ctx.named(places), rank)
    halves = Halves(ctx, dims[:-1], flags)
    real = as_matrix(ctx, real, halves)
    imaginary = None if imaginary is None else as_matrix(ctx, imaginary, halves)
    have = halves.shape[1]
    one, two = const(1, "int64"), const(2, "int64")
    given = None if length is None else ctx.element(length)
    back = inverse and onesided
    if given is None:
        given = (have - one) * two if back else have
    (size,) = ctx.named([given])
    (half,) = ctx.named([tir.floordiv(size, two) + one])
    work = FourierTransform(ctx.builder, size, kind, inverse)
    wanted = half if back else size
    real = _fitted(ctx, real, have, wanted)
    imaginary = None if imaginary is None else _fitted(ctx, imaginary, have, wanted)
    if back:
        made = [work.real_again(real, imaginary if imaginary is not None else ctx.emit(op.zeros_like(real)), half)]
    else:
        made = work.forward(real, imaginary, half if onesided else size)
    if inverse:
        made = [work.scaled(m) for m in made]
    width = size if back else half if onesided else size
    shape = ctx.named([tir.if_then_else(f > 0, width, d) for f, d in zip(flags, dims)])
    halves = halves.resized(width)
    out = [from_matrix(ctx, m, halves, shape) for m in made]
    return _pair(ctx, *out) if len(out) == 2 else ctx.emit(op.expand_dims(out[0], rank))


@convert("DFT", 17)
def _dft17(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    return _dft_along(ctx, inputs, attrs, int(attrs.get("axis", 1)), inputs[1] if len(inputs) > 1 else None)


@convert("DFT", 20)
def _dft(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    given = [*inputs, *[None] * (3 - len(inputs))]
    return _dft_along(ctx, inputs, attrs, -2 if given[2] is None else given[2], given[1])


@convert("STFT", 17)
def _stft(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Transforms of windows of a signal ``[batch, length(, parts)]``: frames times one matrix, the window in it."""
    given = [*inputs, *[None] * (4 - len(inputs))]
    signal, window = ctx.tensor(given[0]), given[2]
    kind = ctx.dtype(signal)
    if ctx.ndim(signal) == 2:
        signal = ctx.emit(op.expand_dims(signal, 2))
    batch, total, parts = ctx.dims(signal)
    step = ctx.element(given[1])
    if given[3] is not None:
        size = ctx.element(given[3])
    elif window is not None:
        size = ctx.dims(window)[0]
    else:
        raise OpAttributeInvalid("STFT needs a window or the length of the frames")
    size, step = ctx.named([size, step])
    (frames,) = ctx.named([tir.max(tir.floordiv(total - size, tir.max(step, 1)) + 1, 0)])
    onesided = bool(attrs.get("onesided", 1)) and const_int(parts) == 1
    (bins,) = ctx.named([tir.floordiv(size, 2) + 1 if onesided else size])

    def framed(part: int) -> Expr:
        def compute(data: te.Tensor, numbers: list[PrimExpr]) -> te.Tensor:
            count, width, by = numbers
            return te.compute(
                [data.shape[0], count, width], lambda b, f, i: data(b, f * by + i, const(part, "int64")), "frames"
            )

        out = ctx.builder.emit_te(compute, signal, [frames, size, step], primfunc_name_hint="frames")
        if window is None:
            return out
        return ctx.emit(op.multiply(*ctx.agreeing([out, window])))

    work = FourierTransform(ctx.builder, size, kind, inverse=False)
    made = work.forward(framed(0), framed(1) if const_int(parts) == 2 else None, bins)
    return _pair(ctx, *made)


@convert("MelWeightMatrix", 17)
def _mel_weights(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Triangles over the bins of a spectrum, equally wide on the mel scale."""
    kind = dtype_name(int(attrs.get("output_datatype", 1)))
    mels, size, rate = (ctx.element(x) for x in inputs[:3])
    (bins,) = ctx.named([tir.floordiv(size, 2) + 1])
    edges = [ctx.emit(ctx.reshape(ctx.emit(op.astype(ctx.tensor(x), "float64")), [1])) for x in inputs[3:5]]
    (count,) = ctx.named([mels])

    def compute(low: te.Tensor, high: te.Tensor, numbers: list[PrimExpr]) -> te.Tensor:
        rows, columns, length, hertz = numbers

        def f(value: float | PrimExpr) -> PrimExpr:
            return value.astype("float64") if isinstance(value, PrimExpr) else const(value, "float64")

        def mel(hz: PrimExpr) -> PrimExpr:
            return f(2595.0 / math.log(10)) * tir.log(f(1) + hz / f(700))

        def corner(k: PrimExpr) -> PrimExpr:
            first, last = mel(low(0)), mel(high(0))
            at = f(k) * ((last - first) / f(columns + 2)) + first
            hz = f(700) * (tir.exp(at * f(math.log(10) / 2595)) - f(1))
            return tir.floor(f(length + 1) * hz / f(hertz)).astype("int64")

        corners = te.compute([columns + 2], corner, "corners")

        def body(i: PrimExpr, j: PrimExpr) -> PrimExpr:
            left, middle, right = corners(j), corners(j + 1), corners(j + 2)
            rising = tir.if_then_else(
                middle == left, tir.if_then_else(i == middle, f(1), f(0)), f(i - left) / f(tir.max(middle - left, 1))
            )
            falling = f(right - i) / f(tir.max(right - middle, 1))
            below = tir.if_then_else(tir.And(i >= left, i <= middle), rising, f(0))
            beyond = tir.And(tir.And(i >= middle, i < right), right > middle)
            return tir.if_then_else(beyond, falling, below).astype(kind)

        return te.compute([rows, columns], body, "mel_weights")

    numbers = ctx.named([bins, count, size, rate])
    return ctx.builder.call_te(compute, *edges, numbers, primfunc_name_hint="mel_weights")
