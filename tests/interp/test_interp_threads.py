"""Threads in the interpreter: all-reductions, shuffles and matrix instructions, before and after lowering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import interp
from relaxish.interp.mma import WARP_INSTRUCTIONS
from relaxish.ir import IRModule
from relaxish.script import tir as T
from relaxish.script.ir_builder import IRBuilder
from relaxish.script.ir_builder import tir as ir_builder_tir
from relaxish.target import Target
from relaxish.testing import emulate_cuda
from relaxish.tir import call_intrin, transform
from relaxish.tir.tensor_intrin.mma_fragments import MMA


@T.prim_func
def row_sums(A: T.Buffer((4, 96), "float32"), B: T.Buffer((4,), "float32")):
    for i in T.thread_binding(4, thread="threadIdx.y"):
        for ko in range(3):
            for ki in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(96, ko * 32 + ki)
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]


LOWERING = (
    transform.LowerCrossThreadReduction(), transform.LowerInitBlock(),
    transform.PlanAndUpdateBufferAllocationLocation(), transform.ConvertBlocksToOpaque(),
    transform.LiftThreadBinding(), transform.UnifyThreadBinding(), transform.LowerOpaqueBlock(),
    transform.FlattenBuffer(), transform.Simplify(),
)  # fmt: skip


@pytest.mark.parametrize("kind", [None, "cuda", "opencl"])
def test_all_reduction(kind: str | None) -> None:
    mod = IRModule({"main": row_sums})
    for a_pass in LOWERING:
        mod = a_pass(mod)
    if kind is not None:
        mod = transform.BindTarget(Target(kind))(mod)
        mod = transform.LowerThreadAllreduce()(mod)
    a = np.random.default_rng(0).standard_normal((4, 96)).astype("float32")
    out = np.zeros(4, "float32")
    interp.run_prim_func(mod["main"], [a, out])
    np.testing.assert_allclose(out, a.sum(axis=1), rtol=1e-5, atol=1e-5)


def test_shuffle() -> None:
    @T.prim_func
    def rotate(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        t = T.launch_thread("threadIdx.x", 64)
        B[t] = T.tvm_warp_shuffle(T.tvm_warp_activemask(), A[t], (t + 1) % 32, 32, 32)

    a = np.arange(64, dtype="float32")
    out = np.zeros(64, "float32")
    interp.run_prim_func(rotate, [a, out])
    np.testing.assert_array_equal(out, np.concatenate([np.roll(a[:32], -1), np.roll(a[32:], -1)]))


def test_warp_memory_and_its_lowering_agree() -> None:
    @T.prim_func
    def rotate(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        data = T.allocate([32], "float32", "warp")
        W = T.Buffer([32], "float32", data=data, scope="warp")
        W[t] = A[t] * T.float32(2)
        B[t] = W[(t + 5) % 32]

    mod = IRModule({"main": rotate.with_attr("target", Target("cuda"))})
    lowered = transform.LowerWarpMemory()(mod)["main"]
    a = np.arange(32, dtype="float32")
    out = np.zeros(32, "float32")
    interp.run_prim_func(lowered, [a, out])
    np.testing.assert_array_equal(out, 2 * np.roll(a, -5))


def test_mma_with_ldmatrix() -> None:
    @T.prim_func
    def multiply(A: T.Buffer((256,), "float16"), B: T.Buffer((128,), "float16"), C: T.Buffer((128,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        a_data = T.allocate([8], "float16", "local")
        b_data = T.allocate([4], "float16", "local")
        c_data = T.allocate([4], "float32", "local")
        c = T.Buffer([4], "float32", data=c_data, scope="local")
        T.evaluate(T.ptx_ldmatrix("float16", T.bool(False), 4, ".b16", a_data, 0, A.data, t % 16 * 16 + t // 16 * 8))
        T.evaluate(T.ptx_ldmatrix("float16", T.bool(True), 2, ".b16", b_data, 0, B.data, t % 16 * 8))
        T.evaluate(T.mma_fill("float32", 4, c_data, 0))
        T.evaluate(
            T.ptx_mma("float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a_data, 0, b_data, 0, c_data, 0,
                      T.bool(False))
        )  # fmt: skip
        for i in range(4):
            C[(t // 4 + i // 2 * 8) * 8 + t % 4 * 2 + i % 2] = c[i]

    rng = np.random.default_rng(0)
    a = rng.standard_normal((16, 16)).astype("float16")
    b = rng.standard_normal((16, 8)).astype("float16")
    out = np.zeros(128, "float32")
    interp.run_prim_func(multiply, [a.reshape(-1), b.reshape(-1), out])
    np.testing.assert_allclose(out.reshape(16, 8), a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)


def test_threads_that_have_ended_hold_no_barrier_up() -> None:
    @T.prim_func
    def stuck(A: T.Buffer((32,), "float32")):
        t = T.launch_thread("threadIdx.x", 32)
        if t < 8:
            T.tvm_storage_sync("shared")
        else:
            A[t] = T.tvm_warp_shuffle(T.tvm_warp_activemask(), A[t], 8, 32, 32)
            T.evaluate(0)

    a = np.arange(1, 33, dtype="float32")
    interp.run_prim_func(stuck, [a])
    np.testing.assert_array_equal(a, [*range(1, 9), *[9] * 24])


def test_registers_are_private_wherever_they_are_allocated() -> None:
    """StorageRewrite puts allocations around the threads; each thread still has memory of its own."""

    @T.prim_func
    def shifted(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
        own = T.decl_buffer((1,), "int32", scope="local")
        row = T.decl_buffer((64,), "int32", scope="shared")
        tx = T.launch_thread("threadIdx.x", 64)
        own[0] = A[tx]
        row[tx] = tx
        T.tvm_storage_sync("shared")
        B[tx] = own[0] * 100 + row[(tx + 1) % 64]

    a, b = np.arange(64, dtype="int32"), np.zeros(64, "int32")
    interp.run_prim_func(shifted, [a, b])
    np.testing.assert_array_equal(b, a * 100 + (a + 1) % 64)


def test_memory_of_vectors() -> None:
    @T.prim_func
    def doubled(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
        X = T.decl_buffer((4,), "float32x4", scope="local")
        for o in range(2):
            for i in range(4):
                X[i] = A[o * 16 + i * 4 : o * 16 + i * 4 + 4] * T.Broadcast(T.float32(2), 4)
            B[o * 16 : o * 16 + 8] = X[T.Ramp(0, 1, 2)]
            for i in range(2):
                B[o * 16 + 8 + i * 4 : o * 16 + 12 + i * 4] = X[i + 2]

    a, b = np.arange(32, dtype="float32"), np.zeros(32, "float32")
    interp.run_prim_func(doubled, [a, b])
    np.testing.assert_array_equal(b, 2 * a)


@pytest.mark.parametrize(("distance", "width"), [(1, 32), (5, 32), (16, 32), (4, 8)])
def test_exchange_with_the_lane_whose_number_differs_in_some_bits(distance: int, width: int) -> None:
    def exchanged(value: Any) -> Any:
        return call_intrin(
            "float32", "tir.tvm_warp_shuffle_xor", T.uint32(0xFFFFFFFF), value, distance, width, 32
        )  # fmt: skip

    with IRBuilder() as builder:
        with ir_builder_tir.prim_func():
            ir_builder_tir.func_name("main")
            a = ir_builder_tir.arg("a", ir_builder_tir.buffer((32,), "float32", name="a"))
            b = ir_builder_tir.arg("b", ir_builder_tir.buffer((32,), "float32", name="b"))
            with ir_builder_tir.launch_thread("threadIdx.x", 32) as x:
                ir_builder_tir.buffer_store(b, exchanged(a[x]), [x])
    func = builder.get()
    a_values = np.arange(32, dtype="float32")
    other = np.arange(32) ^ distance
    by_interpreter, by_emulator = np.zeros(32, "float32"), np.zeros(32, "float32")
    interp.run_prim_func(func, [a_values, by_interpreter])
    emulate_cuda(func, a_values, by_emulator)
    assert (by_interpreter == a_values[other]).all()
    assert (by_emulator == a_values[other]).all()


@pytest.mark.parametrize("name, bits", [key for key in MMA if key[1] >= 8])
def test_every_shape_of_mma(name: str, bits: int) -> None:
    """Operands spread over the lanes as the table of fragments says, the product against NumPy."""
    shape, rng = MMA[name, bits], np.random.default_rng(3)
    ptx, dtype, out = {8: ("int8", "int8", "int32"), 16: ("fp16", "float16", "float32"),
                       32: ("tf32", "float32", "float32"), 64: ("fp64", "float64", "float64")}[bits]  # fmt: skip
    a, b = (rng.integers(-9, 9, size).astype(dtype) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    c = rng.integers(-9, 9, (shape.m, shape.n)).astype(out)

    def held(matrix: Any, count: int, position: Any, lane: int) -> Any:
        return np.array([matrix[position(lane, i)] for i in range(count)])

    places = {shape.a(lane, i) for lane in range(32) for i in range(shape.a_count)}
    assert len(places) == shape.m * shape.k
    requests = {
        lane: (name, "row", "col", ptx, ptx, out, held(a, shape.a_count, shape.a, lane), 0,
               held(b, shape.b_count, shape.b, lane), 0, held(c, shape.c_count, shape.c, lane), 0, False)
        for lane in range(32)
    }  # fmt: skip
    WARP_INSTRUCTIONS["ptx_mma"](requests)
    for lane, request in requests.items():
        np.testing.assert_array_equal(
            request[10], held(c + a.astype(out) @ b.astype(out), shape.c_count, shape.c, lane)
        )
