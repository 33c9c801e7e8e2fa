"""Picking and placing elements at positions given by tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import topi
from ..relax.expr import Call, Expr, PrimValue
from ..relax.scalars import const_int
from ..relax.struct_info import PrimStructInfo, StructInfo
from .inference import (
    as_expr,
    as_prim_value,
    check_axis,
    check_count,
    fail,
    input_tensors,
    make_call,
    tensor,
    tensor_arg,
    type_fail,
)
from .record import define

__all__ = ["gather_elements", "gather_nd", "one_hot", "scatter_elements", "scatter_nd"]


def gather_elements(data: Any, indices: Any, axis: int = 0) -> Expr:
    """``out[i][j] = data[indices[i][j]][j]`` for axis 0, and so on."""
    return make_call("gather_elements", [as_expr(data), as_expr(indices)], {"axis": int(axis)})


def gather_nd(data: Any, indices: Any, batch_dims: int = 0) -> Expr:
    """Slices of ``data`` at the coordinates in the last axis of ``indices``."""
    return make_call("gather_nd", [as_expr(data), as_expr(indices)], {"batch_dims": int(batch_dims)})


def scatter_elements(data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "update") -> Expr:
    """``out[indices[i][j]][j] = updates[i][j]`` for axis 0, and so on."""
    args = [as_expr(v) for v in (data, indices, updates)]
    return make_call("scatter_elements", args, {"axis": int(axis), "reduction": reduction})


def scatter_nd(data: Any, indices: Any, updates: Any, reduction: str = "update") -> Expr:
    """Slices of ``data`` replaced at the coordinates in the last axis of ``indices``."""
    return make_call("scatter_nd", [as_expr(v) for v in (data, indices, updates)], {"reduction": reduction})


def one_hot(indices: Any, on_value: Any, off_value: Any, depth: int, axis: int = -1) -> Expr:
    """A new axis with ``on_value`` at the index and ``off_value`` elsewhere."""
    args = [as_expr(indices), as_prim_value(on_value), as_prim_value(off_value)]
    return make_call("one_hot", args, {"depth": int(depth), "axis": int(axis)})


def _check_index(call: Call, dtype: str) -> None:
    if dtype and "int" not in dtype:
        raise type_fail(call, f"requires the indices to have integer dtype, not {dtype}")


def _infer_gather_elements(call: Call, builder: Any) -> StructInfo:
    data, indices = input_tensors(call, 2)
    _check_index(call, indices.dtype)
    if data.ndim >= 0 and indices.ndim >= 0 and data.ndim != indices.ndim:
        raise fail(call, f"data and indices must have the same rank, not {data.ndim} and {indices.ndim}")
    if data.ndim >= 0:
        check_axis(call, data.ndim, call.attrs.axis)
    return tensor(indices.shape, data.dtype, indices.ndim, data.vdevice)


def _infer_gather_nd(call: Call, builder: Any) -> StructInfo:
    data, indices = input_tensors(call, 2)
    _check_index(call, indices.dtype)
    batch = int(call.attrs.batch_dims)
    if batch < 0 or (data.ndim >= 0 and batch > data.ndim):
        raise fail(call, f"batch_dims {batch} is out of range")
    if data.ndim < 0 or indices.ndim < 0:
        return tensor(None, data.dtype, -1, data.vdevice)
    dims, where = data.dims(), indices.dims()
    depth = const_int(where[-1]) if where is not None else None
    if depth is None:
        return tensor(None, data.dtype, -1, data.vdevice)
    if batch + depth > data.ndim:
        raise fail(
            call, f"the last dimension of indices, {depth}, plus batch_dims {batch} exceeds the rank {data.ndim}"
        )
    ndim = indices.ndim - 1 + data.ndim - depth - batch
    if dims is None or where is None:
        return tensor(None, data.dtype, ndim, data.vdevice)
    return tensor([*where[:-1], *dims[batch + depth :]], data.dtype, vdevice=data.vdevice)


def _infer_scatter_elements(call: Call, builder: Any) -> StructInfo:
    data, indices, updates = input_tensors(call, 3)
    _check_index(call, indices.dtype)
    if data.dtype and updates.dtype and data.dtype != updates.dtype:
        raise type_fail(call, f"data and updates must have one dtype, not {data.dtype} and {updates.dtype}")
    ranks = {i.ndim for i in (data, indices, updates) if i.ndim >= 0}
    if len(ranks) > 1:
        raise fail(call, f"data, indices and updates must have the same rank, not {sorted(ranks)}")
    if data.ndim >= 0:
        check_axis(call, data.ndim, call.attrs.axis)
    a, b = indices.dims(), updates.dims()
    if a is not None and b is not None:
        for x, y in zip(a, b):
            p, q = const_int(x), const_int(y)
            if p is not None and q is not None and p != q:
                raise fail(call, f"indices and updates must have the same shape: {p} and {q}")
    return data


def _infer_scatter_nd(call: Call, builder: Any) -> StructInfo:
    data, indices, updates = input_tensors(call, 3)
    _check_index(call, indices.dtype)
    if data.dtype and updates.dtype and data.dtype != updates.dtype:
        raise type_fail(call, f"data and updates must have one dtype, not {data.dtype} and {updates.dtype}")
    where = indices.dims()
    depth = const_int(where[-1]) if where else None
    if depth is not None and data.ndim >= 0:
        if depth > data.ndim:
            raise fail(call, f"the last dimension of indices, {depth}, exceeds the rank of data, {data.ndim}")
        expected = indices.ndim - 1 + data.ndim - depth
        if updates.ndim >= 0 and updates.ndim != expected:
            raise fail(call, f"updates must have rank {expected}, not {updates.ndim}")
        dims, new = data.dims(), updates.dims()
        if dims is not None and new is not None and where is not None:
            for x, y in zip([*where[:-1], *dims[depth:]], new):
                p, q = const_int(x), const_int(y)
                if p is not None and q is not None and p != q:
                    raise fail(call, f"updates have the wrong shape: {q} where {p} is needed")
    return data


def _infer_one_hot(call: Call, builder: Any) -> StructInfo:
    check_count(call, 3)
    info = tensor_arg(call, 0)
    _check_index(call, info.dtype)
    on, off = (call.args[i].struct_info_ for i in (1, 2))
    if not isinstance(on, PrimStructInfo) or not isinstance(off, PrimStructInfo):
        raise type_fail(call, "expects on_value and off_value to be scalars (PrimValue)")
    if on.dtype != off.dtype:
        raise type_fail(call, f"on_value and off_value must have the same dtype, not {on.dtype} and {off.dtype}")
    depth, axis = int(call.attrs.depth), int(call.attrs.axis)
    if depth <= 0:
        raise fail(call, f"depth must be positive, not {depth}")
    if info.ndim < 0:
        return tensor(None, on.dtype, -1, info.vdevice)
    at = check_axis(call, info.ndim + 1, axis)
    dims = info.dims()
    if dims is None:
        return tensor(None, on.dtype, info.ndim + 1, info.vdevice)
    return tensor([*dims[:at], depth, *dims[at:]], on.dtype, vdevice=info.vdevice)


def _te(builder: Any, name: str, compute: Any, *args: Any, **kwargs: Any) -> Expr:
    made: Expr = builder.call_te(compute, *args, primfunc_name_hint=name, **kwargs)
    return made


def _coordinates_first(indices: Any) -> Any:
    ndim = len(indices.shape)
    return topi.transpose(indices, [ndim - 1, *range(ndim - 1)])


def _legalize_gather_nd(builder: Any, call: Call) -> Expr:
    batch = int(call.attrs.batch_dims)
    return _te(
        builder, "gather_nd", lambda d, i: topi.gather_nd(d, _coordinates_first(i), batch), call.args[0], call.args[1]
    )


def _legalize_scatter_nd(builder: Any, call: Call) -> Expr:
    mode = call.attrs.reduction
    return _te(builder, "scatter_nd", lambda d, i, u: topi.scatter_nd(d, _coordinates_first(i), u, mode), *call.args)


def _legalize_one_hot(builder: Any, call: Call) -> Expr:
    indices, on, off = call.args
    on_value, off_value = (a.value if isinstance(a, PrimValue) else a for a in (on, off))
    dtype = on.struct_info.dtype
    depth, axis = int(call.attrs.depth), int(call.attrs.axis)
    if axis != -1 and axis < 0:
        axis += indices.struct_info.ndim + 1
    return _te(builder, "one_hot", topi.one_hot, indices, on_value, off_value, depth, axis, dtype)


_X = np.arange(12, dtype="float32").reshape(3, 4)
_I = np.array([[2, 0, 1, 0], [1, 1, 2, 2]])


def _np_scatter(data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "update") -> Any:
    out = data.copy()
    for at in np.ndindex(*indices.shape):
        where = list(at)
        where[axis] = int(indices[at])
        out[tuple(where)] = updates[at] if reduction == "update" else out[tuple(where)] + updates[at]
    return out


def _np_scatter_nd(data: Any, indices: Any, updates: Any, reduction: str = "update") -> Any:
    out = data.copy()
    for at in np.ndindex(*indices.shape[:-1]):
        where = tuple(int(v) for v in indices[at])
        out[where] = updates[at] if reduction == "update" else out[where] + updates[at]
    return out


def _np_one_hot(indices: Any, on_value: Any, off_value: Any, depth: int, axis: int = -1) -> Any:
    made: Any = np.where(np.expand_dims(indices, -1) == np.arange(depth), on_value, off_value)
    return np.moveaxis(made, -1, axis)


define(
    "gather_elements",
    _infer_gather_elements,
    legalize=lambda b, c: _te(b, "gather", topi.gather, c.args[0], int(c.attrs.axis), c.args[1]),
    reference=lambda data, indices, axis=0: np.take_along_axis(data, indices, axis),
    samples=lambda: [((_X, _I), {"axis": 0}), ((_X, np.array([[3], [0], [1]])), {"axis": 1})],
    arg_names=("data", "indices"),
)
define(
    "gather_nd",
    _infer_gather_nd,
    legalize=_legalize_gather_nd,
    reference=lambda data, indices, batch_dims=0: data[tuple(np.moveaxis(indices, -1, 0))],
    samples=lambda: [((_X, np.array([[0, 1], [2, 3]])), {}), ((_X, np.array([[2], [0]])), {})],
    arg_names=("data", "indices"),
)
define(
    "scatter_elements",
    _infer_scatter_elements,
    legalize=lambda b, c: _te(
        b, "scatter_elements", topi.scatter_elements, *c.args, int(c.attrs.axis), c.attrs.reduction
    ),
    reference=_np_scatter,
    samples=lambda: [((_X, _I, np.ones((2, 4), "float32")), {"axis": 0, "reduction": "add"})],
    arg_names=("data", "indices", "updates"),
)
define(
    "scatter_nd",
    _infer_scatter_nd,
    legalize=_legalize_scatter_nd,
    reference=_np_scatter_nd,
    samples=lambda: [((_X, np.array([[0], [2]]), np.ones((2, 4), "float32")), {})],
    arg_names=("data", "indices", "updates"),
)
define(
    "one_hot",
    _infer_one_hot,
    legalize=_legalize_one_hot,
    reference=_np_one_hot,
    samples=lambda: [((np.array([1, 0, 3]),), {"on_value": 1.0, "off_value": 0.0, "depth": 4})],
    arg_names=("indices", "on_value", "off_value"),
)
