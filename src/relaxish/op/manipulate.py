"""Operators that rename, reorder, join or cut dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import te, topi
from ..ir.structural import same_expression
from ..ir.expr import PrimExpr
from ..relax.call_forms import call_tir
from ..relax.expr import Call, Expr, PrimValue, ShapeExpr, Tuple, Var
from ..relax.scalars import const_int, product, prove_equal, simplify
from ..relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..relax.te_bridge import gen_call_tir_inputs
from ..tir import IndexMap, IntImm, ceildiv, const, floordiv
from ..tir import max as tir_max
from ..tir import min as tir_min
from ..tir.schedule import Schedule
from .inference import (
    OpTypeError,
    OpValueError,
    agreed_vdevice,
    as_expr,
    as_int,
    as_shape,
    axis_list,
    check_axes,
    check_axis,
    check_count,
    fail,
    input_tensors,
    int64_list,
    make_call,
    opt_int,
    provably_differ,
    shape_info,
    tensor,
    tensor_arg,
    tensor_of_tuple,
    type_fail,
    written_dims,
)
from .lowering import te_call, tuple_fields
from .record import define

__all__ = [
    "broadcast_to", "collapse_sum_like", "collapse_sum_to", "concat", "expand_dims", "flatten", "flip",
    "layout_transform", "permute_dims", "repeat", "reshape", "split", "squeeze", "stack", "tile",
]  # fmt: skip


# ---- broadcast_to -------------------------------------------------------------------------------------------------


def broadcast_to(x: Any, shape: Any) -> Expr:
    """``x`` repeated to ``shape``."""
    return make_call("broadcast_to", [as_expr(x), as_shape(shape)])


def _infer_broadcast_to(call: Call, builder: Any) -> StructInfo:
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


def _shaped_as(target: Any, want: ShapeStructInfo, info: TensorStructInfo) -> StructInfo:
    """A tensor like ``info`` whose shape is the argument ``target`` itself, or what is known of it."""
    if isinstance(target, (ShapeExpr, Var)):
        return TensorStructInfo(target, info.dtype, info.vdevice)
    return tensor(want.values, info.dtype, want.ndim, info.vdevice)


# ---- concat, stack ------------------------------------------------------------------------------------------------


def concat(tensors: Any, axis: int | None = 0) -> Expr:
    """Tensors one behind the other along ``axis`` (the flat ones if it is None)."""
    if isinstance(tensors, (list, tuple)):
        tensors = Tuple([as_expr(t) for t in tensors])
    return make_call("concat", [tensors], {"axis": opt_int(axis)})


def stack(tensors: Any, axis: int = 0) -> Expr:
    """Tensors of one shape side by side along a new axis."""
    items = list(tensors.fields) if isinstance(tensors, Tuple) else list(tensors)
    return concat([expand_dims(t, axis) for t in items], axis=axis)


def _infer_concat(call: Call, builder: Any) -> StructInfo:
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


def _legalize_concat(builder: Any, call: Call) -> Expr:
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return te_call(builder, "concatenate", topi.concatenate, tuple_fields(builder, call.args[0]), axis)


# ---- expand_dims, squeeze -----------------------------------------------------------------------------------------


def expand_dims(x: Any, axis: Any) -> Expr:
    """New axes of extent one at the positions ``axis`` of the result."""
    return make_call("expand_dims", [as_expr(x)], {"axis": axis_list(axis) or ()})


def _infer_expand_dims(call: Call, builder: Any) -> StructInfo:
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


def _legalize_expand_dims(builder: Any, call: Call) -> Expr:
    axes = [int(a) for a in call.attrs.axis]

    def compute(data: Any) -> Any:
        ndim = len(data.shape) + len(axes)
        new = {a % ndim for a in axes}
        kept = [i for i in range(ndim) if i not in new]
        rest = iter(data.shape)
        shape = [const(1, "int64") if i in new else next(rest) for i in range(ndim)]
        return te.compute(shape, lambda *i: data(*[i[k] for k in kept]), "expand_dims")

    return te_call(builder, "expand_dims", compute, call.args[0])


def squeeze(x: Any, axis: Any = None) -> Expr:
    """Without axes of extent one (all of them, or those named)."""
    return make_call("squeeze", [as_expr(x)], {"axis": axis_list(axis)})


def _infer_squeeze(call: Call, builder: Any) -> StructInfo:
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


def _legalize_squeeze(builder: Any, call: Call) -> Expr:
    axis = call.attrs.axis
    return te_call(builder, "squeeze", topi.squeeze, call.args[0], None if axis is None else [int(a) for a in axis])


# ---- reshape, flatten ---------------------------------------------------------------------------------------------


def reshape(x: Any, shape: Any) -> Expr:
    """The same elements row by row under ``shape``; one entry may be -1, 0 copies the input's dimension."""
    return make_call("reshape", [as_expr(x), _reshape_target(x, shape)])


def _reshape_target(x: Any, shape: Any) -> Expr:
    if isinstance(shape, Expr) and not isinstance(shape, ShapeExpr):
        return shape
    items = (
        list(shape.values)
        if isinstance(shape, ShapeExpr)
        else [v.value if isinstance(v, PrimValue) else v for v in _sequence(shape)]
    )
    info = getattr(as_expr(x), "struct_info_", None)
    dims = info.dims() if isinstance(info, TensorStructInfo) else None
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


def _sequence(shape: Any) -> Any:
    if not isinstance(shape, (list, tuple)):
        raise OpTypeError(f"relax.reshape: the new shape is a tuple of dimensions, not {shape!r}")
    return shape


def fail_value(message: str) -> Exception:
    """The error of a bad argument, found before the call exists."""
    return OpValueError(f"relax.reshape: {message}")


def _infer_reshape(call: Call, builder: Any) -> StructInfo:
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


def _legalize_reshape(builder: Any, call: Call) -> Expr:
    target: Any = call.args[1]
    if not isinstance(target, ShapeExpr):
        shape = call.struct_info.dims()
        if shape is None:
            return call
        target = ShapeExpr(shape)
    return te_call(builder, "reshape", topi.reshape, call.args[0], target)


def flatten(x: Any) -> Expr:
    """One axis with all elements."""
    return make_call("flatten", [as_expr(x)])


def _infer_flatten(call: Call, builder: Any) -> StructInfo:
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


def _legalize_flatten(builder: Any, call: Call) -> Expr:
    return te_call(builder, "reshape", topi.reshape, call.args[0], call.struct_info.shape)


# ---- permute_dims, flip, layout_transform -------------------------------------------------------------------------


def permute_dims(x: Any, axes: Any = None) -> Expr:
    """Axes in a new order; reversed by default."""
    return make_call("permute_dims", [as_expr(x)], {"axes": axis_list(axes)})


def _infer_permute_dims(call: Call, builder: Any) -> StructInfo:
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


def _legalize_permute_dims(builder: Any, call: Call) -> Expr:
    axes = call.attrs.axes
    return te_call(builder, "transpose", topi.transpose, call.args[0], None if axes is None else [int(a) for a in axes])


def flip(data: Any, axis: int) -> Expr:
    """Elements along ``axis`` in reverse."""
    return make_call("flip", [as_expr(data)], {"axis": as_int(axis)})


def _infer_flip(call: Call, builder: Any) -> StructInfo:
    check_count(call, 1)
    info = tensor_arg(call, 0)
    if info.ndim >= 0:
        check_axis(call, info.ndim, call.attrs.axis)
    return info


def _legalize_flip(builder: Any, call: Call) -> Expr:
    return te_call(builder, "flip", topi.flip, call.args[0], int(call.attrs.axis))


def layout_transform(
    x: Any, index_map: Any, pad_value: Any = None, axis_separators: Any = None, input_axis_separators: Any = None
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


def _infer_layout_transform(call: Call, builder: Any) -> StructInfo:
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


def _legalize_layout_transform(builder: Any, call: Call) -> Expr:
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

    def copy(x: Any) -> Any:
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


# ---- split --------------------------------------------------------------------------------------------------------


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Expr:
    """Parts along ``axis``: a number of equal ones, or the cut positions."""
    if isinstance(indices_or_sections, (list, tuple)):
        cuts: Any = int64_list([_cut(v) for v in indices_or_sections])
    else:
        cuts = _cut(indices_or_sections)
        if cuts <= 0:
            raise OpValueError(f"relax.split: expects the number of sections to be a positive integer, not {cuts}")
        cuts = const(cuts, "int64")
    return make_call("split", [as_expr(x)], {"indices_or_sections": cuts, "axis": as_int(axis)})


def _cut(value: Any) -> int:
    known = const_int(value.value if isinstance(value, PrimValue) else value)
    if known is None:
        raise OpTypeError(f"relax.split: expects integers as indices or number of sections, not {value!r}")
    return known


def _infer_split(call: Call, builder: Any) -> StructInfo:
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


def _part_lengths(cuts: Any, extent: Any, analyzer: Any) -> list[Any]:
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


def _replaced(dims: Any, axis: int, value: Any) -> list[Any]:
    return [value if i == axis else d for i, d in enumerate(dims)]


def _legalize_split(builder: Any, call: Call) -> Expr:
    cuts = call.attrs.indices_or_sections
    cuts = [const(int(c), "int64") for c in cuts] if isinstance(cuts, tuple) else int(cuts)
    return te_call(builder, "split", topi.split, call.args[0], cuts, int(call.attrs.axis))


# ---- collapse_sum, repeat, tile -----------------------------------------------------------------------------------


def collapse_sum_like(data: Any, collapse_target: Any) -> Expr:
    """Summed to the shape of ``collapse_target``: the transpose of broadcasting."""
    return make_call("collapse_sum_like", [as_expr(data), as_expr(collapse_target)])


def collapse_sum_to(data: Any, shape: Any) -> Expr:
    """Summed to ``shape``: the transpose of broadcasting."""
    return make_call("collapse_sum_to", [as_expr(data), as_shape(shape)])


def _check_collapse(call: Call, dims: Any, target: Any) -> None:
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


def _infer_collapse_like(call: Call, builder: Any) -> StructInfo:
    info, target = input_tensors(call, 2)
    dims, want = info.dims(), target.dims()
    if dims is not None and want is not None:
        _check_collapse(call, dims, want)
    return tensor(target.shape, info.dtype, target.ndim, target.vdevice)


def _infer_collapse_to(call: Call, builder: Any) -> StructInfo:
    check_count(call, 2)
    info, want = tensor_arg(call, 0), shape_info(call, 1)
    dims = info.dims()
    if dims is not None and want.values is not None:
        _check_collapse(call, dims, want.values)
    return _shaped_as(call.args[1], want, info)


def _legalize_collapse(builder: Any, call: Call) -> Expr:
    target = call.struct_info.shape
    return te_call(builder, "collapse_sum", topi.collapse_sum, call.args[0], target)


def repeat(data: Any, repeats: int, axis: int | None = None) -> Expr:
    """Every element repeated in place along ``axis`` (in the flat data by default)."""
    return make_call("repeat", [as_expr(data)], {"repeats": as_int(repeats), "axis": opt_int(axis)})


def _infer_repeat(call: Call, builder: Any) -> StructInfo:
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


def _legalize_repeat(builder: Any, call: Call) -> Expr:
    count, axis = int(call.attrs.repeats), call.attrs.axis

    def compute(data: Any) -> Any:
        if axis is None:
            flat = topi.reshape(data, [product(data.shape)])
            return topi.repeat(flat, count, 0)
        return topi.repeat(data, count, int(axis))

    return te_call(builder, "repeat", compute, call.args[0])


def tile(data: Any, repeats: Any) -> Expr:
    """The whole tensor repeated along each axis."""
    return make_call("tile", [as_expr(data)], {"repeats": axis_list(repeats) or ()})


def _infer_tile(call: Call, builder: Any) -> StructInfo:
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


def _legalize_tile(builder: Any, call: Call) -> Expr:
    return te_call(builder, "tile", topi.tile, call.args[0], [int(r) for r in call.attrs.repeats])


_X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def _sample(*args: Any, **kwargs: Any) -> Any:
    return lambda: [(args, kwargs)]


define(
    "broadcast_to",
    _infer_broadcast_to,
    legalize=lambda b, c: te_call(b, "broadcast_to", topi.broadcast_to, c.args[0], c.args[1]),
    precision="follow",
    reference=lambda x, shape: np.broadcast_to(x, shape),
    samples=_sample(_X[:, :1], shape=(5, 2, 3, 4)),
    arg_names=("x", "shape"),
)
define(
    "concat",
    _infer_concat,
    legalize=_legalize_concat,
    precision="follow",
    reference=lambda tensors, axis=0: np.concatenate(tensors, axis=axis),
    samples=_sample((_X, _X + 1), axis=1),
    arg_names=("tensors",),
)
define(
    "expand_dims",
    _infer_expand_dims,
    legalize=_legalize_expand_dims,
    precision="follow",
    reference=lambda x, axis: np.expand_dims(x, axis if isinstance(axis, int) else tuple(axis)),
    samples=_sample(_X, axis=[0, -1]),
    arg_names=("x",),
)
define(
    "squeeze",
    _infer_squeeze,
    legalize=_legalize_squeeze,
    precision="follow",
    reference=lambda x, axis=None: np.squeeze(x, axis=tuple(axis) if axis is not None else None),
    samples=lambda: [((_X.reshape(2, 1, 3, 1, 4),), {}), ((_X.reshape(2, 1, 3, 1, 4),), {"axis": [1]})],
    arg_names=("x",),
)
define(
    "reshape",
    _infer_reshape,
    legalize=_legalize_reshape,
    precision="follow",
    reference=lambda x, shape: x.reshape(shape),
    samples=lambda: [((_X,), {"shape": (6, 4)}), ((_X,), {"shape": (3, -1)})],
    arg_names=("x", "shape"),
)
define(
    "flatten",
    _infer_flatten,
    legalize=_legalize_flatten,
    precision="follow",
    reference=lambda x: x.reshape(-1),
    samples=_sample(_X),
    arg_names=("x",),
)
define(
    "permute_dims",
    _infer_permute_dims,
    legalize=_legalize_permute_dims,
    precision="follow",
    reference=lambda x, axes=None: np.transpose(x, axes),
    samples=lambda: [((_X,), {}), ((_X,), {"axes": [1, 0, 2]})],
    arg_names=("x",),
)
define(
    "flip",
    _infer_flip,
    legalize=_legalize_flip,
    reference=lambda data, axis: np.flip(data, axis),
    samples=_sample(_X, axis=1),
    arg_names=("data",),
)
define(
    "layout_transform",
    _infer_layout_transform,
    legalize=_legalize_layout_transform,
    precision="follow",
    reference=lambda x, index_map, pad_value=None: (
        np.pad(x, ((0, 0), (0, 1))).reshape(x.shape[0], -1, 2).transpose(1, 0, 2)
    ),
    samples=lambda: [
        ((np.arange(15, dtype="float32").reshape(3, 5), lambda i, j: (j // 2, i, j % 2)), {"pad_value": 0.0})
    ],
    arg_names=("x",),
)
define(
    "split",
    _infer_split,
    legalize=_legalize_split,
    precision="follow",
    reference=lambda x, indices_or_sections, axis=0: np.split(x, indices_or_sections, axis),
    samples=lambda: [
        ((_X,), {"indices_or_sections": 2, "axis": 2}),
        ((_X,), {"indices_or_sections": [1, 3], "axis": -1}),
    ],
    arg_names=("x",),
)
define(
    "collapse_sum_like",
    _infer_collapse_like,
    legalize=_legalize_collapse,
    reference=lambda data, collapse_target: data.sum(0).sum(1, keepdims=True),
    samples=_sample(_X, np.zeros((3, 1), "float32")),
    arg_names=("data", "collapse_target"),
)
define(
    "collapse_sum_to",
    _infer_collapse_to,
    legalize=_legalize_collapse,
    reference=lambda data, shape: data.sum(0).sum(1, keepdims=True),
    samples=_sample(_X, shape=(3, 1)),
    arg_names=("data", "shape"),
)
define(
    "repeat",
    _infer_repeat,
    legalize=_legalize_repeat,
    reference=lambda data, repeats, axis=None: np.repeat(data, repeats, axis),
    samples=lambda: [((_X,), {"repeats": 2}), ((_X,), {"repeats": 3, "axis": 1})],
    arg_names=("data",),
)
define(
    "tile",
    _infer_tile,
    legalize=_legalize_tile,
    reference=lambda data, repeats: np.tile(data, repeats),
    samples=_sample(_X, repeats=(2, 1, 2, 1)),
    arg_names=("data",),
)
