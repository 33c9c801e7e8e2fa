"""Constants, ranges and matrices of fixed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import op, te, tir
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....relax.expr import Expr, PrimValue
from ....relax.scalars import const_int
from ....tir import const
from ..context import Context, convert, dtype_name


@convert("Constant")
def _constant(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    for name, kind in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if name in attrs:
            return ctx.const(attrs[name], kind)
    value = np.asarray(attrs["value"])
    return ctx.const(value, str(value.dtype))


@convert("ConstantOfShape")
def _constant_of_shape(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    value = np.asarray(attrs.get("value", np.zeros(1, "float32"))).reshape(-1)[0]
    kind = str(value.dtype)
    shape = ctx.scalars(inputs[0])
    if shape is None:
        return op.full(ctx.run_time_shape(ctx.tensor(inputs[0])), ctx.const(value, kind), kind)
    known = [const_int(d) for d in shape]
    if all(k is not None for k in known) and int(np.prod(known or [1])) <= 1024:  # type: ignore[arg-type]
        return ctx.const(np.full(known, value), kind)
    return op.full(shape, ctx.const(value, kind), kind)


@convert("Range")
def _range(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    folded = ctx.fold(lambda a, b, c: np.arange(a.item(), b.item(), c.item(), dtype=a.dtype), inputs)
    if folded is not None:
        return folded
    kind = ctx.dtype(inputs[0])
    bounds = []
    for x in inputs:
        known = ctx.setting(x)
        if isinstance(x, PrimValue):
            bounds.append(x.value)
        elif known is not None:
            bounds.append(known.reshape(-1)[0].item())
        else:
            return _range_at_run_time(ctx, [ctx.tensor(v) for v in inputs], kind)
    start, end, step = bounds
    return op.arange(start, end, step, kind)


def _range_at_run_time(ctx: Context, bounds: list[Expr], kind: str) -> Expr:
    """A range between bounds that only the run knows: first how many numbers there are, then the numbers."""
    scalars = [ctx.emit(ctx.reshape(b, [1])) if ctx.ndim(b) == 0 else b for b in bounds]
    scalars = [s if ctx.dtype(s) == kind else ctx.emit(op.astype(s, kind)) for s in scalars]

    def numbers(start: te.Tensor, end: te.Tensor, step: te.Tensor) -> te.Tensor:
        def body(i: PrimExpr) -> PrimExpr:
            span, by = end(i) - start(i), step(i)
            if dt.is_float(kind):
                exact = tir.ceil(span.astype("float64") / by.astype("float64")).astype("int64")
            else:
                # Rounded up: the distance is to a multiple of the step.
                exact = -tir.floordiv(-span.astype("int64"), by.astype("int64"))
            return tir.max(exact, const(0, "int64"))

        return te.compute([1], body, "range_size")

    (count,) = ctx.run_time_shape(ctx.builder.emit_te(numbers, *scalars, primfunc_name_hint="range_size"))
    first, _, step = scalars

    def values(start: te.Tensor, by: te.Tensor, size: PrimExpr) -> te.Tensor:
        return te.compute([size], lambda i: start(0) + i.astype(kind) * by(0), "range")

    return ctx.builder.emit_te(values, first, step, count, primfunc_name_hint="range")


@convert("EyeLike")
def _eye_like(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    kind = dtype_name(int(attrs["dtype"])) if "dtype" in attrs else ctx.dtype(x)
    return op.eye_like(x, int(attrs.get("k", 0)), kind)


@convert("Trilu")
def _trilu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    k: int | PrimExpr = 0
    if len(inputs) > 1 and inputs[1] is not None:
        k = ctx.element(inputs[1])
        k = k if (known := const_int(k)) is None else known
    x = ctx.tensor(inputs[0])
    return op.triu(x, k) if attrs.get("upper", 1) else op.tril(x, k)
