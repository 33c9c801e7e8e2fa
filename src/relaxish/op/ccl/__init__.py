"""Collective communication between the workers of a distributed run."""

from __future__ import annotations

from typing import Any

from ... import topi
from ...ir.attrs import make_node
from ...relax.block_builder import BlockBuilder
from ...relax.call_forms import call_dps_packed
from ...relax.expr import Call, Expr, PrimValue, ShapeExpr
from ...relax.struct_info import StructInfo, TensorStructInfo
from ...tir import const, div, floormod
from ..inference import as_expr, check_axis, check_count, fail, make_call, provably_differ, tensor, tensor_arg
from ..kinds import COLLECTIVE, join_same
from ..record import define

__all__ = ["allgather", "allreduce", "broadcast_from_worker0", "scatter_from_worker0"]

_REDUCTIONS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}


def allreduce(x: Expr, op_type: str = "sum", in_group: bool = True) -> Expr:
    """The tensors of all workers (of the group) combined: ``sum``, ``prod``, ``min``, ``max`` or ``avg``."""
    if op_type not in _REDUCTIONS:
        raise ValueError(f"Allreduce only supports limited reduction operations, including {list(_REDUCTIONS)}, "
                         f"but got {op_type}.")  # fmt: skip
    attrs = make_node("relax.attrs.AllReduceAttrs", op_type=op_type, in_group=in_group)
    return make_call("ccl.allreduce", [as_expr(x)], attrs)


def allgather(x: Expr, num_workers: int, in_group: bool = True) -> Expr:
    """The tensors of all workers, one behind the other along the first axis."""
    attrs = make_node("relax.attrs.AllGatherAttrs", num_workers=int(num_workers), in_group=in_group)
    return make_call("ccl.allgather", [as_expr(x)], attrs)


def broadcast_from_worker0(x: Expr) -> Expr:
    """Worker 0's tensor on every worker."""
    return make_call("ccl.broadcast_from_worker0", [as_expr(x)])


def scatter_from_worker0(x: Expr, num_workers: int, axis: int = 0) -> Expr:
    """Worker 0's tensor cut along ``axis``, one piece for each worker."""
    attrs = make_node("relax.attrs.ScatterCollectiveAttrs", num_workers=int(num_workers), axis=int(axis))
    return make_call("ccl.scatter_from_worker0", [as_expr(x)], attrs)


def _infer_same(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    return tensor_arg(call, 0)


def _infer_allgather(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    dims = info.dims()
    if dims is None:
        return info
    grown = [dims[0] * call.attrs.num_workers, *dims[1:]]
    return tensor(grown, info.dtype, vdevice=info.vdevice)


def _infer_scatter(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    dims = info.dims()
    workers = int(call.attrs.num_workers)
    if dims is None:
        raise fail(call, "the input tensor of scatter_from_worker0 should have defined shape")
    axis = check_axis(call, len(dims), call.attrs.axis)
    if provably_differ(floormod(dims[axis], const(workers, "int64")), const(0, "int64")):
        raise fail(
            call,
            f"scatter_from_worker0 expects the size of axis {axis} of input tensor to be divisible by the num_workers. "
            f"However, axis {axis} of input tensor is {dims[axis]} while num_workers is {workers}",
        )
    shape = list(dims)
    shape[axis] = div(dims[axis], workers)
    return tensor(shape, info.dtype, vdevice=info.vdevice)


def _legalize_allreduce(builder: BlockBuilder, call: Call) -> Expr:
    x = call.args[0]
    kind = ShapeExpr([_REDUCTIONS[call.attrs.op_type]])
    args = [x, kind, PrimValue(const(bool(call.attrs.in_group), "bool"))]
    return call_dps_packed("runtime.disco.allreduce", args, x.struct_info)


def _legalize_allgather(builder: BlockBuilder, call: Call) -> Expr:
    info = _infer_allgather(call, builder)
    args = [call.args[0], PrimValue(const(bool(call.attrs.in_group), "bool"))]
    return call_dps_packed("runtime.disco.allgather", args, info)


def _legalize_broadcast(builder: BlockBuilder, call: Call) -> Expr:
    x = call.args[0]
    return call_dps_packed("runtime.disco.broadcast_from_worker0", [x, PrimValue(const(False, "bool"))], x.struct_info)


def _legalize_scatter(builder: BlockBuilder, call: Call) -> Expr:
    data, workers, axis = call.args[0], int(call.attrs.num_workers), int(call.attrs.axis)
    info = data.struct_info
    parts: list[Any] = []
    for k, dim in enumerate(info.shape.values):
        parts += [workers, div(dim, workers)] if k == axis else [dim]
    # Pieces lie behind one another only along the first axis.
    pieces = builder.emit_te(topi.reshape, data, parts)
    if axis != 0:
        order = [axis, *range(axis), *range(axis + 1, len(parts))]
        pieces = builder.emit_te(topi.transpose, pieces, order)
    out = TensorStructInfo(pieces.struct_info.shape.values[1:], info.dtype, info.vdevice)
    return call_dps_packed("runtime.disco.scatter_from_worker0", [pieces, PrimValue(const(False, "bool"))], out)


define("ccl.allreduce", _infer_same, kind=COLLECTIVE, attrs="AllReduce", axes=join_same, legalize=_legalize_allreduce)
define("ccl.allgather", _infer_allgather, kind=COLLECTIVE, attrs="AllGather", legalize=_legalize_allgather)
define("ccl.broadcast_from_worker0", _infer_same, kind=COLLECTIVE, legalize=_legalize_broadcast)
define("ccl.scatter_from_worker0", _infer_scatter, attrs="ScatterCollective", legalize=_legalize_scatter)
