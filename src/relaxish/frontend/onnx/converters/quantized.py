"""Quantised values: to and from numbers, and products, convolutions and elementwise operators of them.

Products are of integers with sums in int32; the factors of both sides and of the result are one multiplication at the
end, as in ONNX Runtime. Elementwise operators work on the numbers the values stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from .... import op, te, tir
from ....ir import dtype as dt
from ....ir.expr import PrimExpr
from ....relax.expr import Expr
from ....relax.scalars import const_int, simplify
from ..context import Context, convert, dtype_name
from .convolution import bordered, convolution, kernel_of

_T = TypeVar("_T")

_RUNTIME = "com.microsoft"


def _given(inputs: Sequence[_T], at: int) -> _T | None:
    return inputs[at] if len(inputs) > at else None


def _zero(ctx: Context, given: Expr | None, kind: str) -> Expr:
    return ctx.const(0, kind) if given is None else ctx.tensor(given)


def _squeezed(ctx: Context, x: Expr) -> Expr:
    """A scalar, if one element is all there is."""
    return ctx.emit(ctx.reshape(x, [])) if ctx.ndim(x) == 1 and const_int(ctx.dims(x)[0]) == 1 else x


def _channel_axis(ctx: Context, x: Expr, scale: Expr, attrs: dict[str, Any]) -> int:
    """The axis that scales belong to, if there is more than one."""
    return int(attrs.get("axis", 1)) % ctx.ndim(x) if ctx.ndim(scale) and ctx.ndim(x) else -1


def _by_block(ctx: Context, x: Expr, settings: Expr, attrs: dict[str, Any]) -> Expr:
    """The scale or zero point of each element, of those for blocks along an axis."""
    axis = int(attrs.get("axis", 1)) % ctx.ndim(x)
    block = int(attrs["block_size"])
    wide = ctx.emit(op.repeat(settings, block, axis))
    return ctx.emit(op.strided_slice(wide, [axis], [0], [ctx.dims(x)[axis]], [1]))


def quantized(ctx: Context, x: Expr, scale: Expr, zero: Expr, axis: int = -1) -> Expr:
    """Numbers as integers of the zero point's type."""
    scale, zero = (_by_channel(ctx, x, _squeezed(ctx, v), axis) for v in (scale, zero))
    return op.quantize(x, scale, zero, axis, ctx.dtype(zero))


def _by_channel(ctx: Context, x: Expr, table: Expr, axis: int) -> Expr:
    """A number, or one for each place along an axis of ``x``."""
    return ctx.fitted(table, [ctx.dims(x)[axis]]) if ctx.ndim(table) == 1 else table


def dequantized(ctx: Context, x: Expr, scale: Expr, zero: Expr | None, axis: int = -1) -> Expr:
    """The numbers that integers stand for."""
    scale = _squeezed(ctx, ctx.tensor(scale))
    zero = _squeezed(ctx, _zero(ctx, zero, ctx.dtype(x)))
    scale, zero = (_by_channel(ctx, x, v, axis) for v in (scale, zero))
    return ctx.emit(op.dequantize(x, scale, zero, axis, ctx.dtype(scale)))


@convert("QuantizeLinear")
@convert("QuantizeLinear", domain=_RUNTIME)
def _quantize(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, scale = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    zero = _given(inputs, 2)
    if zero is None and attrs.get("output_dtype"):
        zero = ctx.const(0, dtype_name(int(attrs["output_dtype"])))
    zero = _zero(ctx, zero, "uint8")
    if not attrs.get("block_size"):
        return quantized(ctx, x, scale, zero, _channel_axis(ctx, x, scale, attrs))
    kind = ctx.dtype(zero)
    if ctx.ndim(zero):
        zero = _by_block(ctx, x, zero, attrs)
    whole = ctx.emit(op.round(ctx.emit(op.divide(x, _by_block(ctx, x, scale, attrs)))))
    return _saturated(ctx, whole, zero, kind)


def _saturated(ctx: Context, whole: Expr, zero: Expr, kind: str) -> Expr:
    """Whole numbers, moved by the zero point, as the nearest integers of a type."""
    moved = ctx.emit(op.add(whole, ctx.emit(op.astype(zero, ctx.dtype(whole)))))
    high = float(dt.max_value(kind))
    low = 0.0 if dt.is_uint(kind) else -high - 1
    return op.astype(ctx.emit(op.clip(moved, low, high)), kind)


@convert("DequantizeLinear")
@convert("DequantizeLinear", domain=_RUNTIME)
def _dequantize(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, scale, zero = ctx.tensor(inputs[0]), ctx.tensor(inputs[1]), _given(inputs, 2)
    if not attrs.get("block_size"):
        return dequantized(ctx, x, scale, zero, _channel_axis(ctx, x, scale, attrs))
    kind = ctx.dtype(scale)
    value = ctx.emit(op.astype(x, kind))
    if zero is not None:
        value = ctx.emit(op.subtract(value, ctx.emit(op.astype(_by_block(ctx, x, ctx.tensor(zero), attrs), kind))))
    return op.multiply(value, _by_block(ctx, x, scale, attrs))


# ---- products and convolutions


def _is_zero(ctx: Context, zero: Expr | None) -> bool:
    known = ctx.constant(zero)
    return zero is None or (known is not None and not known.any())


def _point(ctx: Context, zero: Expr, column: bool = False) -> Expr:
    """A zero point as int32; one with a dimension belongs to the last axis, or to the last but one if ``column``."""
    wide = ctx.emit(op.astype(_squeezed(ctx, ctx.tensor(zero)), "int32"))
    return ctx.emit(op.expand_dims(wide, 1)) if column and ctx.ndim(wide) == 1 else wide


def _less_zero(ctx: Context, x: Expr, zero: Expr | None, axis: int) -> tuple[Expr, Expr | None]:
    """Constant bytes and their zero point as int8 around 0, if they fit; ``axis`` is that of zero points of channels."""
    value, point = ctx.constant(x), ctx.constant(zero)
    if value is None or point is None:
        return x, zero
    if point.size == 1:
        point = point.reshape(())
    elif point.ndim == 1:
        point = point.reshape([-1 if k == axis % value.ndim else 1 for k in range(value.ndim)])
    moved = value.astype("int32") - point
    if moved.size and -128 <= moved.min() and moved.max() <= 127:
        return ctx.const(moved.astype("int8"), "int8"), None
    return x, zero


def _sums(ctx: Context, x: Expr, axes: list[int], keep: bool) -> Expr:
    """Sums of integers in int32."""
    value = ctx.constant(x)
    if value is not None:
        return ctx.const(value.astype("int64").sum(tuple(axes), keepdims=keep).astype("int32"), "int32")
    return ctx.emit(op.sum(ctx.emit(op.astype(x, "int32")), axes, keep))


def product(ctx: Context, a: Expr, b: Expr, a_zero: Expr | None, b_zero: Expr | None) -> Expr:
    """The matrix product of integers, in int32.

    It is that of the bytes themselves; what zero points add to it are sums of rows and columns.
    """
    if not _is_zero(ctx, b_zero):
        b, b_zero = _less_zero(ctx, b, b_zero, -1)
    out = ctx.emit(op.matmul(a, b, out_dtype="int32"))
    matrices = ctx.ndim(a) > 1 and ctx.ndim(b) > 1
    shifted = None if a_zero is None or _is_zero(ctx, a_zero) else _point(ctx, a_zero, column=matrices)
    if shifted is not None:
        columns = _sums(ctx, b, [max(ctx.ndim(b) - 2, 0)], matrices)
        out = ctx.emit(op.subtract(out, ctx.emit(op.multiply(columns, shifted))))
    if b_zero is None or _is_zero(ctx, b_zero):
        return out
    if shifted is not None:
        a = ctx.emit(op.subtract(ctx.emit(op.astype(a, "int32")), shifted))
    rows = _sums(ctx, a, [ctx.ndim(a) - 1], ctx.ndim(b) > 1)
    return ctx.emit(op.subtract(out, ctx.emit(op.multiply(rows, _point(ctx, b_zero)))))


def _padded(ctx: Context, x: Expr, point: Expr, pads: Sequence[int]) -> Expr:
    """An image with a border of the zero point, which stands for the number 0."""
    half = len(pads) // 2
    sides = [(0, 0), (0, 0), *zip(pads[:half], pads[half:])]

    def compute(data: te.Tensor, point: te.Tensor) -> te.Tensor:
        shape = [simplify(d + p + q) for d, (p, q) in zip(data.shape, sides)]

        def body(*at: PrimExpr) -> PrimExpr:
            inside = [tir.And(i >= p, i < p + d) for i, d, (p, q) in zip(at[2:], data.shape[2:], sides[2:])]
            place = [i - p for i, (p, _) in zip(at[2:], sides[2:])]
            return tir.if_then_else(tir.all(*inside), data(at[0], at[1], *place), point())

        return te.compute(shape, body, "bordered")

    return ctx.builder.emit_te(compute, x, point, primfunc_name_hint="bordered")


def _convolved(ctx: Context, x: Expr, w: Expr, x_zero: Expr | None, w_zero: Expr | None, attrs: dict[str, Any]) -> Expr:
    """The convolution of integers, in int32; padding stands for 0."""
    if w_zero is not None and not _is_zero(ctx, w_zero):
        w, w_zero = _less_zero(ctx, w, _squeezed(ctx, ctx.tensor(w_zero)), 0)
    if w_zero is not None and not _is_zero(ctx, w_zero):
        # Weights too far from their zero for a byte: products of int32.
        points = ctx.emit(op.astype(_squeezed(ctx, ctx.tensor(w_zero)), "int32"))
        if ctx.ndim(points) == 1:
            points = ctx.emit(ctx.reshape(points, [-1, *[1] * (ctx.ndim(w) - 1)]))
        w = ctx.emit(op.subtract(ctx.emit(op.astype(w, "int32")), points))
        x = ctx.emit(op.astype(x, "int32"))
    if x_zero is None or _is_zero(ctx, x_zero):
        return ctx.emit(convolution(ctx, x, w, attrs, "int32"))
    point = ctx.emit(op.astype(_squeezed(ctx, ctx.tensor(x_zero)), ctx.dtype(x)))
    x, attrs = bordered(ctx, x, attrs, kernel_of(ctx, w, attrs), point)
    pads = attrs["pads"]
    if any(pads):
        x = _padded(ctx, x, point, pads)
        attrs = {**attrs, "pads": [0] * len(pads), "auto_pad": "NOTSET"}
    sums = ctx.emit(convolution(ctx, x, w, attrs, "int32"))
    columns = _sums(ctx, w, list(range(1, ctx.ndim(w))), False)
    added = ctx.emit(op.multiply(columns, _point(ctx, x_zero)))
    return ctx.emit(op.subtract(sums, ctx.emit(ctx.reshape(added, [-1, *[1] * (ctx.ndim(w) - 2)]))))


def _factor(ctx: Context, scales: list[Expr], result: Expr | None, dims: int = 0) -> Expr:
    """What sums are multiplied with: the product of the scales of both sides over that of the result.

    Scales by channel stand along the first of ``dims`` further axes.
    """
    parts = [_squeezed(ctx, ctx.tensor(s)) for s in scales]
    total = ctx.emit(op.multiply(*parts))
    if result is not None:
        total = ctx.emit(op.divide(total, _squeezed(ctx, ctx.tensor(result))))
    if ctx.ndim(total) == 1 and dims:
        total = ctx.emit(ctx.reshape(total, [-1, *[1] * dims]))
    return total


def _requantized(ctx: Context, sums: Expr, factor: Expr, zero: Expr) -> Expr:
    number = ctx.emit(op.multiply(ctx.emit(op.astype(sums, ctx.dtype(factor))), factor))
    return _saturated(ctx, ctx.emit(op.round(number)), _squeezed(ctx, zero), ctx.dtype(zero))


@convert("MatMulInteger")
def _matmul_integer(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    a, b = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    return product(ctx, a, b, _given(inputs, 2), _given(inputs, 3))


@convert("QLinearMatMul")
def _qlinear_matmul(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (ctx.tensor(x) for x in inputs)
    if ctx.ndim(_squeezed(ctx, a_scale)):
        a_scale = ctx.emit(op.expand_dims(a_scale, 1))
    sums = product(ctx, a, b, a_zero, b_zero)
    return _requantized(ctx, sums, _factor(ctx, [a_scale, b_scale], scale), zero)


@convert("ConvInteger")
def _conv_integer(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, w = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    return _convolved(ctx, x, w, _given(inputs, 2), _given(inputs, 3), attrs)


@convert("QLinearConv")
def _qlinear_conv(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (ctx.tensor(v) for v in inputs[:8])
    n = ctx.ndim(x) - 2
    sums = _convolved(ctx, x, w, x_zero, w_zero, attrs)
    bias = _given(inputs, 8)
    if bias is not None:
        row = ctx.emit(ctx.reshape(ctx.tensor(bias), [1, -1, *[1] * n]))
        sums = ctx.emit(op.add(sums, row))
    return _requantized(ctx, sums, _factor(ctx, [x_scale, w_scale], scale, n), zero)


@convert("QGemm", domain=_RUNTIME)
def _qgemm(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    a, a_scale, a_zero, b, b_scale, b_zero = (ctx.tensor(v) for v in inputs[:6])
    if attrs.get("transA", 0):
        a = ctx.emit(op.permute_dims(a, [1, 0]))
    if attrs.get("transB", 0):
        b = ctx.emit(op.permute_dims(b, [1, 0]))
    sums = product(ctx, a, b, a_zero, b_zero)
    bias, scale, zero = (_given(inputs, k) for k in (6, 7, 8))
    if bias is not None:
        sums = ctx.emit(op.add(sums, ctx.tensor(bias)))
    factor = _factor(ctx, [a_scale, b_scale], scale)
    alpha = float(attrs.get("alpha", 1.0))
    if alpha != 1.0:
        factor = ctx.emit(op.multiply(factor, ctx.const(alpha, ctx.dtype(factor))))
    if zero is not None:
        return _requantized(ctx, sums, factor, ctx.tensor(zero))
    return op.multiply(ctx.emit(op.astype(sums, ctx.dtype(factor))), factor)


def scaled_product(
    ctx: Context, a: Expr, b: Expr, scales: list[Expr], zeros: list[Expr | None], bias: Expr | None
) -> Expr:
    """The product of integers as the numbers they stand for, and a bias."""
    factor = _factor(ctx, scales, None)
    sums = product(ctx, a, b, *zeros)
    out = ctx.emit(op.multiply(ctx.emit(op.astype(sums, ctx.dtype(factor))), factor))
    return out if bias is None else op.add(out, ctx.tensor(bias))


@convert("MatMulIntegerToFloat", domain=_RUNTIME)
def _matmul_to_float(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    a, b, a_scale, b_scale = (ctx.tensor(v) for v in inputs[:4])
    return scaled_product(ctx, a, b, [a_scale, b_scale], [_given(inputs, 4), _given(inputs, 5)], _given(inputs, 6))


@convert("DynamicQuantizeLinear", 11)
def _dynamic_quantize(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> list[Expr]:
    """uint8 with scale and zero point from the least and largest element; the range always has 0 in it."""
    x = ctx.tensor(inputs[0])
    nothing = ctx.const(0.0, "float32")
    low = ctx.emit(op.minimum(ctx.emit(op.min(x)), nothing))
    high = ctx.emit(op.maximum(ctx.emit(op.max(x)), nothing))
    span = ctx.emit(op.divide(ctx.emit(op.subtract(high, low)), ctx.const(255.0, "float32")))
    # All zeros: any scale will do.
    scale = ctx.emit(op.where(ctx.emit(op.equal(span, nothing)), ctx.const(1.0, "float32"), span))
    first = ctx.emit(op.round(ctx.emit(op.divide(ctx.emit(op.negative(low)), scale))))
    zero = ctx.emit(op.astype(ctx.emit(op.clip(first, 0.0, 255.0)), "uint8"))
    return [ctx.emit(op.quantize(x, scale, zero, -1, "uint8")), scale, zero]


@convert("DynamicQuantizeMatMul", domain=_RUNTIME)
def _dynamic_quantize_matmul(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    values, scale, zero = _dynamic_quantize(ctx, inputs[:1], {})
    b, b_scale = ctx.tensor(inputs[1]), ctx.tensor(inputs[2])
    return scaled_product(ctx, values, b, [scale, b_scale], [zero, _given(inputs, 3)], _given(inputs, 4))


@convert("MatMulNBits", domain=_RUNTIME)
def _matmul_nbits(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    """A product with weights of 2, 4 or 8 bits, each block of a column with its scale and zero point."""
    x = ctx.tensor(inputs[0])
    depth, columns, block = (int(attrs[name]) for name in ("K", "N", "block_size"))
    bits = int(attrs.get("bits", 4))
    if bits not in (2, 4, 8) or _given(inputs, 4) is not None:
        raise NotImplementedError("MatMulNBits with other widths than 2, 4 and 8, or with reordered columns")
    kind, blocks = ctx.dtype(x), -(-depth // block)
    weights = _unpacked(ctx, ctx.tensor(inputs[1]), bits, [columns, blocks, block])
    zero = _given(inputs, 3)
    if zero is None:
        points: Expr = ctx.const(float(1 << (bits - 1)), kind)
    elif ctx.dtype(zero) == kind:
        points = ctx.emit(ctx.reshape(ctx.tensor(zero), [columns, blocks, 1]))
    else:
        a_byte = 8 // bits
        packed = ctx.emit(ctx.reshape(ctx.tensor(zero), [columns, -(-blocks // a_byte)]))
        each = _unpacked(ctx, packed, bits, [columns, -(-blocks // a_byte) * a_byte])
        each = ctx.emit(op.strided_slice(each, [1], [0], [blocks], [1]))
        points = ctx.emit(ctx.reshape(ctx.emit(op.astype(each, kind)), [columns, blocks, 1]))
    scales = ctx.emit(ctx.reshape(ctx.tensor(inputs[2]), [columns, blocks, 1]))
    numbers = ctx.emit(op.subtract(ctx.emit(op.astype(weights, kind)), points))
    numbers = ctx.emit(ctx.reshape(ctx.emit(op.multiply(numbers, scales)), [columns, blocks * block]))
    numbers = ctx.emit(op.strided_slice(numbers, [1], [0], [depth], [1]))
    out = ctx.emit(op.matmul(x, ctx.emit(op.permute_dims(numbers, [1, 0]))))
    bias = _given(inputs, 5)
    return out if bias is None else op.add(out, ctx.tensor(bias))


def _unpacked(ctx: Context, packed: Expr, bits: int, shape: list[int]) -> Expr:
    """The numbers in bytes, the lowest bits first, as another shape."""
    a_byte = 8 // bits
    if a_byte > 1:
        shifts = ctx.const(np.arange(a_byte) * bits, "uint8")
        wide = ctx.emit(op.right_shift(ctx.emit(op.expand_dims(packed, -1)), shifts))
        packed = ctx.emit(op.bitwise_and(wide, ctx.const((1 << bits) - 1, "uint8")))
    return ctx.emit(ctx.reshape(packed, shape))


# ---- elementwise operators of ONNX Runtime


def _of_numbers(name: str, operands: int, emit: Callable[[Context, list[Expr], dict[str, Any]], Expr]) -> None:
    """An operator whose inputs are (value, scale, zero point) for each operand, then scale and zero of the result."""

    @convert(name, domain=_RUNTIME)
    def run(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
        numbers = []
        for k in range(operands):
            numbers.append(dequantized(ctx, ctx.tensor(inputs[3 * k]), inputs[3 * k + 1], inputs[3 * k + 2]))
        zero = _zero(ctx, _given(inputs, 3 * operands + 1), ctx.dtype(inputs[0]))
        made = ctx.emit(emit(ctx, numbers, attrs))
        return quantized(ctx, made, ctx.tensor(inputs[3 * operands]), zero)


def _global_mean(ctx: Context, numbers: list[Expr], attrs: dict[str, Any]) -> Expr:
    rank = ctx.ndim(numbers[0])
    axes = list(range(1, rank - 1)) if attrs.get("channels_last", 0) else list(range(2, rank))
    return op.mean(numbers[0], axes, True)


_of_numbers("QLinearAdd", 2, lambda ctx, x, attrs: op.add(x[0], x[1]))
_of_numbers("QLinearMul", 2, lambda ctx, x, attrs: op.multiply(x[0], x[1]))
_of_numbers("QLinearSigmoid", 1, lambda ctx, x, attrs: op.sigmoid(x[0]))
_of_numbers("QLinearLeakyRelu", 1, lambda ctx, x, attrs: op.nn.leakyrelu(x[0], float(attrs.get("alpha", 0.01))))
_of_numbers("QLinearGlobalAveragePool", 1, _global_mean)
_of_numbers("QLinearSoftmax", 1, lambda ctx, x, attrs: op.nn.softmax(x[0], int(attrs.get("axis", -1))))


@convert("QLinearConcat", domain=_RUNTIME)
def _qlinear_concat(ctx: Context, inputs: list[Any], attrs: dict[str, Any]) -> Expr:
    scale, zero = ctx.tensor(inputs[0]), ctx.tensor(inputs[1])
    parts = [dequantized(ctx, ctx.tensor(inputs[k]), *inputs[k + 1 : k + 3]) for k in range(2, len(inputs), 3)]
    return quantized(ctx, ctx.emit(op.concat(parts, int(attrs["axis"]))), scale, zero)
