"""Windowed and adaptive pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te, topi
from ...ir.expr import PrimExpr
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr, Var
from ...relax.op_table import Gradient, Infer, Legalize
from ...relax.scalars import const_int, simplify
from ...relax.struct_info import StructInfo, TensorStructInfo
from ...tir import IntImm
from ..grad import avg_pool2d_backward, max_pool2d_backward
from ..inference import (
    Builder,
    Ints,
    as_expr,
    check_count,
    int64_list,
    make_call,
    named,
    tensor,
    tensor_arg,
    written_dims,
)
from ..kinds import POOLING
from ..record import define
from .conv import SPATIAL_AXES, _many, _padding
from .layouts import check_rank, layout_attr, reorder

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _pool(kind: str, n: int) -> Builder:
    """The builder of ``nn.<kind>_pool<n>d``; what is not given is the same along all axes."""
    ones, zeros = (1, 0) if n == 1 else ((1,) * n, (0,) * n)

    def build(
        data: Expr,
        pool_size: Ints = ones,
        strides: Ints = ones,
        padding: Ints = zeros,
        dilation: Ints = ones,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = _LAYOUT[n],
        out_layout: str | None = None,
    ) -> Expr:
        size = int64_list(_many(pool_size, n, "pool_size"))
        attrs = {
            "pool_size": size,
            "strides": size if strides is None else int64_list(_many(strides, n, "strides")),
            "padding": int64_list(_padding(padding, n)),
            "dilation": int64_list(_many(dilation, n, "dilation")),
            "ceil_mode": bool(ceil_mode),
            "count_include_pad": bool(count_include_pad),
            "layout": layout,
            "out_layout": out_layout or layout,
        }
        return make_call(f"nn.{kind}_pool{n}d", [as_expr(data)], attrs)

    what = "largest element" if kind == "max" else "mean"
    return named(build, f"{kind}_pool{n}d", f"The {what} of each window of {SPATIAL_AXES[n]}.")


max_pool1d, max_pool2d, max_pool3d = _pool("max", 1), _pool("max", 2), _pool("max", 3)
avg_pool1d, avg_pool2d, avg_pool3d = _pool("avg", 1), _pool("avg", 2), _pool("avg", 3)


def _adaptive(n: int) -> Builder:
    def build(
        data: Expr, output_size: Ints | None = None, layout: str = _LAYOUT[n], out_layout: str | None = None
    ) -> Expr:
        size = None if output_size is None else int64_list(_many(output_size, n, "output_size"))
        attrs = {"output_size": size, "layout": layout, "out_layout": out_layout or layout}
        return make_call(f"nn.adaptive_avg_pool{n}d", [as_expr(data)], attrs)

    doc = f"The mean of windows that divide {SPATIAL_AXES[n]} into ``output_size`` parts."
    return named(build, f"adaptive_avg_pool{n}d", doc)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _adaptive(1), _adaptive(2), _adaptive(3)


def _read(call: Call, n: int) -> tuple[TensorStructInfo, Any, Any, Any, Any]:
    """The data's info and dimensions (None if unknown), its layout's conversion, and the output's layout with its own."""
    check_count(call, 1)
    info = tensor_arg(call, 0)
    layout, convert = layout_attr(call, "input", call.attrs.layout, _LAYOUT[n])
    out_layout, to_out = layout_attr(call, "output", call.attrs.out_layout, _LAYOUT[n])
    check_rank(call, "data", info.ndim, layout)
    return info, written_dims(info), convert, out_layout, to_out


def _infer_pool(n: int) -> Infer:
    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        a = call.attrs
        info, dims, convert, out_layout, to_out = _read(call, n)
        if dims is None:
            return tensor(None, info.dtype, len(out_layout), info.vdevice)
        batch, channels, *size = reorder(convert, dims)
        window, steps, gaps, pads = ([int(v) for v in a[k]] for k in ("pool_size", "strides", "dilation", "padding"))
        shape = [batch, channels]
        for k in range(n):
            span = size[k] + (pads[k] + pads[k + n]) - gaps[k] * (window[k] - 1) - 1
            shape.append(_pooled(span, size[k], pads[k], steps[k], bool(a.ceil_mode)))
        return tensor(list(to_out.backward_shape(shape)), info.dtype, vdevice=info.vdevice)

    return infer


def _pooled(span: PrimExpr, extent: PrimExpr, head: int, step: int, ceil_mode: bool) -> PrimExpr:
    if not ceil_mode:
        return simplify(span // step + 1)
    count = simplify((span + (step - 1)) // step + 1)
    known, size = const_int(count), const_int(extent)
    if known is not None and size is not None and (known - 1) * step >= size + head:
        # A last window that starts in the tail padding does not count.
        return IntImm("int64", known - 1)
    return count


def _infer_adaptive(n: int) -> Infer:
    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        a = call.attrs
        info, dims, convert, out_layout, to_out = _read(call, n)
        if dims is None:
            if a.output_size is None and a.layout == a.out_layout and info.shape is not None:
                return info
            return tensor(None, info.dtype, len(out_layout), info.vdevice)
        batch, channels, *size = reorder(convert, dims)
        wanted = size if a.output_size is None else [int(v) for v in a.output_size]
        return tensor(list(to_out.backward_shape([batch, channels, *wanted])), info.dtype, vdevice=info.vdevice)

    return infer


def _legalize_pool(kind: str, n: int) -> Legalize:
    compute = getattr(topi.nn, f"pool{n}d")

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        a = call.attrs
        if a.out_layout != a.layout:
            return call
        return builder.call_te(
            compute,
            call.args[0],
            kernel=tuple(int(v) for v in a.pool_size),
            stride=tuple(int(v) for v in a.strides),
            dilation=tuple(int(v) for v in a.dilation),
            padding=tuple(int(v) for v in a.padding),
            pool_type=kind,
            ceil_mode=bool(a.ceil_mode),
            layout=a.layout,
            count_include_pad=bool(a.count_include_pad),
            primfunc_name_hint=f"{kind}_pool{n}d",
        )

    return legalize


def _legalize_adaptive(n: int) -> Legalize:
    compute = topi.nn.adaptive_pool if n == 2 else getattr(topi.nn, f"adaptive_pool{n}d")

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        a = call.attrs
        if a.out_layout != a.layout:
            return call

        def te_pool(data: te.Tensor) -> te.Tensor:
            letters = [c for c in a.layout if c.isalpha()]
            size = (
                [data.shape[letters.index(c)] for c in "DHW"[3 - n :]]
                if a.output_size is None
                else [int(v) for v in a.output_size]
            )
            return compute(data, size, "avg", a.layout)

        return builder.call_te(te_pool, call.args[0], primfunc_name_hint=f"adaptive_avg_pool{n}d")

    return legalize


def _gradient(kind: str) -> Gradient:
    backward = max_pool2d_backward if kind == "max" else avg_pool2d_backward

    def gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
        a = call.attrs
        size, steps, pads, gaps = ([int(v) for v in a[k]] for k in ("pool_size", "strides", "padding", "dilation"))
        ceil, borders = bool(a.ceil_mode), bool(a.count_include_pad)
        return [backward(out, call.args[0], size, steps, pads, gaps, ceil, borders, a.layout, a.out_layout)]

    return gradient


def _np_pool(kind: str, n: int) -> Callable[..., Any]:
    def pool(
        x: np.ndarray,
        pool_size: Ints,
        strides: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> np.ndarray:
        window = _many(pool_size, n, "pool_size")
        steps = window if strides is None else _many(strides, n, "strides")
        gaps, pads = _many(dilation, n, "dilation"), _padding(padding, n)
        size = []
        for k in range(n):
            span = x.shape[2 + k] + pads[k] + pads[k + n] - gaps[k] * (window[k] - 1) - 1
            count = (span + (steps[k] - 1 if ceil_mode else 0)) // steps[k] + 1
            if ceil_mode and (count - 1) * steps[k] >= x.shape[2 + k] + pads[k]:
                count -= 1
            size.append(count)
        out = np.zeros((*x.shape[:2], *size), x.dtype)
        for at in np.ndindex(*size):
            index, whole = [], 1
            for k in range(n):
                start = at[k] * steps[k] - pads[k]
                spots = [start + w * gaps[k] for w in range(window[k])]
                whole *= len([s for s in spots if s < x.shape[2 + k] + pads[k + n]])
                index.append([s for s in spots if 0 <= s < x.shape[2 + k]])
            part = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *index)]
            flat = part.reshape(*x.shape[:2], -1)
            if kind == "max":
                out[(..., *at)] = flat.max(-1)
            else:
                out[(..., *at)] = flat.sum(-1) / (whole if count_include_pad else flat.shape[-1])
        return out

    return pool


def _np_adaptive(n: int) -> Callable[..., Any]:
    def pool(x: np.ndarray, output_size: Ints | None = None) -> np.ndarray:
        size = x.shape[2:] if output_size is None else _many(output_size, n, "output_size")
        out = np.zeros((*x.shape[:2], *size), x.dtype)
        for at in np.ndindex(*size):
            index = [range(i * d // s, -((-(i + 1) * d) // s)) for i, d, s in zip(at, x.shape[2:], size)]
            part = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *index)]
            out[(..., *at)] = part.reshape(*x.shape[:2], -1).mean(-1)
        return out

    return pool


def _x(n: int) -> np.ndarray:
    return np.random.default_rng(8).uniform(-1, 1, (2, 3, *(9, 8, 7)[:n])).astype("float32")


def _samples(n: int) -> Callable[[], Any]:
    return lambda: [
        ((_x(n),), {"pool_size": 2}),
        ((_x(n),), {"pool_size": 3, "strides": 2, "padding": 1}),
        ((_x(n),), {"pool_size": 3, "strides": 2, "ceil_mode": True}),
        ((_x(n),), {"pool_size": 3, "strides": 2, "padding": 1, "count_include_pad": True}),
    ]


def _samples_adaptive(n: int) -> Callable[[], Any]:
    return lambda: [((_x(n),), {"output_size": 1}), ((_x(n),), {"output_size": 3}), ((_x(n),), {"output_size": 5})]


for _n in (1, 2, 3):
    for _kind in ("max", "avg"):
        define(
            f"nn.{_kind}_pool{_n}d",
            _infer_pool(_n),
            kind=POOLING,
            attrs=f"Pool{_n}D",
            gradient=_gradient(_kind) if _n == 2 else None,
            legalize=_legalize_pool(_kind, _n),
            reference=_np_pool(_kind, _n),
            samples=_samples(_n),
        )
    define(
        f"nn.adaptive_avg_pool{_n}d",
        _infer_adaptive(_n),
        kind=POOLING,
        attrs=f"AdaptivePool{_n}D",
        legalize=_legalize_adaptive(_n),
        reference=_np_adaptive(_n),
        samples=_samples_adaptive(_n),
    )
