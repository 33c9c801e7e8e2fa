"""StorageRewrite and PointerValueTypeRewrite: programs before and after."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish.ir import IRModule, assert_structural_equal
from relaxish.script import tir as T
from relaxish.tir import transform


def check(a_pass: Any, before: Any, after: Any) -> None:
    made = a_pass(IRModule({"main": before.with_attr("global_symbol", "main")}))["main"]
    assert_structural_equal(made, after.with_attr("global_symbol", "main"), map_free_vars=True)


# ---- StorageRewrite


def test_memory_that_is_free_is_used_again() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        X = T.allocate([16], "float32", "global")
        x = T.Buffer((16,), data=X)
        for i in range(16):
            x[i] = A[i]
        for i in range(16):
            B[i] = x[15 - i]
        Y = T.allocate([16], "float32", "global")
        y = T.Buffer((16,), data=Y)
        for i in range(16):
            y[i] = B[i]
        for i in range(16):
            B[i] = y[15 - i] * T.float32(2)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        X = T.allocate([16], "float32", "global")
        x = T.Buffer((16,), data=X)
        for i in range(16):
            x[i] = A[i]
        for i in range(16):
            B[i] = x[15 - i]
        y = T.Buffer((16,), data=X)
        for i in range(16):
            y[i] = B[i]
        for i in range(16):
            B[i] = y[15 - i] * T.float32(2)

    check(transform.StorageRewrite(), before, after)


def test_memory_of_another_type_and_a_smaller_size() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "int32")):
        X = T.allocate([16], "float32", "global")
        x = T.Buffer((16,), data=X)
        for i in range(16):
            x[i] = A[i]
        for i in range(16):
            A[i] = x[15 - i]
        Y = T.allocate([8], "int32", "global")
        y = T.Buffer((8,), "int32", data=Y)
        for i in range(8):
            y[i] = B[i]
        for i in range(8):
            B[i] = y[7 - i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((8,), "int32")):
        X = T.allocate([16], "float32", "global")
        x = T.Buffer((16,), data=X)
        for i in range(16):
            x[i] = A[i]
        for i in range(16):
            A[i] = x[15 - i]
        y = T.Buffer((8,), "int32", data=X)
        for i in range(8):
            y[i] = B[i]
        for i in range(8):
            B[i] = y[7 - i]

    check(transform.StorageRewrite(), before, after)


def test_memory_in_use_is_not_shared() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        X = T.allocate([16], "float32", "global")
        Y = T.allocate([16], "float32", "global")
        x = T.Buffer((16,), data=X)
        y = T.Buffer((16,), data=Y)
        for i in range(16):
            x[i] = A[i]
        for i in range(16):
            y[i] = x[15 - i]
        for i in range(16):
            B[i] = y[i] + x[i]

    check(transform.StorageRewrite(), before, before)


def test_what_is_read_last_element_by_element_may_be_overwritten() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        X = T.allocate([16], "float32", "global")
        x = T.Buffer((16,), data=X)
        for i in range(16):
            x[i] = A[i]
        Y = T.allocate([16], "float32", "global")
        y = T.Buffer((16,), data=Y)
        for i in range(16):
            y[i] = x[i] + T.float32(1)
        for i in range(16):
            B[i] = y[15 - i]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        X = T.allocate([16], "float32", "global")
        x = T.Buffer((16,), data=X)
        for i in range(16):
            x[i] = A[i]
        y = T.Buffer((16,), data=X)
        for i in range(16):
            y[i] = x[i] + T.float32(1)
        for i in range(16):
            B[i] = y[15 - i]

    check(transform.StorageRewrite(), before, after)


@pytest.mark.parametrize("parallel", [False, True])
def test_allocations_leave_serial_loops_but_not_parallel_ones(parallel: bool) -> None:
    @T.prim_func(private=True)
    def inside(A: T.Buffer((64,), "float32")):
        for i in T.parallel(4) if parallel else T.serial(4):
            X = T.allocate([16], "float32", "global")
            x = T.Buffer((16,), data=X)
            for j in range(16):
                x[j] = A[i * 16 + j]
            for j in range(16):
                A[i * 16 + j] = x[15 - j]

    @T.prim_func(private=True)
    def outside(A: T.Buffer((64,), "float32")):
        X = T.allocate([16], "float32", "global")
        for i in range(4):
            x = T.Buffer((16,), data=X)
            for j in range(16):
                x[j] = A[i * 16 + j]
            for j in range(16):
                A[i * 16 + j] = x[15 - j]

    check(transform.StorageRewrite(), inside, inside if parallel else outside)


def test_an_unused_allocation_goes_with_its_declaration() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        X = T.allocate([16], "float32", "global")
        x = T.decl_buffer((16,), "float32", data=X)
        for i in range(16):
            A[i] = T.float32(1)

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.float32(1)

    check(transform.StorageRewrite(), before, after)


# ---- PointerValueTypeRewrite


def test_memory_reached_by_aligned_vectors_is_of_vectors() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(4):
            X = T.allocate([8], "float32", "local")
            x = T.Buffer((8,), data=X, scope="local")
            x[4:8] = A[i * 4 : i * 4 + 4]
            B[i * 4 : i * 4 + 4] = x[4:8] + T.Broadcast(T.float32(1), 4)

    @T.prim_func(private=True)
    def after(A: T.Buffer((4,), "float32x4"), B: T.Buffer((4,), "float32x4")):
        for i in range(4):
            X = T.allocate([2], "float32x4", "local")
            x = T.Buffer((2,), "float32x4", data=X, scope="local")
            x[1] = A[T.Div(i * 4, 4)]
            B[T.Div(i * 4, 4)] = x[1] + T.Broadcast(T.float32(1), 4)

    check(transform.PointerValueTypeRewrite(), before, after)


def test_an_element_read_alone_is_taken_out_of_its_vector() -> None:
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32")):
        X = T.allocate([8], "float32", "local")
        x = T.Buffer((8,), data=X, scope="local")
        x[4:8] = A[0:4]
        A[0] = x[6]

    @T.prim_func(private=True)
    def after(A: T.Buffer((16,), "float32")):
        X = T.allocate([2], "float32x4", "local")
        x = T.Buffer((2,), "float32x4", data=X, scope="local")
        x[1] = A[0:4]
        A[0] = T.Shuffle([x[1]], [2])

    check(transform.PointerValueTypeRewrite(), before, after)


def test_vectors_of_two_sizes_or_at_odd_places_keep_the_element_type() -> None:
    @T.prim_func(private=True)
    def two_sizes(A: T.Buffer((17,), "float32")):
        X = T.allocate([16], "float32", "local")
        x = T.Buffer((16,), data=X, scope="local")
        x[0:8] = A[1:9]
        x[8:12] = A[9:13]

    @T.prim_func(private=True)
    def odd(A: T.Buffer((17,), "float32")):
        X = T.allocate([17], "float32", "local")
        x = T.Buffer((17,), data=X, scope="local")
        x[1:5] = A[3:7]

    @T.prim_func(private=True)
    def stored_alone(A: T.Buffer((17,), "float32")):
        X = T.allocate([16], "float32", "local")
        x = T.Buffer((16,), data=X, scope="local")
        x[0] = A[0]
        x[4:8] = A[1:5]

    for func in (two_sizes, odd, stored_alone):
        check(transform.PointerValueTypeRewrite(), func, func)
