"""The target ``c``: C99 text, compiled with the machine's compiler and compared with NumPy."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from programs.device_models import MODELS
from programs.gpu import N, matmul, softmax, typed_product

import relaxish
from relaxish.backend.c.compiler import find_compiler
from relaxish.script import tir as T
from relaxish.support.errors import RelaxishError

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")


def build(func):
    return relaxish.build(func.with_attr("global_symbol", "main"), target="c")


def test_source_is_plain_c99(tmp_path):
    built = build(softmax(6, 50))
    text = built.get_source()
    assert (
        built.type_key == "c"
        and "int32_t main_kernel(float* restrict A, float* restrict T_softmax_norm)" in text
        and "int32_t main__packed(int64_t* slots)" in text
    )
    path = tmp_path / "kernels.c"
    path.write_text(text)
    strict = ["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Wno-unused", "-Werror", "-fsyntax-only"]
    done = subprocess.run([find_compiler(), *strict, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "dtype, out", [("float16", "float32"), ("float16", "float16"), ("int8", "int32"), ("float64", "float64")]
)
def test_products(dtype, out):
    rng = np.random.default_rng(0)
    a, b = ((rng.standard_normal(s) * 3).astype(dtype) for s in ((33, 20), (70, 20)))
    got = np.zeros((33, 70), out)
    build(typed_product(33, 70, 20, dtype, out))["main"](a, b, got)
    exact = 2e-2 if out == "float16" else 1e-5
    np.testing.assert_allclose(got, a.astype("float64") @ b.T.astype("float64"), rtol=exact, atol=exact * 5)


def test_dynamic_shapes():
    built = build(matmul(N, 70, 20, epilogue=True))
    rng = np.random.default_rng(0)
    for rows in (1, 19):
        a, b = rng.standard_normal((rows, 20)).astype("float32"), rng.standard_normal((20, 70)).astype("float32")
        got = np.zeros((rows, 70), "float32")
        built["main"](a, b, got)
        np.testing.assert_allclose(got, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)


def test_vectors_are_computed_lane_by_lane():
    @T.prim_func
    def main(A: T.Buffer((24,), "float32"), B: T.Buffer((24,), "bfloat16"), C: T.Buffer((24,), "bool")):
        for o in range(6):
            for i in T.vectorized(4):
                with T.block("B"):
                    v = T.axis.spatial(24, o * 4 + i)
                    B[v] = T.Cast("bfloat16", T.min(A[v], T.float32(0.5)))
        for o in range(3):
            for i in T.vectorized(8):
                with T.block("C"):
                    v = T.axis.spatial(24, o * 8 + i)
                    C[v] = not A[v] < T.float32(0) or A[23 - v] == T.float32(1)

    import ml_dtypes

    a = np.random.default_rng(0).standard_normal(24).astype("float32")
    b, c = np.zeros(24, ml_dtypes.bfloat16), np.zeros(24, bool)
    build(main)["main"](a, b, c)
    np.testing.assert_array_equal(b, np.minimum(a, 0.5).astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(c, ~(a < 0) | (a[::-1] == 1))


def test_shifted_copy_of_itself():
    """All lanes are read before the first is written."""

    @T.prim_func
    def main(A: T.Buffer((9,), "float32")):
        for i in T.vectorized(8):
            A[i + 1] = A[i]

    a = np.arange(9, dtype="float32")
    build(main)["main"](a)
    np.testing.assert_array_equal(a, [0, 0, 1, 2, 3, 4, 5, 6, 7])


def test_halves_round_to_nearest_even():
    @T.prim_func
    def main(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float16"), C: T.Buffer((4096,), "float32")):
        for i in range(4096):
            with T.block("B"):
                v = T.axis.spatial(4096, i)
                B[v] = T.Cast("float16", A[v])
        for i in range(4096):
            with T.block("C"):
                v = T.axis.spatial(4096, i)
                C[v] = T.Cast("float32", B[v])

    rng = np.random.default_rng(0)
    a = rng.integers(0, 1 << 32, 4096, dtype="uint32").view("float32")
    a[:1024] = np.ldexp(rng.standard_normal(1024), rng.integers(-26, 17, 1024)).astype("float32")
    b, c = np.zeros(4096, "float16"), np.zeros(4096, "float32")
    build(main)["main"](a, b, c)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(b, a.astype("float16"))
    np.testing.assert_array_equal(c, b.astype("float32"))


def test_divisions_round_down():
    @T.prim_func
    def main(
        A: T.Buffer((40,), "int32"),
        B: T.Buffer((40,), "int32"),
        C: T.Buffer((40,), "int32"),
        D: T.Buffer((40,), "int32"),
    ):
        for i in range(40):
            with T.block("C"):
                v = T.axis.spatial(40, i)
                C[v] = A[v] // B[v]
                D[v] = A[v] % B[v]

    rng = np.random.default_rng(0)
    a, b = rng.integers(-50, 50, 40, dtype="int32"), rng.integers(1, 9, 40, dtype="int32") * rng.choice([-1, 1], 40)
    c, d = np.zeros(40, "int32"), np.zeros(40, "int32")
    build(main)["main"](a, b.astype("int32"), c, d)
    np.testing.assert_array_equal(c, a // b)
    np.testing.assert_array_equal(d, a % b)


def test_assertions_and_results():
    @T.prim_func
    def main(n: T.int32, A: T.Buffer((4,), "float32")) -> T.int32:
        assert n > 2, "too few"
        A[0] = T.Cast("float32", n)
        T.ret(n * 2)

    built = build(main)
    a = np.zeros(4, "float32")
    assert built["main"](3, a) == 6 and a[0] == 3
    with pytest.raises(RelaxishError, match="too few"):
        built["main"](1, a)


def test_gpu_programs_are_refused():
    @T.prim_func
    def main(A: T.Buffer((64,), "float32")):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            A[tx] = T.float32(0)

    with pytest.raises(RelaxishError, match="GPU threads"):
        build(main)


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    module, inputs, result = MODELS[name]
    built = relaxish.build(module, "c")
    given = inputs(np.random.default_rng(5))
    vm = relaxish.VirtualMachine(built, relaxish.cpu())
    got = vm["main"](*[relaxish.nd.array(a) for a in given]).numpy()
    np.testing.assert_allclose(got, result(*given), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["erf", "expf", "double", "malloc"])
def test_names_that_c_has(name):
    @T.prim_func
    def add(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = T.exp(A[i])

    a, b = np.arange(8, dtype="float32") / 4, np.zeros(8, "float32")
    relaxish.build(add.with_attr("global_symbol", name), target="c")[name](a, b)
    np.testing.assert_allclose(b, np.exp(a), rtol=1e-6)


def test_export(tmp_path):
    built = build(matmul(12, 13, 14))
    built.export_library(str(tmp_path / "lib.so"))
    loaded = relaxish.runtime.load_module(str(tmp_path / "lib.so"))
    rng = np.random.default_rng(0)
    a, b, c = rng.random((12, 14), "float32"), rng.random((14, 13), "float32"), np.zeros((12, 13), "float32")
    loaded["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_indices_and_divisors_from_data_are_checked(tmp_path):
    @T.prim_func
    def func(
        ids: T.Buffer((4,), "int32"), W: T.Buffer((10, 3), "float32"), Y: T.Buffer((4, 3), "float32"),
        D: T.Buffer((4,), "int32"), Q: T.Buffer((4,), "int32"), S: T.Buffer((4,), "int32"),
    ):  # fmt: skip
        for i, j in T.grid(4, 3):
            Y[i, j] = W[ids[i], j]
        for i in range(4):
            Q[i] = T.floordiv(100, D[i])
            S[i] = T.if_then_else(D[i] > 1, T.truncmod(ids[i], D[i] - 1), -1)

    built = build(func)
    path = tmp_path / "kernels.c"
    path.write_text(built.get_source())
    strict = [
        "-std=c99",
        "-pedantic-errors",
        "-Wall",
        "-Wextra",
        "-Wno-unused",
        "-Wno-parentheses",
        "-Werror",
        "-fsyntax-only",
    ]
    done = subprocess.run([find_compiler(), *strict, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ids, divisors = np.array([3, 0, 9, 1], "int32"), np.array([7, -3, 1, 5], "int32")
    table = np.random.default_rng(0).random((10, 3), "float32")
    out, quotients, rest = np.zeros((4, 3), "float32"), np.zeros(4, "int32"), np.zeros(4, "int32")
    args = ids, table, out, divisors, quotients, rest
    built(*args)
    np.testing.assert_array_equal(out, table[ids])
    np.testing.assert_array_equal(quotients, 100 // divisors)
    np.testing.assert_array_equal(rest, np.where(divisors > 1, ids % np.maximum(divisors - 1, 1), -1))
    for value in (10, -1, 10**8, -(2**31)):
        ids[2] = value
        with pytest.raises(IndexError, match=f"main: index {value} is out of bounds for axis 0 of W, whose size"):
            built(*args)
    ids[2], divisors[3] = 9, 0
    with pytest.raises(ZeroDivisionError, match="main: .* of int32 by zero"):
        built(*args)
