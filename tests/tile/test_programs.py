"""Loops, variables, atomic updates and the rest of the tile language against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from test_errors import source
from tile_programs import arrays, check, run

import relaxish
import relaxish.tile.language as T
from relaxish.backend.cuda.compile import nvrtc
from relaxish.ir import assert_structural_equal
from relaxish.ir.dtype import numpy_dtype
from relaxish.script import from_source
from relaxish.support.errors import RelaxishError
from relaxish.tir.transform.tiles import TileLoweringError


def test_parallel_loops_with_conditions_and_private_memory():
    @T.prim_func
    def main(A: T.Tensor((100, 40), "float32"), B: T.Tensor((100, 40), "float32")):
        with T.Kernel(4, threads=64) as bx:
            x = T.alloc_fragment((32, 40), "float32")
            three = T.alloc_local((3,), "float32")
            T.copy(A[bx * 32, 0], x)
            for i, j in T.Parallel(32, 40):
                for k in T.serial(3):
                    three[k] = x[i, j] * k
                if x[i, j] > 0:
                    x[i, j] = three[0] + three[1] + three[2]
                else:
                    x[i, j] = T.clamp(x[i, j], -0.5, 0.5)
            for i, j in T.Parallel(32, 40):
                B[bx * 32 + i, j] = x[i, j]

    (a,) = arrays(0, (100, 40))
    check(main, [a], np.where(a > 0, 3 * a, np.clip(a, -0.5, 0.5)))


def test_parallel_loops_inside_of_parallel_loops():
    @T.prim_func
    def main(A: T.Tensor((40, 24), "float32"), B: T.Tensor((40, 24), "float32"), C: T.Tensor((24,), "float32")):
        with T.Kernel(5, threads=32) as bx:
            for i in T.Parallel(8):
                for j in T.Parallel(24):
                    if A[bx * 8 + i, j] > 0:
                        T.atomic_add(C[j], A[bx * 8 + i, j])
                    B[bx * 8 + i, j] = A[bx * 8 + i, j] * 2 + j

    (a,) = arrays(9, (40, 24))
    wanted = [a * 2 + np.arange(24, dtype="float32"), np.maximum(a, 0).sum(0)]
    check(main, [a], wanted, start=[np.zeros_like(w) for w in wanted], atol=1e-4)


def test_variables_and_while_loops():
    @T.prim_func
    def main(N: T.Tensor((4,), "int32"), B: T.Tensor((4, 32), "int32")):
        with T.Kernel(4, threads=32) as bx:
            n = T.alloc_var("int32")
            steps = T.alloc_var("int32", init=0)
            out = T.alloc_fragment((32,), "int32")
            n = N[bx]
            while n != 1:
                if n % 2 == 0:
                    n = n // 2
                else:
                    n = 3 * n + 1
                steps += 1
            for i in T.Parallel(32):
                out[i] = steps + i
            T.copy(out, B[bx, 0])

    n = np.array([6, 1, 7, 27], "int32")
    steps = []
    for value in n:
        value, count = int(value), 0
        while value != 1:
            value, count = (value // 2 if value % 2 == 0 else 3 * value + 1), count + 1
        steps.append(count)
    check(main, [n], (np.array(steps)[:, None] + np.arange(32)).astype("int32"))


@pytest.mark.slow
@pytest.mark.parametrize("stages", [0, 1, 2, 3, 5])
def test_pipelines_of_any_depth(stages):
    """Fewer turns than stages, memory that is used after the loop, sources that depend on a variable."""

    @T.prim_func
    def main(A: T.Tensor((128, 32), "float16"), turns: T.int32, B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            tile = T.alloc_shared((32, 32), "float16")
            total = T.alloc_fragment((32, 32), "float32")
            T.clear(total)
            for outer in T.serial(2):
                for k in T.Pipelined(turns, num_stages=stages):
                    T.copy(A[k * 32, 0], tile)
                    for i, j in T.Parallel(32, 32):
                        total[i, j] = total[i, j] + T.cast(tile[j, i], "float32") * (outer + 1)
            T.copy(total, B)

    (a,) = arrays(1, (128, 32), dtype="float16")
    for turns, where in ((0, "sm_80"), (4, "llvm"), (4, "sm_80")):
        wanted = 3 * a.astype("float32").reshape(4, 32, 32)[:turns].sum(0).T
        check(main, [a, turns], wanted, where=(where,), atol=1e-4)


@pytest.mark.parametrize("group", [1, 3, 8])
def test_persistent_blocks(group):
    @T.prim_func
    def main(A: T.Tensor((80, 96), "float32"), B: T.Tensor((80, 96), "float32")):
        with T.Kernel(4, threads=32) as block:
            tile = T.alloc_shared((16, 16), "float32")
            for by, bx in T.Persistent([5, 6], 4, block, group_size=group):
                T.copy(A[by * 16, bx * 16], tile)
                for i, j in T.Parallel(16, 16):
                    tile[i, j] = tile[i, j] + by * 100 + bx
                T.copy(tile, B[by * 16, bx * 16])

    (a,) = arrays(2, (80, 96))
    y, x = np.indices(a.shape) // 16
    check(main, [a], (a + y * 100 + x).astype("float32"), rtol=1e-5)


@pytest.mark.parametrize("panel, order", [(1, "row"), (3, "row"), (2, "column"), (10, "column")])
def test_panels_change_nothing(panel, order):
    @T.prim_func
    def main(A: T.Tensor((56, 40), "float32"), B: T.Tensor((56, 40), "float32")):
        with T.Kernel(5, 7, threads=32) as (bx, by):
            T.use_swizzle(panel, order=order)
            tile = T.alloc_fragment((8, 8), "float32")
            T.copy(A[by * 8, bx * 8], tile)
            for i, j in T.Parallel(8, 8):
                tile[i, j] = tile[i, j] * (by * 5 + bx)
            T.copy(tile, B[by * 8, bx * 8])

    (a,) = arrays(3, (56, 40))
    y, x = np.indices(a.shape) // 8
    check(main, [a], (a * (y * 5 + x)).astype("float32"))


def test_atomic_updates():
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float32"),
        total: T.Tensor((32,), "float32"),
        count: T.Tensor((2,), "int32"),
        places: T.Tensor((8,), "int32"),
    ):
        with T.Kernel(8, threads=64) as bx:
            tile = T.alloc_shared((8, 32), "float32")
            T.copy(A[bx * 8, 0], tile)
            for i, j in T.Parallel(8, 32):
                T.atomic_add(total[j], tile[i, j])
            T.atomic_add(count[0], bx)
            places[bx] = T.atomic_add(count[1], 1, return_prev=True)

    (a,) = arrays(4, (64, 32))
    wanted = [a.sum(0), np.array([28, 8], "int32"), np.arange(8, dtype="int32")]
    zeros = [np.zeros_like(w) for w in wanted]
    check(main, [a], wanted, where=("interp", "sm_80"), start=zeros, atol=1e-4)


def run_c(func, inputs, outputs):
    """The outputs as the machine's C compiler makes them."""
    built = relaxish.tir.build(func, target="c")
    passed = [relaxish.nd.array(x) for x in outputs]
    built["main"](*[relaxish.nd.array(x) for x in inputs], *passed)
    return [x.numpy() for x in passed]


def updates(dtype, bits):
    """Every update of a type, by many blocks at once."""

    @T.prim_func
    def main(A: T.Tensor((512, 16), dtype), B: T.Tensor((6, 16), dtype)):
        with T.Kernel(512, threads=32) as bx:
            for i in T.Parallel(16):
                T.atomic_add(B[0, i], A[bx, i])
                T.atomic_max(B[1, i], A[bx, i], memory_order="acq_rel")
                T.atomic_min(B[2, i], A[bx, i])
                if bits:
                    T.atomic_or(B[3, i], A[bx, i])
                    T.atomic_and(B[4, i], A[bx, i])
                    T.atomic_xor(B[5, i], A[bx, i])

    return main


@pytest.mark.parametrize(
    "dtype", ["int32", "uint32", "int64", "uint64", "int8", "float32", "float64", "float16", "bfloat16"]
)
def test_updates_of_all_types(dtype):
    """On CPUs of every type, by all cores at once; on GPUs of the types that they have."""
    rng = np.random.default_rng(5)
    bits = "int" in dtype
    a = rng.integers(0 if dtype[0] == "u" else -9, 9, (512, 16)).astype(numpy_dtype(dtype))
    start = rng.integers(1, 9, (6, 16)).astype(a.dtype)
    wanted = start.copy()
    wanted[0] = (
        start[0].astype("float64" if not bits else "int64") + a.astype("float64" if not bits else "int64").sum(0)
    ).astype(a.dtype)
    wanted[1], wanted[2] = np.maximum(start[1], a.max(0)), np.minimum(start[2], a.min(0))
    if bits:
        wanted[3] |= np.bitwise_or.reduce(a, 0)
        wanted[4] &= np.bitwise_and.reduce(a, 0)
        wanted[5] ^= np.bitwise_xor.reduce(a, 0)
    func = updates(dtype, bits)
    # Sums of small integers are exact in 16 bits as long as they stay small; those of 512 of bfloat16 do not.
    rows = slice(1, None) if dtype == "bfloat16" else slice(None)
    for where in ("interp", "llvm", "sm_80") if dtype != "int8" else ("interp", "llvm"):
        (found,) = run(func, where, [a], [start])
        np.testing.assert_array_equal(found[rows].astype("float64"), wanted[rows].astype("float64"), err_msg=where)
    (found,) = run_c(func, [a], [start])
    np.testing.assert_array_equal(found[rows].astype("float64"), wanted[rows].astype("float64"), err_msg="c")


def test_extremes_keep_nan():
    (a,) = arrays(7, (512, 16))
    a[37, 3] = np.nan
    start = np.zeros((6, 16), "float32")
    start[1:3, 5] = np.nan
    func = updates("float32", False)
    with np.errstate(invalid="ignore"):
        wanted = [np.maximum(start[1], np.max(a, 0)), np.minimum(start[2], np.min(a, 0))]
    places = (run(func, where, [a], [start]) for where in ("llvm", "sm_80"))
    for found in (*(found for (found,) in places), *run_c(func, [a], [start])):
        np.testing.assert_array_equal(found[1:3], wanted)


@pytest.mark.skipif(not nvrtc.available(), reason="neither NVRTC nor nvcc is installed")
@pytest.mark.parametrize(
    "dtype, arch", [("float16", "sm_75"), ("bfloat16", "sm_80"), ("float32", "sm_80"), ("float64", "sm_90")]
)
def test_extremes_of_floats_compile(dtype, arch):
    """CUDA has no such functions: they swap until what they compared is still there."""

    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((2,), dtype)):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(16):
                T.atomic_max(B[0], A[bx * 16 + i])
                T.atomic_min(B[1], A[bx * 16 + i])

    text = source(main, arch)
    assert "atomic_extreme<true>(" in text and "atomic_extreme<false>(" in text
    assert ".cas." in nvrtc.compile_ptx(text, arch)


def test_loads_and_stores():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"),
        F: T.Tensor((2,), "int32"),
        B: T.Tensor((64,), "float32"),
        C: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                T.atomic_store(B[bx * 32 + i], A[bx * 32 + i], memory_order="release")
            T.atomic_store(F[bx], 3 + bx, memory_order="release")
            x = T.atomic_load(F[bx], memory_order="acquire")
            for i in T.Parallel(32):
                C[bx * 32 + i] = T.atomic_load(B[bx * 32 + i]) * T.cast(x, "float32")

    (a,) = arrays(8, (64,))
    a[3] = -0.0
    wanted = [np.array([3, 4], "int32"), a, a * np.repeat([3, 4], 32).astype("float32")]
    check(main, [a], wanted, where=("interp", "llvm", "sm_70", "sm_80"), rtol=0, atol=0)
    (_, stored, _) = run(main, "sm_80", [a], [np.zeros(2, "int32"), a * 0, a * 0])
    assert np.signbit(stored[3]), "a load changes nothing, the sign of zero included"
    assert "__threadfence()" in source(main, "sm_80")


def test_updates_by_single_threads():
    """Kernels written for one thread update as one instruction, too."""

    @T.prim_func
    def main(A: T.Tensor((256,), "int64"), B: T.Tensor((2,), "int64"), C: T.Tensor((6,), "int32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            T.atomic_add(B[0], A[bx * 64 + tx])
            T.atomic_max(B[1], A[bx * 64 + tx])
            T.atomic_add(C[5], -1)
            if tx == 5:
                C[bx] = T.atomic_add(C[4], 0, return_prev=True) + bx

    a = np.random.default_rng(9).integers(-(2**40), 2**40, 256)
    wanted = [np.array([a.sum(), a.max()]), np.array([7, 8, 9, 10, 7, -251], "int32")]
    check(
        main,
        [a],
        wanted,
        where=("sm_80",),
        start=[np.array([0, -(2**50)]), np.array([0, 0, 0, 0, 7, 5], "int32")],
        rtol=0,
        atol=0,
    )
    assert "(long long)atomicAdd((unsigned long long*)" in source(main, "sm_80")


def test_what_no_device_updates():
    @T.prim_func
    def main(A: T.Tensor((64,), "bfloat16"), B: T.Tensor((1,), "bfloat16")):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(16):
                T.atomic_add(B[0], A[bx * 16 + i])

    assert "atomicAdd" in source(main, "sm_80")
    with pytest.raises(TileLoweringError, match="T.atomic_add on bfloat16 B: sm_70 has no such instruction, sm_80 has"):
        source(main, "sm_70")
    with pytest.raises(RelaxishError, match="memory_order='strong'"):

        @T.prim_func
        def other(B: T.Tensor((1,), "int32")):
            with T.Kernel(4, threads=32) as bx:
                T.atomic_add(B[0], bx, memory_order="strong")


def test_wide_atomic_updates():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            tile = T.alloc_shared((8,), "float32")
            T.copy(A[bx, 0], tile)
            for i in T.Parallel(2):
                T.atomic_addx2(B[i * 2], tile[i * 2])
            for i in T.Parallel(1):
                T.atomic_addx4(B[4 + i], tile[4 + i])

    (a,) = arrays(6, (4, 8))
    check(main, [a], a.sum(0), start=[np.zeros(8, "float32")], atol=1e-5)


def test_views():
    @T.prim_func
    def main(
        A: T.Tensor((8, 32), "float32"),
        B: T.Tensor((64, 4), "float32"),
        C: T.Tensor((16, 16), "float32"),
        D: T.Tensor((8, 32), "float32"),
    ):
        with T.Kernel(1, threads=32) as _bx:
            x = T.alloc_shared((8, 32), "float32")
            y = T.alloc_fragment((8, 32), "float32")
            T.copy(A, x)
            T.copy(A, y)
            narrow = T.view(x, (64, 4))
            square = T.reshape(y, (16, 16))
            for i, j in T.Parallel(64, 4):
                B[i, j] = narrow[i, j]
            for i, j in T.Parallel(8, 32):
                y[i, j] = y[i, j] * 2
            for i, j in T.Parallel(16, 16):
                C[i, j] = narrow[i * 4 + j // 4, j % 4]
            for i, j in T.Parallel(8, 32):
                D[i, j] = square[i * 2 + j // 16, j % 16]

    (a,) = arrays(7, (8, 32))
    check(main, [a], [a.reshape(64, 4), a.reshape(16, 16), 2 * a])


def test_reducers():
    @T.prim_func
    def main(A: T.Tensor((24, 40), "float32"), B: T.Tensor((24,), "float32"), C: T.Tensor((24,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((24, 40), "float32")
            total = T.alloc_reducer((24,), "float32", op="sum")
            top = T.alloc_reducer((24,), "float32", op="max")
            T.copy(A, x)
            T.clear(total)
            T.fill(top, -1e30)
            for i, j in T.Parallel(24, 40):
                total[i] += x[i, j]
                top[i] = T.max(top[i], x[i, j])
            T.finalize_reducer(total)
            T.finalize_reducer(top)
            T.copy(total, B)
            T.copy(top, C)

    (a,) = arrays(8, (24, 40))
    check(main, [a], [a.sum(1), a.max(1)], atol=1e-4)


def test_sizes_known_when_called():
    m, n = T.dynamic("m, n")

    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"),
        B: T.Tensor((m, n), "float32"),
        C: T.Tensor((T.dyn["q"],), "float32"),
        D: T.Tensor((T.dyn["q"],), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 16), T.ceildiv(m, 8), threads=32) as (bx, by):
            tile = T.alloc_fragment((8, 16), "float32")
            T.copy(A[by * 8, bx * 16], tile)
            for i, j in T.Parallel(8, 16):
                tile[i, j] = tile[i, j] + 1
            T.copy(tile, B[by * 8, bx * 16])
        with T.Kernel(T.ceildiv(T.dyn["q"], 64), threads=32) as bx:
            for i in T.Parallel(64):
                D[bx * 64 + i] = C[bx * 64 + i] * 2

    a, c = arrays(9, (19, 37), (100,))
    for where in ("interp", "llvm", "sm_80"):
        b, d = np.zeros_like(a), np.zeros_like(c)
        # The third argument lies between an output and an output: all are passed in order.
        found = run(main, where, [a], [b, c, d])
        np.testing.assert_allclose(found[0], a + 1)
        np.testing.assert_allclose(found[2], c * 2)


def test_two_kernels_through_global_memory():
    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), B: T.Tensor((32,), "float32")):
        parts = T.alloc_global((4, 32), "float32")
        with T.Kernel(4, threads=(16, 2)) as bx:
            for i in T.Parallel(32):
                parts[bx, i] = A[bx, i] * (bx + 1)
        with T.Kernel(1, threads=32) as _bx:
            total = T.alloc_fragment((32,), "float32")
            T.clear(total)
            for s in T.serial(4):
                for i in T.Parallel(32):
                    total[i] = total[i] + parts[s, i]
            T.copy(total, B)

    (a,) = arrays(10, (4, 32))
    check(main, [a], (a * np.arange(1, 5)[:, None]).sum(0).astype("float32"), atol=1e-5)


def test_memory_of_the_block_written_and_read_by_different_threads():
    """Statement order is program order: no barrier is written, and none is missing."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), S: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_shared((64,), "float32")
            T.copy(A, x)
            for r in T.serial(5):
                for i in T.Parallel(64):
                    S[i] = x[63 - i] + r
                for i in T.Parallel(64):
                    x[i] = S[(i * 7 + 3) % 64]
            T.copy(x, B)

    (a,) = arrays(11, (64,))
    x = a
    for r in range(5):
        s = x[::-1] + r
        x = s[(np.arange(64) * 7 + 3) % 64]
    check(main, [a], [x, s], rtol=1e-5)


def test_elements_of_small_tiles_as_conditions():
    @T.prim_func
    def main(A: T.Tensor((6, 8), "int32"), B: T.Tensor((6, 8), "int32")):
        with T.Kernel(6, threads=32) as bx:
            x = T.alloc_shared((8,), "int32")
            T.copy(A[bx, 0], x)
            if T.any_of(x):
                for i in T.Parallel(8):
                    B[bx, i] = T.if_then_else(T.all_of(x[0:2]), x[i], -1)
            else:
                for i in T.Parallel(8):
                    B[bx, i] = 99

    a = np.array(
        [[1, 2, 0, 0, 0, 0, 0, 0], [0] * 8, [0, 3, 0, 0, 0, 0, 0, 1], [4] * 8, [0] * 8, [0, 0, 5, 0, 0, 0, 0, 0]],
        "int32",
    )
    wanted = np.where(a.any(1, keepdims=True), np.where(a[:, :2].all(1, keepdims=True), a, -1), 99).astype("int32")
    check(main, [a], wanted)


@pytest.mark.slow
def test_text_of_a_program_is_the_program():
    @T.prim_func
    def main(A: T.Tensor((50, 64), "float16"), B: T.Tensor((64, 40), "float16"), C: T.Tensor((50, 40), "float32")):
        with T.Kernel(2, 2, threads=64) as (bx, by):
            a = T.alloc_shared((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            n = T.alloc_var("int32", init=3)
            T.clear(c)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[by * 32, k * 32], a)
                T.copy(B[k * 32, bx * 32], b)
                T.gemm(a, b, c)
            n = n + 1
            for i, j in T.Parallel(32, 32):
                c[i, j] = c[i, j] * n
            T.copy(c, C[by * 32, bx * 32])

    again = from_source(main.script())
    assert_structural_equal(main, again)
    a, b = arrays(12, (50, 64), (64, 40), dtype="float16")
    wanted = 4 * (a.astype("float32") @ b.astype("float32"))
    check(again, [a, b], wanted, where=("interp", "llvm", "sm_80"), rtol=1e-3, atol=1e-2)


def test_kernels_written_for_one_thread():
    """A kernel that asks for the place of a thread says itself where threads wait."""

    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(4, threads=32) as bx:
            tx = T.get_thread_binding()
            x = T.alloc_shared((32,), "float32")
            total = T.alloc_var("float32", init=0.0)
            x[tx] = A[bx, tx]
            T.sync_threads()
            for k in T.serial(3):
                total = total + x[(tx + k) % 32]
            B[bx, tx] = total

    (a,) = arrays(13, (4, 32))
    wanted = sum(np.roll(a, -k, 1) for k in range(3))
    check(main, [a], wanted, where=("interp", "sm_80", "sm_70"), atol=1e-5)


@pytest.mark.parametrize("name", ["prints", "no_such_name"])
def test_names_that_are_missing_say_so(name):
    with pytest.raises(AttributeError, match=name):
        getattr(T, name)


def test_operands_that_change_before_they_are_used():
    """A copy is what was there then: an operand is read in place only where nobody writes to it."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), B: T.Tensor((64, 32), "float32"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared((32, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.serial(2):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                for i, j in T.Parallel(32, 32):
                    A[i, k * 32 + j] = 0.0
                T.gemm(a, b, c)
            T.copy(c, C)

    a, b = arrays(14, (32, 64), (64, 32))
    for where in ("interp", "llvm", "sm_80"):
        (found, left) = run(main, where, [], [a, b, np.zeros((32, 32), "float32")])[2::-2]
        np.testing.assert_allclose(found, a @ b, rtol=1e-3, atol=1e-4, err_msg=where)
        assert not left.any()


def test_loops_that_end_early():
    """In loops of all kinds, nested ones, and while loops; statements behind the break are not run."""

    @T.prim_func
    def main(A: T.Tensor((8, 40), "int32"), B: T.Tensor((8, 3), "int32"), C: T.Tensor((8, 32), "int32")):
        with T.Kernel(8, threads=32) as bx:
            found = T.alloc_var("int32", init=-1)
            count = T.alloc_var("int32", init=0)
            n = T.alloc_var("int32", init=0)
            tile = T.alloc_fragment((32,), "int32")
            T.clear(tile)
            for k in T.serial(40):
                if A[bx, k] == 7:
                    found = k
                    T.loop_break()
                for j in T.serial(k, 40):
                    if A[bx, j] < 0:
                        T.loop_break()
                    count += 1
                for i in T.Parallel(32):
                    tile[i] = tile[i] + A[bx, k] * i
            while n >= 0:
                n += 3
                if n > A[bx, 0] * 5:
                    T.loop_break()
            B[bx, 0] = found
            B[bx, 1] = count
            B[bx, 2] = n
            T.copy(tile, C[bx, 0])

    a = np.random.default_rng(11).integers(-2, 9, (8, 40)).astype("int32")
    a[3] = np.abs(a[3]) % 7
    wanted, tiles = [], []
    for row in a:
        found = next((k for k in range(40) if row[k] == 7), -1)
        turns = range(40 if found < 0 else found)
        count = sum(next((j for j in range(k, 40) if row[j] < 0), 40) - k for k in turns)
        n = 3
        while n <= row[0] * 5:
            n += 3
        wanted.append((found, count, n))
        tiles.append(row[: len(turns)].sum() * np.arange(32))
    check(main, [a], [np.array(wanted, "int32"), np.array(tiles, "int32")], where=("interp", "llvm", "sm_80", "sm_70"))
