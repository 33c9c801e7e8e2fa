"""CompactBufferAllocation: what buffers shrink to, before blocks are lowered and after."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import IRModule, assert_structural_equal
from relaxish.ir.transform import Sequential
from relaxish.script import tir as T
from relaxish.tir import transform

_CLEAN = Sequential([transform.Simplify(), transform.RemoveNoOp()])


def run(func: Any, *passes: Any) -> Any:
    return Sequential([*passes, _CLEAN])(IRModule({"main": func}))["main"]


def check(before: Any, after: Any, strict: bool = True, lowered: bool = True) -> None:
    """``after`` is what ``before`` becomes, whether blocks are there or already lowered."""
    compact, lower = transform.CompactBufferAllocation(strict), transform.LowerOpaqueBlock()
    assert_structural_equal(run(before, compact), run(after))
    if lowered:
        assert_structural_equal(run(before, lower, _CLEAN, compact), run(after, lower))


def test_shared_memory_is_relaxed_over_threads_and_local_memory_is_not() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for v in T.thread_binding(2, thread="vthread.x"):
                for tx in T.thread_binding(8, thread="threadIdx.x"):
                    for k in range(4):
                        with T.block():
                            T.reads(A[bx * 16 : bx * 16 + 16, k * 16 : k * 16 + 16])
                            T.writes(C[bx * 16 + v * 8 + tx, k * 16 : k * 16 + 16])
                            S = T.alloc_buffer((64, 64), "float32", scope="shared")
                            L = T.alloc_buffer((64, 64), "float32", scope="local")
                            for a in range(32):
                                S[bx * 16 + (a * 8 + tx) // 16, k * 16 + (a * 8 + tx) % 16] = A[
                                    bx * 16 + (a * 8 + tx) // 16, k * 16 + (a * 8 + tx) % 16
                                ]
                            for j in range(16):
                                L[bx * 16 + v * 8 + tx, k * 16 + j] = S[bx * 16 + v * 8 + tx, k * 16 + j]
                            for j in range(16):
                                C[bx * 16 + v * 8 + tx, k * 16 + j] = L[bx * 16 + v * 8 + tx, k * 16 + j]

    @T.prim_func(private=True)
    def after(A: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for v in T.thread_binding(2, thread="vthread.x"):
                for tx in T.thread_binding(8, thread="threadIdx.x"):
                    for k in range(4):
                        with T.block():
                            T.reads(A[bx * 16 : bx * 16 + 16, k * 16 : k * 16 + 16])
                            T.writes(C[bx * 16 + v * 8 + tx, k * 16 : k * 16 + 16])
                            S = T.alloc_buffer((16, 16), "float32", scope="shared")
                            L = T.alloc_buffer((1, 16), "float32", scope="local")
                            for a in range(32):
                                S[(a * 8 + tx) // 16, (a * 8 + tx) % 16] = A[
                                    bx * 16 + (a * 8 + tx) // 16, k * 16 + (a * 8 + tx) % 16
                                ]
                            for j in range(16):
                                L[0, j] = S[v * 8 + tx, j]
                            for j in range(16):
                                C[bx * 16 + v * 8 + tx, k * 16 + j] = L[0, j]

    check(before, after)


def test_conditions_narrow_regions() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((32, 40), "float32"), C: T.Buffer((32, 40), "float32")):
        for i in range(32):
            with T.block():
                T.reads(A[i, 0:40])
                T.writes(C[i, 0:40])
                B = T.alloc_buffer((32, 40), "float32")
                for j in range(40):
                    if 4 <= j and j < 20:
                        B[i, j] = A[i, j]
                for j in range(40):
                    C[i, j] = T.if_then_else(8 <= j and j < 24, B[i, j], T.float32(0))

    @T.prim_func(private=True)
    def after(A: T.Buffer((32, 40), "float32"), C: T.Buffer((32, 40), "float32")):
        for i in range(32):
            with T.block():
                T.reads(A[i, 0:40])
                T.writes(C[i, 0:40])
                B = T.alloc_buffer((1, 20), "float32")
                for j in range(40):
                    if 4 <= j and j < 20:
                        B[0, j - 4] = A[i, j]
                for j in range(40):
                    C[i, j] = T.if_then_else(8 <= j and j < 24, B[0, j - 4], T.float32(0))

    check(before, after)


def test_strict_regions_are_cut_to_the_buffer() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block():
                T.reads(A[0:16])
                T.writes(C[0:16])
                B = T.alloc_buffer((16,), "float32")
                for j in range(20):
                    B[j - 2] = A[j - 2]
                C[i] = B[i]

    @T.prim_func(private=True)
    def loose(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.block():
                T.reads(A[0:16])
                T.writes(C[0:16])
                B = T.alloc_buffer((20,), "float32")
                for j in range(20):
                    B[j] = A[j - 2]
                C[i] = B[i + 2]

    shape = [int(e) for e in _allocated(run(before, transform.CompactBufferAllocation())).shape]
    assert shape == [16]
    check(before, loose, strict=False, lowered=False)


def _allocated(func: Any) -> Any:
    found = []
    tir.stmt_functor.post_order_visit(
        func.body, lambda n: found.extend(n.alloc_buffers) if isinstance(n, tir.Block) else None
    )
    return found[0]


def test_symbolic_shapes() -> None:
    @T.prim_func(private=True)
    def before(x: T.handle, y: T.handle, n: T.int64):
        X = T.match_buffer(x, (T.int64(8), n * T.int64(32)), "float32")
        Y = T.match_buffer(y, (T.int64(8), n * T.int64(32)), "float32")
        for i, k in T.grid(T.int64(8), n):
            with T.block():
                T.reads(X[i, k * T.int64(32) : k * T.int64(32) + T.int64(32)])
                T.writes(Y[i, k * T.int64(32) : k * T.int64(32) + T.int64(32)])
                B = T.alloc_buffer((T.int64(8), n * T.int64(32)), "float32")
                for j in range(T.int64(32)):
                    B[i, k * T.int64(32) + j] = X[i, k * T.int64(32) + j]
                for j in range(T.int64(32)):
                    Y[i, k * T.int64(32) + j] = B[i, k * T.int64(32) + j]

    @T.prim_func(private=True)
    def after(x: T.handle, y: T.handle, n: T.int64):
        X = T.match_buffer(x, (T.int64(8), n * T.int64(32)), "float32")
        Y = T.match_buffer(y, (T.int64(8), n * T.int64(32)), "float32")
        for i, k in T.grid(T.int64(8), n):
            with T.block():
                T.reads(X[i, k * T.int64(32) : k * T.int64(32) + T.int64(32)])
                T.writes(Y[i, k * T.int64(32) : k * T.int64(32) + T.int64(32)])
                B = T.alloc_buffer((T.int64(1), T.int64(32)), "float32")
                for j in range(T.int64(32)):
                    B[T.int64(0), j] = X[i, k * T.int64(32) + j]
                for j in range(T.int64(32)):
                    Y[i, k * T.int64(32) + j] = B[T.int64(0), j]

    check(before, after)


def test_alignment_of_strides() -> None:
    @T.prim_func(private=True)
    def before(C: T.Buffer((128, 16), "float32")):
        for i in range(4):
            with T.block():
                B = T.alloc_buffer((128, 16), "float32", scope="shared")
                for j, k in T.grid(32, 16):
                    with T.block("w"):
                        T.reads()
                        T.writes(B[i * 32 + j, k])
                        T.block_attr({"buffer_dim_align": [[0, 0, 32, 8]]})
                        B[i * 32 + j, k] = T.float32(1)
                for j, k in T.grid(32, 16):
                    C[i * 32 + j, k] = B[i * 32 + j, k]

    made = run(before, transform.CompactBufferAllocation())
    buffer = next(b for b in [_allocated(made)])
    assert [int(e) for e in buffer.shape] == [32, 16] and [int(e) for e in buffer.strides] == [40, 1]


def test_bare_pointers_reach_what_blocks_declare() -> None:
    @T.prim_func(private=True)
    def before(C: T.Buffer((128,), "float32")):
        for i in range(4):
            with T.block():
                B = T.alloc_buffer((128,), "float32", scope="shared")
                D = T.alloc_buffer((128,), "float32", scope="shared")
                with T.block():
                    T.reads()
                    T.writes(B[i * 32 : i * 32 + 32])
                    T.evaluate(T.call_extern("int32", "fill", B.data))
                T.evaluate(T.call_extern("int32", "fill", D.data))
                for j in range(32):
                    C[i * 32 + j] = B[i * 32 + j] + D[i * 32 + j]

    made = run(before, transform.CompactBufferAllocation())
    found: list[Any] = []
    tir.stmt_functor.post_order_visit(
        made.body, lambda n: found.extend(n.alloc_buffers) if isinstance(n, tir.Block) else None
    )
    assert [int(b.shape[0]) for b in found] == [32, 128]


def test_bounds_of_loops_are_estimated() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16, 16), "float32")):
        for i in range(8):
            with T.block():
                B = T.alloc_buffer((16, 16), "float32")
                for j in range(i + 1):
                    B[i, j] = A[i, j]
                for j in range(i + 1):
                    A[i, j] = B[i, j] + T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16, 16), "float32")):
        for i in range(8):
            with T.block():
                B = T.alloc_buffer((1, 8), "float32")
                for j in range(i + 1):
                    B[0, j] = A[i, j]
                for j in range(i + 1):
                    A[i, j] = B[0, j] + T.float32(1)

    check(before, after)


@pytest.mark.parametrize("scope", ["global", "shared", "local"])
def test_data_dependent_accesses_keep_the_buffer(scope: str) -> None:
    @T.prim_func(private=True)
    def func(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
        for i in range(16):
            with T.block():
                B = T.alloc_buffer((16,), "int32", scope=scope)
                for j in range(16):
                    B[A[j]] = j
                C[i] = B[i]

    made = run(func, transform.CompactBufferAllocation())
    assert int(_allocated(made).shape[0]) == 16


def test_bounds_of_a_condition_end_with_its_branch() -> None:
    """The condition leaves one value of ``i``, but what stands outside of it sees all of them."""

    @T.prim_func(private=True)
    def before(A: T.Buffer((1,), "float32"), C: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.block():
                T.reads(A[i - 1])
                T.writes(C[i])
                B = T.alloc_buffer((3,))
                B[i] = T.if_then_else(1 <= i and i < 2, A[i - 1], T.float32(2.0))
                C[i] = B[i] + B[i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((1,), "float32"), C: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.block():
                T.reads(A[i - 1])
                T.writes(C[i])
                B = T.alloc_buffer((1,))
                B[0] = T.if_then_else(1 <= i and i < 2, A[i - 1], T.float32(2.0))
                C[i] = B[0] + B[0]

    check(before, after)


def test_indices_of_two_integer_types_cover_one_dimension():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        with T.block("all"):
            T.reads(A[0:8])
            T.writes(C[0:8])
            B = T.alloc_buffer((8,), "float32")
            for i in range(8):
                B[i] = A[i]
            for k in range(T.int64(8)):
                C[k] = B[k]

    after = run(before, transform.CompactBufferAllocation())
    (buffer,) = after.body.block.alloc_buffers
    assert [int(d) for d in buffer.shape] == [8]


def test_conditions_on_names_of_thread_indices_keep_shared_memory_whole():
    """Each thread touches one place, all threads together as many as there are: a name is not one number for all."""

    @T.prim_func
    def before(A: T.Buffer((256,), "float32"), C: T.Buffer((256,), "float32")):
        with T.block("all"):
            T.reads(A[0:256])
            T.writes(C[0:256])
            tx = T.launch_thread("threadIdx.x", 64)
            part = T.allocate([256], "float32", "shared")
            held = T.Buffer((256,), data=part, scope="shared")
            with T.LetStmt(tx) as place:
                if place < 20:
                    held[place] = A[place]
                T.tvm_storage_sync("shared")
                if place < 10:
                    C[place] = held[place]

    after = run(before, transform.CompactBufferAllocation())
    found = []

    def look(node):
        if isinstance(node, (tir.BufferStore, tir.BufferLoad)) and node.buffer.scope() == "shared":
            found.append((int(node.buffer.shape[0]), str(node.indices[0])))

    tir.stmt_functor.post_order_visit(after.body, look)
    assert found == [(64, "tx")] * 2
