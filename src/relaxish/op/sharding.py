"""Inference for tensors spread over a mesh: the result lies as its operands do.

``add`` of ``R.DTensor((128, 64), "float32", mesh, "S[0]")`` and another like it gives a third like them. Each rule says
which axes of the operands an axis of the result goes along with; the rest is the plain inference of the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import structural_equal
from ..relax.axis_groups import Axis, AxisGroupGraph
from ..relax.block_builder import BlockBuilder
from ..relax.distributed import DTensorStructInfo, Placement, PlacementSpec
from ..relax.expr import Call, Expr, Tuple, Var, is_call_of
from ..relax.op_table import AxisRule, Infer
from ..relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, fields_of
from .inference import fail, type_fail

__all__ = ["call_args", "infer_placements", "placement_of", "spread"]


def call_args(call: Call) -> Sequence[Expr]:
    """The operands of a call: for ``call_tir`` those of the function."""
    if is_call_of(call, "relax.call_tir"):
        packed: Tuple = call.args[1]
        return packed.fields
    return call.args


def placement_of(graph: AxisGroupGraph, tensor: Expr, rank: int, places: int, index: int = 0) -> Placement:
    """Placement of a tensor (or a field of a tuple) on a mesh of ``places`` axes, as found by the graph."""
    specs = [PlacementSpec.replica() for _ in range(places)]
    for axis in range(rank):
        found = graph.spec_of(Axis(tensor, axis, index))
        if found is not None:
            specs[found[1]] = PlacementSpec.sharding(axis)
    return Placement(specs)


def _check_distinct(call: Call, graph: AxisGroupGraph, output: Var, rank: int, index: int) -> None:
    taken: dict[int, int] = {}
    for axis in range(rank):
        found = graph.spec_of(Axis(output, axis, index))
        if found is None:
            continue
        if found[1] in taken:
            place = found[1]
            raise fail(
                call, f"axes {taken[place]} and {axis} of the result are both split along axis {place} of the mesh"
            )
        taken[found[1]] = axis


def infer_placements(call: Call, plain: StructInfo, rule: AxisRule) -> StructInfo:
    """The struct info ``plain`` of a call's result, spread as the call's operands are and ``rule`` joins axes.

    Raises an error unless all operands lie on one mesh, and where the operands disagree.
    """
    args = [(arg, arg.struct_info_) for arg in call_args(call) if isinstance(arg.struct_info_, DTensorStructInfo)]
    mesh = args[0][1].device_mesh
    if not all(structural_equal(info.device_mesh, mesh) for _, info in args[1:]):
        raise fail(call, "all tensors must be spread over the same device mesh")
    output = Var("output", plain)
    graph = AxisGroupGraph()
    rule(output, call, graph)
    for arg, info in args:
        for place, spec in enumerate(info.placement.dim_specs):
            if spec.kind == "sharding":
                graph.add_source(Axis(arg, spec.axis), (mesh, place))
    graph.propagate()
    made: list[StructInfo] = []
    for index, field in enumerate(fields_of(plain)):
        if not isinstance(field, TensorStructInfo):
            raise fail(call, f"the result of distributed tensors must be tensors, not {field}")
        _check_distinct(call, graph, output, field.ndim, index)
        made.append(DTensorStructInfo(field, mesh, placement_of(graph, output, field.ndim, len(mesh.shape), index)))
    return made[0] if len(made) == 1 else TupleStructInfo(made)


def _local_call(call: Call) -> Call:
    """The call with ordinary tensors in place of distributed ones."""
    args: list[Expr] = []
    for arg in call.args:
        info = arg.struct_info_
        match info:
            case DTensorStructInfo():
                args.append(Var("x", info.tensor_sinfo))
            case TensorStructInfo():
                raise type_fail(call, "expects all tensors to be distributed (DTensor), but one is an ordinary Tensor")
            case _:
                args.append(arg)
    return Call(call.op, args, call.attrs, call.sinfo_args)


def spread(plain: Infer, rule: AxisRule) -> tuple[Infer, Infer]:
    """The inference of an operator for distributed tensors, and one that takes them as well as ordinary ones."""

    def distributed(call: Call, builder: BlockBuilder) -> StructInfo:
        known: Sequence[TensorStructInfo] = [a.struct_info_.tensor_sinfo for a in call.args if _is_distributed(a)]
        if any(info.dims() is None for info in known):
            raise fail(call, "the shapes of distributed tensors must be known")
        return infer_placements(call, plain(_local_call(call), builder), rule)

    def infer(call: Call, builder: BlockBuilder) -> StructInfo:
        return (distributed if any(map(_is_distributed, call.args)) else plain)(call, builder)

    return distributed, infer


def _is_distributed(arg: Expr) -> bool:
    return type(arg.struct_info_) is DTensorStructInfo
