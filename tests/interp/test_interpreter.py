"""The reference interpreter against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import interp
from relaxish.script import ir as I
from relaxish.script import relax as R
from relaxish.script import tir as T
from relaxish.support.errors import IndexBoundsError


def test_matmul_with_init_and_symbolic_shape() -> None:
    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle):
        n, m, k = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(a, (n, k))
        B = T.match_buffer(b, (k, m))
        C = T.match_buffer(c, (n, m))
        for i, j, r in T.grid(n, m, k):
            with T.block("C"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vr] * B[vr, vj]

    a, b = np.random.rand(5, 7).astype("float32"), np.random.rand(7, 3).astype("float32")
    c = np.zeros((5, 3), "float32")
    interp.run_prim_func(matmul, [a, b, c])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-6)


def test_barriers_between_threads() -> None:
    @T.prim_func
    def reverse(A: T.Buffer((64,), "int8"), B: T.Buffer((64,), "int8")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 32)
        S = T.decl_buffer((32,), "int8", scope="shared")
        S[tx] = A[bx * 32 + tx] * T.int8(3)
        T.tvm_storage_sync("shared")
        B[bx * 32 + tx] = S[31 - tx]

    a, b = np.arange(64).astype("int8"), np.zeros(64, "int8")
    interp.run_prim_func(reverse, [a, b])
    np.testing.assert_array_equal(b, (a * np.int8(3)).reshape(2, 32)[:, ::-1].reshape(-1))


def test_vectors_and_views() -> None:
    @T.prim_func
    def func(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        for i in range(4):
            with T.block("row"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi, 0:8])
                T.writes(B[vi, 0:8])
                row = T.match_buffer(A[vi, 0:8], (8,), "float32", offset_factor=1)
                B[vi, 0:8] = row[0:8] * T.Broadcast(T.float32(2), 8)

    a, b = np.random.rand(4, 8).astype("float32"), np.zeros((4, 8), "float32")
    interp.run_prim_func(func, [a, b])
    np.testing.assert_array_equal(b, a * 2)


def test_bfloat16_and_integer_division() -> None:
    import ml_dtypes

    @T.prim_func
    def func(A: T.Buffer((8,), "bfloat16"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            B[i] = T.Cast("float32", A[i])
            C[i] = T.truncdiv(i - 4, 3) * 10 + (i - 4) % 3

    a = np.linspace(-1, 1, 8).astype(ml_dtypes.bfloat16)
    b, c = np.zeros(8, "float32"), np.zeros(8, "int32")
    interp.run_prim_func(func, [a, b, c])
    np.testing.assert_array_equal(b, a.astype("float32"))
    np.testing.assert_array_equal(c, [int((i - 4) / 3) * 10 + (i - 4) % 3 for i in range(8)])


def test_graph_program() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32"), c: R.Tensor((), "bool")):
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, w))
                s = R.split(y, 2, axis=1)
                gv = R.concat((s[1], s[0]), axis=1)
                R.output(gv)
            if c:
                r = R.add(gv, gv)
            else:
                r = gv
            return r

    x, w = np.random.randn(3, 8).astype("float32"), np.random.randn(8, 4).astype("float32")
    y = np.maximum(x @ w, 0)
    expected = np.concatenate([y[:, 2:], y[:, :2]], 1)
    for flag in (True, False):
        out = interp.run_relax(Module, "main", [x, w, np.array(flag)])
        np.testing.assert_allclose(out, expected * (2 if flag else 1), rtol=1e-5, atol=1e-6)


def test_elements_before_the_first_are_errors():
    """NumPy would take them from the end of the array, and the reference would be wrong without a word."""

    @T.prim_func
    def shifted(a: T.Buffer((4,), "float32"), i: T.Buffer((1,), "int64"), b: T.Buffer((4,), "float32")):
        for k in range(4):
            b[k] = T.if_then_else(k < 2, T.float32(0), a[T.int64(k) - i[0]])

    a, b = np.arange(1, 5, dtype="float32"), np.zeros(4, "float32")
    interp.run_prim_func(shifted, [a, np.array([2]), b])
    np.testing.assert_array_equal(b, [0, 0, 1, 2])
    with pytest.raises(IndexBoundsError, match="before the first element of a"):
        interp.run_prim_func(shifted, [a, np.array([4]), b])
