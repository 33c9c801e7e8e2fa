"""Tensor programs that GPU rules schedule, each with the rule and the shapes of a run."""

from __future__ import annotations

from relaxish import dlight, te, tir, topi
from relaxish.script import tir as T


def i64(*values):
    return [v if isinstance(v, tir.Var) else tir.IntImm("int64", v) for v in values]


def row_sum(n, k, epilogue=False):
    n, k = i64(n, k)
    a = te.placeholder((n, k), name="A")
    axis = te.reduce_axis((0, k), name="k")
    total = te.compute((n,), lambda i: te.sum(a[i, axis], axis=axis), name="S")
    return te.create_prim_func([a, topi.nn.relu(total) if epilogue else total])


def column_sum(k, n, epilogue=False):
    k, n = i64(k, n)
    a = te.placeholder((k, n), name="A")
    axis = te.reduce_axis((0, k), name="k")
    total = te.compute((n,), lambda i: te.sum(a[axis, i], axis=axis), name="S")
    return te.create_prim_func([a, topi.nn.relu(total) if epilogue else total])


def softmax(n, m):
    a = te.placeholder(i64(n, m), name="A")
    return te.create_prim_func([a, topi.nn.softmax(a)])


def transpose(n, m):
    a = te.placeholder(i64(n, m), name="A")
    return te.create_prim_func([a, topi.transpose(a)])


def elementwise(n, m):
    a = te.placeholder(i64(n, m), name="A")
    return te.create_prim_func([a, topi.nn.relu(topi.add(a, a))])


def matmul(m, n, k, transposed=False, epilogue=False):
    m, n, k = i64(m, n, k)
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((n, k) if transposed else (k, n), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (m, n), lambda i, j: te.sum(a[i, axis] * (b[j, axis] if transposed else b[axis, j]), axis=axis), name="C"
    )
    return te.create_prim_func([a, b, topi.nn.relu(c) if epilogue else c])


def gemv(n, k, epilogue=False):
    n, k = i64(n, k)
    a, x = te.placeholder((n, k), name="A"), te.placeholder((k,), name="X")
    axis = te.reduce_axis((0, k), name="k")
    y = te.compute((n,), lambda i: te.sum(x[axis] * a[i, axis], axis=axis), name="Y")
    return te.create_prim_func([x, a, topi.nn.relu(y) if epilogue else y])


def rms_norm_batch(b, n, m):
    b, n, m = i64(b, n, m)
    a, w = te.placeholder((b, n, m), name="A"), te.placeholder((m,), name="W")
    square = te.compute((b, n, m), lambda h, i, j: a[h, i, j] * a[h, i, j], name="square")
    axis = te.reduce_axis((0, m), name="k")
    total = te.compute((b, n), lambda h, i: te.sum(square[h, i, axis], axis=axis), name="total")
    scale = te.compute((b, n), lambda h, i: te.rsqrt(total[h, i] / m.value + 1e-5), name="rsqrt")
    return te.create_prim_func(
        [a, w, te.compute((b, n, m), lambda h, i, j: a[h, i, j] * scale[h, i] * w[j], name="norm")]
    )


def rms_norm(n, m):
    n, m = i64(n, m)
    a, w = te.placeholder((n, m), name="A"), te.placeholder((m,), name="W")
    square = te.compute((n, m), lambda i, j: a[i, j] * a[i, j], name="square")
    axis = te.reduce_axis((0, m), name="k")
    total = te.compute((n,), lambda i: te.sum(square[i, axis], axis=axis), name="total")
    scale = te.compute((n,), lambda i: te.rsqrt(total[i] / m.value + 1e-5), name="rsqrt")
    return te.create_prim_func([a, w, te.compute((n, m), lambda i, j: a[i, j] * scale[i] * w[j], name="norm")])


def pointwise_convolution(height, width, channels, filters):
    a = te.placeholder(i64(1, channels, height, width), name="A")
    w = te.placeholder(i64(filters, channels, 1, 1), name="W")
    return te.create_prim_func([a, w, topi.nn.conv2d(a, w, 1, 0, 1, data_layout="NCHW", kernel_layout="OIHW")])


N = tir.Var("n", "int64")
CASES = {
    "rows": (dlight.gpu.Reduction(), row_sum(9, 70), [(9, 70), (9,)]),
    "rows, epilogue": (dlight.gpu.Reduction(), row_sum(4, 300, True), [(4, 300), (4,)]),
    "rows, short": (dlight.gpu.Reduction(), row_sum(9, 6), [(9, 6), (9,)]),
    "rows, dynamic": (dlight.gpu.Reduction(), row_sum(N, 96), [(5, 96), (5,)]),
    "columns": (dlight.gpu.Reduction(), column_sum(40, 48), [(40, 48), (48,)]),
    "columns, short": (dlight.gpu.Reduction(), column_sum(6, 30), [(6, 30), (30,)]),
    "columns, epilogue": (dlight.gpu.Reduction(), column_sum(33, 30, True), [(33, 30), (30,)]),
    "softmax": (dlight.gpu.GeneralReduction(), softmax(6, 50), [(6, 50), (6, 50)]),
    "softmax, dynamic": (dlight.gpu.GeneralReduction(), softmax(N, 64), [(3, 64), (3, 64)]),
    "transpose": (dlight.gpu.Transpose(), transpose(21, 37), [(21, 37), (37, 21)]),
    "transpose, dynamic": (dlight.gpu.Transpose(), transpose(N, 24), [(19, 24), (24, 19)]),
    "fallback": (dlight.gpu.Fallback(), elementwise(30, 41), [(30, 41), (30, 41)]),
    "fallback, reduction": (dlight.gpu.Fallback(), row_sum(N, 8), [(6, 8), (6,)]),
    "matmul": (dlight.gpu.Matmul(), matmul(33, 70, 20), [(33, 20), (20, 70), (33, 70)]),
    "matmul, transposed": (dlight.gpu.Matmul(), matmul(32, 64, 16, True, True), [(32, 16), (64, 16), (32, 64)]),
    "matmul, dynamic": (dlight.gpu.Matmul(), matmul(N, 65, 24), [(7, 24), (24, 65), (7, 65)]),
    "matmul, convolution": (
        dlight.gpu.Matmul(),
        pointwise_convolution(5, 6, 20, 33),
        [(1, 20, 5, 6), (33, 20, 1, 1), (1, 33, 5, 6)],
    ),
    "gemv": (dlight.gpu.GEMV(), gemv(64, 256), [(256,), (64, 256), (64,)]),
    "gemv, tall": (dlight.gpu.GEMV(), gemv(272, 128, True), [(128,), (272, 128), (272,)]),
    "gemv, dynamic rows": (dlight.gpu.GEMV(), gemv(N, 128, True), [(128,), (13, 128), (13,)]),
    "gemv, dynamic columns": (dlight.gpu.GEMV(), gemv(32, N), [(130,), (32, 130), (32,)]),
    "rms norm, batch": (
        dlight.gpu.RMSNorm(),
        rms_norm_batch(1, N, 4096),
        [(1, 2, 4096), (4096,), (1, 2, 4096)],
    ),
    "rms norm": (dlight.gpu.RMSNorm(), rms_norm(3, 4096), [(3, 4096), (4096,), (3, 4096)]),
}


def typed_product(m, n, k, dtype, out_dtype):
    m, n, k = i64(m, n, k)
    a, b = te.placeholder((m, k), name="A", dtype=dtype), te.placeholder((n, k), name="B", dtype=dtype)
    axis = te.reduce_axis((0, k), name="k")
    wide = (lambda v: v) if dtype == out_dtype else (lambda v: v.astype(out_dtype))
    c = te.compute((m, n), lambda i, j: te.sum(wide(a[i, axis]) * wide(b[j, axis]), axis=axis), name="C")
    return te.create_prim_func([a, b, c])


def one_of_many(thread=None):
    """Products of one vector with two of five matrices, each in a block of its own: ``y[e] = w[chosen[e]] @ x``."""

    @T.prim_func
    def main(
        x: T.Buffer((T.int64(1), T.int64(128)), "float32"),
        w: T.Buffer((T.int64(5), T.int64(32), T.int64(128)), "float32"),
        chosen: T.Buffer((T.int64(2),), "int32"),
        y: T.Buffer((T.int64(2), T.int64(32)), "float32"),
    ):
        for e in range(T.int64(2)):
            with T.block("one"):
                ve = T.axis.spatial(T.int64(2), e)
                for i, k in T.grid(T.int64(32), T.int64(128)):
                    with T.block("gemv"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        with T.init():
                            y[ve, vi] = T.float32(0)
                        y[ve, vi] = y[ve, vi] + x[T.int64(0), vk] * w[chosen[ve], vi, vk]

    sch = tir.Schedule(main)
    if thread is not None:
        sch.bind(sch.get_loops("one")[0], thread)
    return sch.mod["main"]
