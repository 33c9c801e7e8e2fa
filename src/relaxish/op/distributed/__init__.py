"""Tensors spread over a mesh of devices: annotations, changes of placement, calls on each worker's part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.attrs import make_node
from ...ir.expr import GlobalVar, PrimExpr
from ...ir.op import Op
from ...relax.block_builder import BlockBuilder
from ...relax.call_forms import call_pure_packed
from ...relax.distributed import DeviceMesh, Placement
from ...relax.expr import Call, Expr
from ...relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ...tir import Var, const, div, floormod
from ..index import strided_slice
from ..inference import (
    as_expr,
    check_axis,
    check_count,
    fail,
    make_call,
    provably_differ,
    tensor,
    tensor_arg,
    type_fail,
)
from ..kinds import join_same
from ..record import define

__all__ = ["annotate_sharding", "call_tir_local_view", "redistribute", "redistribute_replica_to_shard"]


def annotate_sharding(input: Expr, device_mesh: DeviceMesh, placement: Placement) -> Expr:
    """A wish: the tensor is to be placed on the mesh like this. It computes nothing."""
    attrs = make_node("relax.attrs.DistributionAttrs", device_mesh=device_mesh, placement=placement)
    return make_call("dist.annotate_sharding", [as_expr(input)], attrs)


def redistribute(input: Expr, device_mesh: DeviceMesh, placement: Placement) -> Expr:
    """A distributed tensor under another placement."""
    attrs = make_node("relax.attrs.DistributionAttrs", device_mesh=device_mesh, placement=placement)
    return make_call("dist.redistribute", [as_expr(input)], attrs)


def call_tir_local_view(
    gvar: GlobalVar,
    args: Expr | Sequence[Expr],
    out_sinfo: StructInfo | Sequence[StructInfo],
    tir_vars: Expr | Sequence[PrimExpr] | None = None,
) -> Call:
    """As ``call_tir``; every worker calls the function on its own part of the tensors."""
    from ...relax.call_forms import call_tir

    plain = call_tir(gvar, args, out_sinfo, tir_vars)
    return Call(Op.get("relax.dist.call_tir_local_view"), plain.args, plain.attrs, plain.sinfo_args)


def redistribute_replica_to_shard(input: Expr, num_workers: int, axis: int) -> Expr:
    """Each worker's slice, along ``axis``, of a tensor that all workers hold."""
    attrs = make_node("relax.attrs.ScatterCollectiveAttrs", num_workers=int(num_workers), axis=int(axis))
    return make_call("dist.redistribute_replica_to_shard", [as_expr(input)], attrs)


def _infer_annotate(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info: StructInfo = call.args[0].struct_info
    return info


def _infer_redistribute(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info: Any = call.args[0].struct_info
    inner = getattr(info, "tensor_sinfo", None)
    if inner is None:
        raise type_fail(call, f"expects a distributed tensor, but the input has struct info {type(info).__name__}")
    made: StructInfo = type(info)(inner, call.attrs.device_mesh, call.attrs.placement)
    return made


def _infer_local_view(call: Call, builder: BlockBuilder) -> StructInfo:
    if len(call.sinfo_args) == 1:
        only: StructInfo = call.sinfo_args[0]
        return only
    return TupleStructInfo(call.sinfo_args)


def _infer_shard(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    whole: Any = call.args[0].struct_info
    spread = getattr(whole, "tensor_sinfo", None)
    info = tensor_arg(call, 0) if spread is None else spread
    dims = info.dims()
    if dims is None:
        return info
    workers, axis = int(call.attrs.num_workers), check_axis(call, len(dims), call.attrs.axis)
    if provably_differ(floormod(dims[axis], const(workers, "int64")), const(0, "int64")):
        raise fail(
            call,
            f"redistribute_replica_to_shard expects the size of axis {axis} of input tensor to be divisible by "
            f"num_workers. However, axis {axis} of input tensor is {dims[axis]} while num_workers is {workers}",
        )
    if spread is not None:
        from ...relax.distributed import Placement

        made: StructInfo = type(whole)(info, whole.device_mesh, Placement.from_text(f"S[{axis}]"))
        return made
    shape = list(dims)
    shape[axis] = div(dims[axis], workers)
    return tensor(shape, info.dtype, vdevice=info.vdevice)


def _legalize_shard(builder: BlockBuilder, call: Call) -> Expr:
    """The slice that belongs to this worker, whose number is known when the program runs."""
    data, workers, axis = call.args[0], int(call.attrs.num_workers), int(call.attrs.axis)
    asked = builder.emit(call_pure_packed("runtime.disco.worker_id", sinfo_args=[ShapeStructInfo()]))
    worker = Var("worker_id", "int64")
    builder.match_cast(asked, ShapeStructInfo([worker]))
    size = data.struct_info.shape.values[axis]
    first, last = worker * size // workers, (worker + 1) * size // workers
    return strided_slice(data, [axis], [first], [last], assume_inbound=True)


define("dist.annotate_sharding", _infer_annotate, axes=join_same)
define("dist.redistribute", _infer_redistribute)
define("dist.call_tir_local_view", _infer_local_view)
define("dist.redistribute_replica_to_shard", _infer_shard, legalize=_legalize_shard)
