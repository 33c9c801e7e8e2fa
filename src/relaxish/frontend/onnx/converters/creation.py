"""Constants, ranges and matrices of fixed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import op
from ....relax.expr import Expr, PrimValue
from ....relax.scalars import const_int
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
            raise NotImplementedError("Range with bounds computed at run time")
    start, end, step = bounds
    return op.arange(start, end, step, kind)


@convert("EyeLike")
def _eye_like(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x = ctx.tensor(inputs[0])
    kind = dtype_name(int(attrs["dtype"])) if "dtype" in attrs else ctx.dtype(x)
    return op.eye_like(x, int(attrs.get("k", 0)), kind)


@convert("Trilu")
def _trilu(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    k = 0
    if len(inputs) > 1 and inputs[1] is not None:
        k = int(ctx.need_constant(inputs[1], "k of Trilu").reshape(-1)[0])
    x = ctx.tensor(inputs[0])
    return op.triu(x, k) if attrs.get("upper", 1) else op.tril(x, k)
