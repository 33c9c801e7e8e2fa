"""The CPU rule for matrix-vector products."""

from __future__ import annotations

import numpy as np
import pytest
from programs.decoding import decoding_data, decoding_product
from programs.gpu import N, gemv, matmul, one_of_many

from relaxish import dlight, interp
from relaxish.ir import assert_structural_equal
from relaxish.script import tir as T
from relaxish.target import Target

CPU = Target("llvm")
rng = np.random.default_rng(3)


@pytest.mark.parametrize("rows, length", [(70, 130), (N, 96), (200, 64)])
def test_result(rows, length):
    n = 33 if rows is N else rows
    x, a = rng.standard_normal(length).astype("float32"), rng.standard_normal((n, length)).astype("float32")
    out = np.empty(n, "float32")
    interp.run_prim_func(dlight.cpu.GEMV().apply(gemv(rows, length), CPU, False).mod["main"], [x, a, out])
    np.testing.assert_allclose(out, a @ x, rtol=1e-4, atol=1e-4)


def test_decoding():
    data, wanted = decoding_data(rng, 1, 64, 128, True)
    made = dlight.cpu.GEMV().apply(decoding_product(None, 64, 128, True), CPU, False).mod["main"]
    interp.run_prim_func(made, data)
    np.testing.assert_allclose(data[-1], wanted, rtol=2e-2, atol=0.1)


def test_loops():
    @T.prim_func
    def expected(
        X: T.Buffer((T.int64(64),), "float32"),
        A: T.Buffer((T.int64(256), T.int64(64)), "float32"),
        Y: T.Buffer((T.int64(256),), "float32"),
    ):
        T.func_attr({"tir.noalias": True, "global_symbol": "main"})
        for ax0 in range(1):
            for i_0 in T.parallel(T.int64(2)):
                for i_1 in T.vectorized(T.int64(128)):
                    for k_0 in T.serial(
                        T.int64(1), annotations={"pragma_auto_unroll_max_step": 256, "pragma_unroll_explicit": 1}
                    ):
                        for k_1, c_0, c_1 in T.grid(T.int64(64), 1, 1):
                            with T.block("Y"):
                                v0 = T.axis.spatial(T.int64(256), i_0 * T.int64(128) + i_1)
                                v1 = T.axis.reduce(T.int64(64), k_0 * T.int64(64) + k_1)
                                T.reads(X[v1], A[v0, v1])
                                T.writes(Y[v0])
                                with T.init():
                                    Y[v0] = T.float32(0)
                                Y[v0] = Y[v0] + X[v1] * A[v0, v1]

    made = dlight.cpu.GEMV().apply(gemv(256, 64), CPU, False).mod["main"]
    assert_structural_equal(made.without_attr("global_symbol"), expected.without_attr("global_symbol"))


def test_other_programs_are_left():
    assert dlight.cpu.GEMV().apply(matmul(8, 8, 8), CPU, False) is None
    assert dlight.cpu.GEMV().apply(gemv(256, 64), Target("cuda"), False) is None


def test_product_inside_of_a_block():
    x, w = rng.standard_normal((1, 128)).astype("float32"), rng.standard_normal((5, 32, 128)).astype("float32")
    chosen, out = np.array([3, 1], "int32"), np.empty((2, 32), "float32")
    schedule = dlight.cpu.GEMV().apply(one_of_many(None), CPU, False)
    interp.run_prim_func(schedule.mod["main"], [x, w, chosen, out])
    np.testing.assert_allclose(out, w[chosen] @ x[0], rtol=1e-4, atol=1e-4)
    assert "T.parallel(" in schedule.mod["main"].script()
