"""Picking and placing elements at positions given by tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te, topi
from ..ir.expr import PrimExpr
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, PrimValue
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import PrimStructInfo, StructInfo
from ..relax.utils import unboxed
from .inference import (
    Number,
    OpTypeError,
    OpValueError,
    as_expr,
    as_int,
    as_prim_value,
    check_axis,
    check_count,
    fail,
    input_tensors,
    make_call,
    provably_differ,
    take_equal,
    tensor,
    tensor_arg,
    type_fail,
    written_dims,
)
from .lowering import te_call
from .record import define

__all__ = ["gather_elements", "gather_nd", "one_hot", "scatter_elements", "scatter_nd"]


def gather_elements(data: Expr, indices: Expr, axis: int = 0) -> Expr:
    """``out[i][j] = data[indices[i][j]][j]`` for axis 0, and so on."""
    return make_call("gather_elements", [as_expr(data), as_expr(indices)], {"axis": as_int(axis)})


def gather_nd(data: Expr, indices: Expr, batch_dims: int = 0) -> Expr:
    """Slices of ``data`` at the coordinates in the last axis of ``indices``."""
    return make_call("gather_nd", [as_expr(data), as_expr(indices)], {"batch_dims": as_int(batch_dims)})


def scatter_elements(data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update") -> Expr:
    """``out[indices[i][j]][j] = updates[i][j]`` for axis 0, and so on."""
    args = [as_expr(v) for v in (data, indices, updates)]
    return make_call("scatter_elements", args, {"axis": as_int(axis), "reduction": reduction})


def scatter_nd(data: Expr, indices: Expr, updates: Expr, reduction: str = "update") -> Expr:
    """Slices of ``data`` replaced at the coordinates in the last axis of ``indices``."""
    return make_call("scatter_nd", [as_expr(v) for v in (data, indices, updates)], {"reduction": reduction})


def one_hot(indices: Expr, on_value: Number, off_value: Number, depth: int, axis: int = -1) -> Expr:
    """A new axis with ``on_value`` at the index and ``off_value`` elsewhere."""
    args = [
        as_expr(indices),
        *(PrimValue(v) if isinstance(v, float) else as_prim_value(v) for v in (on_value, off_value)),
    ]
    _hot_dtype(args[1], args[2])
    if int(depth) <= 0:
        raise OpValueError(f"relax.one_hot: depth must be positive, but got {depth}")
    return make_call("one_hot", args, {"depth": as_int(depth), "axis": as_int(axis)})


def _check_index(call: Call, dtype: str) -> None:
    if dtype and "int" not in dtype:
        raise type_fail(call, f"requires the indices to have integer dtype, not {dtype}")


def _infer_gather_elements(call: Call, builder: BlockBuilder) -> StructInfo:
    data, indices = input_tensors(call, 2)
    _check_index(call, indices.dtype)
    if data.ndim < 0 or indices.ndim < 0:
        return tensor(None, data.dtype, -1, data.vdevice)
    check_axis(call, data.ndim, call.attrs.axis)
    if data.ndim != indices.ndim:
        raise fail(call, f"data and indices must have the same rank, not {data.ndim} and {indices.ndim}")
    return tensor(indices.shape, data.dtype, indices.ndim, data.vdevice)


def _infer_gather_nd(call: Call, builder: BlockBuilder) -> StructInfo:
    data, indices = input_tensors(call, 2)
    if indices.dtype and indices.dtype != "int64":
        raise type_fail(call, f"requires the input indices to have int64 dtype, not {indices.dtype}")
    batch = int(call.attrs.batch_dims)
    if batch < 0:
        raise fail(call, f"batch_dims must not be negative, but it is {batch}")
    if data.ndim < 0 or indices.ndim < 0:
        return tensor(None, data.dtype, -1, data.vdevice)
    if batch > data.ndim:
        raise fail(call, f"batch_dims must be in range [0, data.ndim], but batch_dims={batch}, data.ndim={data.ndim}")
    if batch > indices.ndim - 1:
        raise fail(call, f"batch_dims cannot exceed indices.ndim - 1, but it is {batch} of {indices.ndim - 1}")
    dims, where = written_dims(data), written_dims(indices)
    depth = const_int(where[-1]) if where is not None else None
    if depth is None or where is None:
        return tensor(None, data.dtype, -1, data.vdevice)
    if dims is None:
        return tensor(None, data.dtype, indices.ndim - 1 + data.ndim - depth - batch, data.vdevice)
    if batch + depth > data.ndim:
        raise fail(
            call,
            f"requires the last dimension of indices, {depth}, to be less than or equal to the rank of data minus "
            f"batch_dims, {data.ndim - batch}",
        )
    for have, want in zip(dims[:batch], where):
        take_equal(have, want)
    return tensor([*where[:-1], *dims[batch + depth :]], data.dtype, vdevice=data.vdevice)


def _infer_scatter_elements(call: Call, builder: BlockBuilder) -> StructInfo:
    data, indices, updates = input_tensors(call, 3)
    if data.ndim < 0:
        return tensor(None, data.dtype, -1, data.vdevice)
    if indices.ndim >= 0 and updates.ndim >= 0:
        if not data.ndim == indices.ndim == updates.ndim:
            raise fail(
                call,
                "requires data, indices and updates to have the same rank, but they have ranks "
                f"{data.ndim}, {indices.ndim} and {updates.ndim}",
            )
    if data.dtype and updates.dtype and data.dtype != updates.dtype:
        raise type_fail(
            call, f"requires the input data to have same type with updates, not {data.dtype} and {updates.dtype}"
        )
    _check_index(call, indices.dtype)
    a, b = written_dims(indices), written_dims(updates)
    for x, y in zip(a or (), b or ()):
        if provably_differ(x, y):
            raise fail(call, f"requires the indices tensor to have the same shape with updates tensor: {x} and {y}")
    return tensor(written_dims(data), data.dtype, data.ndim, data.vdevice)


def _infer_scatter_nd(call: Call, builder: BlockBuilder) -> StructInfo:
    data, indices, updates = input_tensors(call, 3)
    if not data.dtype or not updates.dtype:
        raise type_fail(call, "requires the input data and updates to have known dtype")
    if data.dtype != updates.dtype:
        raise type_fail(
            call, f"requires the input data to have same type with updates, not {data.dtype} and {updates.dtype}"
        )
    _check_index(call, indices.dtype)
    dims, where, new = written_dims(data), written_dims(indices), written_dims(updates)
    if dims is not None and where is not None and new is not None:
        _check_scatter_shape(call, dims, where, new)
    return tensor(dims, data.dtype, data.ndim, data.vdevice)


def _check_scatter_shape(
    call: Call, dims: Sequence[PrimExpr], where: Sequence[PrimExpr], new: Sequence[PrimExpr]
) -> None:
    """``updates.shape`` must be ``indices.shape[:-1] + data.shape[K:]``, where K is the last of ``indices.shape``."""
    depth = const_int(where[-1]) if where else None
    if depth is None:
        raise fail(call, f"needs a static shape for the last axis of indices, got {list(where)}")
    if depth > len(dims):
        raise fail(call, f"requires the last axis of indices, {depth}, to be at most the rank of data, {len(dims)}")
    wanted = [*where[:-1], *dims[depth:]]
    if len(wanted) != len(new):
        raise fail(call, f"requires the updates tensor to have rank {len(wanted)}, not {len(new)}")
    if not all(prove_equal(x, y) for x, y in zip(wanted, new)):
        raise fail(call, f"requires the updates tensor to have shape {wanted}, but got {list(new)}")


def _infer_one_hot(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 3)
    info = tensor_arg(call, 0)
    dtype = _hot_dtype(call.args[1], call.args[2])
    _check_index(call, info.dtype)
    if info.ndim < 0:
        return tensor(None, dtype, -1, info.vdevice)
    dims = written_dims(info)
    if dims is None:
        return tensor(None, dtype, info.ndim + 1, info.vdevice)
    at = check_axis(call, info.ndim + 1, call.attrs.axis)
    return tensor([*dims[:at], int(call.attrs.depth), *dims[at:]], dtype, vdevice=info.vdevice)


def _hot_dtype(on_value: Expr, off_value: Expr) -> str:
    """The dtype that both scalars have."""
    kinds = []
    for value in (on_value, off_value):
        info = value.struct_info_
        if not isinstance(info, PrimStructInfo):
            raise OpTypeError("relax.one_hot: expects on_value and off_value to be scalars (PrimValue)")
        kinds.append(info.dtype)
    if kinds[0] != kinds[1]:
        raise OpTypeError(
            f"relax.one_hot: on_value and off_value must have the same dtype, but got {kinds[0]} and {kinds[1]}"
        )
    return kinds[0]


def _coordinates_first(indices: te.Tensor) -> te.Tensor:
    ndim = len(indices.shape)
    return topi.transpose(indices, [ndim - 1, *range(ndim - 1)])


def _legalize_gather_nd(builder: BlockBuilder, call: Call) -> Expr:
    batch = int(call.attrs.batch_dims)
    return te_call(
        builder,
        "te_gather_nd",
        lambda d, i: topi.gather_nd(d, _coordinates_first(i), batch),
        call.args[0],
        call.args[1],
    )


def _legalize_scatter_nd(builder: BlockBuilder, call: Call) -> Expr:
    mode = call.attrs.reduction
    return te_call(
        builder, "scatter_nd", lambda d, i, u: topi.scatter_nd(d, _coordinates_first(i), u, mode), *call.args
    )


def _legalize_one_hot(builder: BlockBuilder, call: Call) -> Expr:
    indices, on, off = call.args
    on_value, off_value = (unboxed(a) for a in (on, off))
    dtype = on.struct_info.dtype
    depth, axis = int(call.attrs.depth), int(call.attrs.axis)
    if axis != -1 and axis < 0:
        axis += indices.struct_info.ndim + 1
    return te_call(builder, "one_hot", topi.one_hot, indices, on_value, off_value, depth, axis, dtype)


_X = np.arange(12, dtype="float32").reshape(3, 4)
_I = np.array([[2, 0, 1, 0], [1, 1, 2, 2]])


def _np_scatter(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0, reduction: str = "update"
) -> np.ndarray:
    out = data.copy()
    for at in np.ndindex(*indices.shape):
        where = list(at)
        where[axis] = int(indices[at])
        out[tuple(where)] = updates[at] if reduction == "update" else out[tuple(where)] + updates[at]
    return out


def _np_scatter_nd(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str = "update") -> np.ndarray:
    out = data.copy()
    for at in np.ndindex(*indices.shape[:-1]):
        where = tuple(int(v) for v in indices[at])
        out[where] = updates[at] if reduction == "update" else out[where] + updates[at]
    return out


def _np_one_hot(
    indices: np.ndarray, on_value: np.ndarray, off_value: np.ndarray, depth: int, axis: int = -1
) -> np.ndarray:
    made: Any = np.where(np.expand_dims(indices, -1) == np.arange(depth), on_value, off_value)
    return np.moveaxis(made, -1, axis)


define(
    "gather_elements",
    _infer_gather_elements,
    attrs="GatherElements",
    legalize=lambda b, c: te_call(b, "gather", topi.gather, c.args[0], int(c.attrs.axis), c.args[1]),
    reference=lambda data, indices, axis=0: np.take_along_axis(data, indices, axis),
    samples=lambda: [((_X, _I), {"axis": 0}), ((_X, np.array([[3], [0], [1]])), {"axis": 1})],
)
define(
    "gather_nd",
    _infer_gather_nd,
    attrs="GatherND",
    legalize=_legalize_gather_nd,
    reference=lambda data, indices, batch_dims=0: data[tuple(np.moveaxis(indices, -1, 0))],
    samples=lambda: [((_X, np.array([[0, 1], [2, 3]])), {}), ((_X, np.array([[2], [0]])), {})],
)
define(
    "scatter_elements",
    _infer_scatter_elements,
    attrs="ScatterElements",
    legalize=lambda b, c: te_call(
        b, "scatter_elements", topi.scatter_elements, *c.args, int(c.attrs.axis), c.attrs.reduction
    ),
    reference=_np_scatter,
    samples=lambda: [((_X, _I, np.ones((2, 4), "float32")), {"axis": 0, "reduction": "add"})],
)
define(
    "scatter_nd",
    _infer_scatter_nd,
    attrs="ScatterND",
    legalize=_legalize_scatter_nd,
    reference=_np_scatter_nd,
    samples=lambda: [((_X, np.array([[0], [2]]), np.ones((2, 4), "float32")), {})],
)
define(
    "one_hot",
    _infer_one_hot,
    attrs="OneHot",
    legalize=_legalize_one_hot,
    reference=_np_one_hot,
    samples=lambda: [((np.array([1, 0, 3]),), {"on_value": 1.0, "off_value": 0.0, "depth": 4})],
)
