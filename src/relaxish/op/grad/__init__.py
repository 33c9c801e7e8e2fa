"""Operators that only gradients use, and marks that steer differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import te, tir, topi
from ...ir.expr import PrimExpr
from ...ir.primops import match_types
from ...relax.block_builder import BlockBuilder
from ...relax.expr import Call, Expr, Var
from ...relax.op_table import Legalize
from ...relax.struct_info import StructInfo
from ...tir import const
from ...topi.nn.loss import numbered
from ...topi.utils import prod
from ..base import no_grad, no_gradients
from ..inference import (
    Builder,
    Ints,
    as_expr,
    as_int,
    axis_list,
    check_count,
    counted,
    make_call,
    named,
    opt_int,
    tensor_arg,
    type_fail,
)
from ..lowering import te_call
from ..record import define

__all__ = [
    "avg_pool2d_backward", "end_checkpoint", "max_pool2d_backward", "nll_loss_backward", "no_grad",
    "start_checkpoint", "take_backward",
]  # fmt: skip


def start_checkpoint(input: Expr) -> Expr:
    """Marks where a stretch begins whose values are computed again in the backward pass."""
    return make_call("grad.start_checkpoint", [as_expr(input)])


def end_checkpoint(input: Expr) -> Expr:
    """Marks where such a stretch ends."""
    return make_call("grad.end_checkpoint", [as_expr(input)])


def _infer_same(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    info: StructInfo = call.args[0].struct_info
    return info


def _infer_mark(call: Call, builder: BlockBuilder) -> StructInfo:
    check_count(call, 1)
    if not isinstance(call.args[0], Var):
        raise type_fail(call, f"the argument should be a Var, but it is {type(call.args[0]).__name__}")
    return _infer_same(call, builder)


def _itself(builder: BlockBuilder, call: Call) -> Expr:
    return call.args[0]


define("grad.no_grad", _infer_same, legalize=_itself, gradient=no_gradients(1))
for _name in ("start_checkpoint", "end_checkpoint"):
    define(f"grad.{_name}", _infer_mark, legalize=_itself, gradient=lambda var, call, out, builder: [out])


def nll_loss_backward(
    output_grad: Expr,
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Expr:
    """The gradient of ``nn.nll_loss`` by its predictions."""
    args = [as_expr(v) for v in (output_grad, predictions, targets)]
    if weights is not None:
        args.append(as_expr(weights))
    return make_call("grad.nll_loss_backward", args, {"reduction": reduction, "ignore_index": as_int(ignore_index)})


def _pool_backward(kind: str) -> Builder:
    def build(
        output_grad: Expr,
        data: Expr,
        pool_size: Ints = (1, 1),
        strides: Ints = (1, 1),
        padding: Ints = (0, 0, 0, 0),
        dilation: Ints = (1, 1),
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> Expr:
        windows = {"pool_size": pool_size, "strides": strides, "padding": padding, "dilation": dilation}
        attrs = {
            **{key: axis_list(value) for key, value in windows.items()},
            "ceil_mode": bool(ceil_mode),
            "count_include_pad": bool(count_include_pad),
            "layout": layout,
            "out_layout": out_layout or layout,
        }
        return make_call(f"grad.{kind}_pool2d_backward", [as_expr(output_grad), as_expr(data)], attrs)

    return named(build, f"{kind}_pool2d_backward", f"The gradient of ``nn.{kind}_pool2d`` by its data.")


max_pool2d_backward, avg_pool2d_backward = _pool_backward("max"), _pool_backward("avg")


def take_backward(output_grad: Expr, x: Expr, indices: Expr, axis: int | None = None) -> Expr:
    """The gradient of ``take`` by its data: rows added where they were taken from."""
    return make_call("grad.take_backward", [as_expr(v) for v in (output_grad, x, indices)], {"axis": opt_int(axis)})


def _infer_as_data(call: Call, builder: BlockBuilder) -> StructInfo:
    return tensor_arg(call, 1)


def _te_nll(
    output_grad: te.Tensor,
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor,
    reduction: str,
    ignore_index: int,
) -> te.Tensor:
    zero = const(0, predictions.dtype)
    targets = numbered(targets, ignore_index)
    if ignore_index >= 0:
        given = weights
        weights = te.compute(
            given.shape,
            lambda i: tir.Select(tir.EQ(i, const(ignore_index, str(i.dtype))), zero, given(i)),
            "weights_new",
        )
    picked = te.compute(targets.shape, lambda *i: weights(targets(*i)), "all_weights")
    if reduction != "none":
        output_grad = topi.broadcast_to(output_grad, targets.shape)
    if reduction == "mean":
        output_grad = topi.divide(output_grad, topi.sum(picked) if targets.shape else picked)

    def element(*i: PrimExpr) -> PrimExpr:
        channel, where = (i[1], [*i[:1], *i[2:]]) if len(i) > 1 else (i[0], [])
        hit = tir.EQ(*match_types(channel, targets(*where)))
        return tir.Select(hit, -picked(*where) * output_grad(*where), zero)

    return te.compute(predictions.shape, element, "pred_grad")


def _te_nll_no_weight(
    output_grad: te.Tensor, predictions: te.Tensor, targets: te.Tensor, reduction: str, ignore_index: int
) -> te.Tensor:
    classes = predictions.shape[1 if len(predictions.shape) > 1 else 0]
    weights = topi.full([classes], predictions.dtype, 1.0)
    return _te_nll(output_grad, predictions, targets, weights, reduction, ignore_index)


def _legalize_nll(builder: BlockBuilder, call: Call) -> Expr:
    weighted = len(call.args) == 4
    name = "nll_loss_backward" if weighted else "te_nll_loss_backward_no_weight"
    compute = _te_nll if weighted else _te_nll_no_weight
    return te_call(builder, name, compute, *call.args, call.attrs.reduction, int(call.attrs.ignore_index))


def _te_pool(call: Call, largest: bool) -> Callable[[te.Tensor, te.Tensor], te.Tensor]:
    a = call.attrs
    window, steps, gaps, pads = ([int(v) for v in a[k]] for k in ("pool_size", "strides", "dilation", "padding"))
    letters = [c for c in a.layout if c.isalpha()]
    dims = [letters.index("H"), letters.index("W")]
    pads = pads * 2 if len(pads) == 2 else pads

    def compute(out: te.Tensor, data: te.Tensor) -> te.Tensor:
        pooled: Any = None
        if largest:
            pooled = topi.nn.pool2d(data, window, steps, gaps, pads, "max", bool(a.ceil_mode), a.layout)
        share: Any = None
        if not largest:
            share = _divisors(out, data, dims, window, steps, gaps, pads, bool(a.count_include_pad))
        kh = te.reduce_axis((const(0, "int64"), const(window[0], "int64")), "wh")
        kw = te.reduce_axis((const(0, "int64"), const(window[1], "int64")), "ww")

        def element(*i: PrimExpr) -> PrimExpr:
            at = list(i)
            tests: list[Any] = []
            for k, (d, r) in enumerate(zip(dims, (kh, kw))):
                reach = i[d] + pads[k] - r.var * gaps[k]
                place = tir.floordiv(reach, const(steps[k], "int64"))
                tests += [
                    tir.EQ(tir.floormod(reach, const(steps[k], "int64")), const(0, "int64")),
                    reach >= const(0, "int64"),
                    place < out.shape[d],
                ]
                at[d] = tir.max(tir.min(place, out.shape[d] - 1), const(0, "int64"))
            value = out(*at)
            if largest:
                tests.append(tir.EQ(data(*i), pooled(*at)))
            else:
                value = value / share(*at)
            return te.sum(tir.if_then_else(tir.all(*tests), value, const(0, data.dtype)), axis=[kh, kw])

        return te.compute(data.shape, element, "pool_grad")

    return compute


def _divisors(
    out: te.Tensor,
    data: te.Tensor,
    dims: Sequence[int],
    window: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
    pads: Sequence[int],
    include: bool,
) -> te.Tensor:
    """How many elements each mean of the forward pass was taken over."""

    def element(*i: Any) -> PrimExpr:
        count: Any = const(1, "int64")
        for k, d in enumerate(dims):
            start = i[d] * steps[k] - pads[k]
            inside: Any = const(0, "int64")
            for tap in range(window[k]):
                spot = start + tap * gaps[k]
                limit = data.shape[d] + (pads[k + 2] if include else 0)
                test = spot < limit if include else tir.all(spot >= const(0, "int64"), spot < limit)
                inside = inside + tir.Select(test, const(1, "int64"), const(0, "int64"))
            count = count * tir.max(inside, const(1, "int64"))
        return count.astype(data.dtype)

    return te.compute(out.shape, element, "pool_count")


def _legalize_pool(name: str, largest: bool) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        a = call.attrs
        if any(int(d) != 1 for d in a.dilation):
            return te_call(builder, name, _te_pool(call, largest), *call.args)
        pads = [int(p) for p in a.padding]
        return te_call(
            builder,
            name,
            topi.nn.pool_grad,
            *call.args,
            kernel=[int(v) for v in a.pool_size],
            stride=[int(v) for v in a.strides],
            padding=pads,
            pool_type="max" if largest else "avg",
            ceil_mode=bool(a.ceil_mode),
            # Without a border it makes no difference whether the border counts.
            count_include_pad=bool(a.count_include_pad) or not any(pads) and not a.ceil_mode,
            layout=a.layout,
        )

    return legalize


def _te_take(axis: int | None) -> Callable[[te.Tensor, te.Tensor, te.Tensor], te.Tensor]:
    def compute(output_grad: te.Tensor, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        at = 0 if axis is None else axis % len(x.shape)
        inner, count = prod(x.shape[at + 1 :]), prod(indices.shape)

        def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
            ib = tir.ir_builder.create()
            grads, where, out = (ib.buffer_ptr(b) for b in (ins[0], ins[2], outs[0]))
            with ib.for_range(0, prod(x.shape)) as i:
                out[i] = const(0, x.dtype)
            if axis is None:
                with ib.for_range(0, count, "serial") as k:
                    out[where[k]] += grads[k]
                return ib.get()
            with ib.for_range(0, prod(x.shape[:at]) * inner, "parallel") as fused:
                outer, rest = tir.floordiv(fused, inner), tir.floormod(fused, inner)
                with ib.for_range(0, count, "serial") as k:
                    target = outer * inner * x.shape[at] + where[k] * inner + rest
                    out[target] += grads[outer * inner * count + k * inner + rest]
            return ib.get()

        return te.extern(
            [tuple(x.shape)],
            [output_grad, x, indices],
            body,
            dtype=x.dtype,
            out_buffers=[tir.decl_buffer(x.shape, x.dtype, "out_buf")],
            name="take_backward",
            tag="take_backward",
        )

    return compute


def _legalize_take(builder: BlockBuilder, call: Call) -> Expr:
    return te_call(builder, "take_backward", _te_take(opt_int(call.attrs.axis)), *call.args)


for _name, _attrs, _rule, _counts in (
    ("nll_loss_backward", "NLLLoss", _legalize_nll, (3, 4)),
    ("max_pool2d_backward", "Pool2D", _legalize_pool("max_pool2d_backward", True), (2,)),
    ("avg_pool2d_backward", "Pool2D", _legalize_pool("avg_pool2d_backward", False), (2,)),
    ("take_backward", "Take", _legalize_take, (3,)),
):
    define(f"grad.{_name}", counted(_infer_as_data, *_counts), attrs=_attrs, legalize=_rule)
