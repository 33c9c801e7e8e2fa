"""Limits of GPU code, accesses out of bounds, and the passes that size vector memory."""

from __future__ import annotations

import pytest

from relaxish import IRModule, tir
from relaxish.script import tir as T
from relaxish.tir import analysis
from relaxish.tir.schedule import ScheduleError


@T.prim_func
def kernel(A: T.Buffer((256,), "float32"), B: T.Buffer((256,), "float32")):
    S = T.alloc_buffer((64,), scope="shared")
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            with T.block("S"):
                v = T.axis.spatial(64, t)
                vb = T.axis.spatial(4, b)
                S[v] = A[vb * 64 + v]
        for t in T.thread_binding(64, thread="threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(64, t)
                vb = T.axis.spatial(4, b)
                B[vb * 64 + v] = S[63 - v]


@pytest.mark.parametrize(
    ("limits", "ok"),
    [
        ({}, True),
        ({"max_threads_per_block": 64, "max_thread_x": 64, "max_kernels": 1}, True),
        ({"max_threads_per_block": 32}, False),
        ({"max_thread_x": 63}, False),
        ({"max_thread_y": 1}, True),
    ],
)
def test_thread_limits(limits, ok):
    assert analysis.verify_gpu_code(kernel, limits) is ok


def test_memory_limits_count_each_kernel():
    @T.prim_func
    def local(A: T.Buffer((64,), "float32")):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            with T.block("A"):
                v = T.axis.spatial(64, t)
                L = T.alloc_buffer((16,), scope="local")
                L[0] = 1.0
                A[v] = L[0]

    assert analysis.verify_gpu_code(local, {"max_local_memory_per_block": 64})
    assert not analysis.verify_gpu_code(local, {"max_local_memory_per_block": 63})
    with pytest.raises(ValueError, match="Invalid check item"):
        analysis.verify_gpu_code(local, {"max_apples": 1})


def test_unequal_extents_of_one_thread_axis():
    @T.prim_func
    def uneven(A: T.Buffer((64,), "float32")):
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                A[t] = 0.0
            for t in T.thread_binding(32, thread="threadIdx.x"):
                A[t] = 1.0

    assert not analysis.verify_gpu_code(uneven, {"max_thread_x": 1024})


def test_out_of_bounds():
    @T.prim_func
    def load(A: T.Buffer((2, 3), "float32"), B: T.Buffer((3, 2), "float32")):
        for i in range(3):
            B[i, 0] = A[i, 2]

    @T.prim_func
    def store(A: T.Buffer((4,), "float32")):
        A[4] = 0.0

    @T.prim_func
    def unknown(A: T.Buffer((4,), "float32"), n: T.int32):
        A[n] = 0.0

    @T.prim_func
    def guarded(A: T.Buffer((4,), "float32")):
        for i in range(6):
            if i < 4:
                A[i] = 0.0

    check = analysis.OOBChecker()
    for bad in (load, store):
        with pytest.raises(ScheduleError, match="Out of bound"):
            check(IRModule({"main": bad}))
    for good in (unknown, guarded):
        assert check(IRModule({"main": good})) is not None


def test_vtcm_passes_lower_a_program():
    mod = IRModule({"main": kernel})
    for step in analysis.get_vtcm_compaction_passes():
        mod = step(mod)
    assert "T.block" not in mod.script()


def test_ssa_counts_parameters_and_lets():
    x, y = tir.Var("x", "int32"), tir.Var("y", "int32")
    once = tir.Let(y, x + 1, y * y)
    assert analysis.verify_ssa(tir.PrimFunc([x], tir.Evaluate(once + tir.Let(y, x + 1, y + 2))))
    assert not analysis.verify_ssa(tir.PrimFunc([x], tir.Evaluate(once + tir.Let(y, x + 3, y + 2))))
    assert not analysis.verify_ssa(tir.PrimFunc([x], tir.LetStmt(x, 1, tir.Evaluate(x))))
    assert not analysis.verify_ssa(tir.PrimFunc([x], tir.For(x, 0, 4, 0, tir.Evaluate(x))))
    n = tir.Var("n", "int32")
    buffers = {tir.Var(name, "handle"): tir.decl_buffer((n,), name=name) for name in "AB"}
    assert analysis.verify_ssa(tir.PrimFunc([*buffers], tir.Evaluate(n), buffer_map=buffers))
    assert not analysis.verify_ssa(tir.PrimFunc([*buffers], tir.LetStmt(n, 1, tir.Evaluate(n)), buffer_map=buffers))
