"""Softmax, normalisations, products, losses and attention in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "attention_python", "batch_matmul", "batch_norm", "dense", "group_norm_python", "instance_norm_python",
    "l2_normalize_python", "layer_norm_python", "log_softmax_python", "lrn_python", "nll_loss", "rms_norm_python",
    "softmax_python",
]  # fmt: skip

Array = np.ndarray[Any, Any]


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Softmax along an axis."""
    powers = np.exp(a_np - a_np.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of softmax."""
    shifted = a_np - a_np.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def _standardised(data: Array, axes: Sequence[int], epsilon: float) -> Array:
    mean, variance = data.mean(axis=axes, keepdims=True), data.var(axis=axes, keepdims=True)
    return np.asarray((data - mean) / np.sqrt(variance + epsilon))


def _along(values: Array, axes: Sequence[int], rank: int) -> Array:
    """Values of some axes of a tensor, to be broadcast over the others."""
    shape = [1] * rank
    for axis, extent in zip(axes, values.shape, strict=True):
        shape[axis] = extent
    return values.reshape(shape)


def _axes(axis: int | Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(a % rank for a in ((axis,) if isinstance(axis, int) else axis))


def layer_norm_python(
    data: Array, gamma: Array, beta: Array | None, axis: int | Sequence[int], epsilon: float = 1e-5
) -> Array:
    """Normalised over ``axis``, scaled and shifted by elements of those axes."""
    axes = _axes(axis, data.ndim)
    scaled = _standardised(data, axes, epsilon) * _along(gamma, axes, data.ndim)
    return np.asarray(scaled if beta is None else scaled + _along(beta, axes, data.ndim))


def rms_norm_python(data: Array, weight: Array, axis: int | Sequence[int], epsilon: float = 1e-5) -> Array:
    """Divided by the root of the mean square over ``axis``, scaled."""
    axes = _axes(axis, data.ndim)
    root = np.sqrt(np.square(data).mean(axis=axes, keepdims=True) + epsilon)
    return np.asarray(data / root * _along(weight, axes, data.ndim))


def instance_norm_python(
    data: Array, gamma: Array, beta: Array, axis: int | Sequence[int], epsilon: float = 1e-5
) -> Array:
    """Normalised over ``axis`` for each image and channel; scale and shift belong to the channels, axis 1."""
    normal = _standardised(data, _axes(axis, data.ndim), epsilon)
    return np.asarray(normal * _along(gamma, (1,), data.ndim) + _along(beta, (1,), data.ndim))


def group_norm_python(
    data: Array,
    gamma: Array,
    beta: Array,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Array:
    """Normalised over groups of channels and ``axes``."""
    channel = channel_axis % data.ndim
    shape = [*data.shape[:channel], num_groups, data.shape[channel] // num_groups, *data.shape[channel + 1 :]]
    reduced = [a + (a > channel) for a in _axes(axes, data.ndim)]
    normal = _standardised(data.reshape(shape), (channel + 1, *reduced), epsilon).reshape(data.shape)
    return np.asarray(normal * _along(gamma, (channel,), data.ndim) + _along(beta, (channel,), data.ndim))


def batch_norm(
    x: Array, gamma: Array, beta: Array, moving_mean: Array, moving_var: Array, axis: int, epsilon: float, center: bool,
    scale: bool, training: bool, momentum: float,
) -> list[Array]:  # fmt: skip
    """The normalised batch, and the running mean and variance."""
    axis %= x.ndim
    others = tuple(a for a in range(x.ndim) if a != axis)
    mean, variance = (x.mean(axis=others), x.var(axis=others)) if training else (moving_mean, moving_var)
    out = (x - _along(mean, (axis,), x.ndim)) / np.sqrt(_along(variance, (axis,), x.ndim) + epsilon)
    out = out * _along(gamma, (axis,), x.ndim) if scale else out
    out = out + _along(beta, (axis,), x.ndim) if center else out
    if training:
        moving_mean = (1 - momentum) * moving_mean + momentum * mean
        moving_var = (1 - momentum) * moving_var + momentum * variance
    return [out, moving_mean, moving_var]


def l2_normalize_python(a_np: Array, eps: float, axis: int | Sequence[int] | None = None) -> Array:
    """Divided by the root of the sum of squares, at least ``eps``."""
    axes = None if axis is None else _axes(axis, a_np.ndim)
    return np.asarray(a_np / np.sqrt(np.maximum(np.square(a_np).sum(axis=axes, keepdims=True), eps)))


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """Local response normalisation: divided by a power of the squares of ``size`` neighbours along ``axis``."""
    border = [(0, 0)] * a_np.ndim
    border[axis] = (size // 2, size // 2)
    squares = np.lib.stride_tricks.sliding_window_view(np.pad(np.square(a_np), border), size, axis=axis).sum(axis=-1)
    return np.asarray(a_np / (bias + alpha * squares / size) ** beta)


def batch_matmul(
    x: Array, y: Array, out_dtype: str | None = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """Products of matrices; the second is transposed unless told otherwise, a batch of one serves all."""
    left = x.swapaxes(-1, -2) if trans_x else x
    right = y.swapaxes(-1, -2) if trans_y else y
    dtype = out_dtype or x.dtype
    return np.asarray(np.matmul(left.astype(dtype), right.astype(dtype)), dtype)


def dense(
    x: Array, y: Array, bias: Array, use_bias: bool = False, use_relu: bool = False, out_dtype: str | None = None
) -> Array:
    """``x y^T``, perhaps with a bias and a rectifier."""
    dtype = out_dtype or x.dtype
    out = x.astype(dtype) @ y.T.astype(dtype)
    out = out + bias if use_bias else out
    return np.asarray(np.maximum(out, 0) if use_relu else out)


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean", ignore_index: int = -100
) -> Array:
    """Negative log likelihood of the classes along axis 1; ``mean`` weighs by the targets' weights."""
    kept = targets != ignore_index
    classes = np.where(kept, targets, 0)
    chosen = np.take_along_axis(predictions, np.expand_dims(classes, 1), 1).squeeze(1)
    scale = np.where(kept, weights[classes], 0)
    losses = -chosen * scale
    if reduction == "none":
        return losses
    return losses.sum() / scale.sum() if reduction == "mean" else losses.sum()


def attention_python(
    q: Array, k: Array, v: Array, bias: Array | None, qk_scale: float, causal: str | None,
    window_size: int | None = None, layout: str = "BSNH",
) -> Array:  # fmt: skip
    """Attention; fewer heads of keys and values are shared, ``causal`` is TopLeft or BottomRight."""
    assert layout in ("BSNH", "BNSH"), f"unknown layout {layout}"
    if layout == "BSNH":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * qk_scale
    if bias is not None:
        scores = scores + bias
    if causal is not None:
        assert causal in ("TopLeft", "BottomRight"), f"unknown kind of mask {causal}"
        rows, columns = scores.shape[-2:]
        last = np.arange(rows)[:, None] + (columns - rows if causal == "BottomRight" else 0)
        seen = np.arange(columns)[None] <= last
        if window_size is not None:
            seen &= np.arange(columns)[None] > last - window_size
        scores = np.where(seen, scores, -np.inf)
    out = softmax_python(scores, -1) @ v
    return np.asarray(out.swapaxes(1, 2) if layout == "BSNH" else out)
