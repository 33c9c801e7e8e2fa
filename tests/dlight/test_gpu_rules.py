"""The GPU rules: each scheduled program computes what the unscheduled one does, on random shapes, and is bound to threads."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import dlight, interp, te, tir, topi
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.functor import post_order_visit
from relaxish.script import tir as T
from relaxish.target import Target

CUDA = Target("nvidia/geforce-rtx-3090-ti")
rng = np.random.default_rng(7)


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
    return te.create_prim_func(
        [a, w, te.compute((n, m), lambda i, j: a[i, j] * scale[i] * w[j], name="norm")]
    )


N = tir.Var("n", "int64")
CASES = {
    "rows": (dlight.gpu.Reduction(), row_sum(9, 70), [(9, 70), (9,)]),
    "rows, epilogue": (dlight.gpu.Reduction(), row_sum(4, 300, True), [(4, 300), (4,)]),
    "rows, dynamic": (dlight.gpu.Reduction(), row_sum(N, 96), [(5, 96), (5,)]),
    "columns": (dlight.gpu.Reduction(), column_sum(40, 48), [(40, 48), (48,)]),
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
    "gemv": (dlight.gpu.GEMV(), gemv(64, 256), [(256,), (64, 256), (64,)]),
    "gemv, tall": (dlight.gpu.GEMV(), gemv(272, 128, True), [(128,), (272, 128), (272,)]),
    "gemv, dynamic rows": (dlight.gpu.GEMV(), gemv(N, 128, True), [(128,), (13, 128), (13,)]),
    "gemv, dynamic columns": (dlight.gpu.GEMV(), gemv(32, N), [(130,), (32, 130), (32,)]),
    "rms norm, batch": (
        dlight.gpu.RMSNorm(), rms_norm_batch(1, N, 4096), [(1, 2, 4096), (4096,), (1, 2, 4096)],
    ),
    "rms norm": (dlight.gpu.RMSNorm(), rms_norm(3, 4096), [(3, 4096), (4096,), (3, 4096)]),
}


@pytest.mark.parametrize("name", CASES)
def test_same_result(name):
    rule, func, shapes = CASES[name]
    schedule = rule.apply(func, CUDA, False)
    assert schedule is not None
    data = [rng.standard_normal(s).astype("float32") for s in shapes]
    wanted, got = [d.copy() for d in data], [d.copy() for d in data]
    interp.run_prim_func(func, wanted)
    interp.run_prim_func(schedule.mod["main"], got)
    np.testing.assert_allclose(got[-1], wanted[-1], rtol=1e-4, atol=1e-4)
    assert {"blockIdx.x", "threadIdx.x"} <= threads_of(schedule.mod["main"])


def threads_of(func):
    found = set()

    def look(node):
        if isinstance(node, tir.For) and node.thread_binding is not None:
            found.add(node.thread_binding.thread_tag)

    post_order_visit(func.body, look)
    return found


@pytest.mark.parametrize(
    "rule, func",
    [
        (dlight.gpu.Matmul(), elementwise(4, 4)),
        (dlight.gpu.GEMV(), elementwise(4, 4)),
        (dlight.gpu.GEMV(), matmul(16, 16, 16)),
        (dlight.gpu.Reduction(), softmax(4, 4)),
        (dlight.gpu.GeneralReduction(), elementwise(4, 4)),
        (dlight.gpu.Transpose(), elementwise(4, 4)),
        (dlight.gpu.RMSNorm(), softmax(4, 4)),
    ],
)
def test_not_mine(rule, func):
    assert rule.apply(func, CUDA, False) is None


def test_only_gpus():
    assert dlight.gpu.Fallback().apply(elementwise(4, 4), Target("llvm"), False) is None


def test_fallback_text():
    @T.prim_func
    def expected(A: T.Buffer((T.int64(30), T.int64(41)), "float32"), out: T.Buffer((T.int64(30), T.int64(41)), "float32")):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True, "global_symbol": "main"})
        for bx in T.thread_binding(T.int64(2), thread="blockIdx.x"):
            for tx in T.thread_binding(T.int64(1024), thread="threadIdx.x"):
                with T.block("compute"):
                    v0 = T.axis.spatial(T.int64(30), (bx * T.int64(1024) + tx) // T.int64(41))
                    v1 = T.axis.spatial(T.int64(41), (bx * T.int64(1024) + tx) % T.int64(41))
                    T.where(bx * T.int64(1024) + tx < T.int64(1230))
                    out[v0, v1] = T.max(A[v0, v1] + A[v0, v1], T.float32(0))

    with CUDA:
        made = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.Fallback())(
            IRModule({"main": elementwise(30, 41)})
        )
    assert_structural_equal(made["main"].without_attr("global_symbol"), expected.without_attr("global_symbol"))


@pytest.mark.parametrize("extents, threads", [([1000], [512]), ([4, 1000], [4, 256]), ([3], [2]), ([2048, 2], [1024, 1])])
def test_suggested_threads(extents, threads):
    from relaxish.dlight.gpu.common import suggest_threads_per_block

    loops = [tir.For(tir.Var("i"), 0, e, tir.ForKind.SERIAL, tir.Evaluate(0)) for e in extents]
    assert suggest_threads_per_block(Target("cuda"), loops) == threads


def test_suggested_threads_for_unknown_extents():
    from relaxish.dlight.gpu.common import suggest_threads_per_block

    loops = [tir.For(tir.Var("i"), 0, e, tir.ForKind.SERIAL, tir.Evaluate(0)) for e in (tir.Var("n"), 8)]
    assert suggest_threads_per_block(Target("cuda"), loops) == [128, 8]


def typed_product(m, n, k, dtype, out_dtype):
    m, n, k = i64(m, n, k)
    a, b = te.placeholder((m, k), name="A", dtype=dtype), te.placeholder((n, k), name="B", dtype=dtype)
    axis = te.reduce_axis((0, k), name="k")
    wide = (lambda v: v) if dtype == out_dtype else (lambda v: v.astype(out_dtype))
    c = te.compute((m, n), lambda i, j: te.sum(wide(a[i, axis]) * wide(b[j, axis]), axis=axis), name="C")
    return te.create_prim_func([a, b, c])


@pytest.mark.parametrize(
    "dtype, out_dtype, rows",
    [("float16", "float16", 128), ("float16", "float32", 70), ("int8", "int32", 128), ("float16", "float32", N)],
)
def test_tensor_cores(dtype, out_dtype, rows):
    func = typed_product(rows, 128, 128, dtype, out_dtype)
    schedule = dlight.gpu.Matmul().apply(func, Target("nvidia/nvidia-a100"), False)
    made = schedule.mod["main"]
    assert "tvm_mma_sync" in made.script() and "wmma.accumulator" in made.script()
    m = 70 if rows is N else rows
    if dtype == "int8":
        a, b = (rng.integers(-128, 128, (r, 128)).astype(dtype) for r in (m, 128))
    else:
        a, b = (rng.standard_normal((r, 128)).astype(dtype) for r in (m, 128))
    out = np.empty((m, 128), out_dtype)
    interp.run_prim_func(made, [a, b, out])
    wanted = a.astype("float64") @ b.astype("float64").T
    np.testing.assert_allclose(out, wanted, rtol=0, atol=0 if dtype == "int8" else 0.2 if out_dtype == dtype else 1e-3)


def test_short_sides_and_requests_stay_off_tensor_cores():
    short = typed_product(128, 64, 128, "float16", "float16")
    asked = typed_product(128, 128, 128, "float16", "float16").with_attr("dlight.do_not_tensorize", True)
    for func in (short, asked):
        schedule = dlight.gpu.Matmul().apply(func, Target("nvidia/nvidia-a100"), False)
        assert "tvm_mma_sync" not in schedule.mod["main"].script()
