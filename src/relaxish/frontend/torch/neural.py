"""Neural network operators of PyTorch: convolutions, pooling, linear maps, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import op
from ...support.errors import OpNotImplemented
from .importer import Importer, dtype_of
from .table import CONVERTERS, converter
from .windows import many

__all__: list[str] = []


def _add_bias(self: Importer, out: Any, bias: Any) -> Any:
    if bias is None:
        return out
    shape = [1] * self.rank(out)
    shape[1] = -1
    return self.emit(op.add(out, self.emit(op.reshape(bias, shape))))


def _conv(rank: int) -> Any:
    layouts = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}[rank]
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[rank]

    def convert(
        self: Importer, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1,
    ) -> Any:  # fmt: skip
        dilation = many(dilation, rank)
        if padding == "valid":
            padding = 0
        if padding == "same":
            kernel = self.shape(weight)[2:]
            total = [d * (k - 1) for d, k in zip(dilation, kernel)]
            padding = [t // 2 for t in total] + [t - t // 2 for t in total]
        else:
            padding = many(padding, rank)
        unbatched = self.rank(x) == rank + 1
        if unbatched:
            x = self.emit(op.expand_dims(x, 0))
        out = self.emit(
            function(
                x, weight, strides=many(stride, rank), padding=padding, dilation=dilation, groups=groups,
                data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=dtype_of(x),
            )
        )  # fmt: skip
        out = _add_bias(self, out, bias)
        return self.emit(op.squeeze(out, [0])) if unbatched else out

    return convert


CONVERTERS.update(conv1d=_conv(1), conv2d=_conv(2), conv3d=_conv(3))


def _conv_transpose(rank: int) -> Any:
    function = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}[rank]
    layouts = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW")}[rank]

    def convert(
        self: Importer, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        out = self.emit(
            function(
                x, weight, strides=many(stride, rank), padding=many(padding, rank),
                output_padding=many(output_padding, rank), dilation=many(dilation, rank), groups=groups,
                data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=dtype_of(x),
            )
        )  # fmt: skip
        return _add_bias(self, out, bias)

    return convert


CONVERTERS["conv_transpose1d"] = _conv_transpose(1)
CONVERTERS["conv_transpose2d"] = _conv_transpose(2)


@converter("conv_transpose3d")
def _conv_transpose3d(
    self: Importer, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """A convolution of the image with zeros put between its elements, by the mirrored kernel."""
    steps, pads, extra, spread = (many(v, 3) for v in (stride, padding, output_padding, dilation))
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
    return CONVERTERS["conv3d"](self, x, weight, bias, 1, 0, spread, groups)


@converter("convolution")
def _convolution(
    self: Importer, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    rank = self.rank(weight) - 2
    if transposed:
        return CONVERTERS[f"conv_transpose{rank}d"](
            self, x, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return CONVERTERS[f"conv{rank}d"](self, x, weight, bias, stride, padding, dilation, groups)


@converter("linear")
def _linear(self: Importer, x: Any, weight: Any, bias: Any = None) -> Any:
    return self.emit(op.linear(x, weight, bias))


@converter("matmul", "mm", "bmm", "mv", "dot")
def _matmul(self: Importer, a: Any, b: Any) -> Any:
    return self.emit(op.matmul(*self.promote(a, b)))


@converter("addmm", "baddbmm", "addmv")
def _addmm(self: Importer, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    out = self.emit(op.matmul(a, b))
    if alpha != 1:
        out = self.emit(op.multiply(out, self.scalar(alpha, dtype_of(out))))
    if beta != 1:
        bias = self.emit(op.multiply(bias, self.scalar(beta, dtype_of(out))))
    return self.emit(op.add(bias, out))


@converter("einsum")
def _einsum(self: Importer, equation: str, operands: Sequence[Any], **_: Any) -> Any:
    return self.emit(op.einsum(list(operands), equation))


@converter("outer")
def _outer(self: Importer, a: Any, b: Any) -> Any:
    return self.emit(op.multiply(self.emit(op.expand_dims(a, 1)), self.emit(op.expand_dims(b, 0))))


def _pool(function: Any, rank: int, average: bool) -> Any:
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]

    def convert(self: Importer, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, *rest: Any) -> Any:
        kernel = many(kernel, rank)
        stride = many(stride, rank) if stride not in ((), [], None) else kernel
        unbatched = self.rank(x) == rank + 1
        if unbatched:
            x = self.emit(op.expand_dims(x, 0))
        padding = many(padding, rank)
        options: dict[str, Any] = {"layout": layout}
        if average:
            options["ceil_mode"] = bool(rest[0]) if rest else False
            options["count_include_pad"] = bool(rest[1]) if len(rest) > 1 else True
        else:
            options["dilation"] = many(rest[0], rank) if rest else [1] * rank
            options["ceil_mode"] = bool(rest[1]) if len(rest) > 1 else False
        out = self.emit(function(x, kernel, strides=stride, padding=padding, **options))
        return self.emit(op.squeeze(out, [0])) if unbatched else out

    return convert


for _rank in (1, 2, 3):
    CONVERTERS[f"max_pool{_rank}d"] = _pool(getattr(op.nn, f"max_pool{_rank}d"), _rank, False)
    CONVERTERS[f"avg_pool{_rank}d"] = _pool(getattr(op.nn, f"avg_pool{_rank}d"), _rank, True)


def _adaptive(rank: int) -> Any:
    function = getattr(op.nn, f"adaptive_avg_pool{rank}d")
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]

    def convert(self: Importer, x: Any, size: Any) -> Any:
        wanted = many(size, rank)
        shape = self.shape(x)[-rank:]
        wanted = [s if w is None else w for w, s in zip(wanted, shape)]
        return self.emit(function(x, wanted, layout=layout))

    return convert


for _rank in (1, 2, 3):
    CONVERTERS[f"adaptive_avg_pool{_rank}d"] = CONVERTERS[f"_adaptive_avg_pool{_rank}d"] = _adaptive(_rank)


@converter("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu")
def _attention(
    self: Importer, q: Any, k: Any, v: Any, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    lead = self.shape(q)[:-3]
    if self.rank(q) == 3:
        q, k, v = (self.emit(op.expand_dims(t, 0)) for t in (q, k, v))
    elif len(lead) > 1:
        q, k, v = (self.emit(op.reshape(t, [-1, *self.shape(t)[-3:]])) for t in (q, k, v))
    heads, kv_heads = self.shape(q)[1], self.shape(k)[1]
    if enable_gqa and heads != kv_heads:
        k, v = (self.emit(op.repeat(t, heads // kv_heads, 1)) for t in (k, v))
    bias = _attention_bias(self, q, k, mask)
    q, k, v = (self.emit(op.permute_dims(t, [0, 2, 1, 3])) for t in (q, k, v))
    size = self.shape(q)[-1]
    scale = 1.0 / math.sqrt(size) if scale is None else scale
    causal = "TopLeft" if is_causal else None
    out = self.emit(op.nn.attention(q, k, v, bias=bias, scale=scale, causal_mask=causal))
    out = self.emit(op.permute_dims(out, [0, 2, 1, 3]))
    if len(lead) == 0:
        return self.emit(op.squeeze(out, [0]))
    return out if len(lead) == 1 else self.emit(op.reshape(out, [*lead, *self.shape(out)[1:]]))


def _attention_bias(self: Importer, q: Any, k: Any, mask: Any) -> Any:
    if mask is None:
        return None
    if dtype_of(mask) == "bool":
        kind = dtype_of(q)
        lowest = -3.4028234663852886e38 if kind == "float32" else -65504.0
        mask = self.emit(op.where(mask, self.scalar(0.0, kind), self.scalar(lowest, kind)))
    if self.rank(mask) < 4:
        mask = self.emit(op.reshape(mask, [1] * (4 - self.rank(mask)) + self.shape(mask)))
    batch, heads, length = self.shape(q)[:3]
    wanted = [batch, heads, length, self.shape(k)[2]]
    return mask if self.shape(mask) == wanted else self.emit(op.broadcast_to(mask, wanted))


def _upsample(method: str) -> Any:
    def convert(self: Importer, x: Any, size: Any = None, *rest: Any, **_: Any) -> Any:
        align = bool(rest[0]) if method != "nearest_neighbor" and rest else False
        factors = rest[-1] if rest and rest[-1] is not None else None
        if size is None and factors is not None:
            height, width = self.shape(x)[2:]
            scale = many(factors, 2) if isinstance(factors, int) else list(factors)
            size = [int(height * scale[0]), int(width * scale[-1])]
        mode = "align_corners" if align else "asymmetric" if method == "nearest_neighbor" else "half_pixel"
        rounding = "floor" if method == "nearest_neighbor" else ""
        return self.emit(
            op.image.resize2d(
                x, size, layout="NCHW", method=method, coordinate_transformation_mode=mode, rounding_method=rounding,
                cubic_alpha=-0.75,
            )
        )  # fmt: skip

    return convert


CONVERTERS["upsample_nearest2d"] = _upsample("nearest_neighbor")
CONVERTERS["upsample_bilinear2d"] = _upsample("linear")
CONVERTERS["upsample_bicubic2d"] = _upsample("cubic")


@converter("cross_entropy_loss")
def _cross_entropy(
    self: Importer, x: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, *_: Any
) -> Any:
    name = {0: "none", 1: "mean", 2: "sum"}[reduction]
    return self.emit(op.nn.nll_loss(self.emit(op.nn.log_softmax(x, 1)), target, weight, name, ignore_index))
