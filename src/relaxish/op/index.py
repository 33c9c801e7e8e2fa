"""Picking slices by position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import te, topi
from ..arith import Analyzer
from ..ir.expr import PrimExpr
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue, ShapeExpr, Tuple, Var
from ..relax.layout import InferLayoutOutput, LayoutMap, initial_nlayout
from ..relax.scalars import const_int, fresh_analyzer, simplify
from ..relax.struct_info import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..support.sequences import of_kind
from ..tir import IntImm, const
from ..tir import all as all_of
from .base import no_grad
from .grad import take_backward
from .inference import (
    Number,
    OpValueError,
    as_expr,
    check_axes,
    check_axis,
    check_count,
    fail,
    input_tensors,
    make_call,
    opt_int,
    tensor,
    tensor_arg,
    type_fail,
    written_dims,
)
from .kinds import MOVEMENT, Desired, axis_in, plain_layout
from .record import define

__all__ = ["dynamic_strided_slice", "strided_slice", "take"]


def take(x: Expr, indices: Expr, axis: int | None = None) -> Expr:
    """Slices of ``x`` along ``axis`` at ``indices``; without an axis, ``x`` must have one dimension."""
    indices = (
        indices
        if isinstance(indices, Expr)
        else PrimValue(indices)
        if isinstance(indices, (int, PrimExpr))
        else as_expr(indices)
    )
    return make_call("take", [as_expr(x), indices], {"axis": opt_int(axis)})


def _infer_take(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    info = tensor_arg(call, 0)
    where = call.args[1].struct_info_
    if isinstance(where, PrimStructInfo):
        where = TensorStructInfo([], where.dtype)
    if not isinstance(where, TensorStructInfo):
        raise type_fail(call, f"requires the indices to be a Tensor or a scalar, not {type(where).__name__}")
    if where.dtype and "int" not in where.dtype:
        raise type_fail(call, f"requires the input indices to have integer dtype, not {where.dtype}")
    axis = call.attrs.axis
    if axis is None:
        if info.ndim != 1:
            raise fail(call, f"expects the input data to be 1-dimensional when axis is not given, not {info.ndim}")
        axis = 0
    if info.ndim < 0 or where.ndim < 0:
        return tensor(None, info.dtype, -1, info.vdevice)
    axis = check_axis(call, info.ndim, axis)
    dims, picks = written_dims(info), written_dims(where)
    if dims is None or picks is None:
        return tensor(None, info.dtype, info.ndim + where.ndim - 1, info.vdevice)
    return tensor([*dims[:axis], *picks, *dims[axis + 1 :]], info.dtype, vdevice=info.vdevice)


def _legalize_take(builder: BlockBuilder, call: Call) -> Expr:
    data, indices = call.args
    axis = opt_int(call.attrs.axis)
    if isinstance(indices.struct_info, PrimStructInfo):

        def scalar(a: te.Tensor, index: PrimExpr) -> te.Tensor:
            at = 0 if axis is None else axis % len(a.shape)
            shape = [d for i, d in enumerate(a.shape) if i != at]
            from .. import te

            return te.compute(shape, lambda *i: a(*i[:at], index, *i[at:]), "T_take")

        return builder.call_te(scalar, data, indices, primfunc_name_hint="take")
    made = builder.call_te(topi.take, data, indices, axis, mode="fast", primfunc_name_hint="take")
    return made


def _tuple_of(values: Expr | Iterable[Number]) -> Expr:
    if isinstance(values, Expr):
        if isinstance(values, ShapeExpr):
            return Tuple([PrimValue(v) for v in values.values])
        return values
    return Tuple([v if isinstance(v, Expr) else PrimValue(_int64(v)) for v in values])


def _check_lengths(parts: list[Any]) -> None:
    lengths = [len(p.fields) for p in of_kind(parts, Tuple)]
    if any(n != lengths[0] for n in lengths):
        raise OpValueError(
            "relax.strided_slice: requires that the axes, begin, end, and strides tuples are all the same length, "
            f"but they have {lengths} elements"
        )


def _int64(value: Number) -> Number:
    return IntImm("int64", int(value)) if isinstance(value, (int, IntImm)) else value


def strided_slice(
    x: Expr,
    axes: Expr | Sequence[Number],
    begin: Expr | Sequence[Number],
    end: Expr | Sequence[Number],
    strides: Expr | Sequence[Number] | None = None,
    assume_inbound: bool = False,
) -> Expr:
    """``x[begin:end:stride]`` on ``axes``."""
    parts = [_tuple_of(p) for p in (axes, begin, end)]
    if strides is not None:
        parts.append(_tuple_of(strides))
    _check_lengths(parts)
    return make_call("strided_slice", [as_expr(x), *parts], {"assume_inbound": bool(assume_inbound)})


def _prim_tuple(call: Call, index: int, name: str) -> list[Any] | None:
    """The scalars of a tuple argument; None if the value of one is not known."""
    info = call.args[index].struct_info_
    if type(info) is ObjectStructInfo:
        return None
    fields = info.fields if isinstance(info, TupleStructInfo) else ()
    if not isinstance(info, TupleStructInfo) or not all(
        isinstance(f, PrimStructInfo) and f.dtype == "int64" for f in fields
    ):
        raise type_fail(
            call, f"requires the {name} argument to be a tuple of int64 PrimValues, but it has struct info {info}"
        )
    values = [getattr(f, "value", None) for f in fields]
    return None if any(v is None for v in values) else values


def slice_extent(
    begin: PrimExpr,
    end: PrimExpr,
    stride: PrimExpr,
    extent: PrimExpr,
    inbound: bool = False,
    analyzer: Analyzer | None = None,
) -> PrimExpr:
    """Number of elements of a slice of one axis."""
    known = [const_int(v) for v in (begin, end, stride, extent)]
    if None not in known:
        first, last, step, size = known
        return const(len(range(int(size or 0))[first:last:step]), "int64")
    if not inbound:
        return simplify(topi.slice_length(begin, end, stride, extent, False), analyzer)
    analyzer = analyzer or fresh_analyzer()
    zero = const(0, "int64")
    with analyzer.constraint_scope(all_of(zero <= begin, begin <= extent, zero <= end, end <= extent)):
        return simplify(topi.slice_length(begin, end, stride, extent, True), analyzer)


def _infer_slice(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.args) not in (4, 5):
        raise fail(
            call,
            "accepts either four arguments (data, axes, begin, end) or five (data, axes, begin, end, strides), "
            f"but received {len(call.args)}",
        )
    info = tensor_arg(call, 0)
    names = ("axes", "begin", "end", "strides")
    parts = [_prim_tuple(call, k + 1, names[k]) for k in range(len(call.args) - 1)]
    unknown = tensor(None, info.dtype, info.ndim, info.vdevice)
    axes = parts[0]
    if info.shape is None or axes is None or any(p is None for p in parts):
        return unknown
    for name, part in zip(names, parts):
        if len(part or ()) != len(axes):
            raise fail(call, f"the number of axes, {len(axes)}, must match the number of {name}, {len(part or ())}")
    dims = info.dims()
    if dims is None:
        return unknown if axes else info
    places = [a for a in map(const_int, axes) if a is not None]
    if len(places) != len(axes):
        return unknown
    shape = list(dims)
    steps = parts[3] if len(parts) == 4 else [const(1, "int64")] * len(axes)
    for axis, b, e, s in zip(check_axes(call, info.ndim, places), parts[1], parts[2], steps):  # type: ignore[arg-type]
        if const_int(s) == 0:
            raise fail(call, "requires non-zero strides")
        shape[axis] = slice_extent(b, e, s, dims[axis], bool(call.attrs.assume_inbound), builder.get_analyzer())
    return tensor(shape, info.dtype, vdevice=info.vdevice)


def _legalize_slice(builder: BlockBuilder, call: Call) -> Expr:
    parts = [_prim_tuple(call, i, "bounds") for i in range(1, len(call.args))]
    if any(p is None for p in parts) or any(const_int(a) is None for a in parts[0] or ()):
        return call
    axes = [const_int(a) for a in parts[0] or ()]
    begin, end = parts[1], parts[2]
    strides = parts[3] if len(parts) == 4 else [const(1, "int64")] * len(axes)
    return builder.call_te(
        topi.strided_slice,
        call.args[0],
        begin,
        end,
        strides,
        axes,
        slice_mode="end",
        assume_inbound=bool(call.attrs.assume_inbound),
        primfunc_name_hint="strided_slice",
    )


def dynamic_strided_slice(x: Expr, begin: Expr, end: Expr, strides: Expr) -> Expr:
    """A slice of every axis whose bounds are one-dimensional int64 tensors."""
    return make_call("dynamic_strided_slice", [as_expr(v) for v in (x, begin, end, strides)])


def _infer_dynamic(call: Call, builder: BlockBuilder) -> StructInfo:
    data, *bounds = input_tensors(call, 4)
    if data.ndim < 0:
        return tensor(None, data.dtype, -1, data.vdevice)
    for name, info in zip(("begin", "end", "strides"), bounds):
        if info.ndim != 1:
            raise fail(call, f"requires {name} to be a 1-dimensional tensor (list of values), not {info.ndim}")
        dims = written_dims(info)
        size = None if dims is None else const_int(dims[0])
        if size is None:
            raise fail(call, f"requires {name} to have a known number of values")
        if size != data.ndim:
            raise fail(
                call, f"requires the number of indices in {name}, {size}, to equal the number of axes, {data.ndim}"
            )
        if info.dtype and info.dtype != "int64":
            raise type_fail(call, f"expects the input {name} values to be all int64, but {name} has dtype {info.dtype}")
    return tensor(None, data.dtype, data.ndim, data.vdevice)


def dynamic_slice_shape(x: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor) -> te.Tensor:
    """The shape of a slice with tensor bounds, as an int64 tensor."""
    from .. import te, tir

    def canonical(index: PrimExpr, extent: PrimExpr, step: PrimExpr) -> PrimExpr:
        low = tir.Select(step < 0, const(-1, "int64"), const(0, "int64"))
        high = tir.Select(step < 0, extent - 1, extent)
        index = tir.Select(index < 0, index + extent, index)
        return tir.min(tir.max(index, low), high)

    def body(i: PrimExpr) -> PrimExpr:
        extent: Any = const(-1, "int64")
        for k, dim in enumerate(x.shape):
            extent = tir.Select(i.equal(const(k, "int64")), dim, extent)
        step = strides(i)
        first, last = canonical(begin(i), extent, step), canonical(end(i), extent, step)
        backward = tir.ceildiv(first - last, -step)
        forward = tir.ceildiv(last - first, step)
        return tir.Select(step < 0, backward, forward)

    return te.compute((const(len(x.shape), "int64"),), body, "T_shape_func_strided_slice_dynamic")


def _legalize_dynamic(builder: BlockBuilder, call: Call) -> Expr:
    """The output shape is computed first, checked against symbolic dimensions, then used."""
    from ..tir import Var as TirVar
    from .base import tensor_to_shape

    x, begin, end, strides = call.args
    ndim = call.struct_info.ndim
    shape = builder.emit(builder.call_te(dynamic_slice_shape, x, begin, end, strides, primfunc_name_hint="shape_func"))
    as_shape = builder.emit(tensor_to_shape(shape))
    symbols = [TirVar("s", "int64") for _ in range(ndim)]
    matched: Var = builder.match_cast(as_shape, ShapeStructInfo(symbols))
    del matched
    return builder.call_te(
        topi.dynamic_strided_slice,
        x,
        begin,
        end,
        strides,
        ShapeExpr(symbols),
        primfunc_name_hint="dynamic_strided_slice",
    )


def _take_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    return [take_backward(out, call.args[0], call.args[1], opt_int(call.attrs.axis)), no_grad(call.args[1])]


def _slice_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    layout = plain_layout(call, layouts)
    axes = call.args[1]
    if not isinstance(axes, Tuple) or not all(isinstance(f, PrimValue) for f in axes.fields):
        return None
    places = [const_int(f.value) for f in axes.fields]
    if any(p is None for p in places):
        return None
    moved = Tuple([PrimValue(axis_in(layout, int(p or 0))) for p in places])
    rest = [initial_nlayout(a) for a in call.args[1:]]
    return InferLayoutOutput([layout, *rest], [layout], {}, {1: moved})


_X = np.arange(24, dtype="float32").reshape(4, 6)


def _slice_reference(
    x: np.ndarray,
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    assume_inbound: bool = False,
) -> np.ndarray:
    index = [slice(None)] * x.ndim
    for k, axis in enumerate(axes):
        index[axis] = slice(begin[k], end[k], strides[k] if strides else None)
    return x[tuple(index)]


define(
    "take",
    _infer_take,
    attrs="Take",
    gradient=_take_gradient,
    legalize=_legalize_take,
    reference=lambda x, indices, axis=None: np.take(x, indices, axis),
    samples=lambda: [((_X, np.array([3, 0, 2])), {"axis": 0}), ((_X, np.array([[1], [5]])), {"axis": 1})],
)
define(
    "strided_slice",
    _infer_slice,
    kind=MOVEMENT,
    attrs="StridedSlice",
    layout=_slice_layout,
    legalize=_legalize_slice,
    reference=_slice_reference,
    samples=lambda: [
        ((_X,), {"axes": [0, 1], "begin": [1, 0], "end": [3, 6], "strides": [1, 2]}),
        ((_X,), {"axes": [1], "begin": [-4], "end": [100]}),
    ],
)
define("dynamic_strided_slice", _infer_dynamic, data_dependent=True, legalize=_legalize_dynamic)
