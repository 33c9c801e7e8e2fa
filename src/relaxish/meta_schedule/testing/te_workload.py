"""Common workloads as tensor expressions."""

from __future__ import annotations

from typing import Any

from ... import te
from ...tir import PrimFunc, const, if_then_else
from ...tir import max as tir_max

__all__ = ["WORKLOADS", "conv2d_nchw", "conv2d_nhwc", "create_te_workload", "matmul", "matmul_relu", "softmax_mn"]


def matmul(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> list[Any]:
    """``C[n, m] = A[n, k] B[k, m]``."""
    a, b = te.placeholder((n, k), in_dtype, name="A"), te.placeholder((k, m), in_dtype, name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis].astype(out_dtype) * b[axis, j].astype(out_dtype), axis=axis)
                   if in_dtype != out_dtype else te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return [a, b, c]


def matmul_relu(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> list[Any]:
    """Matrix product and rectifier."""
    a, b, c = matmul(n, m, k, in_dtype, out_dtype)
    d = te.compute((n, m), lambda i, j: tir_max(c[i, j], const(0, out_dtype)), name="relu")
    return [a, b, d]


def conv2d_nchw(
    n: int, h: int, w: int, ci: int, co: int, kh: int, kw: int, stride: int, padding: int, dilation: int = 1,
    in_dtype: str = "float32",
) -> list[Any]:
    """Two-dimensional convolution with explicit padding."""
    x = te.placeholder((n, ci, h, w), in_dtype, name="X")
    y = te.placeholder((co, ci, kh, kw), in_dtype, name="W")
    oh = (h + 2 * padding - (kh - 1) * dilation - 1) // stride + 1
    ow = (w + 2 * padding - (kw - 1) * dilation - 1) // stride + 1
    rc = te.reduce_axis((0, ci), name="rc")
    rh, rw = te.reduce_axis((0, kh), name="rh"), te.reduce_axis((0, kw), name="rw")
    padded = _pad(x, (n, ci, h + 2 * padding, w + 2 * padding), (2, 3), padding)
    out = te.compute(
        (n, co, oh, ow),
        lambda b, f, i, j: te.sum(
            padded[b, rc, i * stride + rh * dilation, j * stride + rw * dilation] * y[f, rc, rh, rw],
            axis=[rc, rh, rw]), name="conv2d_nchw")
    return [x, y, out]


def conv2d_nhwc(
    n: int, h: int, w: int, ci: int, co: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1,
    groups: int = 1, in_dtype: str = "float32",
) -> list[Any]:
    """Two-dimensional convolution, channels last."""
    x = te.placeholder((n, h, w, ci), in_dtype, name="inputs")
    y = te.placeholder((kernel_size, kernel_size, ci // groups, co), in_dtype, name="weight")
    span = (kernel_size - 1) * dilation + 1
    oh, ow = (h + 2 * padding - span) // stride + 1, (w + 2 * padding - span) // stride + 1
    rh, rw = te.reduce_axis((0, kernel_size), name="rh"), te.reduce_axis((0, kernel_size), name="rw")
    rc = te.reduce_axis((0, ci // groups), name="rc")
    padded = _pad(x, (n, h + 2 * padding, w + 2 * padding, ci), (1, 2), padding)
    out = te.compute(
        (n, oh, ow, co),
        lambda b, i, j, f: te.sum(
            padded[b, i * stride + rh * dilation, j * stride + rw * dilation, f // (co // groups) * (ci // groups) + rc]
            * y[rh, rw, rc, f], axis=[rh, rw, rc]), name="conv2d_nhwc")
    return [x, y, out]


def _pad(x: Any, shape: tuple[int, ...], axes: tuple[int, int], padding: int) -> Any:
    if padding == 0:
        return x

    def value(*i: Any) -> Any:
        inside = None
        source = list(i)
        for axis in axes:
            extent = shape[axis] - 2 * padding
            test = te.all(i[axis] >= padding, i[axis] < extent + padding)
            inside = test if inside is None else te.all(inside, test)
            source[axis] = i[axis] - padding
        return if_then_else(inside, x[tuple(source)], const(0, x.dtype))

    return te.compute(shape, value, name="PadInput")


def softmax_mn(m: int, n: int) -> list[Any]:
    """Softmax over the last axis."""
    a = te.placeholder((m, n), "float32", name="A")
    k1, k2 = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="k")
    high = te.compute((m,), lambda i: te.max(a[i, k1], axis=k1), name="T_softmax_maxelem")
    powers = te.compute((m, n), lambda i, j: te.exp(a[i, j] - high[i]), name="T_softmax_exp")
    total = te.compute((m,), lambda i: te.sum(powers[i, k2], axis=k2), name="T_softmax_expsum")
    return [a, te.compute((m, n), lambda i, j: powers[i, j] / total[i], name="T_softmax_norm")]


WORKLOADS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "GMM": (matmul, [(128, 128, 128), (512, 32, 512), (512, 512, 512), (1024, 1024, 1024)]),
    "C2D": (conv2d_nhwc, [(1, 224, 224, 3, 64, 7, 2, 3), (1, 56, 56, 64, 64, 1, 1, 0), (1, 56, 56, 64, 64, 3, 1, 1)]),
    "SFM": (softmax_mn, [(256, 256), (512, 512), (1024, 1024)]),
}


def create_te_workload(name: str, idx: int) -> PrimFunc:
    """A workload by name and number."""
    func, arguments = WORKLOADS[name]
    return te.create_prim_func(func(*arguments[idx]))
