"""Gradients: each takes the call, its result and the gradient of the result, and gives one of each argument."""

from __future__ import annotations

from typing import Any

from ..relax.expr import Call, Expr, Tuple, const
from ..relax.scalars import const_int, prove_equal_shapes
from ..relax.struct_info import TensorStructInfo, TupleStructInfo
from . import grad as _grad
from . import nn
from .base import null_value
from .binary import add, divide, greater_equal, less, multiply, power, subtract
from .datatype import astype
from .linear_algebra import matmul
from .manipulate import (
    broadcast_to,
    collapse_sum_to,
    concat,
    expand_dims,
    flatten,
    permute_dims,
    reshape,
    split,
    squeeze,
)
from .record import gradient
from .search import where
from .statistical import cumsum, sum
from .unary import cos, exp, log, negative, sigmoid, sin

__all__: list[str] = []


def _shape(expr: Any) -> Any:
    return expr.struct_info.shape


def _like(value: float, expr: Any) -> Expr:
    return const(value, expr.struct_info.dtype)


def _fit_to(grad: Any, call: Call, index: int) -> Expr:
    """Sum away what broadcasting repeated; the gradient has the shape of the call's result."""
    arg = call.args[index]
    if not isinstance(arg.struct_info, TensorStructInfo):
        return null_value()
    have, want = call.struct_info.dims(), arg.struct_info.dims()
    if have is not None and want is not None and prove_equal_shapes(have, want):
        return grad  # type: ignore[no-any-return]
    return collapse_sum_to(grad, _shape(arg))


def _none(count: int) -> list[Expr]:
    return [null_value() for _ in range(count)]


# ---- arithmetic ---------------------------------------------------------------------------------------------------


@gradient("add")
def _add(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [_fit_to(out, call, 0), _fit_to(out, call, 1)]


@gradient("subtract")
def _subtract(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [_fit_to(out, call, 0), _fit_to(negative(out), call, 1)]


@gradient("multiply")
def _multiply(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x, y = call.args
    return [_fit_to(multiply(out, y), call, 0), _fit_to(multiply(out, x), call, 1)]


@gradient("divide")
def _divide(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x, y = call.args
    by_x = divide(out, y)
    by_y = divide(multiply(negative(out), var), y)
    return [_fit_to(by_x, call, 0), _fit_to(by_y, call, 1)]


@gradient("power")
def _power(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x, y = call.args
    one = _like(1.0, y)
    by_x = multiply(multiply(out, y), power(x, subtract(y, one)))
    by_y = multiply(multiply(out, var), log(x))
    return [_fit_to(by_x, call, 0), _fit_to(by_y, call, 1)]


@gradient("maximum")
def _maximum(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x, y = call.args
    zero = _like(0.0, x)
    by_x, by_y = where(less(x, y), zero, out), where(greater_equal(x, y), zero, out)
    return [_fit_to(by_x, call, 0), _fit_to(by_y, call, 1)]


@gradient("minimum")
def _minimum(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x, y = call.args
    zero = _like(0.0, x)
    by_x, by_y = where(greater_equal(x, y), zero, out), where(less(x, y), zero, out)
    return [_fit_to(by_x, call, 0), _fit_to(by_y, call, 1)]


for _name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
    gradient(_name)(lambda var, call, out, ctx: _none(2))


# ---- one operand --------------------------------------------------------------------------------------------------


@gradient("abs")
def _abs(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x = call.args[0]
    one = _like(1.0, x)
    return [multiply(out, where(less(x, _like(0.0, x)), negative(one), one))]


@gradient("cos")
def _cos(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [multiply(negative(out), sin(call.args[0]))]


@gradient("sin")
def _sin(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [multiply(out, cos(call.args[0]))]


@gradient("exp")
def _exp(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [multiply(out, var)]


@gradient("log")
def _log(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [divide(out, call.args[0])]


@gradient("negative")
def _negative(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [negative(out)]


@gradient("sigmoid")
def _sigmoid(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [multiply(multiply(out, var), subtract(_like(1.0, var), var))]


@gradient("tanh")
def _tanh(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [multiply(out, subtract(_like(1.0, var), multiply(var, var)))]


@gradient("sqrt")
def _sqrt(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [divide(multiply(_like(0.5, var), out), var)]


@gradient("astype")
def _astype(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [astype(out, call.args[0].struct_info.dtype)]


for _name, _operands in (("zeros", 1), ("ones", 1), ("full", 2), ("zeros_like", 1), ("ones_like", 1), ("full_like", 2)):
    gradient(_name)(lambda var, call, out, ctx, n=_operands: _none(n))


@gradient("triu")
def _triu(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    from .create import triu

    return [triu(out, call.args[1]), null_value()]


# ---- reductions ---------------------------------------------------------------------------------------------------


def _axes(call: Call) -> list[int]:
    ndim = call.args[0].struct_info.ndim
    axis = call.attrs.axis
    return list(range(ndim)) if axis is None else sorted(int(a) % ndim for a in axis)


def _spread(call: Call, out: Any) -> Expr:
    """A reduced gradient back over the input's shape."""
    return broadcast_to(_with_axes(call, out), _shape(call.args[0]))


def _with_axes(call: Call, out: Any) -> Expr:
    """A reduced gradient with the axes that the reduction removed."""
    axis = call.attrs.axis
    return out if call.attrs.keepdims or not axis else expand_dims(out, [int(a) for a in axis])


def _count(call: Call) -> float:
    total = 1
    for a in _axes(call):
        size = const_int(call.args[0].struct_info.dims()[a])
        if size is None:
            raise ValueError("the gradient of a mean needs known extents along the reduced axes")
        total *= size
    return float(total)


@gradient("sum")
def _sum(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [_spread(call, out)]


@gradient("mean")
def _mean(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [_spread(call, divide(out, _like(_count(call), call.args[0])))]


@gradient("variance")
def _variance(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x, axis, count = call.args[0], call.attrs.axis, _count(call)
    own = multiply(_like(2.0 / count, x), x)
    mean = multiply(_like(2.0 / count / count, x), sum(x, axis, keepdims=True))
    return [multiply(_with_axes(call, out), subtract(own, mean))]


@gradient("cumsum")
def _cumsum(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    """Each value counts in all sums from its place on: the total less the sums before."""
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    x = call.args[0]
    back = subtract(sum(out, axis, keepdims=True), cumsum(out, axis))
    if not call.attrs.exclusive:
        back = add(back, flatten(out) if axis is None else out)
    if axis is None:
        back = reshape(back, _shape(x))
    return [astype(back, x.struct_info.dtype)]


# ---- shapes -------------------------------------------------------------------------------------------------------


@gradient("permute_dims")
def _permute_dims(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    axes = call.attrs.axes
    if axes is None:
        return [permute_dims(out)]
    order = [int(a) % len(axes) for a in axes]
    return [permute_dims(out, [order.index(i) for i in range(len(order))])]


@gradient("reshape")
def _reshape(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [reshape(out, _shape(call.args[0])), null_value()]


@gradient("expand_dims")
def _expand_dims(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [squeeze(out, [int(a) for a in call.attrs.axis])]


@gradient("broadcast_to")
def _broadcast_to(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [collapse_sum_to(out, _shape(call.args[0])), null_value()]


@gradient("concat")
def _concat(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    info = call.args[0].struct_info
    assert isinstance(info, TupleStructInfo)
    cuts: list[int] = []
    for field in info.fields[:-1]:
        dims = field.dims() if isinstance(field, TensorStructInfo) else None
        size = None if dims is None else const_int(dims[axis])
        if size is None:
            raise ValueError("the gradient of concat needs known extents along its axis")
        cuts.append((cuts[-1] if cuts else 0) + size)
    # Cut into one part, a tensor stays itself.
    return [split(out, cuts, axis) if cuts else Tuple([out])]


@gradient("split")
def _split(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    return [concat(out, int(call.attrs.axis))]


@gradient("where")
def _where(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    condition, a, b = call.args
    zero = _like(0.0, a)
    return [
        null_value(),
        _fit_to(where(condition, out, zero), call, 1),
        _fit_to(where(condition, zero, out), call, 2),
    ]


@gradient("take")
def _take(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return [_grad.take_backward(out, call.args[0], call.args[1], axis), null_value()]


@gradient("matmul")
def _matmul(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    a, b = call.args
    rank_a, rank_b = a.struct_info.ndim, b.struct_info.ndim

    def swapped(x: Any, rank: int) -> Expr:
        return permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])

    if rank_a == 1 and rank_b == 1:
        by_a, by_b = multiply(out, b), multiply(out, a)
    elif rank_a == 1:
        # A row vector: (k) @ (..., k, n) -> (..., n).
        row = expand_dims(out, -2)
        by_a, by_b = matmul(row, swapped(b, rank_b)), matmul(expand_dims(a, 1), row)
    elif rank_b == 1:
        column = expand_dims(out, -1)
        by_a = matmul(column, expand_dims(b, 0))
        by_b = squeeze(matmul(swapped(a, rank_a), column), -1)
    else:
        by_a, by_b = matmul(out, swapped(b, rank_b)), matmul(swapped(a, rank_a), out)
    return [_fit(ctx, by_a, a), _fit(ctx, by_b, b)]


def _fit(ctx: Any, grad: Any, arg: Any) -> Expr:
    """Batches that were broadcast are summed."""
    have, want = ctx.normalize(grad).struct_info.dims(), arg.struct_info.dims()
    return grad if prove_equal_shapes(have, want) else collapse_sum_to(grad, _shape(arg))  # type: ignore[no-any-return]


# ---- nn -----------------------------------------------------------------------------------------------------------


@gradient("nn.relu")
def _relu(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x = call.args[0]
    return [where(less(x, _like(0.0, x)), _like(0.0, x), out)]


@gradient("nn.silu")
def _silu(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x = call.args[0]
    gate = sigmoid(x)
    one = _like(1.0, x)
    return [multiply(out, add(gate, multiply(var, subtract(one, gate))))]


@gradient("nn.softmax")
def _softmax(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    total = sum(multiply(out, var), int(call.attrs.axis), True)
    return [multiply(subtract(out, total), var)]


@gradient("nn.log_softmax")
def _log_softmax(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    axis = int(call.attrs.axis)
    return [subtract(out, multiply(sum(out, axis, True), exp(var)))]


@gradient("nn.cross_entropy_with_logits")
def _cross_entropy(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    x, y = call.args
    if x.struct_info.ndim > 1:
        size = const_int(x.struct_info.dims()[0])
        if size is None:
            raise ValueError("the gradient of cross_entropy_with_logits needs a known batch size")
        out = divide(out, _like(float(size), out))
    return [multiply(negative(out), y), multiply(negative(out), x)]


@gradient("nn.nll_loss")
def _nll_loss(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    predictions, targets, *rest = call.args
    weights = rest[0] if rest else None
    by_predictions = _grad.nll_loss_backward(
        out, predictions, targets, weights, call.attrs.reduction, int(call.attrs.ignore_index)
    )
    return [by_predictions, *_none(len(call.args) - 1)]


@gradient("nn.conv2d")
def _conv2d(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
    from .index import strided_slice

    a = call.attrs
    if a.data_layout != "NCHW" or a.kernel_layout != "OIHW" or a.out_layout != "NCHW":
        raise ValueError("the gradient of conv2d is defined for NCHW data and OIHW kernels")
    data, weight = call.args
    strides, pads, gaps = ([int(v) for v in a[k]] for k in ("strides", "padding", "dilation"))
    groups = int(a.groups)
    n, c, h, w = (_int(d) for d in data.struct_info.dims())
    f, per_group, kh, kw = (_int(d) for d in weight.struct_info.dims())
    out_h, out_w = (_int(d) for d in call.struct_info.dims()[2:])
    extra = [
        size - ((o - 1) * s + (k - 1) * g + 1 - p - q)
        for size, o, s, k, g, p, q in zip((h, w), (out_h, out_w), strides, (kh, kw), gaps, pads[:2], pads[2:])
    ]
    by_data = nn.conv2d_transpose(out, weight, strides, pads, extra, gaps, groups, out_dtype=a.out_dtype)
    if groups != 1:
        data = reshape(data, (n, groups, c // groups, h, w))
        data = permute_dims(data, [1, 0, 2, 3, 4])
        data = reshape(data, (n * groups, c // groups, h, w))
    # The data correlated with the gradient, samples in the place of channels.
    by_weight = nn.conv2d(
        data,
        out,
        strides=gaps,
        padding=pads,
        dilation=strides,
        groups=groups,
        data_layout="CNHW",
        kernel_layout="IOHW",
        out_layout="CNHW",
        out_dtype=a.out_dtype,
    )
    full_h = (h - (out_h - 1) * strides[0] - 1 + pads[0] + pads[2]) // gaps[0] + 1
    full_w = (w - (out_w - 1) * strides[1] - 1 + pads[1] + pads[3]) // gaps[1] + 1
    if (full_h, full_w) != (kh, kw):
        by_weight = strided_slice(by_weight, [0, 1, 2, 3], [0, 0, 0, 0], [f, per_group, kh, kw])
    return [by_data, by_weight]


def _int(dim: Any) -> int:
    value = const_int(dim)
    if value is None:
        raise ValueError("the gradient of conv2d needs known shapes")
    return value


def _pool(name: str) -> Any:
    def rule(var: Any, call: Call, out: Any, ctx: Any) -> list[Expr]:
        a = call.attrs
        return [
            getattr(_grad, f"{name}_pool2d_backward")(
                out,
                call.args[0],
                [int(v) for v in a.pool_size],
                [int(v) for v in a.strides],
                [int(v) for v in a.padding],
                [int(v) for v in a.dilation],
                bool(a.ceil_mode),
                bool(a.count_include_pad),
                a.layout,
                a.out_layout,
            )
        ]

    return rule


gradient("nn.max_pool2d")(_pool("max"))
gradient("nn.avg_pool2d")(_pool("avg"))
