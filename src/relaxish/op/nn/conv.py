"""Convolutions and transposed convolutions over one to three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import topi
from ...ir.expr import PrimExpr
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr, Var
from ...relax.layout import InferLayoutOutput, LayoutDecision, LayoutMap, initial_layout, transpose_like
from ...relax.op_table import Infer, Legalize, Sample
from ...relax.scalars import const_int, simplify
from ...relax.struct_info import StructInfo
from ...tir import const, floormod
from ..index import strided_slice
from ..inference import (
    Builder,
    Ints,
    OpValueError,
    as_expr,
    as_int,
    axis_list,
    common_vdevice,
    fail,
    input_tensors,
    int64_list,
    make_call,
    named,
    product_dtype,
    provably_differ,
    tensor,
    written_dims,
)
from ..kinds import CONTRACTION, Desired, can_block, initial_layouts, rank_of
from ..manipulate import permute_dims, reshape
from ..record import define
from .layouts import check_rank, layout_attr, reorder

__all__ = ["conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d"]

_DATA = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_KERNEL_T = {1: "IOW", 2: "IOHW"}
SPATIAL_AXES = {1: "one spatial axis", 2: "two spatial axes", 3: "three spatial axes"}


def _many(value: Ints, n: int, what: str) -> tuple[int, ...]:
    values = axis_list(value) or ()
    if len(values) == 1:
        values = values * n
    if len(values) != n:
        raise OpValueError(f"The input {what} length is expected to be {n}. However, the given {what} is {values}")
    return values


def _padding(value: Ints, n: int) -> tuple[int, ...]:
    values = axis_list(value) or ()
    if len(values) == 1:
        return values * (2 * n)
    if len(values) == n:
        return values * 2
    if len(values) == 2 * n:
        return values
    allowed = sorted({1, n, 2 * n})
    raise OpValueError(f"The input padding length is expected to be one of {allowed}. However, it is {values}")


def _check_positive(groups: int) -> None:
    if int(groups) <= 0:
        raise OpValueError(f"The number of groups in convolution is expected to be positive, but it is {groups}")


def _conv_call(
    name: str,
    n: int,
    operands: tuple[Any, Any],
    steps: dict[str, Any],
    groups: int,
    layouts: tuple[str, str, str | None],
    out_dtype: str | None,
) -> Expr:
    """A call of ``nn.<name>`` over ``n`` spatial axes; ``steps`` has strides, dilation and both paddings."""
    _check_positive(groups)
    data_layout, kernel_layout, out_layout = layouts
    attrs = {
        **{
            key: int64_list(_padding(value, n) if key == "padding" else _many(value, n, key))
            for key, value in steps.items()
        },
        "groups": as_int(groups),
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_layout": out_layout or data_layout,
        "out_dtype": "" if out_dtype is None else str(out_dtype),
    }
    return make_call(f"nn.{name}", [as_expr(operand) for operand in operands], attrs)


def _conv(n: int) -> Builder:
    def build(
        data: Expr,
        weight: Expr,
        strides: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        data_layout: str = _DATA[n],
        kernel_layout: str = _KERNEL[n],
        out_layout: str | None = None,
        out_dtype: str | None = None,
    ) -> Expr:
        steps = {"strides": strides, "padding": padding, "dilation": dilation}
        layouts = (data_layout, kernel_layout, out_layout)
        return _conv_call(f"conv{n}d", n, (data, weight), steps, groups, layouts, out_dtype)

    return named(build, f"conv{n}d", f"Convolution over {SPATIAL_AXES[n]}.")


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)


def _check_channels(call: Call, channels: PrimExpr, wanted: PrimExpr) -> None:
    if provably_differ(channels, wanted):
        raise fail(call, f"the data has {channels} input channels, but the weight and the groups need {wanted}")


def _check_groups(call: Call, value: PrimExpr, groups: int, what: str) -> None:
    if provably_differ(floormod(value, const(groups, "int64")), const(0, "int64")):
        raise fail(
            call, f"expects the number of {what} channels, {value}, to be divisible by the number of groups, {groups}"
        )


_OutputShape = Callable[[Call, int, list[Any], list[Any]], list[Any]]
"""The output's dimensions, channels second, of data (batch, channels, spatial) and weight (as the kernel layout)."""


def _inference(n: int, kernel: str, output_shape: _OutputShape) -> Infer:
    """Infer a convolution over ``n`` axes whose weight is converted to the layout ``kernel``."""

    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        data, weight = input_tensors(call, 2)
        attrs = call.attrs
        data_layout, to_data = layout_attr(call, "data", attrs.data_layout, _DATA[n])
        kernel_layout, to_kernel = layout_attr(call, "kernel", attrs.kernel_layout, kernel)
        out_layout, to_out = layout_attr(call, "output", attrs.out_layout, _DATA[n])
        check_rank(call, "data", data.ndim, data_layout)
        check_rank(call, "kernel", weight.ndim, kernel_layout)
        dtype = product_dtype(call, data, weight, "the data is {} but the weight is {}")
        device = common_vdevice(call, [data, weight])
        dims, weight_dims = written_dims(data), written_dims(weight)
        if dims is None or weight_dims is None:
            return tensor(None, dtype, len(out_layout), device)
        shape = output_shape(call, n, reorder(to_data, dims), reorder(to_kernel, weight_dims))
        return tensor(list(to_out.backward_shape(shape)), dtype, vdevice=device)

    return infer


def _conv_shape(call: Call, n: int, data: list[Any], weight: list[Any]) -> list[Any]:
    batch, channels, *size = data
    filters, per_group, *window = weight
    groups = int(call.attrs.groups)
    _check_channels(call, channels, per_group * groups)
    _check_groups(call, filters, groups, "output")
    pads, steps, gaps = ([int(v) for v in call.attrs[k]] for k in ("padding", "strides", "dilation"))
    shape = [batch, filters]
    for k in range(n):
        span = size[k] + (pads[k] + pads[k + n]) - gaps[k] * (window[k] - 1) - 1
        shape.append(simplify(span // steps[k] + 1))
    return shape


def _legalize_conv(n: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        a = call.attrs
        if a.out_layout != a.data_layout or len(a.data_layout) != n + 2 or len(a.kernel_layout) != n + 2:
            # Blocked layouts are the business of dedicated kernels.
            return call
        return builder.call_te(
            topi.nn.conv,
            call.args[0],
            call.args[1],
            stride=tuple(int(v) for v in a.strides),
            padding=tuple(int(v) for v in a.padding),
            dilation=tuple(int(v) for v in a.dilation),
            groups=int(a.groups),
            data_layout=a.data_layout,
            kernel_layout=a.kernel_layout,
            out_dtype=str(a.out_dtype) or None,
            primfunc_name_hint=f"conv{n}d",
        )

    return legalize


def _conv_transpose(n: int) -> Builder:
    one, zero = (1, 0) if n == 1 else ((1,) * n, (0,) * n)

    def build(
        data: Expr,
        weight: Expr,
        strides: Ints = one,
        padding: Ints = zero,
        output_padding: Ints = zero,
        dilation: Ints = one,
        groups: int = 1,
        data_layout: str = _DATA[n],
        kernel_layout: str = _KERNEL_T[n],
        out_layout: str | None = None,
        out_dtype: str | None = None,
    ) -> Expr:
        steps = {"strides": strides, "padding": padding, "output_padding": output_padding, "dilation": dilation}
        layouts = (data_layout, kernel_layout, out_layout)
        return _conv_call(f"conv{n}d_transpose", n, (data, weight), steps, groups, layouts, out_dtype)

    return named(build, f"conv{n}d_transpose", f"Transposed convolution over {SPATIAL_AXES[n]}.")


conv1d_transpose, conv2d_transpose = _conv_transpose(1), _conv_transpose(2)


def _transpose_shape(call: Call, n: int, data: list[Any], weight: list[Any]) -> list[Any]:
    batch, channels, *size = data
    inputs, per_group, *window = weight
    groups = int(call.attrs.groups)
    _check_channels(call, channels, inputs)
    _check_groups(call, inputs, groups, "input")
    steps, extra = ([int(v) for v in call.attrs[k]] for k in ("strides", "output_padding"))
    for step, more in zip(steps, extra):
        if more >= step:
            raise fail(call, f"expects the output padding less than the strides, but {more} >= {step}")
    pads, gaps = ([int(v) for v in call.attrs[k]] for k in ("padding", "dilation"))
    shape = [batch, per_group * groups]
    for k in range(n):
        reach = gaps[k] * (window[k] - 1) - (pads[k] + pads[k + n]) + extra[k] + 1
        shape.append(simplify((size[k] - 1) * steps[k] + reach))
    return shape


def _legalize_transpose(n: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        a = call.attrs
        if a.data_layout != _DATA[n] or a.out_layout != _DATA[n] or a.kernel_layout != _KERNEL_T[n]:
            return call
        return builder.call_te(
            topi.nn.conv_transpose,
            call.args[0],
            call.args[1],
            strides=tuple(int(v) for v in a.strides),
            padding=tuple(int(v) for v in a.padding),
            out_dtype=call.struct_info.dtype,
            output_padding=tuple(int(v) for v in a.output_padding),
            groups=int(a.groups),
            dilation=tuple(int(v) for v in a.dilation),
            primfunc_name_hint=f"conv{n}d_transpose",
        )

    return legalize


def _np_conv(
    x: np.ndarray, w: np.ndarray, strides: Ints = 1, padding: Ints = 0, dilation: Ints = 1, groups: int = 1
) -> np.ndarray:
    n = x.ndim - 2
    steps, gaps, pads = _many(strides, n, "strides"), _many(dilation, n, "dilation"), _padding(padding, n)
    padded = np.pad(x, [(0, 0), (0, 0), *((pads[k], pads[k + n]) for k in range(n))])
    window = w.shape[2:]
    size = [(padded.shape[2 + k] - gaps[k] * (window[k] - 1) - 1) // steps[k] + 1 for k in range(n)]
    out = np.zeros((x.shape[0], w.shape[0], *size), x.dtype)
    per_in, per_out = x.shape[1] // groups, w.shape[0] // groups
    for offset in np.ndindex(*window):
        index = tuple(slice(o * g, o * g + (s - 1) * t + 1, t) for o, g, s, t in zip(offset, gaps, size, steps))
        part = padded[(slice(None), slice(None), *index)]
        for g in range(groups):
            taps = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *offset)]
            out[:, g * per_out : (g + 1) * per_out] += np.einsum(
                "nc...,fc->nf...", part[:, g * per_in : (g + 1) * per_in], taps
            )
    return out


def _np_transpose(
    x: np.ndarray,
    w: np.ndarray,
    strides: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> np.ndarray:
    n = x.ndim - 2
    steps, gaps, extra = (_many(v, n, "attr") for v in (strides, dilation, output_padding))
    pads = _padding(padding, n)
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    full = [(x.shape[2 + k] - 1) * steps[k] + gaps[k] * (w.shape[2 + k] - 1) + 1 + extra[k] for k in range(n)]
    out = np.zeros((x.shape[0], per_out * groups, *full), x.dtype)
    for offset in np.ndindex(*w.shape[2:]):
        index = tuple(slice(o * g, o * g + (s - 1) * t + 1, t) for o, g, s, t in zip(offset, gaps, x.shape[2:], steps))
        for g in range(groups):
            part = np.einsum(
                "nc...,cf->nf...",
                x[:, g * per_in : (g + 1) * per_in],
                w[(slice(g * per_in, (g + 1) * per_in), slice(None), *offset)],
            )
            out[(slice(None), slice(g * per_out, (g + 1) * per_out), *index)] += part
    crop = tuple(slice(pads[k], full[k] - pads[k + n]) for k in range(n))
    return out[(slice(None), slice(None), *crop)]


def _conv_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    ndim = rank_of(call)
    fields = ("data_layout", "kernel_layout", "out_layout")
    attrs = [call.attrs[f] for f in fields]
    asked = desired.get(call.op.name)
    if asked is None:
        data, weight = (layouts.of(a) for a in call.args)
        start = initial_layout(ndim)
        new = [transpose_like(a, start, d.name) for a, d in zip(attrs, (data, weight, data))]
        return InferLayoutOutput([data, weight], [data], dict(zip(fields, new)))
    wanted = [*asked, asked[0]][:3]
    shapes = [a.struct_info.dims() for a in call.args]
    fits = all(can_block(have, want, shape) for have, want, shape in zip(attrs, wanted, shapes))
    if not fits and any(sum(c.isalpha() for c in w) != ndim for w in wanted):
        data, weight = initial_layouts(call, 0, 1)
        return InferLayoutOutput([data, weight], [data])
    made = [LayoutDecision(transpose_like(initial_layout(ndim), a, w)) for a, w in zip(attrs, wanted)]
    return InferLayoutOutput(made[:2], made[2:], dict(zip(fields, wanted)))


def _conv2d_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    a = call.attrs
    if a.data_layout != "NCHW" or a.kernel_layout != "OIHW" or a.out_layout != "NCHW":
        raise ValueError("the gradient of conv2d is defined for NCHW data and OIHW kernels")
    data, weight = call.args
    strides, pads, gaps = ([int(v) for v in a[k]] for k in ("strides", "padding", "dilation"))
    groups = int(a.groups)
    n, c, h, w = (_known(d) for d in data.struct_info.dims())
    f, per_group, kh, kw = (_known(d) for d in weight.struct_info.dims())
    out_h, out_w = (_known(d) for d in call.struct_info.dims()[2:])
    extra = [
        size - ((o - 1) * s + (k - 1) * g + 1 - p - q)
        for size, o, s, k, g, p, q in zip((h, w), (out_h, out_w), strides, (kh, kw), gaps, pads[:2], pads[2:])
    ]
    by_data = conv2d_transpose(out, weight, strides, pads, extra, gaps, groups, out_dtype=a.out_dtype)
    if groups != 1:
        data = reshape(data, (n, groups, c // groups, h, w))
        data = permute_dims(data, [1, 0, 2, 3, 4])
        data = reshape(data, (n * groups, c // groups, h, w))
    # The data correlated with the gradient, samples in the place of channels.
    by_weight = conv2d(
        data,
        out,
        strides=gaps,
        padding=pads,
        dilation=strides,
        groups=groups,
        data_layout="CNHW",
        kernel_layout="IOHW",
        out_layout="CNHW",
        out_dtype=a.out_dtype,
    )
    full_h = (h - (out_h - 1) * strides[0] - 1 + pads[0] + pads[2]) // gaps[0] + 1
    full_w = (w - (out_w - 1) * strides[1] - 1 + pads[1] + pads[3]) // gaps[1] + 1
    if (full_h, full_w) != (kh, kw):
        by_weight = strided_slice(by_weight, [0, 1, 2, 3], [0, 0, 0, 0], [f, per_group, kh, kw])
    return [by_data, by_weight]


def _known(dim: PrimExpr) -> int:
    value = const_int(dim)
    if value is None:
        raise ValueError("the gradient of conv2d needs known shapes")
    return value


def _floats() -> Callable[..., Any]:
    """Gives arrays of a shape, the same ones each time it is made."""
    rng = np.random.default_rng(4)
    return lambda *shape: rng.uniform(-1, 1, shape).astype("float32")


def _samples(n: int) -> Callable[[], Any]:
    def make() -> Sequence[Sample]:
        a = _floats()
        size, window = (7, 6, 5)[:n], (3, 2, 3)[:n]
        return [
            ((a(2, 4, *size), a(6, 4, *window)), {}),
            ((a(1, 4, *size), a(6, 2, *window)), {"strides": 2, "padding": 1, "groups": 2}),
            ((a(1, 4, *size), a(4, 1, *window)), {"groups": 4, "padding": 1}),
        ]

    return make


def _samples_transpose(n: int) -> Callable[[], Any]:
    def make() -> Sequence[Sample]:
        a = _floats()
        size, window = (4, 5)[:n], (3, 2)[:n]
        return [
            ((a(2, 4, *size), a(4, 3, *window)), {}),
            ((a(1, 4, *size), a(4, 3, *window)), {"strides": 2, "padding": 1, "output_padding": 1, "groups": 2}),
        ]

    return make


for _n in (1, 2, 3):
    define(
        f"nn.conv{_n}d",
        _inference(_n, _KERNEL[_n], _conv_shape),
        kind=CONTRACTION,
        attrs=f"Conv{_n}D",
        gradient=_conv2d_gradient if _n == 2 else None,
        layout=_conv_layout,
        legalize=_legalize_conv(_n),
        reference=_np_conv,
        samples=_samples(_n),
    )
for _n in (1, 2):
    define(
        f"nn.conv{_n}d_transpose",
        _inference(_n, _KERNEL_T[_n], _transpose_shape),
        kind=CONTRACTION,
        attrs=f"Conv{_n}DTranspose",
        precision="never",
        legalize=_legalize_transpose(_n),
        reference=_np_transpose,
        samples=_samples_transpose(_n),
    )
