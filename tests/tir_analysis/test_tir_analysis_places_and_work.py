"""Lowest common ancestors of accesses, and operation counts."""

from __future__ import annotations

import pytest

from relaxish import IRModule
from relaxish.script import tir as T
from relaxish.tir.analysis import (
    assert_pure_function,
    detect_buffer_access_lca,
    estimate_tir_flops,
    get_block_access_region,
    is_pure_function,
)


@T.prim_func
def staged(X: T.Buffer((8, 8), "float32"), Y: T.Buffer((8, 8), "float32")):
    S = T.alloc_buffer((8, 8), "float32")
    R = T.alloc_buffer((8,), "float32", scope="local")
    for i in range(8):
        for j in range(8):
            with T.block("first"):
                vi, vj = T.axis.remap("SS", [i, j])
                S[vi, vj] = X[vi, vj]
        for k in range(8):
            with T.block("second"):
                vi, vk = T.axis.remap("SS", [i, k])
                R[vk] = S[vi, vk]
                Y[vi, vk] = R[vk]


def test_deepest_common_statement() -> None:
    x, y = (staged.buffer_map[p] for p in staged.params)
    root = staged.body.block
    s, r = root.alloc_buffers
    outer = root.body
    first, second = (part.body.block for part in outer.body.seq)
    found = detect_buffer_access_lca(staged)
    assert found[x] is first and found[y] is second and found[r] is second
    assert found[s] is outer


def test_global_buffers_stay_outside_the_grid() -> None:
    @T.prim_func
    def kernel(X: T.Buffer((8,), "float32")):
        G = T.alloc_buffer((8,), "float32")
        L = T.alloc_buffer((8,), "float32", scope="local")
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for i in range(4):
                with T.block("b"):
                    v = T.axis.spatial(8, bx * 4 + i)
                    G[v] = X[v]
                    L[v] = G[v]

    root = kernel.body.block
    g, inner = root.alloc_buffers
    found = detect_buffer_access_lca(kernel)
    assert found[g] is root.body and found[inner] is root.body.body.body.block


def test_loops_that_carry_an_opaque_axis_are_left_outside() -> None:
    @T.prim_func
    def rolling(Y: T.Buffer((8,), "float32")):
        S = T.alloc_buffer((8,), "float32")
        for i, j in T.grid(4, 2):
            with T.block("b"):
                v = T.axis.opaque(8, i * 2 + j)
                T.reads()
                T.writes(S[v], Y[0])
                S[v] = 0.0
                Y[0] = S[v]

    root = rolling.body.block
    found = detect_buffer_access_lca(rolling)
    assert found[root.alloc_buffers[0]] is root
    assert found[rolling.buffer_map[rolling.params[0]]] is root.body.body.body.block


def test_pointer_uses_count() -> None:
    @T.prim_func
    def func(X: T.Buffer((8,), "float32")):
        for i in range(8):
            T.evaluate(T.call_extern("int32", "touch", X.data))

    assert detect_buffer_access_lca(func)[func.buffer_map[func.params[0]]] is func.body


def test_indices_of_a_single_access_stay_as_written() -> None:
    @T.prim_func
    def func(X: T.Buffer((32,), "float32"), n: T.int32):
        with T.block("b"):
            X[n * 2 - n] = 0.0

    block = func.body.block
    buffer = func.buffer_map[func.params[0]]
    writes = get_block_access_region(block, {buffer.data: buffer})[1]
    assert str(writes[0].region[0].min) == "n * 2 - n"


@T.prim_func
def branches(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        if i % 2 == 0:
            A[i] = B[i]
        else:
            if i % 3 == 0:
                A[i] = B[i - 1] + B[i - 2] * 2.0


@T.prim_func
def triangle(A: T.Buffer((1,), "float32")):
    for i in range(4):
        for j in range(i):
            A[0] = A[0] + T.float32(1)


@T.prim_func
def unknown(A: T.Buffer((T.int64(16),), "float32x4"), n: T.int64):
    for i in range(n):
        shifted = i + T.int64(1)
        A[shifted] = A[i] * A[i] + T.Select(A[0] < A[1], A[2], A[3] + A[4])


@pytest.mark.parametrize(("func", "count"), [(branches, 32), (triangle, 12), (unknown, 4)])
def test_operation_counts(func, count: float) -> None:
    assert estimate_tir_flops(IRModule({"main": func})) == count


def test_stated_operation_counts() -> None:
    mod = IRModule({"main": branches.with_attr("estimated_flops", 7), "other": triangle})
    assert estimate_tir_flops(mod) == 7 + 12
    assert estimate_tir_flops(triangle.body) == 12
    with pytest.raises(TypeError):
        estimate_tir_flops("text")


@T.prim_func
def returns(A: T.Buffer((4,), "float32")) -> T.float32:
    total = T.decl_buffer((1,), "float32")
    total[0] = A[0] + T.call_pure_extern("float32", "one")
    T.ret(total[0])


@T.prim_func
def stores(A: T.Buffer((4,), "float32")):
    alias = T.decl_buffer((4,), "float32", data=A.data)
    alias[0] = 0.0


@T.prim_func
def calls(A: T.Buffer((4,), "float32")):
    T.evaluate(T.call_extern("int32", "touch"))


def test_purity() -> None:
    assert is_pure_function(returns) and assert_pure_function(returns)
    for func, text in ((stores, "write to buffers"), (calls, "impure operators")):
        assert not is_pure_function(func)
        with pytest.raises(AssertionError, match=text):
            assert_pure_function(func)
