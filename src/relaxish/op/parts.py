"""Operators that join tensors or cut them: parts along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te, topi
from ..arith import Analyzer
from ..ir.expr import PrimExpr
from ..ir.structural import same_expression
from ..relax.block_builder import BlockBuilder
from ..relax.expr import Call, Expr, Tuple, Var
from ..relax.layout import InferLayoutOutput, LayoutDecision, LayoutMap, initial_layout, initial_layout_decision
from ..relax.scalars import const_int, product, prove_equal, simplify
from ..relax.struct_info import StructInfo, TupleStructInfo, tensor_dims
from ..relax.utils import unboxed
from ..tir import IntImm, ceildiv, const
from ..tir import max as tir_max
from ..tir import min as tir_min
from .inference import (
    Ints,
    Number,
    OpTypeError,
    OpValueError,
    agreed_vdevice,
    as_expr,
    as_int,
    axis_list,
    check_axis,
    check_count,
    fail,
    int64_list,
    make_call,
    opt_int,
    provably_differ,
    tensor,
    tensor_arg,
    tensor_of_tuple,
    type_fail,
    written_dims,
)
from .kinds import (
    MOVEMENT,
    Desired,
    axis_in,
    can_block,
    has_split_axes,
    rank_of,
)
from .lowering import te_call, tuple_fields
from .record import define, example

__all__ = ["concat", "repeat", "split", "tile"]


def concat(tensors: Expr | Sequence[Expr], axis: int | None = 0) -> Expr:
    """Tensors one behind the other along ``axis`` (the flat ones if it is None)."""
    return make_call("concat", [as_expr(tensors)], {"axis": opt_int(axis)})


def _infer_concat(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    infos = tensor_of_tuple(call, call.args[0])
    if not infos:
        raise fail(call, "expects at least one tensor in the input Tuple. However, the given input Tuple is empty")
    dtypes = {i.dtype for i in infos if i.dtype}
    if len(dtypes) > 1:
        raise type_fail(call, f"expects all input tensors to have the same dtype, but got {sorted(dtypes)}")
    dtype = infos[0].dtype if all(i.dtype for i in infos) else ""
    axis = call.attrs.axis
    ndim = -1 if axis is not None else 1
    for info in infos:
        if ndim < 0:
            ndim = info.ndim
        elif info.ndim not in (-1, ndim):
            raise fail(call, f"expects all input tensors to have same ndim, but got {ndim} and {info.ndim}")
    device = agreed_vdevice(infos)
    if ndim < 0:
        return infos[0] if len(infos) == 1 else tensor(None, dtype, -1, device)
    axis = 0 if axis is None else check_axis(call, ndim, axis)
    if len(infos) == 1:
        return infos[0]
    known = [d for d in (i.dims() for i in infos) if d is not None]
    shape = _concat_shape(call, known, axis) if known else None
    if shape is None or any(written_dims(i) is None for i in infos):
        return tensor(None, dtype, ndim, device)
    return tensor(shape, dtype, vdevice=device)


def _concat_shape(call: Call, shapes: list[Any], axis: int) -> list[Any] | None:
    """The joined shape; None where it cannot be told whether the other dimensions agree."""
    first, *rest = shapes
    certain = True
    for d in range(len(first)):
        for other in rest:
            if d == axis:
                continue
            if provably_differ(other[d], first[d]):
                raise fail(
                    call,
                    "expects the input tensors to have the same shape on every dimension except the one indicated by "
                    f"the input axis. However, dimension {d} is {first[d]} and {other[d]}",
                )
            certain = certain and prove_equal(other[d], first[d])
    if not certain:
        return None
    if all(same_expression(s[axis], first[axis]) for s in rest):
        return _replaced(first, axis, first[axis] * const(len(shapes), "int64"))
    total: Any = const(0, "int64")
    for s in shapes:
        total = total + s[axis]
    return _replaced(first, axis, total)


def _legalize_concat(builder: BlockBuilder, call: Call) -> Expr:
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return te_call(builder, "concatenate", topi.concatenate, tuple_fields(builder, call.args[0]), axis)


def split(x: Expr, indices_or_sections: Sequence[Number] | Number, axis: int = 0) -> Expr:
    """Parts along ``axis``: a number of equal ones, or the cut positions."""
    cuts: PrimExpr | tuple[PrimExpr, ...]
    if isinstance(indices_or_sections, Sequence):
        cuts = int64_list([_cut(v) for v in indices_or_sections])
    else:
        count = _cut(indices_or_sections)
        if count <= 0:
            raise OpValueError(f"relax.split: expects the number of sections to be a positive integer, not {count}")
        cuts = const(count, "int64")
    return make_call("split", [as_expr(x)], {"indices_or_sections": cuts, "axis": as_int(axis)})


def _cut(value: Number) -> int:
    known = const_int(unboxed(value))
    if known is None:
        raise OpTypeError(f"relax.split: expects integers as indices or number of sections, not {value!r}")
    return known


def _infer_split(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    cuts = call.attrs.indices_or_sections
    axis = check_axis(call, info.ndim, call.attrs.axis) if info.ndim >= 0 else -1
    dims = written_dims(info)
    count = len(cuts) + 1 if isinstance(cuts, tuple) else int(cuts)
    if count == 1:
        # One part is the tensor itself, not a tuple of it.
        return info
    if dims is None:
        return TupleStructInfo([tensor(None, info.dtype, info.ndim, info.vdevice)] * count)
    lengths = _part_lengths(cuts, dims[axis], builder.get_analyzer())
    return TupleStructInfo([tensor(_replaced(dims, axis, n), info.dtype, vdevice=info.vdevice) for n in lengths])


def _part_lengths(cuts: tuple[IntImm, ...] | IntImm, extent: PrimExpr, analyzer: Analyzer | None) -> list[Any]:
    """The lengths of the parts; cuts beyond the end leave empty parts, and the last equal part may be shorter."""
    if isinstance(cuts, tuple):
        zero = const(0, "int64")
        bounds: list[Any] = [zero, *(const(int(c), "int64") for c in cuts), extent]
        inside = [tir_min(tir_max(b, zero), extent) for b in bounds]
        return [simplify(tir_max(b - a, zero), analyzer) for a, b in zip(inside, inside[1:])]
    parts = int(cuts)
    each = simplify(ceildiv(extent, const(parts, "int64")), analyzer)
    last = simplify(extent - each * const(parts - 1, "int64"), analyzer)
    return [each] * (parts - 1) + [last]


def _replaced(dims: Sequence[PrimExpr], axis: int, value: PrimExpr) -> list[Any]:
    return [value if i == axis else d for i, d in enumerate(dims)]


def _legalize_split(builder: BlockBuilder, call: Call) -> Expr:
    cuts = call.attrs.indices_or_sections
    cuts = [const(int(c), "int64") for c in cuts] if isinstance(cuts, tuple) else int(cuts)
    return te_call(builder, "split", topi.split, call.args[0], cuts, int(call.attrs.axis))


def repeat(data: Expr, repeats: int, axis: int | None = None) -> Expr:
    """Every element repeated in place along ``axis`` (in the flat data by default)."""
    return make_call("repeat", [as_expr(data)], {"repeats": as_int(repeats), "axis": opt_int(axis)})


def _infer_repeat(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    count, axis = int(call.attrs.repeats), call.attrs.axis
    at = check_axis(call, info.ndim, axis) if axis is not None and info.ndim >= 0 else None
    dims = written_dims(info)
    if axis is None:
        shape = None if dims is None else [simplify(product(dims) * count)]
        return tensor(shape, info.dtype, 1, info.vdevice)
    if dims is None or at is None:
        return info if count == 1 else tensor(None, info.dtype, info.ndim, info.vdevice)
    return tensor(_replaced(dims, at, simplify(dims[at] * count)), info.dtype, vdevice=info.vdevice)


def _legalize_repeat(builder: BlockBuilder, call: Call) -> Expr:
    count, axis = int(call.attrs.repeats), call.attrs.axis

    def compute(data: te.Tensor) -> te.Tensor:
        if axis is None:
            flat = topi.reshape(data, [product(data.shape)])
            return topi.repeat(flat, count, 0)
        return topi.repeat(data, count, int(axis))

    return te_call(builder, "repeat", compute, call.args[0])


def tile(data: Expr, repeats: Ints) -> Expr:
    """The whole tensor repeated along each axis."""
    return make_call("tile", [as_expr(data)], {"repeats": axis_list(repeats) or ()})


def _infer_tile(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    counts = [int(r) for r in call.attrs.repeats]
    if info.ndim < 0:
        return tensor(None, info.dtype, -1, info.vdevice)
    ndim = max(info.ndim, len(counts))
    dims = written_dims(info)
    if dims is None:
        if ndim == info.ndim and all(r == 1 for r in counts):
            return info
        return tensor(None, info.dtype, ndim, info.vdevice)
    full_dims: list[Any] = [const(1, "int64")] * (ndim - info.ndim) + list(dims)
    full_counts = [1] * (ndim - len(counts)) + counts
    return tensor([simplify(d * r) for d, r in zip(full_dims, full_counts)], info.dtype, vdevice=info.vdevice)


def _legalize_tile(builder: BlockBuilder, call: Call) -> Expr:
    return te_call(builder, "tile", topi.tile, call.args[0], [int(r) for r in call.attrs.repeats])


def _concat_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    info = call.args[0].struct_info
    assert isinstance(info, TupleStructInfo)
    cuts: list[int] = []
    for field in info.fields[:-1]:
        dims = tensor_dims(field)
        size = None if dims is None else const_int(dims[axis])
        if size is None:
            raise ValueError("the gradient of concat needs known extents along its axis")
        cuts.append((cuts[-1] if cuts else 0) + size)
    # Cut into one part, a tensor stays itself.
    return [split(out, cuts, axis) if cuts else Tuple([out])]


def _fits(layout: LayoutDecision, infos: Sequence[Any]) -> bool:
    """Whether tensors of all these struct infos can be blocked as the layout is, without padding."""
    return all(can_block(initial_layout(layout.ndim), layout.name, info.dims()) for info in infos)


def _concat_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    fields, infos = layouts.of(call.args[0]), call.args[0].struct_info.fields
    layout: LayoutDecision = fields[0]
    blocked = next((f for f in fields if has_split_axes(f)), None)
    if blocked is not None:
        # One layout for all: the blocked one if every tensor can have it, else one that no tensor blocks.
        plain = (f for f in fields if not has_split_axes(f))
        layout = blocked if _fits(blocked, infos) else next(plain, initial_layout_decision(blocked.ndim))
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return InferLayoutOutput([(layout,) * len(fields)], [layout], {"axis": axis_in(layout, axis)})


def _split_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    layout: LayoutDecision = layouts.of(call.args[0])
    info = call.struct_info
    if not isinstance(info, TupleStructInfo):
        return None
    if has_split_axes(layout) and not _fits(layout, info.fields):
        layout = initial_layout_decision(rank_of(call))
    return InferLayoutOutput([layout], [(layout,) * len(info.fields)], {"axis": axis_in(layout, int(call.attrs.axis))})


_X = np.arange(24, dtype="float32").reshape(2, 3, 4)


define(
    "concat",
    _infer_concat,
    kind=MOVEMENT,
    attrs="Concat",
    gradient=_concat_gradient,
    layout=_concat_layout,
    legalize=_legalize_concat,
    reference=lambda tensors, axis=0: np.concatenate(tensors, axis=axis),
    samples=example((_X, _X + 1), axis=1),
)
define(
    "split",
    _infer_split,
    kind=MOVEMENT,
    attrs="Split",
    gradient=lambda var, call, out, builder: [concat(out, int(call.attrs.axis))],
    layout=_split_layout,
    legalize=_legalize_split,
    reference=lambda x, indices_or_sections, axis=0: np.split(x, indices_or_sections, axis),
    samples=lambda: [
        ((_X,), {"indices_or_sections": 2, "axis": 2}),
        ((_X,), {"indices_or_sections": [1, 3], "axis": -1}),
    ],
)
define(
    "repeat",
    _infer_repeat,
    kind=MOVEMENT,
    attrs="Repeat",
    precision="never",
    legalize=_legalize_repeat,
    reference=lambda data, repeats, axis=None: np.repeat(data, repeats, axis),
    samples=lambda: [((_X,), {"repeats": 2}), ((_X,), {"repeats": 3, "axis": 1})],
)
define(
    "tile",
    _infer_tile,
    kind=MOVEMENT,
    attrs="Tile",
    precision="never",
    legalize=_legalize_tile,
    reference=lambda data, repeats: np.tile(data, repeats),
    samples=example(_X, repeats=(2, 1, 2, 1)),
)
