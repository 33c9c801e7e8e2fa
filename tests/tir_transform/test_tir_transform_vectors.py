"""Vectorized loops and the types of index arithmetic: programs before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.script import tir as T
from relaxish.tir import transform
from relaxish.tir.transform.base import LoweringError


def apply(a_pass: Any, before: Any, **config: Any) -> Any:
    with PassContext(config={key.replace("__", "."): value for key, value in config.items()}):
        return a_pass(IRModule({"main": before.with_attr("global_symbol", "main")}))["main"]


def check(a_pass: Any, before: Any, after: Any, **config: Any) -> None:
    assert_structural_equal(apply(a_pass, before, **config), after.with_attr("global_symbol", "main"))


@T.prim_func(private=True)
def guarded(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(4):
        for j in T.vectorized(4):
            if i * 4 + j < 14:
                B[i * 4 + j] = A[i * 4 + j]


def test_a_condition_that_differs_between_lanes_makes_a_loop() -> None:
    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i, j in T.grid(4, 4):
            if i * 4 + j < 14:
                B[i * 4 + j] = A[i * 4 + j]

    check(transform.VectorizeLoop(), guarded, after)


def test_buffer_level_predication() -> None:
    made = apply(transform.VectorizeLoop(), guarded, tir__enable_buffer_level_predication=True)
    text = made.script()
    assert text.count("T.get_active_lane_mask") == 2 and "if " not in text


def test_scalable_loops_are_predicated_on_targets_with_scalable_vectors() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
        T.func_attr({"target": T.target("llvm -mtriple=aarch64-linux-gnu -mattr=+sve")})
        for j in T.vectorized(T.vscale() * 4):
            if j < n:
                B[j] = A[j] + T.float32(1)

    text = apply(transform.VectorizeLoop(), before).script()
    assert 'T.get_active_lane_mask("uint1xvscalex4", 0, n)' in text and "if " not in text


def test_target_of_a_region():
    """Vectors of a region are those of the region's target, whatever the function's is."""

    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), n: T.int32):
        T.func_attr({"target": T.target("llvm -mtriple=x86_64-linux-gnu")})
        with T.attr(T.target("llvm -mtriple=aarch64-linux-gnu -mattr=+sve"), "target", 0):
            for j in T.vectorized(T.vscale() * 4):
                if j < n:
                    A[j] = A[j] + T.float32(1)
        for j in T.vectorized(4):
            if j < n:
                A[j] = A[j] * T.float32(2)

    text = transform.VectorizeLoop()(IRModule({"main": before}))["main"].script()
    assert 'T.get_active_lane_mask("uint1xvscalex4", 0, n)' in text
    assert text.count("if ") == 1 and text.count("for ") == 1


def test_a_stride_of_unknown_sign_is_no_ramp() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), n: T.int32):
        for j in T.vectorized(4):
            A[j * n] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), n: T.int32):
        A[T.Ramp(0, 1, 4) * T.Broadcast(n, 4)] = T.Broadcast(T.float32(1), 4)

    check(transform.VectorizeLoop(), before, after)


def test_each_lane_has_its_own_allocation() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for j in T.vectorized(4):
            t = T.allocate([2], "float32", "local")
            u = T.Buffer((2,), data=t, scope="local")
            u[0] = A[j]
            u[1] = u[0] + T.float32(1)
            B[j] = u[1]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        t = T.allocate([8], "float32", "local")
        u = T.Buffer((8,), data=t, scope="local")
        u[0:4] = A[0:4]
        u[4:8] = u[0:4] + T.Broadcast(T.float32(1), 4)
        B[0:4] = u[4:8]

    check(transform.VectorizeLoop(), before, after)


def test_a_binding_around_an_effect_makes_a_loop() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        for j in T.vectorized(4):
            x: T.float32 = A[j] + T.float32(1)
            A[j] = x
            T.call_extern("int32", "f", j)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32")):
        for j in range(4):
            x: T.float32 = A[j] + T.float32(1)
            A[j] = x
            T.call_extern("int32", "f", j)

    check(transform.VectorizeLoop(), before, after)


def test_while_is_refused() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        for j in T.vectorized(4):
            while A[0] > T.float32(1):
                A[0] = A[j]

    with pytest.raises(LoweringError, match="while loop inside a vectorized loop"):
        apply(transform.VectorizeLoop(), before)


def test_thread_variables_are_narrowed() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((T.int64(128),), "float32"), B: T.Buffer((T.int64(128),), "float32")):
        bx = T.launch_thread("blockIdx.x", T.int64(2))
        tx = T.launch_thread("threadIdx.x", T.int64(64))
        B[bx * T.int64(64) + tx] = A[bx * T.int64(64) + tx]

    @T.prim_func(private=True)
    def after(A: T.Buffer((T.int64(128),), "float32"), B: T.Buffer((T.int64(128),), "float32")):
        bx = T.launch_thread("blockIdx.x", 2)
        tx = T.launch_thread("threadIdx.x", 64)
        B[bx * 64 + tx] = A[bx * 64 + tx]

    check(transform.NarrowDataType(32), before, after)


def test_narrowing_keeps_values_and_large_indices() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((T.int64(128),), "int64"), n: T.int64):
        for i in range(T.int64(16)):
            A[i] = i * T.int64(2) + n
        for j in range(T.int64(16)):
            A[j] = T.int64(5)

    @T.prim_func(private=True)
    def after(A: T.Buffer((T.int64(128),), "int64"), n: T.int64):
        for i in range(T.int64(16)):
            A[i] = i * T.int64(2) + n
        for j in range(16):
            A[j] = T.int64(5)

    check(transform.NarrowDataType(32), before, after)


def test_renormalize_split_patterns() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "int32")):
        for i, j in T.grid(16, 64):
            if i * 4 + j < 64:
                A[(i * 8 + j) // 32] = i // 4 % 8 // 2

    @T.prim_func(private=True)
    def after(A: T.Buffer((128,), "int32")):
        for i, j in T.grid(16, 64):
            if (i + j // 4) // 16 < 1:
                A[(i + j // 8) // 4] = i // 4 // 2 % 4

    check(transform.RenormalizeSplitPattern(), before, after)


def test_unrolled_copies_define_their_own_variables() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "int32")):
        for i in T.unroll(2):
            for j in range(8):
                A[i * 8 + j] = j

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "int32")):
        for j in range(8):
            A[j] = j
        for j in range(8):
            A[j + 8] = j

    made = apply(transform.UnrollLoop(), before)
    first, second = made.body.seq
    assert not first.loop_var.same_as(second.loop_var)
    check(transform.Simplify(), made, after)


def test_loops_that_index_local_memory_are_unrolled_on_demand() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32")):
        t = T.decl_buffer((2,), "int32", scope="local")
        for i in range(2):
            t[i] = A[i]
        for i in range(2):
            A[i] = i

    assert apply(transform.UnrollLoop(), before).script().count("for i in") == 2
    made = apply(transform.UnrollLoop(), before, tir__UnrollLoop={"unroll_local_access": 1})
    assert made.script().count("for i in") == 1


def test_selects_that_may_fault_become_branches() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            B[i] = T.Select(A[i] > 0, A[i], 0) + T.Select(i < 2, i, T.Select(i < 3, A[i], 1))

    @T.prim_func(private=True)
    def after(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            B[i] = T.if_then_else(A[i] > 0, A[i], 0) + T.Select(i < 2, i, T.if_then_else(i < 3, A[i], 1))

    check(transform.RewriteUnsafeSelect(), before, after)


def test_memory_that_a_pointer_reaches_by_scalars_keeps_its_type() -> None:
    """``tvm_access_ptr`` and ``address_of`` count as accesses of the type they name."""

    @T.prim_func(private=True)
    def before():
        T.launch_thread("threadIdx.x", 32)
        S = T.allocate([64], "float16", "shared")
        R = T.allocate([8], "float16", "local")
        s = T.Buffer((64,), "float16", data=S, scope="shared")
        s[0:8] = T.Broadcast(T.float16(0), 8)
        T.ptx_ldmatrix(
            "float16", T.bool(False), 4, ".b16", R, 0, T.tvm_access_ptr(T.type_annotation("float16"), S, 0, 64, 1), 0
        )

    check(transform.PointerValueTypeRewrite(), before, before)

    @T.prim_func(private=True)
    def by_address(A: T.Buffer((64,), "float16")):
        S = T.allocate([64], "float16", "local")
        s = T.Buffer((64,), "float16", data=S, scope="local")
        s[0:8] = A[0:8]
        T.evaluate(T.call_extern("int32", "use", T.address_of(s[8])))

    check(transform.StorageRewrite(), by_address, by_address)


def test_allocations_go_inside_the_threads_not_just_inside_a_pragma() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32")):
        with T.attr(T.int32(0), "pragma_unroll_explicit", 1):
            threads = T.launch_thread("threadIdx.x", 32)
            for i in range(2):
                X = T.allocate([1], "float32", "local")
                x = T.Buffer((1,), data=X, scope="local")
                x[0] = A[threads * 2 + i]
                A[threads * 2 + i] = x[0] + 1.0

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32")):
        with T.attr(T.int32(0), "pragma_unroll_explicit", 1):
            threads = T.launch_thread("threadIdx.x", 32)
            X = T.allocate([1], "float32", "local")
            for i in range(2):
                x = T.Buffer((1,), data=X, scope="local")
                x[0] = A[threads * 2 + i]
                A[threads * 2 + i] = x[0] + 1.0

    check(transform.StorageRewrite(), before, after)


@pytest.mark.parametrize("counted", [False, True])
def test_llvm_intrinsics_take_vectors_where_llvm_has_them(counted: bool) -> None:
    def of(name: str, x: Any) -> Any:
        return T.call_llvm_pure_intrin("float32", name, *([T.uint32(1)] if counted else []), x)

    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "int64")):
        T.func_attr({"global_symbol": "main"})
        for i in range(4):
            for j in T.vectorized(4):
                B[i * 4 + j] = of("llvm.sqrt", of("llvm.fabs", A[i * 4 + j]))
            for j in T.vectorized(4):
                # Of this one there are no vectors.
                C[i * 4 + j] = T.call_llvm_pure_intrin("int64", "llvm.llround.i64.f32", A[i * 4 + j])

    made = transform.VectorizeLoop()(IRModule({"main": func}))["main"]
    roots = [line for line in made.script().splitlines() if "llvm.sqrt" in line]
    assert len(roots) == 1 and roots[0].count('"float32x4"') == 2
    assert "int64x4" not in made.script()
    a = (np.random.default_rng(5).standard_normal(16) * 10).astype("float32")
    b, c = relaxish.nd.empty((16,)), relaxish.nd.empty((16,), "int64")
    relaxish.compile(func, target="llvm")(relaxish.nd.array(a), b, c)
    np.testing.assert_allclose(b.numpy(), np.sqrt(np.abs(a)), rtol=1e-6)
    np.testing.assert_array_equal(c.numpy(), np.where(a < 0, np.ceil(a - 0.5), np.floor(a + 0.5)))


def test_extents_that_cannot_be_vectors_are_named() -> None:
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), n: T.int32):
        for j in T.vectorized(n):
            A[j] = T.float32(1)

    with pytest.raises(relaxish.TVMError, match=r"Failed to vectorize loop with extent n for target \(nullptr\)"):
        transform.VectorizeLoop()(IRModule({"main": func}))
