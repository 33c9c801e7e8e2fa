"""Blocks, views, stages and custom types on their way to plain loops: programs before and after."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish.ir import IRModule, assert_structural_equal
from relaxish.script import tir as T
from relaxish.target import datatype
from relaxish.tir import transform
from relaxish.tir.transform.base import LoweringError


def apply(a_pass: Any, before: Any) -> Any:
    return a_pass(IRModule({"main": before.with_attr("global_symbol", "main")}))["main"]


def check(a_pass: Any, before: Any, after: Any) -> None:
    assert_structural_equal(apply(a_pass, before), after.with_attr("global_symbol", "main"))


def test_thread_loops_of_one_iteration_leave_their_variable() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((1, 16, 1), "float32")):
        for bx in T.thread_binding(1, thread="blockIdx.x"):
            for i in T.serial(16, annotations={"pragma_b": 2, "pragma_a": "x", "kept": 1}):
                for u in range(1):
                    A[bx, i, u] = T.float32(0)

    made = apply(transform.LowerOpaqueBlock(), before).script()
    assert made.index("pragma_a") < made.index("pragma_b") and "A[0, i, 0] = " in made and "kept" in made
    assert "T.launch_thread" in made or "T.env_thread" in made


def test_storage_alignment_goes_to_the_allocation() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        with T.block("outer"):
            B = T.alloc_buffer((16,), "float32")
            with T.block("inner"):
                T.reads(A[0:16])
                T.writes(B[0:16])
                T.block_attr({"buffer_dim_align": [[0, 0, 32, 8]]})
                for i in range(16):
                    B[i] = A[i]

    made = apply(transform.LowerOpaqueBlock(), before)
    found = made.body.annotations["buffer_dim_align"]
    assert [[int(v) for v in entry] for entry in found] == [[-1, 0, 32, 8]]


def test_view_with_other_strides_is_refused() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 16), "float32")):
        for i in range(4):
            with T.block("b"):
                v = T.match_buffer(A[i * 4 : i * 4 + 4, 0:16], (4, 16), strides=(8, 1), offset_factor=1)
                v[0, 0] = T.float32(0)

    with pytest.raises(LoweringError, match="strides_0 unmet"):
        apply(transform.LowerMatchBuffer(), before)


def test_regions_of_buffers_moved_inside_a_block_go() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,), "float32", scope="local")
        for i in range(4):
            with T.block("tile"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi * 4 : vi * 4 + 4], B[vi * 4 : vi * 4 + 4])
                T.writes(B[vi * 4 : vi * 4 + 4], C[vi * 4 : vi * 4 + 4])
                for j in range(4):
                    B[vi * 4 + j] = A[vi * 4 + j]
                for j in range(4):
                    C[vi * 4 + j] = B[vi * 4 + j]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in range(4):
            with T.block("tile"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi * 4 : vi * 4 + 4])
                T.writes(C[vi * 4 : vi * 4 + 4])
                B = T.alloc_buffer((16,), "float32", scope="local")
                for j in range(4):
                    B[vi * 4 + j] = A[vi * 4 + j]
                for j in range(4):
                    C[vi * 4 + j] = B[vi * 4 + j]

    check(transform.PlanAndUpdateBufferAllocationLocation(), before, after)


def test_local_stage_stands_in_the_block_that_allocates() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        with T.block("kernel"):
            T.reads(A[0:64])
            T.writes(B[0:64])
            S = T.alloc_buffer((64,), "float32", scope="shared")
            for i in range(8):
                for j in T.vectorized(8):
                    with T.block("copy"):
                        T.reads(A[i * 8 + j])
                        T.writes(S[i * 8 + j])
                        T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
                        S[i * 8 + j] = A[i * 8 + j]
            for i in range(64):
                with T.block("use"):
                    T.reads(S[i])
                    T.writes(B[i])
                    B[i] = S[i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        with T.block("kernel"):
            T.reads(A[0:64])
            T.writes(B[0:64])
            S = T.alloc_buffer((64,), "float32", scope="shared")
            L = T.alloc_buffer((8, 8), "float32", scope="local")
            for i in range(8):
                for j in T.vectorized(8):
                    with T.block(""):
                        T.reads(A[i * 8 + j])
                        T.writes(L[i, j])
                        L[i, j] = A[i * 8 + j]
            for i in range(8):
                for j in T.vectorized(8):
                    with T.block("copy"):
                        T.reads(A[i * 8 + j])
                        T.writes(S[i * 8 + j])
                        S[i * 8 + j] = L[i, j]
            for i in range(64):
                with T.block("use"):
                    T.reads(S[i])
                    T.writes(B[i])
                    B[i] = S[i]

    check(transform.ManifestSharedMemoryLocalStage(), before, after)


def test_custom_types_become_bits_and_calls() -> None:
    datatype.register("quat", 151)
    datatype.register_op(datatype.create_lower_func({(32, 32): "FloatToQuat"}), "Cast", "llvm", "float", "quat")
    datatype.register_op(datatype.create_lower_func({(32, 32): "QuatToFloat"}), "Cast", "llvm", "quat", "float")
    datatype.register_op(datatype.create_lower_func({32: "QuatAdd"}), "Add", "llvm", "quat")

    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        T.func_attr({"target": T.target("llvm")})
        t = T.decl_buffer((16,), "custom[quat]32")
        for i in range(16):
            t[i] = T.Cast("custom[quat]32", A[i]) + T.Cast("custom[quat]32", B[i])
        for i in range(16):
            B[i] = T.Cast("float32", t[i])

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        T.func_attr({"target": T.target("llvm")})
        t = T.decl_buffer((16,), "uint32")
        for i in range(16):
            t[i] = T.call_pure_extern(
                "uint32",
                "QuatAdd",
                T.call_pure_extern("uint32", "FloatToQuat", A[i]),
                T.call_pure_extern("uint32", "FloatToQuat", B[i]),
            )
        for i in range(16):
            B[i] = T.call_pure_extern("float32", "QuatToFloat", t[i])

    check(transform.LowerCustomDatatypes(), before, after)
    with pytest.raises(ValueError, match="not registered"):
        datatype.get_type_code("octonion")
    with pytest.raises(ValueError, match="type code"):
        datatype.register("early", 3)


def test_repacking_blocks_are_emptied() -> None:
    @T.prim_func(private=True)
    def before(W: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
        P = T.alloc_buffer((4, 8), "float32")
        for i, j in T.grid(8, 4):
            with T.block("pack"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                P[vj, vi] = W[vi, vj]
        for i, j in T.grid(8, 4):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = P[vj, vi]

    @T.prim_func(private=True)
    def after(P: T.Buffer((4, 8), "float32"), C: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.block("pack"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                T.writes()
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                T.evaluate(0)
        for i, j in T.grid(8, 4):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = P[vj, vi]

    check(transform.RemoveWeightLayoutRewriteBlock(), before, after)


def test_weights_packed_from_shifted_places_are_refused() -> None:
    @T.prim_func(private=True)
    def shifted(W: T.Buffer((9, 4), "float32"), C: T.Buffer((8, 4), "float32")):
        T.func_attr({"layout_free_buffers": [0]})
        P = T.alloc_buffer((4, 8), "float32")
        for i, j in T.grid(8, 4):
            with T.block("pack"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                P[vj, vi] = W[vi + 1, vj]
        for i, j in T.grid(8, 4):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = P[vj, vi]

    with pytest.raises(LoweringError, match="other places than its variables"):
        apply(transform.RemoveWeightLayoutRewriteBlock(), shifted)


def test_undefined_values_go_with_their_bindings() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "int32")):
        for i in range(8):
            x: T.int32 = T.undef(dtype="int32")
            A[i] = x

    @T.prim_func(private=True)
    def after(A: T.Buffer((8,), "int32")):
        T.evaluate(0)

    check(transform.RemoveStoreUndef(), before, after)

    @T.prim_func(private=True)
    def index(A: T.Buffer((8,), "int32")):
        A[T.undef(dtype="int32")] = 5

    with pytest.raises(LoweringError, match="builtin::undef"):
        apply(transform.RemoveStoreUndef(), index)


def test_packed_calls_get_descriptors() -> None:
    @T.prim_func(private=True)
    def before(a: T.handle, n: T.int32):
        b = T.allocate([4], "float32", "global")
        T.evaluate(T.call_cpacked("f", a, b, T.reinterpret("handle", T.uint64(0)), dtype="int32"))

    text = apply(transform.LegalizePackedCalls(), before).script()
    assert text.count("T.tvm_struct_set") == 6 and text.count("T.tvm_stack_alloca") == 2


def test_bounds_read_inside_a_new_block_are_not_seen_outside() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((4, 16), "float32")):
        order = T.alloc_buffer((16,), "int32", scope="local")
        for i in range(4):
            with T.block("fill"):
                vi = T.axis.spatial(4, i)
                T.writes(order[0:16])
                for j in range(16):
                    order[j] = 15 - j + vi
            for j in range(1):
                with T.block("gather"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(order[vj], A[0:16])
                    T.writes(C[vi, vj])
                    C[vi, vj] = A[order[vj]]

    made = apply(transform.PlanAndUpdateBufferAllocationLocation(), before)
    block = made.body.block.body.body.block
    assert [b.name for b in block.alloc_buffers] == ["order"]
    assert "order" not in str([r.region for r in block.reads])
