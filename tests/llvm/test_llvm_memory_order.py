"""Loops whose values depend on what they store themselves: against the interpreter, which runs them one by one."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish.driver import build_tir
from relaxish.interp import run_primfunc
from relaxish.script import from_source
from relaxish.script import tir as T


@T.prim_func
def chosen_by_itself(M: T.Buffer((9,), "int32"), A: T.Buffer((9,), "int32")):
    for j in range(9):
        with T.block("M"):
            v = T.axis.spatial(9, j)
            M[v] = T.Select(M[3] > 0, A[v], M[v] + 1)


@T.prim_func
def chosen_by_a_view(M: T.Buffer((9,), "int32"), A: T.Buffer((9,), "int32")):
    N = T.decl_buffer((3, 3), "int32", data=M.data)
    for i, j in T.grid(3, 3):
        N[i, j] = T.if_then_else(M[4] > 0, A[i * 3 + j], N[i, j] - 1)


@T.prim_func
def branch_on_what_changes(A: T.Buffer((9,), "int32"), B: T.Buffer((9,), "int32")):
    for i in range(9):
        with T.block("b"):
            u = T.axis.spatial(9, i)
            T.reads(A[0:9])
            T.writes(A[0:9], B[0:9])
            if A[u] > 0:
                A[u] = A[u] - 2
                B[u] = T.Select(A[u] > 0, 10, 20)
            else:
                if A[u] + 1 > 0:
                    B[u] = 30


@T.prim_func
def neighbours(A: T.Buffer((41,), "int32"), B: T.Buffer((40,), "int32")):
    for j in range(40):
        with T.block("A"):
            v = T.axis.spatial(40, j)
            A[v] = B[v] + 1
            A[v + 1] = B[v] * 2


@T.prim_func
def shifted_view(A: T.Buffer((41,), "int32"), B: T.Buffer((40,), "int32")):
    C = T.decl_buffer((40,), "int32", data=A.data, elem_offset=1)
    for j in range(40):
        C[j] = A[j] + B[j]


@T.prim_func
def guards_of_two_bounds(a: T.handle, b: T.handle):
    m, n = T.int32(), T.int32()
    A = T.match_buffer(a, (m, 16), "int32")
    B = T.match_buffer(b, (n, 16), "int32")
    for o in range((m + 5) // 6):
        for i in range(6):
            if o * 6 + i < m:
                if o * 6 + i < n:
                    for j in range(16):
                        B[o * 6 + i, j] = B[o * 6 + i, j] + A[o * 6 + i, j]


def shape_of(buffer, sizes):
    return [int(d) if not hasattr(d, "name") else sizes[d.name] for d in buffer.shape]


@pytest.mark.parametrize(
    "func",
    [chosen_by_itself, chosen_by_a_view, branch_on_what_changes, neighbours, shifted_view, guards_of_two_bounds],
    ids=lambda f: f.attrs["global_symbol"],
)
@pytest.mark.parametrize("noalias", [False, True])
def test_against_the_interpreter(func, noalias):
    if noalias:
        func = func.with_attr("tir.noalias", True)
    run = build_tir(func, "llvm")
    rng = np.random.default_rng(5)
    for _ in range(8):
        sizes = {"m": int(rng.integers(8, 20)), "n": int(rng.integers(1, 8))}
        given = [rng.integers(-3, 4, shape_of(func.buffer_map[p], sizes)).astype("int32") for p in func.params]
        want = [a.copy() for a in given]
        run_primfunc(func, *want)
        arrays = [relaxish.nd.array(a) for a in given]
        run(*arrays)
        for have, expected in zip(arrays, want, strict=True):
            np.testing.assert_array_equal(have.numpy(), expected)


@T.prim_func
def conditions_that_wrap(A: T.Buffer((300,), "int32"), B: T.Buffer((300,), "int32"), C: T.Buffer((300,), "int32")):
    for j in range(300):
        A[j] = T.Select(T.Cast("int8", j) < T.int8(50), 1, 2)
    for j in range(300):
        B[j] = T.Select(T.Cast("uint8", j) + T.uint8(100) < T.uint8(120), 1, 2)
    for j in range(300):
        C[j] = T.Select(T.Cast("uint32", j) - T.uint32(5) < T.uint32(7), 1, 2)


def test_conditions_on_values_that_wrap_around():
    arrays = [relaxish.nd.array(np.zeros(300, "int32")) for _ in range(3)]
    build_tir(conditions_that_wrap, "llvm")(*arrays)
    j = np.arange(300)
    wrapped = (j.astype("int8") < 50, j.astype("uint8") + np.uint8(100) < 120, j.astype("uint32") - np.uint32(5) < 7)
    for array, want in zip(arrays, wrapped, strict=True):
        np.testing.assert_array_equal(array.numpy(), np.where(want, 1, 2))


@pytest.mark.parametrize(
    "index", ["T.max(i - 2, 0)", "T.min(i, 3)", "i // 2", "(i * 3) % 4", "T.max(i - 2, 0) + i // 3"]
)
def test_iterations_of_an_unrolled_loop_that_share_a_place(index):
    text = f"""@T.prim_func
def main(C: T.Buffer((24,), "int32")):
    for k in range(24):
        for i in T.unroll(8):
            C[{index}] = T.floormod(C[{index}] + k, 1009) - 500
"""
    func = from_source(text)
    given = np.random.default_rng(1).integers(-50, 50, 24).astype("int32")
    want, array = given.copy(), relaxish.nd.array(given)
    run_primfunc(func, want)
    build_tir(func, "llvm")(array)
    np.testing.assert_array_equal(array.numpy(), want)
