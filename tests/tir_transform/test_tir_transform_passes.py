"""Lowering passes: programs before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext, Sequential
from relaxish.script import tir as T
from relaxish.tir import transform
from relaxish.tir.transform.steps import loop_passes


def apply(a_pass: Any, func: Any) -> Any:
    mod = a_pass(IRModule({"main": func.with_attr("global_symbol", "main")}))
    return mod["main"]


def check(a_pass: Any, before: Any, after: Any) -> None:
    assert_structural_equal(apply(a_pass, before), after.with_attr("global_symbol", "main"))


def test_lower_init_block() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
        for i, k in T.grid(16, 16):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
        for i, k in T.grid(16, 16):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                if vk == 0:
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    check(transform.LowerInitBlock(), before, after)


def test_convert_and_lower_opaque() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i, j in T.grid(4, 5):
            with T.block("B"):
                vi = T.axis.spatial(16, i * 5 + j)
                T.where(i * 5 + j < 16)
                B[vi] = A[vi]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i, j in T.grid(4, 5):
            if i * 5 + j < 16:
                B[i * 5 + j] = A[i * 5 + j]

    func = apply(transform.ConvertBlocksToOpaque(), before)
    check(transform.LowerOpaqueBlock(), func, after)


def test_unit_loops_vanish() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        for i, j in T.grid(16, 1):
            A[i + j] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.float32(1)

    check(transform.Simplify(), apply(transform.LowerOpaqueBlock(), before), after)


def test_simplify_uses_loops_and_conditions() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), n: T.int32):
        for i in range(16):
            if i < 20:
                A[i * 1 + 0] = T.float32(1)
            if n < 4:
                if n < 8:
                    A[i] = T.float32(2)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), n: T.int32):
        for i in range(16):
            A[i] = T.float32(1)
            if n < 4:
                A[i] = T.float32(2)

    check(transform.Simplify(), before, after)


def test_unroll() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "float32")):
        for i in T.unroll(2):
            A[i + 2] = A[i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((4,), "float32")):
        A[2] = A[0]
        A[3] = A[1]

    check(transform.Simplify(), apply(transform.UnrollLoop(), before), after)


def test_unroll_settings() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.float32(1)

    assert apply(transform.UnrollLoop(), before).body.same_as(before.body)
    with PassContext(config={"tir.UnrollLoop": {"auto_max_step": 16}}):
        assert isinstance(apply(transform.UnrollLoop(), before).body, tir.SeqStmt)
    with PassContext(config={"tir.UnrollLoop": {"auto_max_step": 16, "explicit_unroll": False}}):
        loop = apply(transform.UnrollLoop(), before).body
        assert isinstance(loop, tir.For) and loop.kind == tir.ForKind.UNROLLED


def test_vectorize() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), s: T.float32):
        for i in range(8):
            for j in T.vectorized(8):
                B[i * 8 + j] = A[i * 8 + j] * s + T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), s: T.float32):
        for i in range(8):
            B[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(i * 8, 1, 8)] * T.Broadcast(s, 8) + T.Broadcast(T.float32(1), 8)

    check(transform.VectorizeLoop(), before, after)


def test_vectorize_keeps_lane_conditions_scalar() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), n: T.int32):
        for j in T.vectorized(8):
            if j < n:
                A[j] = T.float32(1)

    body = apply(transform.VectorizeLoop(), before).body
    assert isinstance(body, tir.For) and body.kind == tir.ForKind.SERIAL


def test_vectorize_off() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "float32")):
        for j in T.vectorized(8):
            A[j] = T.float32(1)

    assert apply(transform.VectorizeLoop(False), before).body.kind == tir.ForKind.SERIAL


def test_remove_no_op() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), n: T.int32):
        for _i in range(16):
            T.evaluate(0)
        if n > 3:
            T.evaluate(0)
        A[0] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), n: T.int32):
        A[0] = T.float32(1)

    check(transform.RemoveNoOp(), before, after)


def test_hoist_if_then_else() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), n: T.int32):
        for i in range(16):
            if n > 3:
                A[i] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), n: T.int32):
        if 3 < n:
            for i in range(16):
                A[i] = T.float32(1)

    check(transform.HoistIfThenElse(), before, after)


def test_rewrite_unsafe_select() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            B[i] = T.Select(i < 8, A[i], T.float32(0)) + T.Select(i < 8, T.float32(1), T.float32(0))

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(16):
            B[i] = T.if_then_else(i < 8, A[i], T.float32(0)) + T.Select(i < 8, T.float32(1), T.float32(0))

    check(transform.RewriteUnsafeSelect(), before, after)


def test_compact_buffer() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((128,), "float32"), C: T.Buffer((128,), "float32")):
        for i in range(16):
            with T.block():
                T.reads(A[i * 8 : i * 8 + 8])
                T.writes(C[i * 8 : i * 8 + 8])
                B = T.alloc_buffer((128,), "float32")
                for j in range(8):
                    B[i * 8 + j] = A[i * 8 + j]
                for j in range(8):
                    C[i * 8 + j] = B[i * 8 + j]

    func = apply(transform.CompactBufferAllocation(), before)
    block = func.body
    while not isinstance(block, tir.Block):
        block = (
            block.block.body
            if isinstance(block, tir.BlockRealize) and block.block.name_hint == "root"
            else (block.block if isinstance(block, tir.BlockRealize) else block.body)
        )
    assert [int(e) for e in block.alloc_buffers[0].shape] == [8]


def test_storage_rewrite_shares_memory() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), D: T.Buffer((64,), "float32")):
        B = T.alloc_buffer((64,), "float32")
        C = T.alloc_buffer((64,), "float32")
        E = T.alloc_buffer((64,), "float32")
        for i in range(64):
            B[i] = A[i]
        for i in range(64):
            C[i] = B[i]
        for i in range(64):
            E[i] = C[i]
        for i in range(64):
            D[i] = E[i]

    func = before
    for a_pass in (transform.ConvertBlocksToOpaque(), transform.LowerOpaqueBlock(), transform.FlattenBuffer()):
        func = apply(a_pass, func)
    count = lambda f: sum(isinstance(n, tir.Allocate) for n in _nodes(f))
    assert count(func) == 3
    assert count(apply(transform.StorageRewrite(), func)) == 1


def _nodes(func: Any) -> list[Any]:
    found: list[Any] = []
    tir.stmt_functor.post_order_visit(func.body, found.append)
    return found


def test_narrow_data_type() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32")):
        for i in T.serial(T.int64(8)):
            for j in T.serial(T.int64(8)):
                A[i * T.int64(8) + j] = T.float32(1)

    func = apply(transform.NarrowDataType(32), before)
    assert func.body.loop_var.dtype == "int32"
    stores = [n for n in _nodes(func) if isinstance(n, tir.BufferStore)]
    assert stores[0].indices[0].dtype == "int32"


def test_loop_partition() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32")):
        for i in range(64):
            if T.likely(i < 50):
                A[i] = T.float32(1)

    with PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):
        func = apply(transform.RemoveNoOp(), apply(transform.Simplify(), apply(transform.LoopPartition(), before)))
    assert int(func.body.extent) == 50
    assert not any(isinstance(n, tir.IfThenElse) for n in _nodes(func))


def test_bf16_compute() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "bfloat16"), B: T.Buffer((8,), "bfloat16")):
        for i in range(8):
            B[i] = A[i] + A[i]

    func = apply(transform.BF16ComputeLegalize(), before)
    sums = [n for n in _nodes(func) if isinstance(n, tir.Add)]
    assert [n.dtype for n in sums] == ["float32", "uint32", "uint32"]


def test_filter_apply_and_decorator() -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((8,), "float32")):
        A[0] = T.float32(1)

    mod = IRModule({"a": func.with_attr("keep", True), "b": func})
    kept = transform.Filter(lambda f: bool(f.get_attr("keep")))(mod)
    assert [v.name_hint for v in kept.functions] == ["a"]

    @transform.prim_func_pass(opt_level=0)
    def mark(f: Any, mod: Any, ctx: Any) -> Any:
        return f.with_attr("seen", 1)

    assert mark(mod)["b"].get_attr("seen") == 1
    assert transform.Apply(lambda f: f.with_attr("x", 2))(mod)["a"].get_attr("x") == 2


def test_verify_memory_names_the_buffer() -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(1)

    mod = IRModule({"main": func})
    from relaxish.target import Target

    transform.VerifyMemory()(transform.BindTarget(Target("llvm"))(mod))
    with pytest.raises(RuntimeError, match="A is directly accessed"):
        transform.VerifyMemory()(transform.BindTarget(Target("cuda"))(mod))


def test_pipeline_names() -> None:
    assert transform.get_tir_pipeline("default") is not None
    with pytest.raises(ValueError, match="Unknown pre-built pipeline"):
        transform.get_tir_pipeline("nope")


def _run(mod: Any, arrays: list[np.ndarray]) -> None:
    import ctypes

    compiler = pytest.importorskip("relaxish.backend.llvm.compile")
    library = compiler.jit_load(compiler.compile_primfuncs(mod))
    entry = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(arrays))(library.address("main"))
    assert entry(*[a.ctypes.data for a in arrays]) == 0


@T.prim_func
def matmul_relu(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), D: T.Buffer((64, 64), "float32")):
    C = T.alloc_buffer((64, 64), "float32")
    for i, j, k in T.grid(64, 64, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(64, 64):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], T.float32(0))


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("tile", [(8, 16, 4), (7, 24, 5)])
@pytest.mark.parametrize("lower", [transform.lower_for_cpu, lambda m: Sequential(loop_passes(PassContext()))(m)])
def test_scheduled_program_keeps_its_values(tile: Any, decompose: bool, lower: Any) -> None:
    sch = tir.Schedule(IRModule({"main": matmul_relu.with_attr("global_symbol", "main")}))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, tile[0]])
    j0, j1 = sch.split(j, [None, tile[1]])
    k0, k1 = sch.split(k, [None, tile[2]])
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.vectorize(j1)
    sch.unroll(i1)
    sch.parallel(i0)
    if 64 % tile[0] == 0:
        sch.reverse_compute_at(sch.get_block("D"), j0)
    if decompose:
        sch.decompose_reduction(block, k0)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 64)).astype("float32") for _ in range(2))
    out = np.zeros((64, 64), "float32")
    _run(lower(sch.mod), [a, b, out])
    np.testing.assert_allclose(out, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
