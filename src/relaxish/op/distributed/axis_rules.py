"""Which axes of an operator's operands and of its result are split together, family by family.

``matmul`` of ``(m, k)`` and ``(k, n)`` joins ``m`` with the result's rows, ``n`` with its columns, and the two ``k``
with one another.  A rule joins those axes in an :class:`~relaxish.relax.axis_groups.AxisGroupGraph`; inference and
``PropagateSharding`` both use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...arith import Analyzer
from ...ir.op import Op
from ...relax.axis_groups import Axis, AxisGroupGraph, Edge
from ...relax.distributed import DTensorStructInfo
from ...relax.expr import Call, Var
from ...relax.scalars import const_int, prove_equal
from ...relax.struct_info import TensorStructInfo, TupleStructInfo
from ...support.errors import InternalError
from ...tir.analysis.buffer_axes import BufferAxisGroups

__all__ = ["AXIS_RULES", "AxisRule", "call_args", "join_call_tir", "tensor_info"]

#: ``rule(output, call, graph)``.
AxisRule = Callable[[Var, Call, AxisGroupGraph], None]


def tensor_info(expr: Any) -> TensorStructInfo:
    """The tensor struct info of a tensor, distributed or not."""
    info = expr.struct_info_
    info = getattr(info, "tensor_sinfo", info)
    if not isinstance(info, TensorStructInfo):
        raise InternalError(f"{expr} must be either Tensor or DTensor")
    return info


def call_args(call: Call) -> Sequence[Any]:
    """The operands of a call: for ``call_tir`` those of the function."""
    if isinstance(call.op, Op) and call.op.name == "relax.call_tir":
        fields: Sequence[Any] = call.args[1].fields
        return fields
    return call.args


def _is_tensor(expr: Any) -> bool:
    return isinstance(expr.struct_info_, (TensorStructInfo, DTensorStructInfo))


def _dims(expr: Any) -> Sequence[Any]:
    dims = tensor_info(expr).dims()
    if dims is None:
        raise InternalError(f"the shape of {expr} must be known")
    return dims


def _same_axes(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    source = call.args[0]
    if isinstance(source, Var):
        for axis in range(tensor_info(source).ndim):
            graph.join(Axis(source, axis), Axis(output, axis), Edge.DESCEND)


def _broadcast(output: Var, parts: Sequence[tuple[Any, Sequence[Any]]], graph: AxisGroupGraph) -> int:
    """Join leading axes counted from the last, but none of size one that is stretched; returns their number."""
    (a, a_dims), (b, b_dims) = parts
    rank = max(len(a_dims), len(b_dims))
    for back in range(1, min(len(a_dims), len(b_dims)) + 1):
        size_a, size_b = a_dims[-back], b_dims[-back]
        from_a, from_b = Axis(a, len(a_dims) - back), Axis(b, len(b_dims) - back)
        into = Axis(output, rank - back)
        equal = prove_equal(size_a, size_b)
        stretched_a, stretched_b = const_int(size_a) == 1, const_int(size_b) == 1
        if not (equal or stretched_a or stretched_b):
            raise InternalError(f"Invalid broadcast, dim0: {size_a}, dim1: {size_b}")
        if equal or not stretched_a:
            graph.join(from_a, into, Edge.DESCEND)
        if equal or stretched_a:
            graph.join(from_b, into, Edge.DESCEND)
    longer, dims = (a, a_dims) if len(a_dims) > len(b_dims) else (b, b_dims)
    for axis in range(rank - min(len(a_dims), len(b_dims))):
        graph.join(Axis(longer, axis), Axis(output, axis), Edge.DESCEND)
    return rank


def _binary(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    tensors = [arg for arg in call.args[:2] if _is_tensor(arg)]
    if len(tensors) == 1:
        for axis in range(tensor_info(tensors[0]).ndim):
            graph.join(Axis(tensors[0], axis), Axis(output, axis), Edge.DESCEND)
        return
    _broadcast(output, [(t, _dims(t)) for t in tensors], graph)


def _keep_all_but(source: Any, gone: set[int], keepdims: bool, output: Var, graph: AxisGroupGraph) -> None:
    kept = [axis for axis in range(tensor_info(source).ndim) if axis not in gone]
    for position, axis in enumerate(kept):
        graph.join(Axis(source, axis), Axis(output, axis if keepdims else position), Edge.DESCEND)


def _reduce(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    rank, axis = tensor_info(call.args[0]).ndim, call.attrs.axis
    gone = set(range(rank)) if axis is None else {int(a) % rank for a in axis}
    _keep_all_but(call.args[0], gone, bool(call.attrs.keepdims), output, graph)


def _softmax(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    rank = tensor_info(call.args[0]).ndim
    _keep_all_but(call.args[0], {int(call.attrs.axis) % rank}, True, output, graph)


def _norm(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    """Axes that are not normalized over; the scale and shift stay whole, as those axes do."""
    rank = tensor_info(call.args[0]).ndim
    _keep_all_but(call.args[0], {int(a) % rank for a in call.attrs.axes}, True, output, graph)


def _matmul(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    a, b = call.args
    a_dims, b_dims = _dims(a), _dims(b)
    rows, columns = len(a_dims) > 1, len(b_dims) > 1
    lead = _broadcast(output, [(a, a_dims[:-2] if rows else ()), (b, b_dims[:-2] if columns else ())], graph)
    graph.join(Axis(a, len(a_dims) - 1), Axis(b, max(len(b_dims) - 2, 0)), Edge.SIBLING)
    if rows:
        graph.join(Axis(a, len(a_dims) - 2), Axis(output, lead), Edge.DESCEND)
    if columns:
        graph.join(Axis(b, len(b_dims) - 1), Axis(output, lead + rows), Edge.DESCEND)


def _permute(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    source, axes = call.args[0], call.attrs.axes
    rank = tensor_info(source).ndim
    order = range(rank)[::-1] if axes is None else [int(a) % rank for a in axes]
    for position, axis in enumerate(order):
        graph.join(Axis(source, axis), Axis(output, position), Edge.DESCEND)


def _reshape(output: Var, call: Call, graph: AxisGroupGraph) -> None:
    """Where runs of axes, counted from the last, have as many elements, their first axes go along."""
    source = call.args[0]
    old, new = _dims(source), call.args[1].struct_info.values
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


def join_call_tir(output: Var, call: Call, func: Any, graph: AxisGroupGraph) -> None:
    """The rule of ``call_tir``: axes go together as the function ``func`` indexes them."""
    groups = BufferAxisGroups(func.body)
    values = [*call_args(call), output]
    values_of = {func.buffer_map[p]: (p, v) for p, v in zip(func.params, values) if p in func.buffer_map}
    info = call.sinfo_args[0]
    outputs = len(info.fields) if isinstance(info, TupleStructInfo) else 1
    written = {p: number for number, p in enumerate(func.params[len(func.params) - outputs :])}
    param_of = {func.buffer_map[p]: p for p in func.params if p in func.buffer_map}
    seen: set[Any] = set()
    for param in func.params:
        buffer = func.buffer_map.get(param)
        for axis in range(len(buffer.shape) if buffer is not None else 0):
            if (buffer, axis) not in groups:
                continue
            found = groups.group_of((buffer, axis), seen)
            members = [(param_of[b], n) for b, n in found if b in param_of] if len(found) > 1 else []
            _join_group(members, written, output, {p: v for p, v in values_of.values()}, graph)


def _join_group(
    members: Sequence[tuple[Any, int]], written: dict[Any, int], output: Var, values: dict[Any, Any], graph: Any
) -> None:
    """Inputs lead to each output of the group; without outputs they are one another's siblings."""
    targets = [(written[p], n) for p, n in members if p in written]
    sources = [Axis(values[p], n) for p, n in members if p not in written]
    if not targets:
        for other in sources[1:]:
            graph.join(other, sources[0], Edge.SIBLING)
    for index, dim in targets:
        for source in sources:
            graph.join(source, Axis(output, dim, index), Edge.DESCEND)


_UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh exp floor log logical_not negative round
 rsqrt sigmoid sign sin sinh square sqrt tan tanh erf clip isfinite isinf isnan astype nn.relu nn.gelu nn.gelu_tanh
 nn.selu nn.silu nn.leakyrelu dist.annotate_sharding builtin.stop_lift_params ccl.allreduce""".split()
_BINARY = """add divide floor_divide multiply power subtract mod floor_mod equal greater greater_equal less less_equal
 not_equal maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift
 right_shift""".split()
_REDUCTIONS = "max mean min prod std sum variance".split()

#: The rule of each operator that distributed tensors may be given to.
AXIS_RULES: dict[str, AxisRule] = {
    **{f"relax.{name}": _same_axes for name in _UNARY},
    **{f"relax.{name}": _binary for name in _BINARY},
    **{f"relax.{name}": _reduce for name in _REDUCTIONS},
    "relax.nn.softmax": _softmax,
    "relax.nn.log_softmax": _softmax,
    "relax.nn.layer_norm": _norm,
    "relax.nn.rms_norm": _norm,
    "relax.matmul": _matmul,
    "relax.permute_dims": _permute,
    "relax.reshape": _reshape,
}
