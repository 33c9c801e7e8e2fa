"""Neural network operators of PyTorch: convolutions, pooling, linear maps, attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import op, relax
from ...relax.expr import Expr
from ...support.errors import OpNotImplemented
from ...transform.subpixel_convolution import sub_pixel_convolution
from .importer import Dim, dtype_of, Importer, Number, Steps
from .table import Converter, converter, CONVERTERS, Made
from .windows import many

__all__: list[str] = []

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _batched(self: Importer, x: Expr, rank: int, convert: Callable[[Expr], Expr]) -> Expr:
    """``convert(x)``; an image without a batch dimension gets one for the time being."""
    if self.rank(x) != rank + 1:
        return convert(x)
    return self.emit(op.squeeze(convert(self.emit(op.expand_dims(x, 0))), [0]))


def _add_bias(self: Importer, out: Expr, bias: Expr | None) -> Expr:
    if bias is None:
        return out
    shape = [1] * self.rank(out)
    shape[1] = -1
    return self.emit(op.add(out, self.emit(op.reshape(bias, shape))))


def _conv(rank: int) -> Callable[..., Expr]:
    layouts = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}[rank]
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[rank]

    def convert(
        self: Importer,
        x: Expr,
        weight: Expr,
        bias: Expr | None = None,
        stride: Steps = 1,
        padding: str | Steps = 0,
        dilation: Steps = 1,
        groups: int = 1,
    ) -> Expr:
        dilation = many(dilation, rank)
        pads: Sequence[Dim]
        if padding == "same":
            kernel = self.shape(weight)[2:]
            total = [d * (k - 1) for d, k in zip(dilation, kernel)]
            pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        else:
            pads = many(0 if isinstance(padding, str) else padding, rank)

        def convolved(x: Expr) -> Expr:
            out = self.emit(
                function(
                    x, weight, strides=many(stride, rank), padding=pads, dilation=dilation, groups=groups,
                    data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=dtype_of(x),
                )
            )  # fmt: skip
            return _add_bias(self, out, bias)

        return _batched(self, x, rank, convolved)

    return convert


CONVERTERS.update(conv1d=_conv(1), conv2d=_conv(2), conv3d=_conv(3))


def _conv_transpose(rank: int) -> Converter:
    function = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}[rank]
    layouts = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW")}[rank]

    def convert(
        self: Importer,
        x: Expr,
        weight: Expr,
        bias: Expr | None = None,
        stride: Steps = 1,
        padding: Steps = 0,
        output_padding: Steps = 0,
        groups: int = 1,
        dilation: Steps = 1,
    ) -> Expr:
        def convolved(x: Expr) -> Expr:
            out = self.emit(
                function(
                    x, weight, strides=many(stride, rank), padding=many(padding, rank),
                    output_padding=many(output_padding, rank), dilation=many(dilation, rank), groups=groups,
                    data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=dtype_of(x),
                )
            )  # fmt: skip
            return _add_bias(self, out, bias)

        return _batched(self, x, rank, convolved)

    return convert


CONVERTERS["conv_transpose1d"] = _conv_transpose(1)
CONVERTERS["conv_transpose2d"] = _conv_transpose(2)


@converter("conv_transpose3d")
def _conv_transpose3d(
    self: Importer,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: Steps = 1,
    padding: Steps = 0,
    output_padding: Steps = 0,
    groups: int = 1,
    dilation: Steps = 1,
) -> Expr:
    """A convolution whose channels are the pixels of an output cell; with dilation one of the image with zeros put between
    its elements, by the mirrored kernel."""
    if self.rank(x) == 4:
        args = weight, bias, stride, padding, output_padding, groups, dilation
        return _batched(self, x, 3, lambda x: _conv_transpose3d(self, x, *args))
    steps, pads, extra, spread = (many(v, 3) for v in (stride, padding, output_padding, dilation))
    if all(d == 1 for d in spread):
        plain = sub_pixel_convolution(self.emit, x, weight, steps, [*pads, *pads], extra, groups, dtype_of(x))
        if plain is not None:
            return _add_bias(self, self.emit(plain), bias)
    zeros = [0] * 4
    for axis, step in enumerate(steps, 2):
        size = self.shape(x)[axis]
        apart = self.emit(op.expand_dims(x, axis + 1))
        apart = self.emit(op.nn.pad(apart, [*zeros, *[0] * (2 * (axis - 1)), 0, step - 1, *[0] * (2 * (4 - axis))]))
        shape = [*self.shape(x)[:axis], size * step, *self.shape(x)[axis + 1 :]]
        x = self.emit(op.strided_slice(self.emit(op.reshape(apart, shape)), [axis], [0], [(size - 1) * step + 1]))
    for axis in (2, 3, 4):
        weight = self.emit(op.flip(weight, axis))
    ins, outs, *kernel = self.shape(weight)
    weight = self.emit(op.reshape(weight, [groups, ins // groups, outs, *kernel]))
    weight = self.emit(op.permute_dims(weight, [0, 2, 1, 3, 4, 5]))
    weight = self.emit(op.reshape(weight, [groups * outs, ins // groups, *kernel]))
    around = [(d * (k - 1) - p, d * (k - 1) - p + e) for k, p, e, d in zip(kernel, pads, extra, spread, strict=True)]
    if any(before < 0 for before, _ in around):
        raise OpNotImplemented("conv_transpose3d with more padding than its kernel covers")
    x = self.emit(op.nn.pad(x, [*zeros, *(n for pair in around for n in pair)]))
    return _conv(3)(self, x, weight, bias, 1, 0, spread, groups)


@converter("convolution")
def _convolution(
    self: Importer,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Steps,
    padding: Steps,
    dilation: Steps,
    transposed: bool,
    output_padding: Steps,
    groups: int,
) -> Made:
    rank = self.rank(weight) - 2
    if transposed:
        return CONVERTERS[f"conv_transpose{rank}d"](
            self, x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return CONVERTERS[f"conv{rank}d"](self, x, weight, bias, stride, padding, dilation, groups)


@converter("linear")
def _linear(self: Importer, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    return self.emit(op.linear(x, weight, bias, _type_of_products(x)))


def _type_of_products(operand: Expr) -> str | None:
    """Products of float32 say that they are such; those of narrower types have the type of their operands, as in torch."""
    return "float32" if dtype_of(operand) == "float32" else None


@converter("matmul", "mm", "bmm", "mv", "dot")
def _matmul(self: Importer, a: Expr, b: Expr) -> Expr:
    a, b = self.promote(a, b)
    return self.emit(op.matmul(a, b, _type_of_products(a)))


@converter("_int_mm")
def _int_mm(self: Importer, a: Expr, b: Expr) -> Expr:
    """int8 by int8, summed in int32."""
    return self.emit(op.matmul(a, b, "int32"))


@converter("addmm", "addmv")
def _addmm(self: Importer, bias: Expr | None, a: Expr, b: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    scaled, product = _scaled_terms(self, bias, a, b, beta, alpha)
    return product if scaled is None else self.emit(op.add(scaled, product))


@converter("baddbmm")
def _baddbmm(self: Importer, bias: Expr | None, a: Expr, b: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    scaled, product = _scaled_terms(self, bias, a, b, beta, alpha)
    return product if scaled is None else self.emit(op.add(product, scaled))


def _scaled_terms(
    self: Importer, bias: Expr | None, a: Expr, b: Expr, beta: Number, alpha: Number
) -> tuple[Expr | None, Expr]:
    """``beta`` times the bias, and ``alpha`` times the product; a bias times zero is left out, NaN and all."""
    product = self.emit(op.matmul(a, b, _type_of_products(a)))
    if alpha != 1:
        product = self.emit(op.multiply(product, self.scalar(alpha, dtype_of(product))))
    if beta == 0:
        bias = None
    elif beta != 1:
        bias = self.emit(op.multiply(bias, self.scalar(beta, dtype_of(product))))
    return bias, product


@converter("einsum")
def _einsum(self: Importer, equation: str, operands: Sequence[Expr], **_: Any) -> Expr:
    return self.emit(op.einsum(list(operands), equation))


@converter("outer")
def _outer(self: Importer, a: Expr, b: Expr) -> Expr:
    return self.emit(op.multiply(self.emit(op.expand_dims(a, 1)), self.emit(op.expand_dims(b, 0))))


def _max_pool(rank: int) -> Converter:
    function = getattr(op.nn, f"max_pool{rank}d")

    def convert(
        self: Importer,
        x: Expr,
        kernel: Steps,
        stride: Steps = (),
        padding: Steps = 0,
        dilation: Steps = 1,
        ceil_mode: bool = False,
    ) -> Expr:
        kernel = many(kernel, rank)
        stride = many(stride, rank) if stride not in ((), [], None) else kernel
        options = {"layout": _LAYOUTS[rank], "dilation": many(dilation, rank), "ceil_mode": bool(ceil_mode)}
        padding = many(padding, rank)
        return _batched(
            self, x, rank, lambda x: self.emit(function(x, kernel, strides=stride, padding=padding, **options))
        )

    return convert


def _avg_pool(rank: int) -> Converter:
    function = getattr(op.nn, f"avg_pool{rank}d")

    def convert(
        self: Importer,
        x: Expr,
        kernel: Steps,
        stride: Steps = (),
        padding: Steps = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Expr:
        kernel = many(kernel, rank)
        stride = many(stride, rank) if stride not in ((), [], None) else kernel
        padding = many(padding, rank)
        options = {"layout": _LAYOUTS[rank], "ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}

        def pooled(x: Expr) -> Expr:
            if divisor_override is not None:
                return _sums(self, x, kernel, stride, padding, ceil_mode, divisor_override)
            return self.emit(function(x, kernel, strides=stride, padding=padding, **options))

        return _batched(self, x, rank, pooled)

    return convert


def _sums(
    self: Importer, x: Expr, kernel: list[int], stride: list[int], padding: list[int], ceil_mode: bool, divisor: int
) -> Expr:
    """The sum of each window over a given number: with zeros put around, every window has as many elements."""
    rank = len(kernel)
    around = []
    for size, k, s, p in zip(self.shape(x)[-rank:], kernel, stride, padding, strict=True):
        behind: Any = p
        if ceil_mode:
            if not isinstance(size, int):
                raise OpNotImplemented("avg_pool with a divisor and ceil_mode over a dimension of unknown size")
            count = -(-(size + 2 * p - k) // s) + 1
            count -= (count - 1) * s >= size + p
            behind = max(p, (count - 1) * s + k - size - p)
        around += [p, behind]
    if any(around):
        x = self.emit(op.nn.pad(x, [0, 0, 0, 0, *around]))
    function = getattr(op.nn, f"avg_pool{rank}d")
    mean = self.emit(function(x, kernel, strides=stride, padding=[0] * rank, layout=_LAYOUTS[rank]))
    return self.emit(op.multiply(mean, self.scalar(math.prod(kernel) / divisor, dtype_of(x))))


for _rank in (1, 2, 3):
    CONVERTERS[f"max_pool{_rank}d"] = _max_pool(_rank)
    CONVERTERS[f"avg_pool{_rank}d"] = _avg_pool(_rank)


def _adaptive(rank: int) -> Converter:
    function = getattr(op.nn, f"adaptive_avg_pool{rank}d")

    def convert(self: Importer, x: Expr, size: Dim | Sequence[Dim | None]) -> Expr:
        shape = self.shape(x)[-rank:]
        wanted = [s if w is None else w for w, s in zip(many(size, rank), shape)]
        return _batched(self, x, rank, lambda x: self.emit(function(x, wanted, layout=_LAYOUTS[rank])))

    return convert


for _rank in (1, 2, 3):
    CONVERTERS[f"adaptive_avg_pool{_rank}d"] = CONVERTERS[f"_adaptive_avg_pool{_rank}d"] = _adaptive(_rank)


@converter("_adaptive_avg_pool2d_backward")
def _adaptive_backward(self: Importer, gradient: Expr, x: Expr) -> Expr:
    """The gradient of means: a product with the table of the means' shares from either side."""
    kind = dtype_of(x)
    down, across = (
        relax.const(
            _shares(self.known(x, d, "this pooling"), self.known(gradient, d, "this pooling")).astype(kind), kind
        )
        for d in (-2, -1)
    )
    rows = self.emit(op.matmul(self.emit(op.permute_dims(down)), gradient))
    return self.emit(op.matmul(rows, across))


def _shares(size: int, means: int) -> np.ndarray[Any, Any]:
    """What each of ``size`` elements counts in each of ``means`` means, ``[means, size]``."""
    table = np.zeros((means, size))
    for k in range(means):
        begin, end = k * size // means, -(-(k + 1) * size // means)
        table[k, begin:end] = 1 / (end - begin)
    return table
