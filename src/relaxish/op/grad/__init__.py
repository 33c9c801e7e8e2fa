"""Operators that only gradients use, and marks that steer differentiation."""

from __future__ import annotations

from typing import Any

from ... import te, tir, topi
from ...relax.expr import Call, Expr
from ...relax.struct_info import StructInfo
from ...tir import const
from ..inference import as_expr, axis_list, check_count, make_call, opt_int, tensor_arg
from ..record import define, gradient

__all__ = [
    "avg_pool2d_backward", "end_checkpoint", "max_pool2d_backward", "nll_loss_backward", "no_grad",
    "start_checkpoint", "take_backward",
]  # fmt: skip


def no_grad(input: Any) -> Expr:
    """``input``, through which no gradient flows."""
    return make_call("grad.no_grad", [as_expr(input)])


def start_checkpoint(input: Any) -> Expr:
    """Marks where a stretch begins whose values are computed again in the backward pass."""
    return make_call("grad.start_checkpoint", [as_expr(input)])


def end_checkpoint(input: Any) -> Expr:
    """Marks where such a stretch ends."""
    return make_call("grad.end_checkpoint", [as_expr(input)])


def _infer_same(call: Call, builder: Any) -> StructInfo:
    check_count(call, 1)
    info: StructInfo = call.args[0].struct_info
    return info


for _name in ("no_grad", "start_checkpoint", "end_checkpoint"):
    define(
        f"grad.{_name}",
        _infer_same,
        legalize=lambda builder, call: call.args[0],
        arg_names=("input",),
    )
gradient("grad.no_grad")(lambda var, call, out, ctx: [_null()])
gradient("grad.start_checkpoint")(lambda var, call, out, ctx: [out])
gradient("grad.end_checkpoint")(lambda var, call, out, ctx: [out])


def _null() -> Expr:
    from ..base import null_value

    return null_value()


def nll_loss_backward(
    output_grad: Any,
    predictions: Any,
    targets: Any,
    weights: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Expr:
    """The gradient of ``nn.nll_loss`` by its predictions."""
    args = [as_expr(v) for v in (output_grad, predictions, targets)]
    if weights is not None:
        args.append(as_expr(weights))
    return make_call("grad.nll_loss_backward", args, {"reduction": reduction, "ignore_index": int(ignore_index)})


def _pool_call(
    name: str,
    output_grad: Any,
    data: Any,
    pool_size: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
    out_layout: str | None,
) -> Expr:
    attrs = {
        "pool_size": axis_list(pool_size),
        "strides": axis_list(strides),
        "padding": axis_list(padding),
        "dilation": axis_list(dilation),
        "ceil_mode": bool(ceil_mode),
        "count_include_pad": bool(count_include_pad),
        "layout": layout,
        "out_layout": out_layout or layout,
    }
    return make_call(f"grad.{name}_pool2d_backward", [as_expr(output_grad), as_expr(data)], attrs)


def max_pool2d_backward(
    output_grad: Any,
    data: Any,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    padding: Any = (0, 0, 0, 0),
    dilation: Any = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> Expr:
    """The gradient of ``nn.max_pool2d`` by its data."""
    return _pool_call(
        "max",
        output_grad,
        data,
        pool_size,
        strides,
        padding,
        dilation,
        ceil_mode,
        count_include_pad,
        layout,
        out_layout,
    )


def avg_pool2d_backward(
    output_grad: Any,
    data: Any,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    padding: Any = (0, 0, 0, 0),
    dilation: Any = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> Expr:
    """The gradient of ``nn.avg_pool2d`` by its data."""
    return _pool_call(
        "avg",
        output_grad,
        data,
        pool_size,
        strides,
        padding,
        dilation,
        ceil_mode,
        count_include_pad,
        layout,
        out_layout,
    )


def take_backward(output_grad: Any, x: Any, indices: Any, axis: int | None = None) -> Expr:
    """The gradient of ``take`` by its data: rows added where they were taken from."""
    return make_call("grad.take_backward", [as_expr(v) for v in (output_grad, x, indices)], {"axis": opt_int(axis)})


def _infer_as(index: int) -> Any:
    return lambda call, builder: tensor_arg(call, index)


def _te_nll(call: Call) -> Any:
    kind, ignore = call.attrs.reduction, int(call.attrs.ignore_index)

    def compute(out: Any, predictions: Any, targets: Any, weights: Any = None) -> Any:
        classes = predictions.shape[1] if len(predictions.shape) > 1 else predictions.shape[0]
        if weights is None:
            weights = topi.full([classes], predictions.dtype, 1.0)
        zero = const(0, predictions.dtype)
        used = te.compute(
            targets.shape,
            lambda *i: tir.Select(tir.NE(targets(*i), const(ignore, targets.dtype)), weights(targets(*i)), zero),
            "used_weights",
        )
        total = topi.sum(used) if kind == "mean" and len(targets.shape) else used

        def element(*i: Any) -> Any:
            where = [*i[:1], *i[2:]] if len(predictions.shape) > 1 else []
            channel = i[1] if len(predictions.shape) > 1 else i[0]
            value = out(*where) if kind == "none" else out()
            if kind == "mean":
                value = value / (total() if len(targets.shape) else total(*where))
            hit = tir.EQ(channel, targets(*where).astype(str(channel.dtype)))
            return tir.Select(hit, -value * used(*where), zero)

        return te.compute(predictions.shape, element, "pred_grad")

    return compute


def _te_pool(call: Call, largest: bool) -> Any:
    a = call.attrs
    window, steps, gaps, pads = ([int(v) for v in a[k]] for k in ("pool_size", "strides", "dilation", "padding"))
    letters = [c for c in a.layout if c.isalpha()]
    dims = [letters.index("H"), letters.index("W")]
    pads = pads * 2 if len(pads) == 2 else pads

    def compute(out: Any, data: Any) -> Any:
        pooled: Any = None
        if largest:
            pooled = topi.nn.pool2d(data, window, steps, gaps, pads, "max", bool(a.ceil_mode), a.layout)
        share: Any = None
        if not largest:
            share = _divisors(out, data, dims, window, steps, gaps, pads, bool(a.count_include_pad))
        kh = te.reduce_axis((const(0, "int64"), const(window[0], "int64")), "wh")
        kw = te.reduce_axis((const(0, "int64"), const(window[1], "int64")), "ww")

        def element(*i: Any) -> Any:
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


def _divisors(out: Any, data: Any, dims: Any, window: Any, steps: Any, gaps: Any, pads: Any, include: bool) -> Any:
    """How many elements each mean of the forward pass was taken over."""

    def element(*i: Any) -> Any:
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


def _te_take(call: Call) -> Any:
    axis = opt_int(call.attrs.axis)

    def compute(out: Any, x: Any, indices: Any) -> Any:
        from ...topi.loops import loops, read, seq, write

        at = 0 if axis is None else axis % len(x.shape)
        rank = len(indices.shape)

        def body(ins: Any, outs: Any) -> Any:
            grads, where = ins
            clear = loops(x.shape, lambda i: write(outs[0], const(0, x.dtype), *i))

            def put(i: list[Any]) -> Any:
                picked = read(where, *i[at : at + rank]).astype("int64")
                target = [*i[:at], picked, *i[at + rank :]]
                return write(outs[0], read(outs[0], *target) + read(grads, *i), *target)

            return seq(clear, loops(out.shape, put, "g"))

        return te.extern([tuple(x.shape)], [out, indices], body, "take_backward", [x.dtype])

    return compute


def _legalize(name: str, make: Any) -> Any:
    def legalize(builder: Any, call: Call) -> Expr:
        made: Expr = builder.call_te(make(call), *call.args, primfunc_name_hint=name)
        return made

    return legalize


for _name, _make, _index in (
    ("nll_loss_backward", _te_nll, 1),
    ("max_pool2d_backward", lambda call: _te_pool(call, True), 1),
    ("avg_pool2d_backward", lambda call: _te_pool(call, False), 1),
    ("take_backward", _te_take, 1),
):
    define(
        f"grad.{_name}",
        _infer_as(_index),
        legalize=_legalize(_name, _make),
        precision="never",
        arg_names=("output_grad", "data"),
    )
