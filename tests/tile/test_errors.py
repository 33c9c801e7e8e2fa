"""What cannot be is an error that names the operator and says what to do, never other hardware's code."""

from __future__ import annotations

import pytest

import relaxish
import relaxish.tile.language as T
from relaxish.backend.cuda.build import lower_for_device
from relaxish.backend.cuda.codegen.printer import cuda_source
from relaxish.ir import IRModule
from relaxish.support.errors import RelaxishError
from relaxish.target import Target
from relaxish.tir.transform.tiles import TileLoweringError
from relaxish.tir.transform.tiles.lower import lower_for_device as lower


def cuda(arch):
    return Target({"kind": "cuda", "arch": arch})


def product(m, n, k, dtype="float16", accum="float32", stages=3, threads=128):
    """One tile a block."""

    @T.prim_func
    def main(
        A: T.Tensor((2 * m, k * 2), dtype), B: T.Tensor((k * 2, 2 * n), dtype), C: T.Tensor((2 * m, 2 * n), accum)
    ):
        with T.Kernel(2, 2, threads=threads) as (bx, by):
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((k, n), dtype)
            c = T.alloc_fragment((m, n), accum)
            T.clear(c)
            for ko in T.Pipelined(2, num_stages=stages):
                T.copy(A[by * m, ko * k], a)
                T.copy(B[ko * k, bx * n], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * m, bx * n])

    return main


def source(func, arch):
    """CUDA C++ of a program."""
    _, device = lower_for_device(IRModule({"main": func.with_attr("global_symbol", "main")}), cuda(arch))
    return cuda_source(device)


def refused(body, message):
    """The program that ``body`` writes does not parse; the error holds the message."""
    with pytest.raises(RelaxishError, match=message):
        body()


def test_shapes():
    def different():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            with T.Kernel(1) as _bx:
                a = T.alloc_shared((32, 16), "float32")
                T.copy(A[0:32, 0:32], a)

    refused(different, r"T.copy: A\[32, 32\] and a\[32, 16\] differ in shape")

    def misfit():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            with T.Kernel(1) as _bx:
                a = T.alloc_shared((32, 16), "float16")
                c = T.alloc_fragment((32, 32), "float32")
                T.gemm(a, a, c)

    refused(misfit, r"T.gemm: C\[32, 32\] \+= A\[32, 16\] @ B\[32, 16\] does not fit")


def test_places_and_types():
    def registers():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            with T.Kernel(1) as _bx:
                a = T.alloc_shared((32, 32), "float16")
                T.gemm(a, a, a)

    refused(registers, "C is a fragment")

    def types():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            with T.Kernel(1) as _bx:
                a = T.alloc_shared((32, 32), "bfloat16")
                c = T.alloc_fragment((32, 32), "float16")
                T.gemm(a, a, c)

    refused(types, "no product of bfloat16 and bfloat16 with sums of float16")

    def outside():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            T.clear(A)

    refused(outside, "outside of a kernel")


@pytest.mark.parametrize("call, words", [
    (lambda: T.alloc_tmem((1,), "float32"), "T.alloc_tmem.*sm_100"), (T.tcgen05_gemm, "T.tcgen05_gemm.*sm_100"),
    (T.loop_break, "T.loop_break stands outside of a kernel"), (T.sync_grid, "T.sync_grid stands outside of a kernel"),
    (lambda: T.alloc_barrier(1), "T.alloc_barrier stands outside of a kernel"),
])  # fmt: skip
def test_what_no_target_has(call, words):
    with pytest.raises(T.TileError, match=words):
        call()


def test_breaks_that_end_nothing():
    def alone():
        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1) as _bx:
                T.loop_break()

    def parallel():
        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1) as _bx:
                for i in T.Parallel(64):
                    if A[i] > 0:
                        T.loop_break()

    refused(alone, "T.loop_break stands outside of a loop")
    refused(parallel, "T.loop_break stands inside of T.Parallel")


def test_fragment_used_across_threads():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((64, 64), "float32")
            y = T.alloc_fragment((64, 64), "float32")
            T.copy(A, x)
            T.copy(A, y)
            for i, j in T.Parallel(64, 64):
                y[i, j] = x[i, j] + x[j, i]
            T.copy(y, B)

    with pytest.raises(TileLoweringError, match="fragment . is used across threads.*shared memory"):
        lower(main, cuda("sm_80"))


def test_layouts_in_conflict():
    """A result split by columns cannot be the left side of another product."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _bx:
            a = T.alloc_shared((64, 64), "float16")
            x = T.alloc_fragment((64, 64), "float16")
            y = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(x)
            T.gemm(a, a, x, policy=T.GemmWarpPolicy.FullCol)
            T.clear(y)
            T.gemm(x, a, y)
            T.copy(y, B)

    with pytest.raises(TileLoweringError, match="fragment x has two layouts.*policy"):
        lower(main, cuda("sm_80"))


def test_too_much_shared_memory():
    with pytest.raises(TileLoweringError, match="bytes of shared memory are more than.*sm_70"):
        lower(product(256, 256, 128), cuda("sm_70"))


def test_operator_inside_of_a_parallel_loop():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            x = T.alloc_fragment((64,), "float32")
            for _i in T.Parallel(4):
                T.clear(x)
            T.copy(x, A)

    for target in (cuda("sm_80"), Target("llvm")):
        with pytest.raises(TileLoweringError, match="T.fill stands inside of T.Parallel"):
            relaxish.tir.build(main, target=target)


def test_what_cpus_cannot_do():
    @T.prim_func
    def threads(A: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=16) as bx:
            tx = T.get_thread_binding()
            A[bx * 16 + tx] = A[bx * 16 + tx] + 1

    with pytest.raises(TileLoweringError, match="T.get_thread_binding"):
        relaxish.tir.build(threads, target="llvm")


def test_each_architecture_gets_its_own_instructions():
    texts = {arch: source(product(64, 64, 32), arch) for arch in ("sm_61", "sm_70", "sm_80", "sm_90", "sm_90a")}
    words = {
        "wmma::": "sm_70",
        "copy_async<16>(": "sm_80 sm_90",
        "mma.sync": "sm_80 sm_90",
        "ldmatrix": "sm_80 sm_90",
        "wgmma": "sm_90a",
    }
    for word, having in words.items():
        assert sorted(a for a, text in texts.items() if word in text) == having.split(), word


@pytest.mark.parametrize("kind", ["opencl", "rocm", "metal", "vulkan", "webgpu"])
def test_other_devices_multiply_by_threads(kind):
    func = product(32, 32, 16, "float32")
    built = relaxish.tir.build(func, target=kind)
    text = built.get_source() if hasattr(built, "get_source") else ""
    assert built is not None and "wmma" not in text


def test_guarded_copies_run_ahead():
    """Tiles that reach beyond the end are copied by the same instruction, with the condition as its operand."""

    @T.prim_func
    def main(A: T.Tensor((40, 96), "float16"), C: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=64) as _bx:
            a = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 32), "float32")
            T.clear(c)
            for ko in T.Pipelined(3, num_stages=2):
                T.copy(A[0, ko * 32], a)
                for i, j in T.Parallel(64, 32):
                    c[i, j] = c[i, j] + T.cast(a[i, j], "float32")
            T.copy(c, C)

    assert "copy_async<16>(" in source(main, "sm_80").split("__global__")[1]
