"""Common workloads as tensor expressions; ``create_te_workload`` makes functions of them by name and number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te, topi
from ...target import Target
from ...tir import PrimFunc
from ...topi.nn.winograd import _conv2d_winograd_nhwc_impl
from .te_convolution import (
    conv1d_nlc, conv2d_capsule_nhwijc, conv2d_nchw, conv2d_nchw_bias_bn_relu, conv2d_nhwc, conv2d_nhwc_bn_relu,
    conv2d_nhwc_without_layout_rewrite, conv2d_transpose_nhwc, conv3d_ndhwc, depthwise_conv2d_nhwc,
)  # fmt: skip

__all__ = [
    "CONFIGS",
    "batch_matmul_nkkm",
    "conv1d_nlc",
    "conv2d_capsule_nhwijc",
    "conv2d_nchw",
    "conv2d_nchw_bias_bn_relu",
    "conv2d_nhwc",
    "conv2d_nhwc_bn_relu",
    "conv2d_nhwc_without_layout_rewrite",
    "conv2d_transpose_nhwc",
    "conv2d_winograd_nhwc",
    "conv3d_ndhwc",
    "create_te_workload",
    "depthwise_conv2d_nhwc",
    "matmul",
    "matmul_relu",
    "max_pool2d_nchw",
    "norm_bmn",
    "softmax_mn",
    "transpose_batch_matmul",
]


def matmul(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> tuple[Any, ...]:
    """``C[n, m] = A[n, k] B[k, m]``."""
    a, b = te.placeholder((n, k), in_dtype, name="A"), te.placeholder((k, m), in_dtype, name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (n, m), lambda i, j: te.sum(a[i, axis].astype(out_dtype) * b[axis, j].astype(out_dtype), axis=axis), name="C"
    )
    return a, b, c


def matmul_relu(n: int, m: int, k: int, in_dtype: str = "float32", out_dtype: str = "float32") -> tuple[Any, ...]:
    """Matrix product and rectifier."""
    a, b, c = matmul(n, m, k, in_dtype, out_dtype)
    return a, b, topi.nn.relu(c)


def batch_matmul_nkkm(
    B: int, N: int, M: int, K: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> tuple[Any, ...]:
    """``Z[b] = X[b] Y[b]`` for each of ``B`` pairs."""
    x, y = te.placeholder((B, N, K), in_dtype, name="X"), te.placeholder((B, K, M), in_dtype, name="Y")
    axis = te.reduce_axis((0, K), name="k")
    z = te.compute(
        (B, N, M),
        lambda b, i, j: te.sum(x[b, i, axis].astype(out_dtype) * y[b, axis, j].astype(out_dtype), axis=axis),
        name="Z",
    )
    return x, y, z


def transpose_batch_matmul(
    batch: int, seq_len: int, n_head: int, n_dim: int, in_dtype: str = "float32", out_dtype: str = "float32"
) -> tuple[Any, ...]:
    """The scores of attention: queries times values of each head, both transposed first."""
    shape = (batch, seq_len, n_head, n_dim)
    query, value = te.placeholder(shape, in_dtype, name="query"), te.placeholder(shape, in_dtype, name="value")
    rows = te.compute((batch, n_head, seq_len, n_dim), lambda b, h, l, d: query[b, l, h, d], name="query_T")
    columns = te.compute((batch, n_head, n_dim, seq_len), lambda b, h, d, l: value[b, l, h, d], name="value_T")
    axis = te.reduce_axis((0, n_dim), name="k")
    scores = te.compute(
        (batch, n_head, seq_len, seq_len),
        lambda b, h, i, j: te.sum(
            rows[b, h, i, axis].astype(out_dtype) * columns[b, h, axis, j].astype(out_dtype), axis=axis
        ),
        name="C",
    )
    return query, value, scores


def norm_bmn(B: int, M: int, N: int) -> tuple[Any, ...]:
    """The Frobenius norm of each of ``B`` matrices."""
    a = te.placeholder((B, M, N), "float32", name="A")
    i, j = te.reduce_axis((0, M), name="i"), te.reduce_axis((0, N), name="j")
    squares = te.compute((B,), lambda b: te.sum(a[b, i, j] * a[b, i, j], axis=[i, j]), name="C")
    return a, te.compute((B,), lambda b: te.sqrt(squares[b]), name="D")


def softmax_mn(m: int, n: int) -> tuple[Any, ...]:
    """Softmax over the last axis."""
    a = te.placeholder((m, n), "float32", name="A")
    return a, topi.nn.softmax(a, axis=1)


def max_pool2d_nchw(n: int, h: int, w: int, ci: int, padding: int) -> tuple[Any, ...]:
    """The largest of each 2x2 window, moved by one."""
    x = te.placeholder((n, ci, h, w), "float32", name="X")
    return x, topi.nn.pool2d(x, [2, 2], [1, 1], [1, 1], [padding] * 4, "max")


def conv2d_winograd_nhwc(
    N: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    tile_size: int = 4,
) -> tuple[Any, ...]:
    """A 3x3 convolution by Winograd's algorithm; ``kernel_size`` is that of the transformed weight, 6 for tiles of 4.

    The matrix product keeps its results one level further in (in registers) where the current target is CUDA.
    """
    target = Target.current(allow_none=True)
    level = 3 if target is not None and target.kind.name == "cuda" else 2
    data = te.placeholder((N, H, W, CI), "float32", name="data")
    weight = te.placeholder((kernel_size, kernel_size, CO, CI), "float32", name="weight")
    out = _conv2d_winograd_nhwc_impl(
        data, weight, stride, padding, dilation, "float32", tile_size, pre_computed=True, write_cache_level=level
    )
    return data, weight, out


_RESNET = [
    (224, 224, 3, 64, 7, 2, 3),
    (56, 56, 64, 64, 1, 1, 0),
    (14, 14, 256, 256, 3, 1, 1),
    (7, 7, 512, 512, 3, 1, 1),
]

CONFIGS: dict[str, tuple[Callable[..., tuple[Any, ...]], list[tuple[int, ...]]]] = {
    "C1D": (
        conv1d_nlc,
        [
            (1, 256, 64, 128, 3, 2, 1),
            (1, 128, 128, 256, 1, 2, 0),
            (1, 64, 256, 256, 5, 1, 2),
            (1, 32, 512, 512, 3, 1, 1),
        ],
    ),
    "C2D": (conv2d_nhwc, [(1, *layer) for layer in _RESNET]),
    "C3D": (conv3d_ndhwc, [(1, 16, *layer) for layer in _RESNET]),
    "GMM": (batch_matmul_nkkm, [(1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)]),
    "GRP": (conv2d_nhwc, [(1, 56, 56, 64, 128, 3, 2, 1, 1, 4), *((1, *layer, 1, 4) for layer in _RESNET[1:])]),
    "DIL": (conv2d_nhwc, [(1, *layer, 2) for layer in _RESNET]),
    "DEP": (
        depthwise_conv2d_nhwc,
        [(1, 112, 112, 32, 3, 1, 1), (1, 112, 112, 64, 3, 2, 1), (1, 14, 14, 512, 3, 2, 1), (1, 7, 7, 1024, 3, 1, 1)],
    ),
    "T2D": (
        conv2d_transpose_nhwc,
        [
            (1, 4, 4, 512, 256, 4, 2, 1),
            (1, 8, 8, 256, 128, 4, 2, 1),
            (1, 16, 16, 128, 64, 4, 2, 1),
            (1, 32, 32, 64, 3, 4, 2, 1),
        ],
    ),
    "CAP": (
        conv2d_capsule_nhwijc,
        [
            (1, 16, 16, 32, 32, 3, 2, 1),
            (1, 8, 8, 32, 32, 3, 1, 1),
            (1, 16, 16, 8, 16, 3, 2, 1),
            (1, 8, 8, 16, 16, 3, 1, 1),
        ],
    ),
    "NRM": (norm_bmn, [(1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)]),
    "SFM": (softmax_mn, [(256, 256), (512, 512), (1024, 1024), (2048, 2048)]),
    "CBR": (
        conv2d_nhwc_bn_relu,
        [
            (1, 224, 224, 3, 64, 7, 2, 3),
            (1, 56, 56, 64, 128, 3, 2, 1),
            (1, 28, 28, 128, 256, 1, 2, 0),
            (1, 7, 7, 512, 512, 3, 1, 1),
        ],
    ),
    "TBG": (transpose_batch_matmul, [(1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)]),
    "C2D_WIN_NHWC": (conv2d_winograd_nhwc, [(1, 14, 14, 128, 128, 6)]),
}


def create_te_workload(name: str, idx: int) -> PrimFunc:
    """A workload by name and number."""
    func, arguments = CONFIGS[name]
    return te.create_prim_func(func(*arguments[idx]))
