"""Sorting and the largest elements, compiled to native code."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import topi
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr
from ..relax.scalars import const_int
from ..relax.struct_info import StructInfo, TupleStructInfo
from .inference import (
    as_expr,
    as_int,
    check_axis,
    check_count,
    fail,
    make_call,
    tensor,
    tensor_arg,
    with_dtype,
    written_dims,
)
from .lowering import te_call
from .record import define

__all__ = ["argsort", "sort", "topk"]


def sort(x: Expr, axis: int = -1, descending: bool = False) -> Expr:
    """Sorted values along ``axis``."""
    return make_call("sort", [as_expr(x)], {"axis": as_int(axis), "descending": bool(descending)})


def argsort(data: Expr, axis: int = -1, descending: bool = False, dtype: str = "int32") -> Expr:
    """Positions that sort ``data`` along ``axis``."""
    attrs = {"axis": as_int(axis), "descending": bool(descending), "dtype": dtype}
    return make_call("argsort", [as_expr(data)], attrs)


def topk(
    data: Expr, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> Expr:
    """The ``k`` largest (or smallest) values, their positions, or both."""
    attrs = {"k": as_int(k), "axis": as_int(axis), "ret_type": ret_type, "largest": bool(largest), "dtype": dtype}
    return make_call("topk", [as_expr(data)], attrs)


def _infer_sort(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    return tensor_arg(call, 0)


def _infer_argsort(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    return with_dtype(info, call.attrs.dtype or info.dtype)


def _infer_topk(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    a = call.attrs
    index = a.dtype or info.dtype
    if a.ret_type not in ("both", "values", "indices"):
        raise fail(call, f"ret_type must be both, values or indices, not {a.ret_type!r}")
    dims = written_dims(info)
    shape: Any = None
    if dims is not None:
        axis = check_axis(call, info.ndim, a.axis)
        extent = const_int(dims[axis])
        k = int(a.k)
        whole = k < 1 or (extent is not None and k >= extent)
        shape = [k if i == axis and not whole else d for i, d in enumerate(dims)]
    values = tensor(shape, info.dtype, info.ndim, info.vdevice)
    indices = tensor(shape, index, info.ndim, info.vdevice)
    if a.ret_type == "both":
        return TupleStructInfo([values, indices])
    return values if a.ret_type == "values" else indices


def _legalize_topk(builder: BlockBuilder, call: Call) -> Expr:
    a = call.attrs
    axis = int(a.axis)
    extent = const_int(call.args[0].struct_info.shape.values[axis])
    k = min(int(a.k), extent) if extent is not None else int(a.k)
    dtype = a.dtype or "int64"
    return te_call(
        builder, "topk", lambda x: topi.topk(x, k, axis, a.ret_type, not bool(a.largest), dtype), call.args[0]
    )


_X = np.random.default_rng(21).permutation(24).astype("float32").reshape(4, 6)


def _np_topk(
    x: np.ndarray, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32"
) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-x if largest else x, axis=axis, kind="stable")
    index = np.take(order, range(k), axis=axis)
    return np.take_along_axis(x, index, axis), index.astype(dtype)


define(
    "sort",
    _infer_sort,
    attrs="Sort",
    legalize=lambda b, c: te_call(
        b, "sort", lambda x: topi.sort(x, int(c.attrs.axis), not bool(c.attrs.descending)), c.args[0]
    ),
    reference=lambda x, axis=-1, descending=False: np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis),
    samples=lambda: [((_X,), {}), ((_X,), {"axis": 0, "descending": True})],
)
define(
    "argsort",
    _infer_argsort,
    attrs="Argsort",
    legalize=lambda b, c: te_call(
        b,
        "argsort",
        lambda x: topi.argsort(x, None, int(c.attrs.axis), not bool(c.attrs.descending), c.attrs.dtype or "int32"),
        c.args[0],
    ),
    reference=lambda x, axis=-1, descending=False, dtype="int32": np.argsort(
        -x if descending else x, axis, kind="stable"
    ).astype(dtype),
    samples=lambda: [((_X,), {}), ((_X,), {"axis": 0, "descending": True})],
)
define(
    "topk",
    _infer_topk,
    attrs="TopK",
    legalize=_legalize_topk,
    reference=_np_topk,
    samples=lambda: [((_X,), {"k": 3}), ((_X,), {"k": 2, "axis": 0, "largest": False})],
)
