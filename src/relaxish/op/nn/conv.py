"""Convolutions and transposed convolutions over one to three spatial axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import topi
from ...relax.expr import Call, Expr
from ...relax.scalars import simplify
from ...relax.struct_info import StructInfo, TensorStructInfo
from ...tir import const, floormod
from ..inference import (
    OpValueError,
    as_expr,
    as_int,
    axis_list,
    common_vdevice,
    fail,
    input_tensors,
    int64_list,
    make_call,
    provably_differ,
    tensor,
    type_fail,
    written_dims,
)
from ..record import define
from .layouts import check_rank, layout_attr, reorder

__all__ = ["conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d"]

_DATA = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_KERNEL_T = {1: "IOW", 2: "IOHW"}


def _many(value: Any, n: int, what: str) -> tuple[int, ...]:
    values = axis_list(value) or ()
    if len(values) == 1:
        values = values * n
    if len(values) != n:
        raise OpValueError(f"The input {what} length is expected to be {n}. However, the given {what} is {values}")
    return values


def _padding(value: Any, n: int) -> tuple[int, ...]:
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
    n: int,
    data: Any,
    weight: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str | None,
    out_dtype: Any,
) -> Expr:
    _check_positive(groups)
    attrs = {
        "strides": int64_list(_many(strides, n, "strides")),
        "padding": int64_list(_padding(padding, n)),
        "dilation": int64_list(_many(dilation, n, "dilation")),
        "groups": as_int(groups),
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_layout": out_layout or data_layout,
        "out_dtype": "" if out_dtype is None else str(out_dtype),
    }
    return make_call(f"nn.conv{n}d", [as_expr(data), as_expr(weight)], attrs)


def conv1d(
    data: Any,
    weight: Any,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str | None = None,
    out_dtype: Any = None,
) -> Expr:
    """Convolution over one spatial axis."""
    return _conv_call(
        1, data, weight, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype
    )


def conv2d(
    data: Any,
    weight: Any,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str | None = None,
    out_dtype: Any = None,
) -> Expr:
    """Convolution over two spatial axes."""
    return _conv_call(
        2, data, weight, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype
    )


def conv3d(
    data: Any,
    weight: Any,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str | None = None,
    out_dtype: Any = None,
) -> Expr:
    """Convolution over three spatial axes."""
    return _conv_call(
        3, data, weight, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype
    )


def _dtype(call: Call, a: TensorStructInfo, b: TensorStructInfo) -> str:
    wanted = str(call.attrs.out_dtype or "")
    if wanted and wanted != "void":
        return wanted
    if not a.dtype or not b.dtype:
        return ""
    if a.dtype != b.dtype:
        raise type_fail(call, f"the data is {a.dtype} but the weight is {b.dtype}; give out_dtype")
    return a.dtype


def _check_channels(call: Call, channels: Any, wanted: Any) -> None:
    if provably_differ(channels, wanted):
        raise fail(call, f"the data has {channels} input channels, but the weight and the groups need {wanted}")


def _check_groups(call: Call, value: Any, groups: int, what: str) -> None:
    if provably_differ(floormod(value, const(groups, "int64")), const(0, "int64")):
        raise fail(
            call, f"expects the number of {what} channels, {value}, to be divisible by the number of groups, {groups}"
        )


def _infer_conv(n: int) -> Callable[[Call, Any], StructInfo]:
    def infer(call: Call, builder: Any) -> StructInfo:
        data, weight = input_tensors(call, 2)
        attrs = call.attrs
        data_layout, to_data = layout_attr(call, "data", attrs.data_layout, _DATA[n])
        kernel_layout, to_kernel = layout_attr(call, "kernel", attrs.kernel_layout, _KERNEL[n])
        out_layout, to_out = layout_attr(call, "output", attrs.out_layout, _DATA[n])
        check_rank(call, "data", data.ndim, data_layout)
        check_rank(call, "kernel", weight.ndim, kernel_layout)
        dtype = _dtype(call, data, weight)
        device = common_vdevice(call, [data, weight])
        dims, kernel = written_dims(data), written_dims(weight)
        if dims is None or kernel is None:
            return tensor(None, dtype, len(out_layout), device)
        batch, channels, *size = reorder(to_data, dims)
        filters, per_group, *window = reorder(to_kernel, kernel)
        groups = int(attrs.groups)
        _check_channels(call, channels, per_group * groups)
        _check_groups(call, filters, groups, "output")
        pads, steps, gaps = ([int(v) for v in attrs[k]] for k in ("padding", "strides", "dilation"))
        shape = [batch, filters]
        for k in range(n):
            span = size[k] + (pads[k] + pads[k + n]) - gaps[k] * (window[k] - 1) - 1
            shape.append(simplify(span // steps[k] + 1))
        return tensor(list(to_out.backward_shape(shape)), dtype, vdevice=device)

    return infer


def _legalize_conv(n: int) -> Callable[[Any, Call], Expr]:
    def legalize(builder: Any, call: Call) -> Expr:
        a = call.attrs
        if a.out_layout != a.data_layout or len(a.data_layout) != n + 2 or len(a.kernel_layout) != n + 2:
            # Blocked layouts are the business of dedicated kernels.
            return call
        made: Expr = builder.call_te(
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
        return made

    return legalize


def _transpose_call(
    n: int,
    data: Any,
    weight: Any,
    strides: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str | None,
    out_dtype: Any,
) -> Expr:
    _check_positive(groups)
    attrs = {
        "strides": int64_list(_many(strides, n, "strides")),
        "padding": int64_list(_padding(padding, n)),
        "output_padding": int64_list(_many(output_padding, n, "output_padding")),
        "dilation": int64_list(_many(dilation, n, "dilation")),
        "groups": as_int(groups),
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_layout": out_layout or data_layout,
        "out_dtype": "" if out_dtype is None else str(out_dtype),
    }
    return make_call(f"nn.conv{n}d_transpose", [as_expr(data), as_expr(weight)], attrs)


def conv1d_transpose(
    data: Any,
    weight: Any,
    strides: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "IOW",
    out_layout: str | None = None,
    out_dtype: Any = None,
) -> Expr:
    """Transposed convolution over one spatial axis."""
    return _transpose_call(
        1,
        data,
        weight,
        strides,
        padding,
        output_padding,
        dilation,
        groups,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
    )


def conv2d_transpose(
    data: Any,
    weight: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    output_padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str | None = None,
    out_dtype: Any = None,
) -> Expr:
    """Transposed convolution over two spatial axes."""
    return _transpose_call(
        2,
        data,
        weight,
        strides,
        padding,
        output_padding,
        dilation,
        groups,
        data_layout,
        kernel_layout,
        out_layout,
        out_dtype,
    )


def _infer_transpose(n: int) -> Callable[[Call, Any], StructInfo]:
    def infer(call: Call, builder: Any) -> StructInfo:
        data, weight = input_tensors(call, 2)
        attrs = call.attrs
        data_layout, to_data = layout_attr(call, "data", attrs.data_layout, _DATA[n])
        kernel_layout, to_kernel = layout_attr(call, "kernel", attrs.kernel_layout, _KERNEL_T[n])
        out_layout, to_out = layout_attr(call, "output", attrs.out_layout, _DATA[n])
        check_rank(call, "data", data.ndim, data_layout)
        check_rank(call, "kernel", weight.ndim, kernel_layout)
        dtype = _dtype(call, data, weight)
        device = common_vdevice(call, [data, weight])
        dims, kernel = written_dims(data), written_dims(weight)
        if dims is None or kernel is None:
            return tensor(None, dtype, len(out_layout), device)
        batch, channels, *size = reorder(to_data, dims)
        inputs, per_group, *window = reorder(to_kernel, kernel)
        groups = int(attrs.groups)
        _check_channels(call, channels, inputs)
        _check_groups(call, inputs, groups, "input")
        steps, extra = ([int(v) for v in attrs[k]] for k in ("strides", "output_padding"))
        for step, more in zip(steps, extra):
            if more >= step:
                raise fail(call, f"expects the output padding less than the strides, but {more} >= {step}")
        pads, gaps = ([int(v) for v in attrs[k]] for k in ("padding", "dilation"))
        shape = [batch, per_group * groups]
        for k in range(n):
            reach = gaps[k] * (window[k] - 1) - (pads[k] + pads[k + n]) + extra[k] + 1
            shape.append(simplify((size[k] - 1) * steps[k] + reach))
        return tensor(list(to_out.backward_shape(shape)), dtype, vdevice=device)

    return infer


def _legalize_transpose(n: int) -> Callable[[Any, Call], Expr]:
    def legalize(builder: Any, call: Call) -> Expr:
        a = call.attrs
        if a.data_layout != _DATA[n] or a.out_layout != _DATA[n] or a.kernel_layout != _KERNEL_T[n]:
            return call
        made: Expr = builder.call_te(
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
        return made

    return legalize


def _np_conv(x: Any, w: Any, strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
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
    x: Any, w: Any, strides: Any = 1, padding: Any = 0, output_padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
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


def _samples(n: int) -> Callable[[], Any]:
    def make() -> Any:
        rng = np.random.default_rng(4)

        def a(*shape: int) -> Any:
            return rng.uniform(-1, 1, shape).astype("float32")

        size, window = (7, 6, 5)[:n], (3, 2, 3)[:n]
        return [
            ((a(2, 4, *size), a(6, 4, *window)), {}),
            ((a(1, 4, *size), a(6, 2, *window)), {"strides": 2, "padding": 1, "groups": 2}),
            ((a(1, 4, *size), a(4, 1, *window)), {"groups": 4, "padding": 1}),
        ]

    return make


def _samples_transpose(n: int) -> Callable[[], Any]:
    def make() -> Any:
        rng = np.random.default_rng(4)

        def a(*shape: int) -> Any:
            return rng.uniform(-1, 1, shape).astype("float32")

        size, window = (4, 5)[:n], (3, 2)[:n]
        return [
            ((a(2, 4, *size), a(4, 3, *window)), {}),
            ((a(1, 4, *size), a(4, 3, *window)), {"strides": 2, "padding": 1, "output_padding": 1, "groups": 2}),
        ]

    return make


for _n in (1, 2, 3):
    define(
        f"nn.conv{_n}d",
        _infer_conv(_n),
        legalize=_legalize_conv(_n),
        precision="always",
        reference=_np_conv,
        samples=_samples(_n),
        arg_names=("data", "weight"),
    )
for _n in (1, 2):
    define(
        f"nn.conv{_n}d_transpose",
        _infer_transpose(_n),
        legalize=_legalize_transpose(_n),
        reference=_np_transpose,
        samples=_samples_transpose(_n),
        arg_names=("data", "weight"),
    )
