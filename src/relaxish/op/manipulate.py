"""Operators that rename, reorder, join or cut dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te, topi
from ..arith import Analyzer
from ..ir.expr import PrimExpr
from ..relax.axis_groups import Axis, AxisGroupGraph, Edge
from ..relax.block_builder import BlockBuilder
from ..relax.call_forms import call_tir
from ..relax.expr import Call, Expr, PrimValue, ShapeExpr, Tuple, Var
from ..relax.layout import InferLayoutOutput, LayoutDecision, LayoutMap, initial_layout_decision
from ..relax.scalars import const_int, product, prove_equal, prove_equal_shapes, simplify
from ..relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, tensor_dims
from ..relax.te_bridge import gen_call_tir_inputs
from ..relax.utils import unboxed
from ..tir import IndexMap, IntImm, const, floordiv
from ..tir.schedule import Schedule
from .base import no_grad
from .inference import (
    Ints,
    Number,
    OpTypeError,
    OpValueError,
    ShapeLike,
    as_expr,
    as_int,
    as_shape,
    axis_list,
    check_axes,
    check_axis,
    check_count,
    fail,
    input_tensors,
    make_call,
    provably_differ,
    shape_info,
    tensor,
    tensor_arg,
    type_fail,
    written_dims,
)
from .kinds import (
    MOVEMENT,
    Desired,
    axis_in,
    dims_of,
    join_axes,
    mark_axes,
    marked_axes,
    plain_layout,
    rank_of,
    tensor_info,
)
from .lowering import te_call
from .parts import concat, repeat, split, tile
from .record import define, example

__all__ = [
    "broadcast_to", "collapse_sum_like", "collapse_sum_to", "concat", "expand_dims", "flatten", "flip",
    "layout_transform", "permute_dims", "repeat", "reshape", "split", "squeeze", "stack", "tile",
]  # fmt: skip


# ---- broadcast_to -------------------------------------------------------------------------------------------------


def broadcast_to(x: Expr, shape: ShapeLike) -> Expr:
    """``x`` repeated to ``shape``."""
    return make_call("broadcast_to", [as_expr(x), as_shape(shape)])


def _infer_broadcast_to(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    info, want = tensor_arg(call, 0), shape_info(call, 1)
    if info.ndim >= 0 and want.ndim >= 0 and want.ndim < info.ndim:
        raise fail(
            call,
            "expects the input shape to have the number of ndim at least as the input tensor's. "
            f"However, the given tensor has ndim {info.ndim} while the target shape has ndim {want.ndim}",
        )
    dims = info.dims()
    if dims is not None and want.values is not None:
        for have, goal in zip(reversed(dims), reversed(want.values)):
            if const_int(have) != 1 and provably_differ(have, goal):
                raise fail(
                    call, f"expects the input tensor shape to be broadcastable to the target shape: {have} to {goal}"
                )
    return _shaped_as(call.args[1], want, info)


def _shaped_as(target: Expr, want: ShapeStructInfo, info: TensorStructInfo) -> StructInfo:
    """A tensor like ``info`` whose shape is the argument ``target`` itself, or what is known of it."""
    if isinstance(target, (ShapeExpr, Var)):
        return TensorStructInfo(target, info.dtype, info.vdevice)
    return tensor(want.values, info.dtype, want.ndim, info.vdevice)


# ---- stack ------------------------------------------------------------------------------------------------


def stack(tensors: Expr | Sequence[Expr], axis: int = 0) -> Expr:
    """Tensors of one shape side by side along a new axis."""
    items = tensors.fields if isinstance(tensors, Tuple) else list(tensors)  # type: ignore[arg-type]
    return concat([expand_dims(t, axis) for t in items], axis=axis)


# ---- expand_dims, squeeze -----------------------------------------------------------------------------------------


def expand_dims(x: Expr, axis: Ints) -> Expr:
    """New axes of extent one at the positions ``axis`` of the result."""
    return make_call("expand_dims", [as_expr(x)], {"axis": axis_list(axis) or ()})


def _infer_expand_dims(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    added = call.attrs.axis
    if not len(added):
        return info
    if info.ndim < 0:
        return tensor(None, info.dtype, -1, info.vdevice)
    ndim = info.ndim + len(added)
    axes = check_axes(call, ndim, added)
    dims = written_dims(info)
    if dims is None:
        return tensor(None, info.dtype, ndim, info.vdevice)
    rest = iter(dims)
    return tensor([1 if i in axes else next(rest) for i in range(ndim)], info.dtype, vdevice=info.vdevice)


def _legalize_expand_dims(builder: BlockBuilder, call: Call) -> Expr:
    axes = [int(a) for a in call.attrs.axis]

    def compute(data: te.Tensor) -> te.Tensor:
        ndim = len(data.shape) + len(axes)
        new = {a % ndim for a in axes}
        kept = [i for i in range(ndim) if i not in new]
        rest = iter(data.shape)
        shape = [const(1, "int64") if i in new else next(rest) for i in range(ndim)]
        return te.compute(shape, lambda *i: data(*[i[k] for k in kept]), "expand_dims")

    return te_call(builder, "expand_dims", compute, call.args[0])


def squeeze(x: Expr, axis: Ints | None = None) -> Expr:
    """Without axes of extent one (all of them, or those named)."""
    return make_call("squeeze", [as_expr(x)], {"axis": axis_list(axis)})


def _infer_squeeze(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    axis = call.attrs.axis
    if axis is not None and not len(axis):
        return info
    if info.ndim < 0:
        return tensor(None, info.dtype, -1, info.vdevice)
    dims = info.dims()
    if axis is None:
        if dims is None or any(const_int(d) is None for d in dims):
            # Whether a symbolic dimension is one cannot be told.
            return tensor(None, info.dtype, -1, info.vdevice)
        axes = [i for i, d in enumerate(dims) if const_int(d) == 1]
    else:
        axes = check_axes(call, info.ndim, axis)
        if dims is None:
            return tensor(None, info.dtype, info.ndim - len(axes), info.vdevice)
        for a in axes:
            if const_int(dims[a]) not in (None, 1):
                raise fail(
                    call,
                    "expects the input tensor shape values at the given axis positions to be all 1. However, the "
                    f"tensor shape at axis {a} is {dims[a]}",
                )
    if isinstance(info.shape, ShapeExpr):
        return tensor([d for i, d in enumerate(dims) if i not in axes], info.dtype, vdevice=info.vdevice)
    if not axes:
        return info
    return tensor(None, info.dtype, -1 if axis is None else info.ndim - len(axes), info.vdevice)


def _legalize_squeeze(builder: BlockBuilder, call: Call) -> Expr:
    axis = call.attrs.axis
    return te_call(builder, "squeeze", topi.squeeze, call.args[0], None if axis is None else [int(a) for a in axis])


# ---- reshape, flatten ---------------------------------------------------------------------------------------------


def reshape(x: Expr, shape: ShapeLike) -> Expr:
    """The same elements row by row under ``shape``; one entry may be -1, 0 copies the input's dimension."""
    return make_call("reshape", [as_expr(x), _reshape_target(x, shape)])


def _reshape_target(x: Expr, shape: ShapeLike) -> Expr:
    if isinstance(shape, Expr) and not isinstance(shape, ShapeExpr):
        return shape
    items = list(shape.values) if isinstance(shape, ShapeExpr) else [unboxed(v) for v in _sequence(shape)]
    info = getattr(as_expr(x), "struct_info_", None)
    dims = tensor_dims(info)
    holes: list[int] = []
    out: list[Any] = []
    for i, item in enumerate(items):
        value = const_int(item) if isinstance(item, (int, PrimExpr)) else None
        if value == -1:
            holes.append(i)
            out.append(None)
        elif value == 0:
            if dims is None:
                raise fail_value("a 0 in the new shape needs an input of known shape")
            if i >= len(dims):
                raise fail_value(f"the new shape has a 0 at {i}, but the input has only {len(dims)} dimensions")
            out.append(dims[i])
        elif value is not None and value < -1:
            raise fail_value(f"the new shape has the illegal value {value}")
        else:
            out.append(item)
    if len(holes) > 1:
        raise fail_value("at most one dimension of the new shape may be -1")
    if holes:
        if dims is None:
            raise fail_value("a -1 in the new shape needs an input of known shape")
        known = product([d if isinstance(d, PrimExpr) else const(d, "int64") for d in out if d is not None])
        total = product(dims)
        out[holes[0]] = simplify(floordiv(total, known))
        x_total, x_known = const_int(total), const_int(known)
        if x_total is not None and x_known and x_total % x_known:
            raise fail_value(f"an input of {x_total} elements cannot be reshaped to {items}")
    return as_shape(out)


def _sequence(shape: object) -> Sequence[object]:
    if not isinstance(shape, (list, tuple)):
        raise OpTypeError(f"relax.reshape: the new shape is a tuple of dimensions, not {shape!r}")
    return shape


def fail_value(message: str) -> Exception:
    """The error of a bad argument, found before the call exists."""
    return OpValueError(f"relax.reshape: {message}")


def _infer_reshape(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    info, want = tensor_arg(call, 0), shape_info(call, 1)
    dims = info.dims()
    if dims is not None and want.values is not None:
        have, need = simplify(product(dims)), simplify(product(want.values))
        if provably_differ(have, need):
            raise fail(
                call, f"expects the new shape to be convertible from the old shape: {have} elements against {need}"
            )
    if want.values is not None and not isinstance(call.args[1], ShapeExpr):
        return tensor(want.values, info.dtype, vdevice=info.vdevice)
    return _shaped_as(call.args[1], want, info)


def _legalize_reshape(builder: BlockBuilder, call: Call) -> Expr:
    target: Any = call.args[1]
    if not isinstance(target, ShapeExpr):
        shape = call.struct_info.dims()
        if shape is None:
            return call
        target = ShapeExpr(shape)
    return te_call(builder, "reshape", topi.reshape, call.args[0], target)


def flatten(x: Expr) -> Expr:
    """One axis with all elements."""
    return make_call("flatten", [as_expr(x)])


def _infer_flatten(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    if info.ndim == 0:
        return tensor([1], info.dtype, vdevice=info.vdevice)
    if info.ndim == 1:
        return info
    dims = written_dims(info)
    if dims is None:
        return tensor(None, info.dtype, 1, info.vdevice)
    return tensor([product(dims)], info.dtype, vdevice=info.vdevice)


def _legalize_flatten(builder: BlockBuilder, call: Call) -> Expr:
    return te_call(builder, "reshape", topi.reshape, call.args[0], call.struct_info.shape)


# ---- permute_dims, flip, layout_transform -------------------------------------------------------------------------


def permute_dims(x: Expr, axes: Ints | None = None) -> Expr:
    """Axes in a new order; reversed by default."""
    return make_call("permute_dims", [as_expr(x)], {"axes": axis_list(axes)})


def _infer_permute_dims(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    axes = call.attrs.axes
    if info.ndim < 0:
        return tensor(None, info.dtype, len(axes) if axes is not None else -1, info.vdevice)
    if axes is None:
        order = list(range(info.ndim))[::-1]
    else:
        if len(axes) != info.ndim:
            raise fail(call, f"expects the number of axes, {len(axes)}, to be the rank of the input, {info.ndim}")
        order = check_axes(call, info.ndim, axes)
    if order == list(range(info.ndim)):
        return info
    dims = written_dims(info)
    if dims is None:
        return tensor(None, info.dtype, info.ndim, info.vdevice)
    return tensor([dims[a] for a in order], info.dtype, vdevice=info.vdevice)


def _legalize_permute_dims(builder: BlockBuilder, call: Call) -> Expr:
    axes = call.attrs.axes
    return te_call(builder, "transpose", topi.transpose, call.args[0], None if axes is None else [int(a) for a in axes])


def flip(data: Expr, axis: int) -> Expr:
    """Elements along ``axis`` in reverse."""
    return make_call("flip", [as_expr(data)], {"axis": as_int(axis)})


def _infer_flip(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    if info.ndim >= 0:
        check_axis(call, info.ndim, call.attrs.axis)
    return info


def _legalize_flip(builder: BlockBuilder, call: Call) -> Expr:
    return te_call(builder, "flip", topi.flip, call.args[0], int(call.attrs.axis))


def layout_transform(
    x: Expr,
    index_map: IndexMap | Callable[..., object],
    pad_value: Number | None = None,
    axis_separators: Sequence[int] | None = None,
    input_axis_separators: Sequence[int] | None = None,
) -> Expr:
    """Elements moved by an index map, e.g. ``lambda n, c, h, w: (n, c // 4, h, w, c % 4)``."""
    info = getattr(x, "struct_info_", None)
    if callable(index_map) and not isinstance(index_map, IndexMap):
        index_map = IndexMap.from_func(index_map, index_dtype="int64")
    if isinstance(pad_value, (int, float)):
        dtype = info.dtype if isinstance(info, TensorStructInfo) and info.dtype else None
        pad_value = const(pad_value, dtype) if dtype else pad_value
    if pad_value is not None and not isinstance(pad_value, PrimValue):
        pad_value = PrimValue(pad_value)
    attrs = {
        "index_map": index_map,
        "pad_value": pad_value,
        "axis_separators": tuple(axis_separators or ()),
        "input_axis_separators": tuple(input_axis_separators or ()),
    }
    return make_call("layout_transform", [as_expr(x)], attrs)


def _infer_layout_transform(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    index_map = call.attrs.index_map
    pad = call.attrs.pad_value
    if pad is not None and str(pad.struct_info.dtype) != info.dtype:
        raise type_fail(
            call, f"pad_value dtype ({pad.struct_info.dtype}) and input dtype ({info.dtype or 'void'}) must be the same"
        )
    if info.ndim < 0:
        return tensor(None, info.dtype, len(index_map.final_indices), info.vdevice)
    if info.ndim != len(index_map.initial_indices):
        raise fail(
            call,
            f"the index map takes {len(index_map.initial_indices)} indices, but the input has {info.ndim} dimensions",
        )
    dims = info.dims()
    if dims is None:
        return tensor(None, info.dtype, len(index_map.final_indices), info.vdevice)
    return tensor(list(index_map.map_shape(list(dims))), info.dtype, vdevice=info.vdevice)


def _legalize_layout_transform(builder: BlockBuilder, call: Call) -> Expr:
    """A copy whose output a schedule then moves into the other layout."""
    data = call.args[0]
    index_map, fill = call.attrs.index_map, call.attrs.pad_value
    separators = [int(s) for s in call.attrs.axis_separators or ()]
    inner_separators = [int(s) for s in call.attrs.input_axis_separators or ()]
    fill_value = const(0, data.struct_info.dtype) if fill is None else fill.value
    _, padded = index_map.non_surjective_inverse(list(data.struct_info.shape.values))
    name = "te_layout_transform"
    if not isinstance(padded, IntImm):
        name += "_with_pad"
    if separators:
        name += "_axis_separator"

    def copy(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x(*i), name)

    func, args, _, symbols = gen_call_tir_inputs(copy, data)
    schedule = Schedule(func)
    schedule.transform_layout(name, ("write", 0), index_map, fill_value)
    if separators:
        schedule.set_axis_separator(name, ("write", 0), separators)
    if inner_separators:
        schedule.set_axis_separator(name, ("read", 0), inner_separators)
    shape = index_map.map_shape(list(data.struct_info.shape.values))
    out = TensorStructInfo(shape, data.struct_info.dtype, data.struct_info.vdevice)
    return call_tir(builder.add_func(schedule.mod["main"], name), args, out, symbols)


# ---- collapse_sum -----------------------------------------------------------------------------------


def collapse_sum_like(data: Expr, collapse_target: Expr) -> Expr:
    """Summed to the shape of ``collapse_target``: the transpose of broadcasting."""
    return make_call("collapse_sum_like", [as_expr(data), as_expr(collapse_target)])


def collapse_sum_to(data: Expr, shape: ShapeLike) -> Expr:
    """Summed to ``shape``: the transpose of broadcasting."""
    return make_call("collapse_sum_to", [as_expr(data), as_shape(shape)])


def _check_collapse(call: Call, dims: Sequence[PrimExpr], target: Sequence[PrimExpr]) -> None:
    for have, want in zip(reversed(dims), reversed(target)):
        if const_int(want) == 1 or prove_equal(have, want):
            continue
        if const_int(have) is not None and const_int(want) is not None:
            raise fail(call, f"the data dimension {have} and the target dimension {want} do not match")
        raise fail(
            call,
            f"cannot tell whether the data dimension {have} and the target dimension {want} match; if one is "
            "symbolic, consider using MatchCast first",
        )


def _infer_collapse_like(call: Call, builder: BlockBuilder) -> StructInfo:
    info, target = input_tensors(call, 2)
    dims, want = info.dims(), target.dims()
    if dims is not None and want is not None:
        _check_collapse(call, dims, want)
    return tensor(target.shape, info.dtype, target.ndim, target.vdevice)


def _infer_collapse_to(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 2)
    info, want = tensor_arg(call, 0), shape_info(call, 1)
    dims = info.dims()
    if dims is not None and want.values is not None:
        _check_collapse(call, dims, want.values)
    return _shaped_as(call.args[1], want, info)


def _legalize_collapse(builder: BlockBuilder, call: Call) -> Expr:
    target = call.struct_info.shape
    return te_call(builder, "collapse_sum", topi.collapse_sum, call.args[0], target)


def fit_to(grad: Expr, call: Call, index: int) -> Expr:
    """Sum away what broadcasting repeated of an operand; the gradient has the shape of the call's result."""
    arg = call.args[index]
    if not isinstance(arg.struct_info, TensorStructInfo):
        return no_grad(arg)
    have, want = call.struct_info.dims(), arg.struct_info.dims()
    if have is not None and want is not None and prove_equal_shapes(have, want):
        return grad
    return collapse_sum_to(grad, arg.struct_info.shape)


def _expand_dims_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout, ndim = plain_layout(call, layouts), rank_of(call)
    total = ndim + len(call.attrs.axis)
    new = {int(a) % total for a in call.attrs.axis}
    kept = [chr(ord("A") + k) for k in range(total) if k not in new]
    moved = iter(kept[ord(c) - ord("A")] for c in layout.name)
    out = "".join(chr(ord("A") + k) if k in new else next(moved) for k in range(total))
    return InferLayoutOutput([layout], [LayoutDecision(out)])


def _squeeze_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    layout, ndim = plain_layout(call, layouts), rank_of(call)
    if call.attrs.axis is None:
        dims = call.args[0].struct_info.dims()
        if dims is None:
            return None
        axes = [k for k, d in enumerate(dims) if const_int(d) == 1]
    else:
        axes = [int(a) for a in call.attrs.axis]
    text = mark_axes(ndim, axes, layout)
    return InferLayoutOutput([layout], [LayoutDecision(text.replace("-", ""))], {"axis": marked_axes(text)})


def _reshape_axes(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    """Where runs of axes, counted from the last, have as many elements, their first axes go along."""
    source = call.args[0]
    old, new = dims_of(source), call.args[1].struct_info.values
    analyzer = Analyzer()
    i, j = len(old), len(new)
    have: Any = 1
    want: Any = 1
    while i > 0 and j > 0:
        if analyzer.can_prove(want > have):
            i, have = i - 1, have * old[i - 1]
        elif analyzer.can_prove(want < have):
            j, want = j - 1, want * new[j - 1]
        else:
            if i != len(old):
                graph.join(Axis(source, i), Axis(output, j), Edge.DESCEND)
            i, j = i - 1, j - 1
            have, want = have * old[i], want * new[j]
    if old and new:
        graph.join(Axis(source, 0), Axis(output, 0), Edge.DESCEND)


def _permute_dims_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout, ndim = plain_layout(call, layouts), rank_of(call)
    axes = list(range(ndim))[::-1] if call.attrs.axes is None else [int(a) % ndim for a in call.attrs.axes]
    order = tuple(axis_in(layout, a) for a in axes)
    return InferLayoutOutput([layout], [initial_layout_decision(ndim)], {"axes": order})


def _permute_dims_gradient(var: Var, call: Call, out: Var, builder: BlockBuilder) -> Sequence[Expr]:
    axes = call.attrs.axes
    if axes is None:
        return [permute_dims(out)]
    order = [int(a) % len(axes) for a in axes]
    return [permute_dims(out, [order.index(i) for i in range(len(order))])]


def _permute_dims_axes(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    source, axes = call.args[0], call.attrs.axes
    rank = tensor_info(source).ndim
    order = range(rank)[::-1] if axes is None else [int(a) % rank for a in axes]
    join_axes(graph, source, output, [(axis, k) for k, axis in enumerate(order)])


_X = np.arange(24, dtype="float32").reshape(2, 3, 4)


define(
    "broadcast_to",
    _infer_broadcast_to,
    kind=MOVEMENT,
    gradient=lambda var, call, out, builder: [
        collapse_sum_to(out, call.args[0].struct_info.shape),
        no_grad(call.args[1]),
    ],
    legalize=lambda b, c: te_call(b, "broadcast_to", topi.broadcast_to, c.args[0], c.args[1]),
    reference=lambda x, shape: np.broadcast_to(x, shape),
    samples=example(_X[:, :1], shape=(5, 2, 3, 4)),
)
define(
    "expand_dims",
    _infer_expand_dims,
    kind=MOVEMENT,
    attrs="ExpandDims",
    gradient=lambda var, call, out, builder: [squeeze(out, [int(a) for a in call.attrs.axis])],
    layout=_expand_dims_layout,
    legalize=_legalize_expand_dims,
    reference=lambda x, axis: np.expand_dims(x, axis if isinstance(axis, int) else tuple(axis)),
    samples=example(_X, axis=[0, -1]),
)
define(
    "squeeze",
    _infer_squeeze,
    kind=MOVEMENT,
    attrs="Squeeze",
    layout=_squeeze_layout,
    legalize=_legalize_squeeze,
    reference=lambda x, axis=None: np.squeeze(x, axis=tuple(axis) if axis is not None else None),
    samples=lambda: [((_X.reshape(2, 1, 3, 1, 4),), {}), ((_X.reshape(2, 1, 3, 1, 4),), {"axis": [1]})],
)
define(
    "reshape",
    _infer_reshape,
    kind=MOVEMENT,
    gradient=lambda var, call, out, builder: [reshape(out, call.args[0].struct_info.shape), no_grad(call.args[1])],
    axes=_reshape_axes,
    legalize=_legalize_reshape,
    reference=lambda x, shape: x.reshape(shape),
    samples=lambda: [((_X,), {"shape": (6, 4)}), ((_X,), {"shape": (3, -1)})],
)
define(
    "flatten",
    _infer_flatten,
    kind=MOVEMENT,
    legalize=_legalize_flatten,
    reference=lambda x: x.reshape(-1),
    samples=example(_X),
)
define(
    "permute_dims",
    _infer_permute_dims,
    kind=MOVEMENT,
    attrs="PermuteDims",
    gradient=_permute_dims_gradient,
    layout=_permute_dims_layout,
    axes=_permute_dims_axes,
    legalize=_legalize_permute_dims,
    reference=lambda x, axes=None: np.transpose(x, axes),
    samples=lambda: [((_X,), {}), ((_X,), {"axes": [1, 0, 2]})],
)
define(
    "flip",
    _infer_flip,
    kind=MOVEMENT,
    attrs="Flip",
    precision="never",
    legalize=_legalize_flip,
    reference=lambda data, axis: np.flip(data, axis),
    samples=example(_X, axis=1),
)
define(
    "layout_transform",
    _infer_layout_transform,
    kind=MOVEMENT,
    attrs="LayoutTransform",
    legalize=_legalize_layout_transform,
    reference=lambda x, index_map, pad_value=None: (
        np.pad(x, ((0, 0), (0, 1))).reshape(x.shape[0], -1, 2).transpose(1, 0, 2)
    ),
    samples=lambda: [
        ((np.arange(15, dtype="float32").reshape(3, 5), lambda i, j: (j // 2, i, j % 2)), {"pad_value": 0.0})
    ],
)
define(
    "collapse_sum_like",
    _infer_collapse_like,
    legalize=_legalize_collapse,
    reference=lambda data, collapse_target: data.sum(0).sum(1, keepdims=True),
    samples=example(_X, np.zeros((3, 1), "float32")),
)
define(
    "collapse_sum_to",
    _infer_collapse_to,
    legalize=_legalize_collapse,
    reference=lambda data, shape: data.sum(0).sum(1, keepdims=True),
    samples=example(_X, shape=(3, 1)),
)
