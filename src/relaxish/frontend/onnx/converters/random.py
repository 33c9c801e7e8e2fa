"""Draws by chance: each run of a machine gives new ones; a seed gives the same ones in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import op, te
from ....ir.expr import PrimExpr
from ....relax.call_forms import call_pure_packed
from ....relax.expr import Expr, PrimValue
from ....relax.struct_info import TensorStructInfo
from ....topi import random
from ..context import Context, convert, Converter, dtype_name


def _key(ctx: Context, attrs: dict[str, Any]) -> Expr:
    """The key of one run for one node. The seed is a float's bits; -1 stands for none."""
    seed = int(np.float32(attrs["seed"]).view(np.uint32)) if "seed" in attrs else -1
    call = call_pure_packed(
        "vm.builtin.random_key",
        PrimValue(seed),
        PrimValue(ctx.next_number()),
        sinfo_args=TensorStructInfo([1], "int64"),
    )
    return ctx.builder.emit(call)


def _kind(ctx: Context, inputs: list[Any], attrs: dict[str, Any], default: str = "float32") -> str:
    if "dtype" in attrs:
        return dtype_name(int(attrs["dtype"]))
    return ctx.dtype(inputs[0]) if inputs else default


def _drawn(name: str, normal: bool) -> Converter:
    @convert(name)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        shape: list[Any] = list(attrs["shape"]) if not inputs else ctx.dims(inputs[0])
        kind = _kind(ctx, inputs, attrs)
        if normal:
            bounds = float(attrs.get("mean", 0.0)), float(attrs.get("scale", 1.0))
        else:
            bounds = float(attrs.get("low", 0.0)), float(attrs.get("high", 1.0))
        draw = random.normal if normal else random.uniform

        def compute(key: Any, size: list[PrimExpr]) -> te.Tensor:
            return draw(key, size, *bounds, kind)

        sizes = [PrimValue(s).value if isinstance(s, int) else s for s in shape]
        return ctx.builder.call_te(compute, _key(ctx, attrs), sizes, primfunc_name_hint=draw.__name__)

    return run


_drawn("RandomNormal", normal=True)
_drawn("RandomNormalLike", normal=True)
_drawn("RandomUniform", normal=False)
_drawn("RandomUniformLike", normal=False)


@convert("Bernoulli", 15)
def _bernoulli(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    kind = _kind(ctx, inputs, attrs)
    return ctx.builder.call_te(
        random.bernoulli, _key(ctx, attrs), ctx.tensor(inputs[0]), kind, primfunc_name_hint="bernoulli"
    )


@convert("Multinomial", 7)
def _multinomial(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """Classes by the logarithms of their weights."""
    x = ctx.tensor(inputs[0])
    if ctx.dtype(x) not in ("float32", "float64"):
        x = ctx.emit(op.astype(x, "float32"))
    apart = ctx.emit(op.subtract(x, ctx.emit(op.max(x, [1], True))))
    running = ctx.emit(op.cumsum(ctx.emit(op.exp(apart)), 1))
    count, kind = int(attrs.get("sample_size", 1)), dtype_name(int(attrs.get("dtype", 6)))
    return ctx.builder.call_te(
        random.multinomial, _key(ctx, attrs), running, count, kind, primfunc_name_hint="multinomial"
    )
