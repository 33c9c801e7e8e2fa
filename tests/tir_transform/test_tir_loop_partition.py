"""LoopPartition: where loops are cut, and the options."""

from __future__ import annotations

from typing import Any

from relaxish import tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import PassContext, Sequential
from relaxish.script import tir as T
from relaxish.tir import transform

_CLEAN = [transform.Simplify(), transform.RemoveNoOp()]


def partition(func: Any, clean: bool = True, **options: Any) -> Any:
    with PassContext(config={"tir.LoopPartition": options}):
        return Sequential([transform.LoopPartition(), *(_CLEAN if clean else [])])(IRModule({"main": func}))["main"]


def hinted(value: Any, extent: int = 16) -> Any:
    """A loop over ``i`` that stores ``value(i)``, under a hint."""
    A, i = tir.decl_buffer((64,), "float32", "A"), tir.Var("i", "int32")
    loop = tir.For(i, 0, extent, tir.ForKind.SERIAL, tir.BufferStore(A, value(i), [i]))
    return tir.PrimFunc([A], tir.AttrStmt(i, "pragma_loop_partition_hint", 1, loop))


def test_recursive_partition_of_constant_loops() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((36,), "float32"), B: T.Buffer((36,), "float32")):
        for i in range(4):
            for j in range(10):
                if T.likely(i * 10 + j < 36):
                    A[i * 10 + j] = B[i * 10 + j]

    @T.prim_func(private=True)
    def after(A: T.Buffer((36,), "float32"), B: T.Buffer((36,), "float32")):
        for i, j in T.grid(3, 10):
            A[i * 10 + j] = B[i * 10 + j]
        for j in range(6):
            A[j + 30] = B[j + 30]

    assert_structural_equal(partition(before, partition_const_loop=True), after)

    @T.prim_func(private=True)
    def untouched(A: T.Buffer((36,), "float32"), B: T.Buffer((36,), "float32")):
        for i in range(4):
            for j in range(10):
                if i * 10 + j < 36:
                    A[i * 10 + j] = B[i * 10 + j]

    assert_structural_equal(partition(before, clean=False), untouched)


def test_symbolic_extent() -> None:
    @T.prim_func(private=True)
    def before(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            if T.likely(i < 10):
                A[i] = T.float32(1)

    @T.prim_func(private=True)
    def after(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(T.min(10, n)):
            A[i] = T.float32(1)
        for i in range(n - 10):
            if i + T.min(10, n) < 10:
                A[i + T.min(10, n)] = T.float32(1)

    assert_structural_equal(partition(before), partition(after))


def test_hints_make_every_comparison_count() -> None:
    one, two, three = (tir.FloatImm("float32", v) for v in (1, 2, 3))
    made = partition(hinted(lambda i: tir.if_then_else(i < 3, one, tir.if_then_else(i < 8, two, three))),
                     partition_const_loop=True)  # fmt: skip

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32")):
        for i in range(3):
            A[i] = T.float32(1)
        for i in range(5):
            A[i + 3] = T.float32(2)
        for i in range(8):
            A[i + 8] = T.float32(3)

    assert_structural_equal(made, after)


def test_single_iterations_are_unrolled_unless_told_otherwise() -> None:
    one, zero = tir.FloatImm("float32", 1), tir.FloatImm("float32", 0)
    func = hinted(lambda i: tir.if_then_else(tir.EQ(i, 2), one, zero), 4)

    @T.prim_func(private=True)
    def after(A: T.Buffer((64,), "float32")):
        for i in range(2):
            A[i] = T.float32(0)
        A[2] = T.float32(1)
        A[3] = T.float32(0)

    assert_structural_equal(partition(func, partition_const_loop=True), after)
    kept = partition(func, clean=False, partition_const_loop=True, no_unroll_loop_with_extent_one=True)
    assert [int(loop.extent) for loop in kept.body.seq] == [2, 1, 1]


def test_hinted_loops_without_interval_can_be_unrolled() -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((32,), "float32")):
        for i in T.serial(2, annotations={"pragma_loop_partition_hint": True}):
            for j in range(7):
                if 3 <= i * 2 + j:
                    A[i * 2 + j] = T.float32(1)

    lowered = transform.LowerOpaqueBlock()(IRModule({"main": func}))["main"]
    plain = partition(lowered, clean=False, partition_const_loop=True)
    assert plain.body.kind == tir.ForKind.SERIAL
    options = {"partition_const_loop": True, "unroll_loop_with_partition_hint_no_interval": True}
    assert partition(lowered, clean=False, **options).body.kind == tir.ForKind.UNROLLED


def test_annotated_loops_stay_loops() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"key": "value"}):
            if T.likely(i < 15):
                A[i] = T.float32(1)

    made = partition(before, clean=False, partition_const_loop=True)
    assert [int(loop.extent) for loop in made.body.seq] == [15, 1]
    assert all(dict(loop.annotations) == {"key": "value"} for loop in made.body.seq)


def test_block_axes_branch_inside_the_threads() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((100,), "float32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", n)
        tx = T.launch_thread("threadIdx.x", 32)
        if T.likely(bx * 32 + tx < n):
            A[bx * 32 + tx] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((100,), "float32"), n: T.int32):
        bx = T.launch_thread("blockIdx.x", n)
        tx = T.launch_thread("threadIdx.x", 32)
        if bx < n // 32:
            A[bx * 32 + tx] = T.float32(1)
        else:
            if bx * 32 + tx < n:
                A[bx * 32 + tx] = T.float32(1)

    made = partition(before)
    branch = made.body.body.body
    assert isinstance(branch, tir.IfThenElse) and branch.else_case is not None
    assert isinstance(branch.then_case, tir.BufferStore)
    assert isinstance(branch.else_case, tir.IfThenElse)


def test_all_reductions_are_not_torn_apart() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64,), "float32"), n: T.int32):
        for i in range(n):
            if T.likely(i < 10):
                T.evaluate(T.tvm_thread_allreduce(T.uint32(1), A[i], T.bool(True), A[i], i, dtype="handle"))

    made = partition(before, clean=False)
    assert isinstance(made.body, tir.For) and made.body.extent is before.params[1]


def test_conditions_that_exclude_each_other() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((3,), "int8"), B: T.Buffer((12,), "int8")):
        for i in T.serial(12, annotations={"pragma_loop_partition_hint": 1}):
            if i < 3:
                B[i] = A[0]
            if i == 4:
                B[i] = A[1]
            if i > 5:
                B[i] = A[2]

    @T.prim_func(private=True)
    def after(A: T.Buffer((3,), "int8"), B: T.Buffer((12,), "int8")):
        for i in range(3):
            B[i] = A[0]
        B[4] = A[1]
        for i in range(6):
            B[i + 6] = A[2]

    lowered = transform.LowerOpaqueBlock()(IRModule({"main": before}))["main"]
    assert_structural_equal(partition(lowered, partition_const_loop=True), after)


def test_exclusive_quarters_of_nested_loops() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((2,), "int8"), B: T.Buffer((256,), "int8")):
        for i in T.serial(16, annotations={"pragma_loop_partition_hint": 1}):
            for j in T.serial(16, annotations={"pragma_loop_partition_hint": 1}):
                if i >= 4 and j < 8:
                    B[i * 16 + j] = A[0]
                if i < 4 and j >= 8:
                    B[i * 16 + j] = A[1]

    @T.prim_func(private=True)
    def after(A: T.Buffer((2,), "int8"), B: T.Buffer((256,), "int8")):
        for i, j in T.grid(4, 8):
            B[i * 16 + j + 8] = A[1]
        for i, j in T.grid(12, 8):
            B[i * 16 + j + 64] = A[0]

    lowered = transform.LowerOpaqueBlock()(IRModule({"main": before}))["main"]
    assert_structural_equal(partition(lowered, partition_const_loop=True), after)
