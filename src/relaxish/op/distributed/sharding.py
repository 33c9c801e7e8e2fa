"""Inference for tensors spread over a mesh: the result lies as its operands do.

``add`` of ``R.DTensor((128, 64), "float32", mesh, "S[0]")`` and another like it gives a third like them. Each rule says
which axes of the operands an axis of the result goes along with; the rest is the plain inference of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import structural_equal
from ...ir.op import Op
from ...relax.distributed import DTensorStructInfo, Placement, PlacementSpec
from ...relax.expr import Call, Var
from ...relax.op_table import get_op_record, update_op
from ...relax.scalars import const_int, prove_equal
from ...relax.struct_info import StructInfo, TensorStructInfo
from ..inference import fail, type_fail

__all__ = ["infer_placement"]

Dims = Sequence[Any]

#: ``rule(call, shapes of the operands, shape of the result)``: for each axis of the result, (operand, axis) pairs.
Rule = Callable[[Call, list[Dims], Dims], list[list[tuple[int, int]]]]


def _elementwise(call: Call, shapes: list[Dims], out: Dims) -> list[list[tuple[int, int]]]:
    """Axes side by side, counted from the last; an operand's axis of one that is broadcast goes with nothing."""
    made: list[list[tuple[int, int]]] = []
    for axis, size in enumerate(out):
        pairs = []
        for operand, dims in enumerate(shapes):
            own = axis - (len(out) - len(dims))
            if own >= 0 and (const_int(dims[own]) != 1 or const_int(size) == 1):
                pairs.append((operand, own))
        made.append(pairs)
    return made


def _matmul(call: Call, shapes: list[Dims], out: Dims) -> list[list[tuple[int, int]]]:
    a, b = shapes
    rows, columns = len(a) > 1, len(b) > 1
    lead = len(out) - rows - columns
    made = _elementwise(call, [a[:-2], b[:-2]], out[:lead])
    if rows:
        made.append([(0, len(a) - 2)])
    if columns:
        made.append([(1, len(b) - 1)])
    return made


def _permute(call: Call, shapes: list[Dims], out: Dims) -> list[list[tuple[int, int]]]:
    rank = len(out)
    axes = call.attrs.axes
    order = range(rank)[::-1] if axes is None else [int(a) % rank for a in axes]
    return [[(0, a)] for a in order]


def _reduce(call: Call, shapes: list[Dims], out: Dims) -> list[list[tuple[int, int]]]:
    rank = len(shapes[0])
    axis = call.attrs.axis
    gone = set(range(rank)) if axis is None else {int(a) % rank for a in axis}
    if call.attrs.keepdims:
        return [[] if a in gone else [(0, a)] for a in range(rank)]
    return [[(0, a)] for a in range(rank) if a not in gone]


def _reshape(call: Call, shapes: list[Dims], out: Dims) -> list[list[tuple[int, int]]]:
    """Where runs of axes have equal numbers of elements, their first axes go along with one another."""
    old = shapes[0]
    made: list[list[tuple[int, int]]] = [[] for _ in out]
    i, j = len(old), len(out)
    while i > 0 and j > 0:
        i, j = i - 1, j - 1
        have, want = old[i], out[j]
        while not prove_equal(have, want):
            x, y = const_int(have), const_int(want)
            if x is None or y is None:
                return made
            if x < y and i > 0:
                i, have = i - 1, have * old[i - 1]
            elif y < x and j > 0:
                j, want = j - 1, want * out[j - 1]
            else:
                return made
        made[j].append((0, i))
    return made


def _same_mesh(call: Call, infos: Sequence[DTensorStructInfo]) -> Any:
    for info in infos[1:]:
        if not structural_equal(info.device_mesh, infos[0].device_mesh):
            raise fail(call, "all tensors must be spread over the same device mesh")
    return infos[0].device_mesh


def infer_placement(call: Call, infos: Sequence[DTensorStructInfo], links: Sequence[Any]) -> Placement:
    """Where the result lies, given the operands' placements and what its axes go along with."""
    specs = [PlacementSpec.replica() for _ in _same_mesh(call, infos).shape]
    for axis, pairs in enumerate(links):
        for operand, own in pairs:
            for place, spec in enumerate(infos[operand].placement.dim_specs):
                if spec.kind != "sharding" or spec.axis != own:
                    continue
                if specs[place].kind == "sharding" and specs[place].axis != axis:
                    raise fail(call, f"axes {specs[place].axis} and {axis} of the result are both split along {place}")
                specs[place] = PlacementSpec.sharding(axis)
        if sum(s.kind == "sharding" and s.axis == axis for s in specs) > 1:
            raise fail(call, f"axis {axis} of the result is split along several axes of the mesh")
    return Placement(specs)


def _spread(plain: Callable[..., StructInfo], rule: Rule, call: Call, builder: Any) -> StructInfo:
    infos: list[DTensorStructInfo] = []
    local = []
    for arg in call.args:
        info = arg.struct_info_
        if isinstance(info, DTensorStructInfo):
            infos.append(info)
            local.append(Var("x", info.tensor_sinfo))
        elif isinstance(info, TensorStructInfo):
            raise type_fail(call, "expects all tensors to be distributed (DTensor), but one is an ordinary Tensor")
        else:
            local.append(arg)
    out = plain(Call(call.op, local, call.attrs, call.sinfo_args), builder)
    shapes = [i.tensor_sinfo.dims() for i in infos]
    if not isinstance(out, TensorStructInfo) or out.dims() is None or any(s is None for s in shapes):
        raise fail(call, "the shapes of distributed tensors must be known")
    links = rule(call, [s or () for s in shapes], out.dims() or ())
    return DTensorStructInfo(out, _same_mesh(call, infos), infer_placement(call, infos, links))


def _register(name: str, rule: Rule) -> None:
    record = get_op_record(name)
    assert record is not None, name
    plain = record.infer

    def spread(call: Call, builder: Any) -> StructInfo:
        return _spread(plain, rule, call, builder)

    def infer(call: Call, builder: Any) -> StructInfo:
        for arg in call.args:
            if type(arg.struct_info_) is DTensorStructInfo:
                return spread(call, builder)
        return plain(call, builder)

    update_op(name, infer=infer)
    Op.get(name).set_attr("dist.FInferStructInfo", spread)


_ELEMENTWISE = """abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh exp floor log logical_not negative round
 rsqrt sigmoid sign sin sinh square sqrt tan tanh erf isfinite isinf isnan nn.relu nn.gelu nn.gelu_tanh nn.selu nn.silu
 nn.softmax add divide floor_divide multiply power subtract mod floor_mod equal greater greater_equal less less_equal
 not_equal maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift
 right_shift astype""".split()

for _name in _ELEMENTWISE:
    _register(f"relax.{_name}", _elementwise)
for _name in ("max", "mean", "min", "prod", "std", "sum", "variance"):
    _register(f"relax.{_name}", _reduce)
_register("relax.matmul", _matmul)
_register("relax.permute_dims", _permute)
_register("relax.reshape", _reshape)

