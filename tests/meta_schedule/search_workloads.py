"""Programs whose sketches differ in kind, for tests of the search."""

from relaxish import te, tir
from relaxish.meta_schedule.testing import te_workload


def batch_matmul():
    x = te.placeholder((12, 64, 32), "float32", name="X")
    y = te.placeholder((12, 32, 64), "float32", name="Y")
    r = te.reduce_axis((0, 32), name="k")
    return [x, y, te.compute((12, 64, 64), lambda b, i, j: te.sum(x[b, i, r] * y[b, r, j], axis=r), name="C")]


def depthwise():
    x = te.placeholder((1, 30, 30, 32), "float32", name="X")
    y = te.placeholder((3, 3, 32), "float32", name="W")
    a, b = te.reduce_axis((0, 3), name="rh"), te.reduce_axis((0, 3), name="rw")
    out = te.compute((1, 28, 28, 32), lambda n, i, j, c: te.sum(x[n, i + a, j + b, c] * y[a, b, c], axis=[a, b]))
    return [x, y, out]


def max_pool():
    x = te.placeholder((1, 28, 28, 32), "float32", name="X")
    a, b = te.reduce_axis((0, 2), name="rh"), te.reduce_axis((0, 2), name="rw")
    return [x, te.compute((1, 14, 14, 32), lambda n, i, j, c: te.max(x[n, i * 2 + a, j * 2 + b, c], axis=[a, b]))]


def conv2d_bias_relu(size, channels, kernel, padding):
    x, y, out = te_workload.conv2d_nhwc(1, size, size, channels, channels, kernel, 1, padding)
    bias = te.placeholder((channels,), "float32", name="bias")
    added = te.compute(out.shape, lambda n, i, j, c: out[n, i, j, c] + bias[c], name="T_add")
    return [x, y, bias, te.compute(out.shape, lambda *i: tir.max(added[i], tir.const(0, "float32")), name="T_relu")]


def row_sum():
    x = te.placeholder((8, 4096), "float32", name="X")
    k = te.reduce_axis((0, 4096), name="k")
    return [x, te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="S")]


def elementwise():
    x = te.placeholder((128, 768), "float32", name="X")
    return [x, te.compute((128, 768), lambda i, j: tir.exp(x[i, j]) + 1.0, name="out")]


WORKLOADS = {
    "matmul": lambda: te_workload.matmul(64, 96, 128),
    "matmul_relu": lambda: te_workload.matmul_relu(128, 128, 64),
    "conv2d": lambda: te_workload.conv2d_nhwc(1, 28, 28, 32, 64, 3, 1, 1),
    "conv2d_7x7": lambda: conv2d_bias_relu(7, 64, 3, 1),
    "conv2d_1x1": lambda: conv2d_bias_relu(28, 64, 1, 0),
    "batch_matmul": batch_matmul,
    "depthwise": depthwise,
    "max_pool": max_pool,
    "softmax": lambda: te_workload.softmax_mn(64, 128),
    "row_sum": row_sum,
    "elementwise": elementwise,
}
