"""Passes over loops, memory and conditions: programs before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import interp, tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext
from relaxish.script import ir as I
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.tir import transform


def apply(a_pass: Any, func: Any) -> Any:
    return a_pass(IRModule({"main": func.with_attr("global_symbol", "main")}))["main"]


def check(a_pass: Any, before: Any, after: Any) -> None:
    assert_structural_equal(apply(a_pass, before), after.with_attr("global_symbol", "main"))


def test_all_public_names_exist() -> None:
    names = set(transform.__all__)
    assert len([n for n in names if n[0].isupper()]) >= 76
    assert {"LowerAutoCopy", "UseAssumeToReduceBranches", "ReduceBranchingThroughOvercompute"} <= names


def test_hoist_expression_with_let() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4, 4), "float32")):
        for i in T.serial(4):
            for j in T.serial(4):
                condition = i < 3
                if condition:
                    A[i, j] = 0.0

    @T.prim_func(private=True)
    def after(A: T.Buffer((4, 4), "float32")):
        for i in T.serial(4):
            condition = i < 3
            if condition:
                for j in T.serial(4):
                    A[i, j] = 0.0

    check(transform.HoistExpression(), before, after)
    with PassContext(config={"tir.HoistExpression": {"hoisted_let_bindings": 0}}):
        check(transform.HoistExpression(), before, before)


def test_overcompute() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer(16, "int32"), B: T.Buffer(1, "int32")):
        for i in T.serial(16):
            T.evaluate(T.assume(i < 14 or A[i] == 0))
        B[0] = 0
        for i in T.serial(16):
            if i < 14:
                B[0] = B[0] + A[i]

    @T.prim_func(private=True)
    def after(A: T.Buffer(16, "int32"), B: T.Buffer(1, "int32")):
        for i in T.serial(16):
            T.evaluate(T.assume(i < 14 or A[i] == 0))
        B[0] = 0
        for i in T.serial(16):
            B[0] = B[0] + A[i]

    check(transform.ReduceBranchingThroughOvercompute(), before, before)
    with PassContext(config={"tir.ReduceBranchingThroughOvercompute": {"use_dataflow_analysis": True}}):
        check(transform.ReduceBranchingThroughOvercompute(), before, after)


def test_use_assume() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer(16, "int32"), B: T.Buffer(16, "int32")):
        for i in T.serial(16):
            T.evaluate(T.assume(i < 14 or A[i] == 0))
        for i in T.serial(16):
            B[i] = T.if_then_else(i < 14, A[i] * 2, 0)

    made = apply(transform.UseAssumeToReduceBranches(), before)
    assert "if_then_else" not in made.script()


def test_extensions_of_simplify() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer(1, "bool"), i: T.int32, j: T.int32, k: T.int32):
        if i < j and j < k:
            A[0] = i < k

    @T.prim_func(private=True)
    def after(A: T.Buffer(1, "bool"), i: T.int32, j: T.int32, k: T.int32):
        if i < j and j < k:
            A[0] = True

    check(transform.Simplify(), before, before)
    with PassContext(config={"tir.Simplify": {"transitively_prove_inequalities": True}}):
        check(transform.Simplify(), before, after)


def test_remove_no_op_keeps_effects() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer(16, "int32")):
        x: T.int32 = T.call_extern("int32", "f", 0)
        for i in T.serial(16):
            for j in T.serial(i - 20):
                A[j] = 1
            A[i] = 0

    @T.prim_func(private=True)
    def after(A: T.Buffer(16, "int32")):
        T.evaluate(T.call_extern("int32", "f", 0))
        for i in T.serial(16):
            A[i] = 0

    check(transform.RemoveNoOp(), before, after)


@pytest.mark.parametrize(
    ("extent", "target"), [("4", "llvm"), ("T.vscale() * 4", "llvm -mtriple=aarch64-linux-gnu -mattr=+v8.2a,+sve")]
)
def test_vectorize_fixed_and_scalable(extent: str, target: str) -> None:
    from relaxish.script import from_source

    header = (
        "from relaxish.script import tir as T\n@T.prim_func(private=True)\ndef main(A: T.Buffer((25,), 'float32')):\n"
    )
    before = from_source(header + f"    for i in T.vectorized({extent}):\n        A[i] = A[i] + T.float32(1)\n")
    lane = f"T.Ramp(0, 1, {extent})"
    after = from_source(header + f"    A[{lane}] = A[{lane}] + T.Broadcast(T.float32(1), {extent})\n")
    with Target(target):
        assert_structural_equal(transform.VectorizeLoop()(IRModule({"main": before}))["main"], after)
    if "vscale" in extent:
        with Target("llvm -mcpu=x86-64"), pytest.raises(Exception, match="Failed to vectorize loop with extent"):
            transform.VectorizeLoop()(IRModule({"main": before}))


def test_pointer_value_type_rewrite() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        data = T.allocate([16], "float32", scope="local")
        X = T.Buffer((16,), "float32", data=data, scope="local")
        for i in range(4):
            X[i * 4 : i * 4 + 4] = A[i * 4 : i * 4 + 4]
            B[i * 4 : i * 4 + 4] = X[i * 4 : i * 4 + 4]

    made = apply(transform.PointerValueTypeRewrite(), before)
    alloc = made.body
    assert alloc.dtype == "float32x4" and int(alloc.extents[0]) == 4


def test_inline_private_functions() -> None:
    @I.ir_module
    class Before:
        @T.prim_func
        def main(A: T.Buffer((8,), "float32")):
            for i in range(8):
                Before.set(T.address_of(A[i]))

        @T.prim_func(private=True)
        def set(p: T.handle("float32")):
            X = T.decl_buffer((1,), "float32", data=p)
            X[0] = T.float32(3)

    made = transform.InlinePrivateFunctions()(Before)
    assert [v.name_hint for v in made.functions] == ["main"]
    assert isinstance(made["main"].body.body, tir.LetStmt)


def test_extract_constants_keeps_equal_data_once() -> None:
    data = np.arange(4, dtype="float32")

    def constant(body: tir.Stmt) -> tir.Stmt:
        from relaxish.ir import PointerType, PrimType

        var = tir.Var("K", PointerType(PrimType("float32")))
        return tir.AllocateConst(var, "float32", [4], data.copy(), body)

    func = tir.PrimFunc([], constant(constant(tir.Evaluate(0))))
    made = transform.ExtractPrimFuncConstants()(IRModule({"main": func}))
    assert len(made.get_attr("constants")) == 1


def test_bound_checkers() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), i: T.int32):
        with T.attr(A.data, "buffer_bound", T.tvm_tuple(16)):
            A[i] = T.float32(1)

    made = apply(transform.InstrumentBoundCheckers(), before)
    guard = made.body.body
    assert isinstance(guard, tir.IfThenElse) and guard.else_case.message.value == "OUT OF THE BOUNDS"


def test_lower_auto_copy() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
        with T.block("root"):
            T.block_attr({"warp_execution": 1})
            for by in T.thread_binding(1, thread="blockIdx.x"):
                for ty in T.thread_binding(2, thread="threadIdx.y"):
                    with T.block("kernel"):
                        S = T.alloc_buffer((16, 16), "float32", scope="shared")
                        with T.block("load"):
                            T.reads(A[0:16, 0:16])
                            T.writes(S[0:16, 0:16])
                            T.block_attr({"auto_copy": 1, "vector_bytes": 16, "local_stage": 1})
                            for i, j in T.grid(16, 16):
                                S[i, j] = A[i, j]
                        with T.block("store"):
                            T.reads(S[0:16, 0:16])
                            T.writes(B[0:16, 0:16])
                            T.block_attr({"auto_copy": 1, "vector_bytes": 4})
                            for i, j in T.grid(16, 16):
                                B[j, i] = S[i, j]

    made = apply(transform.LowerAutoCopy(), before)
    text = made.script()
    assert text.count("T.vectorized(4)") == 2 and text.count("T.vectorized(1)") == 1
    assert text.count('thread="threadIdx.x"') == 2 and 'scope="local"' in text
    assert "strides=(20, 1)" in text  # rows are padded by whole vectors


def test_lower_auto_copy_of_fragments() -> None:
    @T.prim_func(private=True)
    def before(C: T.Buffer((64, 64), "float32")):
        with T.block("root"):
            T.block_attr({"warp_execution": 1})
            for ty in T.thread_binding(2, thread="threadIdx.y"):
                with T.block("kernel"):
                    S = T.alloc_buffer((32, 64), "float16", scope="shared.dyn")
                    W = T.alloc_buffer((32, 64), "float16", scope="wmma.matrix_a")
                    F = T.alloc_buffer((32, 64), "float32", scope="wmma.accumulator")
                    with T.block("load"):
                        T.reads(S[0:32, 0:64])
                        T.writes(W[0:32, 0:64])
                        T.block_attr({"auto_copy": 1})
                        for i, j in T.grid(32, 64):
                            W[i, j] = S[i, j]
                    with T.block("store"):
                        T.reads(F[0:32, 0:64])
                        T.writes(C[ty * 32 : ty * 32 + 32, 0:64])
                        T.block_attr({"auto_copy": 1, "vector_bytes": 16})
                        for i, j in T.grid(32, 64):
                            C[ty * 32 + i, j] = F[i, j]

    text = apply(transform.LowerAutoCopy(), before).script()
    assert text.count("T.tvm_load_matrix_sync") == 1 and text.count("T.tvm_store_matrix_sync") == 1
    assert "for i_0, j_0 in T.grid(2, 4)" in text and "alloc_buffer((2, 4, 16, 16)" in text


def test_rolling_buffer_free_programs_are_left_alone() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.float32(0)

    assert apply(transform.InjectRollingBuffer(), before).body.same_as(before.body)


def test_lower_async_dma() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "uint8"), B: T.Buffer((128,), "uint8")):
        with T.attr(0, "async_commit_queue_scope", 0):
            with T.attr(0, "async_scope", 1):
                for i in range(128):
                    B[i] = A[i]
        with T.attr(0, "async_wait_queue_scope", 0):
            with T.attr(0, "async_wait_inflight_count", 0):
                T.evaluate(B[0])

    text = apply(transform.LowerAsyncDMA(), before).script()
    assert "dma_copy" in text and "dma_start_group" in text and "dma_wait" in text


def test_manifest_local_stage_splits_copies() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        with T.block("root"):
            S = T.alloc_buffer((64,), "float32", scope="shared")
            for i in range(64):
                with T.block("S"):
                    v = T.axis.spatial(64, i)
                    T.reads(A[v])
                    T.writes(S[v])
                    T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
                    S[v] = A[v]
            for i in range(64):
                with T.block("C"):
                    v = T.axis.spatial(64, i)
                    T.reads(S[v])
                    T.writes(C[v])
                    C[v] = S[v]

    made = apply(transform.ManifestSharedMemoryLocalStage(), before)
    a = np.random.default_rng(0).standard_normal(64).astype("float32")
    out = np.zeros(64, "float32")
    interp.run_prim_func(made, [a, out])
    np.testing.assert_array_equal(out, a)
    assert "manifest" not in made.script() and 'scope="local"' in made.script()


def test_verify_vtcm_limit() -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((4,), "float32")):
        data = T.allocate([1024], "float32", "global.vtcm")
        T.evaluate(data)

    with PassContext(config={"tir.vtcm_capacity": 16}), pytest.raises(RuntimeError, match="has been exceeded"):
        apply(transform.VerifyVTCMLimit(), func)


BOTH = {"propagate_knowns_to_prove_conditional": True, "propagate_knowns_to_simplify_expressions": True}


def test_simplify_follows_stores() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer(16, "int32"), B: T.Buffer(1, "int32")):
        for i in T.serial(16):
            B[0] = i * i
            if B[0] < 256:
                A[i] = B[0] * 2
            else:
                A[i] = B[0]

    @T.prim_func(private=True)
    def after(A: T.Buffer(16, "int32"), B: T.Buffer(1, "int32")):
        for i in T.serial(16):
            B[0] = i * i
            A[i] = i * i * 2

    with PassContext(config={"tir.Simplify": BOTH}):
        check(transform.Simplify(), before, after)


def test_simplify_follows_assumptions() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer(16, "int32"), n: T.int32):
        T.evaluate(T.assume(n == 0))
        for i in T.serial(16):
            T.evaluate(T.assume(A[i] == 0))
        for i in T.serial(16):
            if A[i] < 100 and n == 0:
                A[i] = 1

    @T.prim_func(private=True)
    def after(A: T.Buffer(16, "int32"), n: T.int32):
        T.evaluate(T.assume(n == 0))
        for i in T.serial(16):
            T.evaluate(T.assume(A[i] == 0))
        for i in T.serial(16):
            A[i] = 1

    with PassContext(config={"tir.Simplify": BOTH}):
        check(transform.Simplify(), before, after)


def test_simplify_knows_that_loops_change_buffers() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer(16, "int32"), B: T.Buffer(1, "int32")):
        B[0] = 0
        for i in T.serial(16):
            if B[0] < 10:
                A[i] = 1
            B[0] = B[0] + 1

    with PassContext(config={"tir.Simplify": BOTH}):
        check(transform.Simplify(), before, before)


def test_loop_partition_hint() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((60,), "float32"), B: T.Buffer((64,), "float32")):
        for i in T.serial(64, annotations={"pragma_loop_partition_hint": 1}):
            B[i] = T.if_then_else(2 <= i and i < 62, A[i - 2], T.float32(0))

    @T.prim_func(private=True)
    def after(A: T.Buffer((60,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(2):
            B[i] = T.float32(0)
        for i in range(60):
            B[i + 2] = A[i]
        for i in range(2):
            B[i + 62] = T.float32(0)

    with PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):
        made = apply(transform.LoopPartition(), apply(transform.LowerOpaqueBlock(), before))
    assert_structural_equal(apply(transform.Simplify(), made), after.with_attr("global_symbol", "main"))


def test_function_passes_from_classes() -> None:
    @transform.prim_func_pass(opt_level=0, name="mark")
    class Mark:
        def __init__(self, number: int) -> None:
            self.number = number

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            return func.with_attr("number", self.number)

    @T.prim_func
    def before(n: T.int32):
        T.evaluate(n)

    made = Mark(3)
    assert (made.info.name, made.number) == ("mark", 3)
    assert apply(made, before).attrs["number"] == 3


def test_constant_offsets_follow_the_type_of_the_shape() -> None:
    @T.prim_func
    def before(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, T.int64(4)), "float32")
        for i, j in T.grid(n, T.int64(4)):
            A[i, j] = T.float32(1)

    flat = apply(transform.NarrowDataType(32), apply(transform.FlattenBuffer(), before))
    store = flat.body.body.body
    assert store.buffer.elem_offset.dtype == store.buffer.shape[0].dtype == "int64"


def test_the_default_pipeline_is_accepted_by_builds() -> None:
    import relaxish

    @T.prim_func
    def double(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = A[i] * T.float32(2)

    built = relaxish.compile(double, "llvm", tir_pipeline=tir.get_default_tir_pipeline(Target("llvm")))
    values = relaxish.nd.array(np.ones(8, "float32"))
    built["double"](values)
    assert values.numpy().tolist() == [2.0] * 8
