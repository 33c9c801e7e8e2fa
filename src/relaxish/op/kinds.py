"""Kinds of operators: how they treat layouts and device meshes, and what rules of single operators share.

>>> from relaxish.relax.op_table import get_op_record
>>> get_op_record("relax.nn.relu").kind.name
'elementwise'

Layout rules get the call, the layouts that a user asked for, and those of the variables; axes are letters: in layout
``ACDB`` what was axis 1 (``B``) has moved to the end. Axis rules say which axes of operands and result are split together
over a device mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.expr import PrimExpr
from ..relax.axis_groups import Axis, AxisGroupGraph, Edge
from ..relax.distributed import DTensorStructInfo
from ..relax.expr import Call, Expr, Var
from ..relax.layout import (
    InferLayoutOutput,
    LayoutDecision,
    LayoutMap,
    initial_layout,
    initial_layout_decision,
    initial_nlayout,
    transpose_like,
    transpose_str_like,
)
from ..relax.op_table import OpKind
from ..relax.scalars import const_int, prove_equal
from ..relax.struct_info import StructInfo, TensorStructInfo
from ..support.errors import InternalError

__all__ = [
    "BROADCAST", "COLLECTIVE", "CONTRACTION", "Desired", "ELEMENTWISE", "MOVEMENT", "NORMALIZATION", "POOLING", "REDUCTION", "SOFTMAX",
    "axis_in", "can_block", "dims_of", "has_split_axes", "initial_layouts", "join_axes", "join_broadcast", "join_normalized", "join_same",
    "mark_axes", "marked_axes", "plain_layout", "rank_of", "reduced_axes", "tensor_info", "whole_layout",
]  # fmt: skip

#: The layouts that a user asks for: ``{"relax.nn.conv2d": ["NHWC", "OHWI"]}``.
Desired = Mapping[str, Sequence[str]]


# ---- what layout rules share ----------------------------------------------------------------------------------------


def rank_of(call: Call, index: int = 0) -> int:
    """The rank of an argument."""
    info = call.args[index].struct_info
    assert isinstance(info, TensorStructInfo)
    return info.ndim


def initial_layouts(call: Call, *indices: int) -> list[LayoutDecision]:
    """The first layouts of some arguments."""
    return [initial_layout_decision(rank_of(call, i)) for i in indices]


def has_split_axes(layout: LayoutDecision) -> bool:
    """Whether the layout has blocked axes, as ``ABCD4b`` has."""
    return len(layout.name) != layout.ndim


def axis_in(layout: LayoutDecision, axis: int) -> int:
    """Position of an axis in a layout; of a split axis, of its outer part."""
    return [c for c in layout.name if c.isalpha()].index(chr(ord("A") + axis % layout.ndim))


def plain_layout(call: Call, layouts: LayoutMap) -> LayoutDecision:
    """The first argument's layout; its initial one where that has blocked axes, which the operator cannot follow."""
    layout: LayoutDecision = layouts.of(call.args[0])
    return initial_layout_decision(rank_of(call)) if has_split_axes(layout) else layout


def whole_layout(call: Call, layouts: LayoutMap, axes: Sequence[int]) -> LayoutDecision:
    """The first argument's layout; its initial one where that splits one of ``axes``."""
    layout: LayoutDecision = layouts.of(call.args[0])
    split = {ord(c) - ord("a") for c in layout.name if c.islower()}
    return initial_layout_decision(rank_of(call)) if split & {a % layout.ndim for a in axes} else layout


def can_block(source: str, target: str, shape: Sequence[PrimExpr] | None) -> bool:
    """Whether a tensor of ``shape`` laid out as ``source`` can be blocked as ``target`` without padding."""
    if shape is None:
        return False
    sizes = dict(zip(source, shape))
    factor = ""
    for char in target:
        if char.isdigit():
            factor += char
        elif char.islower():
            size = const_int(sizes[char.upper()])
            if size is None or size % int(factor):
                return False
            factor = ""
    return True


def mark_axes(ndim: int, axes: Sequence[int], layout: LayoutDecision) -> str:
    """The layout's letters, with ``-`` for the given axes and the others renamed as if those were not there.

    >>> mark_axes(4, [2], LayoutDecision("ABCD4b"))
    'AB-C4b'
    """
    gone = {a % ndim for a in axes}
    kept = iter(initial_layout(ndim))
    named = "".join("-" if k in gone else next(kept) for k in range(ndim))
    return transpose_str_like(named, initial_layout(ndim), layout.name)


def marked_axes(text: str) -> tuple[int, ...]:
    """Positions of the marked axes in a result of :func:`mark_axes`."""
    return tuple(k for k, c in enumerate(c for c in text if not c.isdigit()) if c == "-")


# ---- what axis rules share ------------------------------------------------------------------------------------------


def tensor_info(expr: Expr) -> TensorStructInfo:
    """The tensor struct info of a tensor, distributed or not."""
    info: StructInfo = expr.struct_info_
    info = info.tensor_sinfo if isinstance(info, DTensorStructInfo) else info
    if not isinstance(info, TensorStructInfo):
        raise InternalError(f"{expr} must be either Tensor or DTensor")
    return info


def dims_of(expr: Expr) -> Sequence[PrimExpr]:
    """The dimensions of a tensor, which must be known."""
    dims = tensor_info(expr).dims()
    if dims is None:
        raise InternalError(f"the shape of {expr} must be known")
    return dims


def join_axes(graph: AxisGroupGraph, source: Expr, output: Var, pairs: Sequence[tuple[int, int]]) -> None:
    """Let axes of the result go along with axes of an operand."""
    for axis, place in pairs:
        graph.join(Axis(source, axis), Axis(output, place), Edge.DESCEND)


def join_same(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    """Every axis of the result goes along with that of the first operand."""
    source = call.args[0]
    if isinstance(source, Var):
        join_axes(graph, source, output, [(k, k) for k in range(tensor_info(source).ndim)])


def join_broadcast(output: Var, parts: Sequence[tuple[Expr, Sequence[PrimExpr]]], graph: AxisGroupGraph) -> int:
    """Join leading axes counted from the last, but none of size one that is stretched; returns their number."""
    (a, a_dims), (b, b_dims) = parts
    rank = max(len(a_dims), len(b_dims))
    for back in range(1, min(len(a_dims), len(b_dims)) + 1):
        size_a, size_b = a_dims[-back], b_dims[-back]
        equal = prove_equal(size_a, size_b)
        stretched_a, stretched_b = const_int(size_a) == 1, const_int(size_b) == 1
        if not (equal or stretched_a or stretched_b):
            raise InternalError(f"Invalid broadcast, dim0: {size_a}, dim1: {size_b}")
        if equal or not stretched_a:
            join_axes(graph, a, output, [(len(a_dims) - back, rank - back)])
        if equal or stretched_a:
            join_axes(graph, b, output, [(len(b_dims) - back, rank - back)])
    longer, dims = (a, a_dims) if len(a_dims) > len(b_dims) else (b, b_dims)
    join_axes(graph, longer, output, [(k, k) for k in range(rank - min(len(a_dims), len(b_dims)))])
    return rank


def _join_kept(source: Expr, gone: set[int], keepdims: bool, output: Var, graph: AxisGroupGraph) -> None:
    """The axes that are not ``gone``; those stay in the result, with size one or whole, if ``keepdims``."""
    kept = [axis for axis in range(tensor_info(source).ndim) if axis not in gone]
    join_axes(graph, source, output, [(axis, axis if keepdims else k) for k, axis in enumerate(kept)])


# ---- elements one by one --------------------------------------------------------------------------------------------


def _same_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = layouts.of(call.args[0])
    return InferLayoutOutput([layout, *(initial_nlayout(a) for a in call.args[1:])], [layout])


#: Each element of the result from the one at its place.
ELEMENTWISE = OpKind("elementwise", precision="follow", layout=_same_layout, axes=join_same)
#: Between devices, any layout of the tensor will do.
COLLECTIVE = OpKind("collective", layout=_same_layout)


# ---- broadcasting ---------------------------------------------------------------------------------------------------


def _follow(layout: LayoutDecision, ndim: int) -> LayoutDecision:
    """The layout of a tensor of higher rank that ``layout``'s tensor broadcasts to."""
    shift = ndim - layout.ndim
    if shift == 0:
        return layout
    moved = "".join(chr(ord(c) + shift) for c in layout.name)
    return LayoutDecision(initial_layout(shift) + moved)


def _blocked_like(lhs: LayoutDecision, rhs: LayoutDecision, call: Call) -> LayoutDecision | None:
    """The blocked one of two layouts of equal rank, where the other operand can be blocked the same way."""
    if lhs.ndim != rhs.ndim:
        return None
    high, low, place = (lhs, rhs, 1) if len(lhs.name) >= len(rhs.name) else (rhs, lhs, 0)
    return high if can_block(initial_layout(low.ndim), high.name, call.args[place].struct_info.dims()) else None


def _broadcast_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput | None:
    tensors = [isinstance(a.struct_info, TensorStructInfo) for a in call.args]
    if not all(tensors):
        layout = layouts.of(call.args[tensors.index(True)])
        return InferLayoutOutput([layout if t else initial_nlayout(a) for t, a in zip(tensors, call.args)], [layout])
    lhs, rhs = layouts.of(call.args[0]), layouts.of(call.args[1])
    both = _blocked_like(lhs, rhs, call)
    if both is not None:
        return InferLayoutOutput([both, both], [both])
    a, b = rank_of(call, 0), rank_of(call, 1)
    if a <= b:
        out = rhs if a == 0 else _follow(lhs, b)
        return InferLayoutOutput([LayoutDecision("") if a == 0 else lhs, out], [out])
    out = lhs if b == 0 else _follow(rhs, a)
    return InferLayoutOutput([out, LayoutDecision("") if b == 0 else rhs], [out])


def _broadcast_axes(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    kinds = (TensorStructInfo, DTensorStructInfo)
    tensors = [arg for arg in call.args[:2] if isinstance(arg.struct_info_, kinds)]
    if len(tensors) == 1:
        join_axes(graph, tensors[0], output, [(k, k) for k in range(tensor_info(tensors[0]).ndim)])
    else:
        join_broadcast(output, [(t, dims_of(t)) for t in tensors], graph)


#: Each element of the result from those that two operands have at its place when repeated to a common shape.
BROADCAST = OpKind("broadcast", precision="follow", layout=_broadcast_layout, axes=_broadcast_axes)


#: Sums of products: matrix products, convolutions, attention. Worth low precision.
CONTRACTION = OpKind("contraction", precision="always")
#: Elements of one tensor or several at other places, unchanged.
MOVEMENT = OpKind("movement", precision="follow")


# ---- reductions, and normalisations along axes ----------------------------------------------------------------------


def reduced_axes(call: Call) -> list[int]:
    """The axes that a reduction goes over, in their order."""
    ndim, axis = tensor_info(call.args[0]).ndim, call.attrs.axis
    return list(range(ndim)) if axis is None else sorted(int(a) % ndim for a in axis)


def _reduced_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = whole_layout(call, layouts, reduced_axes(call))
    text = mark_axes(rank_of(call), reduced_axes(call), layout)
    out = layout if call.attrs.keepdims else LayoutDecision(text.replace("-", ""))
    new_axes = marked_axes(text)
    return InferLayoutOutput([layout], [out], {"axis": new_axes})


def _reduction_axes(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    _join_kept(call.args[0], set(reduced_axes(call)), bool(call.attrs.keepdims), output, graph)


#: Elements along some axes become one.
REDUCTION = OpKind("reduction", layout=_reduced_layout, axes=_reduction_axes, attrs="relax.attrs.StatisticalAttrs")


def _softmax_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout = plain_layout(call, layouts)
    return InferLayoutOutput([layout], [layout], {"axis": axis_in(layout, int(call.attrs.axis))})


def _softmax_axes(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    _join_kept(call.args[0], {int(call.attrs.axis) % tensor_info(call.args[0]).ndim}, True, output, graph)


#: Elements set in relation to the others along one axis.
SOFTMAX = OpKind("softmax", layout=_softmax_layout, axes=_softmax_axes, attrs="relax.attrs.SoftmaxAttrs")


def _norm_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    channel = [int(call.attrs.channel_axis)] if "channel_axis" in call.attrs else []
    layout = whole_layout(call, layouts, [*channel, *(int(a) for a in call.attrs.axes)])
    changed: dict[str, object] = {"axes": tuple(axis_in(layout, int(a)) for a in call.attrs.axes)}
    if "channel_axis" in call.attrs:
        changed["channel_axis"] = axis_in(layout, int(call.attrs.channel_axis))
    return InferLayoutOutput([layout, *initial_layouts(call, *range(1, len(call.args)))], [layout], changed)


def join_normalized(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    """Axes that are not normalized over; the scale and shift stay whole, as those axes do."""
    rank = tensor_info(call.args[0]).ndim
    _join_kept(call.args[0], {int(a) % rank for a in call.attrs.axes}, True, output, graph)


#: Elements set in relation to the others along some axes, then scaled and shifted by weights of those axes.
NORMALIZATION = OpKind("normalization", layout=_norm_layout)


# ---- windows --------------------------------------------------------------------------------------------------------


def _window_layout(call: Call, desired: Desired, layouts: LayoutMap) -> InferLayoutOutput:
    layout: LayoutDecision = layouts.of(call.args[0])
    if has_split_axes(layout):
        target = transpose_like(call.attrs.layout, initial_layout(layout.ndim), layout.name)
        if not can_block(call.attrs.layout, target, call.args[0].struct_info.dims()):
            layout = initial_layout_decision(rank_of(call))
    start = initial_layout(layout.ndim)
    changed = {
        k: transpose_like(call.attrs[k], start, layout.name) for k in ("layout", "out_layout") if k in call.attrs
    }
    return InferLayoutOutput([layout, *(initial_nlayout(a) for a in call.args[1:])], [layout], changed)


#: Elements of spatial windows of each channel become one; the layout is an attribute.
POOLING = OpKind("pooling", precision="follow", layout=_window_layout)
