"""Operators on :class:`~relaxish.frontend.nn.Tensor`; each emits one Relax operator (or a few)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import op as _op
from ... import relax
from ...relax.expr import Expr
from ...support.sequences import as_list
from .calls import debug_func, extern, print_, tensor_expr_op, tensor_ir_inplace_op, tensor_ir_op
from .core import get_default_dtype, Object, Operand, Steps, Tensor, wrap_tensor, wrap_tuple
from .sampling import multinomial_from_uniform, renormalize_top_p_top_k_prob, sample_top_p_top_k_from_sorted_prob

__all__ = [
    "add", "argsort", "astype", "avg_pool2d", "batch_norm", "broadcast_to", "ccl_allgather", "ccl_allreduce",
    "ccl_broadcast_from_worker0", "chunk", "concat", "conv1d", "conv1d_transpose", "conv2d", "conv3d", "cumsum",
    "debug_func", "divide", "empty", "equal", "exp", "extern", "full", "gelu", "get_timestep_embedding", "greater",
    "greater_equal", "group_norm", "interpolate", "layer_norm", "less", "less_equal", "matmul", "max", "max_pool2d",
    "maximum", "mean", "min", "minimum", "multinomial_from_uniform", "multiply", "negative", "not_equal", "ones",
    "pad", "permute", "permute_dims", "power", "print_", "relu", "renormalize_top_p_top_k_prob", "repeat",
    "reshape", "rms_norm", "sample_top_p_top_k_from_sorted_prob", "scaled_dot_product_attention", "sigmoid", "silu",
    "softmax", "softplus", "sort", "split", "sqrt", "square", "squeeze", "subtract", "sum", "take", "tanh",
    "tensor_expr_op", "tensor_ir_inplace_op", "tensor_ir_op", "topk", "triu", "unsqueeze", "where", "zeros",
]  # fmt: skip


def _expr(value: Operand | Object, like: Operand | None = None) -> Expr:
    match value:
        case Tensor() | Object():
            return value._expr
        case relax.Expr():
            return value
    assert isinstance(like, Tensor), "one operand has to be a tensor"
    return relax.const(value, like.dtype)


def _unary(function: Callable[..., Any], doc: str) -> Callable[..., Tensor]:
    def apply(x: Tensor, name: str = "") -> Tensor:
        return wrap_tensor(function(x._expr), name or apply.__name__)

    apply.__doc__ = doc
    apply.__name__ = function.__name__
    return apply


relu = _unary(_op.nn.relu, "``max(x, 0)``.")
silu = _unary(_op.nn.silu, "``x * sigmoid(x)``.")
sigmoid = _unary(_op.sigmoid, "Logistic function.")
tanh = _unary(_op.tanh, "Hyperbolic tangent.")
exp = _unary(_op.exp, "Exponential.")
negative = _unary(_op.negative, "``-x``.")
square = _unary(_op.square, "``x * x``.")
sqrt = _unary(_op.sqrt, "Square root.")


def _binary(function: Callable[..., Any]) -> Callable[..., Tensor]:
    def apply(a: Operand, b: Operand, name: str = "") -> Tensor:
        like = a if isinstance(a, Tensor) else b
        return wrap_tensor(function(_expr(a, like), _expr(b, like)), name or apply.__name__)

    apply.__name__ = function.__name__
    apply.__doc__ = f"Elementwise {function.__name__} with broadcasting; numbers take the tensor's dtype."
    return apply


add, subtract, multiply, divide = _binary(_op.add), _binary(_op.subtract), _binary(_op.multiply), _binary(_op.divide)
maximum, minimum, power = _binary(_op.maximum), _binary(_op.minimum), _binary(_op.power)
less, less_equal, greater = _binary(_op.less), _binary(_op.less_equal), _binary(_op.greater)
greater_equal, equal, not_equal = _binary(_op.greater_equal), _binary(_op.equal), _binary(_op.not_equal)


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """Gaussian error linear unit; ``approximate="tanh"`` takes the tanh formula."""
    return wrap_tensor(_op.nn.gelu_tanh(x._expr) if approximate == "tanh" else _op.nn.gelu(x._expr), name)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus") -> Tensor:
    """``log(1 + exp(beta x)) / beta``, linear above ``threshold``."""
    return wrap_tensor(_op.nn.softplus(x._expr, beta, threshold), name)


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """Softmax along an axis."""
    return wrap_tensor(_op.nn.softmax(x._expr, axis), name)


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """Insert a dimension of size 1."""
    return wrap_tensor(_op.expand_dims(x._expr, dim), name)


def squeeze(x: Tensor, axis: int = -1, name: str = "squeeze") -> Tensor:
    """Drop a dimension of size 1."""
    return wrap_tensor(_op.squeeze(x._expr, axis), name)


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Join along a dimension."""
    return wrap_tensor(_op.concat([t._expr for t in x], dim), name)


def split(ary: Tensor, indices_or_sections: Steps, axis: int = 0, name: str = "split") -> tuple[Tensor, ...]:
    """Cut at indices, or into equal sections."""
    return wrap_tuple(_op.split(ary._expr, indices_or_sections, axis), name)


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """Cut into equal parts."""
    return wrap_tuple(_op.split(x._expr, chunks, dim), name)


def reshape(x: Tensor, shape: Sequence[Any], name: str = "reshape") -> Tensor:
    """The same elements in another shape."""
    return wrap_tensor(_op.reshape(x._expr, list(shape)), name)


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """Axes in another order; reversed if None."""
    return wrap_tensor(_op.permute_dims(x._expr, axes), name or "permute_dims")


def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """:func:`permute_dims` under PyTorch's name."""
    return permute_dims(x, axes, name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Every element (of an axis) several times."""
    return wrap_tensor(_op.repeat(x._expr, repeats, axis), name)


def broadcast_to(x: Tensor, shape: Sequence[Any], name: str = "broadcast_to") -> Tensor:
    """Broadcast to a shape."""
    return wrap_tensor(_op.broadcast_to(x._expr, list(shape)), name)


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Elements by index along an axis."""
    return wrap_tensor(_op.take(x._expr, indices._expr, axis), name)


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """Convert to a dtype; a tensor of that dtype is returned as it is."""
    return x if x.dtype == dtype else wrap_tensor(_op.astype(x._expr, dtype), name)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad") -> Tensor:
    """Pad: (before, after) of every dimension in order."""
    return wrap_tensor(_op.nn.pad(x._expr, list(pad), mode, value), name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """The upper triangle."""
    return wrap_tensor(_op.triu(x._expr, diagonal), name)


def where(condition: Tensor, x1: Operand, x2: Operand, name: str = "where") -> Tensor:
    """``x1`` where the condition holds, else ``x2``."""
    like = x1 if isinstance(x1, Tensor) else x2
    picked = _op.astype(condition._expr, "bool") if condition.dtype != "bool" else condition._expr
    return wrap_tensor(_op.where(picked, _expr(x1, like), _expr(x2, like)), name)


def _reduction(function: Callable[..., Any]) -> Callable[..., Tensor]:
    def apply(x: Tensor, axis: Steps | None = None, keepdims: bool = False, name: str = "") -> Tensor:
        return wrap_tensor(function(x._expr, axis, keepdims), name or apply.__name__)

    apply.__name__ = function.__name__
    apply.__doc__ = f"Reduce by {function.__name__} over axes (all if None)."
    return apply


sum, max, min, mean = _reduction(_op.sum), _reduction(_op.max), _reduction(_op.min), _reduction(_op.mean)


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None, name: str = "cumsum"
) -> Tensor:
    """Running sum along an axis."""
    return wrap_tensor(_op.cumsum(data._expr, axis, dtype, bool(exclusive)), name)


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """Sort along an axis."""
    return wrap_tensor(_op.sort(x._expr, axis, descending), name)


def argsort(
    data: Tensor, axis: int = -1, descending: bool = False, dtype: str = "int32", name: str = "argsort"
) -> Tensor:
    """Indices that sort along an axis."""
    return wrap_tensor(_op.argsort(data._expr, axis, descending, dtype), name)


def topk(
    data: Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: str = "int32",
    name: str = "topk",
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """The k largest (or smallest) elements along an axis."""
    found = _op.topk(data._expr, k, axis, ret_type, largest, dtype)
    return wrap_tuple(found, name) if ret_type == "both" else wrap_tensor(found, name)


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """Matrix product, batched over leading dimensions."""
    return wrap_tensor(_op.matmul(a._expr, b._expr, out_dtype=out_dtype), name)


def _with_bias(out: Expr, bias: Tensor | None, rank: int, axis: int) -> Expr:
    if bias is None:
        return out
    shape = [1] * rank
    shape[axis] = -1
    return _op.add(out, _op.reshape(bias._expr, shape))


def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Steps = 1, padding: Steps = 0, dilation: Steps = 1,
    groups: int = 1, name: str = "conv1d",
) -> Tensor:  # fmt: skip
    """Convolution over ``NCW``."""
    out = _op.nn.conv1d(x._expr, weight._expr, strides=stride, padding=padding, dilation=dilation, groups=groups)
    return wrap_tensor(_with_bias(out, bias, 3, 1), name)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Steps = 1, padding: Steps = 0, dilation: Steps = 1,
    groups: int = 1, data_layout: str = "NCHW", name: str = "conv2d",
) -> Tensor:  # fmt: skip
    """Convolution over ``NCHW`` or ``NHWC``."""
    out = _op.nn.conv2d(
        x._expr, weight._expr, strides=stride, padding=padding, dilation=dilation, groups=groups,
        data_layout=data_layout,
    )  # fmt: skip
    return wrap_tensor(_with_bias(out, bias, 4, data_layout.index("C")), name)


def conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Steps = 1, padding: Steps = 0, dilation: Steps = 1,
    groups: int = 1, data_layout: str = "NCDHW", name: str = "conv3d",
) -> Tensor:  # fmt: skip
    """Convolution over ``NCDHW``."""
    out = _op.nn.conv3d(
        x._expr, weight._expr, strides=stride, padding=padding, dilation=dilation, groups=groups,
        data_layout=data_layout,
    )  # fmt: skip
    return wrap_tensor(_with_bias(out, bias, 5, data_layout.index("C")), name)


def conv1d_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Steps = 1, padding: Steps = 0, output_padding: Steps = 0,
    dilation: Steps = 1, groups: int = 1, name: str = "conv1d_transpose",
) -> Tensor:  # fmt: skip
    """Transposed convolution over ``NCW``."""
    out = _op.nn.conv1d_transpose(
        x._expr, weight._expr, strides=stride, padding=padding, output_padding=output_padding, dilation=dilation,
        groups=groups,
    )  # fmt: skip
    return wrap_tensor(_with_bias(out, bias, 3, 1), name)


def max_pool2d(
    x: Tensor,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Steps = 0,
    name: str = "max_pool2d",
) -> Tensor:
    """Maximum over windows of ``NCHW``."""
    strides = kernel_size if stride is None else stride
    return wrap_tensor(_op.nn.max_pool2d(x._expr, kernel_size, strides, padding), name)


def avg_pool2d(
    x: Tensor,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Steps = 0,
    name: str = "avg_pool2d",
) -> Tensor:
    """Mean over windows of ``NCHW``; padding counts."""
    strides = kernel_size if stride is None else stride
    out = _op.nn.avg_pool2d(x._expr, kernel_size, strides, padding, count_include_pad=True)
    return wrap_tensor(out, name)


def batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float = 1e-5, name: str = "batch_norm"
) -> Tensor:
    """Batch normalisation with stored statistics over channel axis 1."""
    out = _op.nn.batch_norm(
        x._expr, weight._expr, bias._expr, mean._expr, var._expr, axis=1, epsilon=eps, training=False
    )
    made: Tensor = wrap_tuple(out, name)[0]
    return made


def layer_norm(
    x: Tensor,
    normalized_shape: Steps,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Normalisation over the trailing dimensions of ``normalized_shape``."""
    shape = as_list(normalized_shape)
    gamma = relax.const(np.ones(shape), x.dtype) if weight is None else weight._expr
    beta = relax.const(np.zeros(shape), x.dtype) if bias is None else bias._expr
    axes = list(range(-len(shape), 0))
    out = _op.nn.layer_norm(x._expr, gamma, beta, axes=axes, epsilon=1e-5 if eps is None else eps)
    return wrap_tensor(out, name)


def rms_norm(x: Tensor, weight: Tensor, axes: Steps, epsilon: float = 1e-5, name: str = "rms_norm") -> Tensor:
    """Division by the root mean square over ``axes``."""
    return wrap_tensor(_op.nn.rms_norm(x._expr, weight._expr, axes, epsilon), name)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """Normalisation over groups of channels and ``axes`` (all after the first two if None)."""
    channels = [x.shape[channel_axis]]
    gamma = relax.const(np.ones(channels), x.dtype) if weight is None else weight._expr
    beta = relax.const(np.zeros(channels), x.dtype) if bias is None else bias._expr
    chosen = list(range(2, x.ndim)) if axes is None else list(axes)
    out = _op.nn.group_norm(
        x._expr, gamma, beta, num_groups=num_groups, channel_axis=channel_axis, axes=chosen, epsilon=eps
    )
    return wrap_tensor(out, name)


def full(shape: Sequence[Any], fill_value: Operand, dtype: str = "float32", name: str = "full") -> Tensor:
    """A tensor of one value."""
    value = fill_value._expr if isinstance(fill_value, Tensor) else relax.const(fill_value, dtype)
    return wrap_tensor(_op.full(list(shape), value, dtype), name)


def zeros(shape: Sequence[Any], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """A tensor of zeros."""
    return wrap_tensor(_op.zeros(list(shape), dtype), name)


def ones(shape: Sequence[Any], dtype: str = "float32", name: str = "ones") -> Tensor:
    """A tensor of ones."""
    return wrap_tensor(_op.ones(list(shape), dtype), name)


def empty(shape: Sequence[Any], dtype: str = "float32", name: str = "empty") -> Tensor:
    """An uninitialised tensor."""
    info = relax.TensorStructInfo(list(shape), dtype)
    alloc = _op.builtin.alloc_tensor(relax.ShapeExpr(list(info.shape.values)), dtype, 0)
    return wrap_tensor(alloc, name)


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Sinusoidal embedding of time steps ``[n]`` as ``[n, embedding_dim]`` (Vaswani et al. 2017).

    Computed in float32 for accuracy, given in the default dtype.
    """
    half = embedding_dim // 2
    steps = _op.astype(x._expr, "float32")
    exponent = relax.const(-math.log(max_period), "float32") * _op.arange(0, half, dtype="float32")
    frequency = _op.exp(exponent / relax.const(half - downscale_freq_shift, "float32"))
    angle: Any = _op.multiply(_op.expand_dims(steps, 1), _op.expand_dims(frequency, 0))
    if scale != 1:
        angle = relax.const(scale, "float32") * angle
    waves = [_op.cos(angle), _op.sin(angle)] if flip_sin_to_cos else [_op.sin(angle), _op.cos(angle)]
    out = _op.concat(waves, axis=-1)
    if embedding_dim % 2 == 1:
        out = _op.nn.pad(out, (0, 0, 0, 1))
    return wrap_tensor(_op.astype(out, get_default_dtype()), name)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, is_causal: bool | None = False,
    scale: float | None = None, name: str = "scaled_dot_product_attention",
) -> Tensor:  # fmt: skip
    """Attention over ``[batch, length, heads, features]``."""
    out = _op.nn.attention(
        query._expr, key._expr, value._expr, bias=attn_mask._expr if attn_mask is not None else None, scale=scale,
        causal_mask="TopLeft" if is_causal else None,
    )  # fmt: skip
    return wrap_tensor(out, name)


def interpolate(
    x: Tensor,
    size: Steps | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str | None = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Resize images. Raises ValueError for antialiasing and recomputed scale factors."""
    if recompute_scale_factor is not None or antialias is not None:
        raise ValueError("interpolate supports neither recompute_scale_factor nor antialias")
    layout = data_layout or "NCHW"
    if size is None:
        spatial = [x.shape[i] for i, axis in enumerate(layout) if axis not in "NC"]
        factors = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * len(spatial)
        size = [int(s * f) if isinstance(s, int) else s * f for s, f in zip(spatial, factors)]
    method = "nearest_neighbor" if mode.startswith("nearest") else mode.removeprefix("bi")
    if method not in ("nearest_neighbor", "linear", "cubic"):
        raise ValueError(f"interpolate has no mode {mode!r}")
    nearest = method == "nearest_neighbor"
    transform = "asymmetric" if nearest else "align_corners" if align_corners else "half_pixel"
    out = _op.image.resize2d(x._expr, size, layout=layout, method=method, coordinate_transformation_mode=transform)
    return wrap_tensor(out, name)


def ccl_allreduce(x: Tensor, op_type: str = "sum", in_group: bool = True, name: str = "ccl_allreduce") -> Tensor:
    """Combine the tensors of all workers (of the group) by ``op_type``."""
    return wrap_tensor(_op.ccl.allreduce(x._expr, op_type, in_group), name)


def ccl_allgather(x: Tensor, num_workers: int, name: str = "ccl_allgather") -> Tensor:
    """The tensors of all workers, one behind the other."""
    return wrap_tensor(_op.ccl.allgather(x._expr, num_workers), name)


def ccl_broadcast_from_worker0(x: Tensor, name: str = "broadcast_from_worker") -> Tensor:
    """Worker 0's tensor on every worker."""
    return wrap_tensor(_op.ccl.broadcast_from_worker0(x._expr), name)
