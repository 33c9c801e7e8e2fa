"""Buffers whose values go from one iteration to the next stay outside of the loop; the others move inside."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.driver import build_tir
from relaxish.interp import run_primfunc
from relaxish.ir import IRModule
from relaxish.runtime import nd
from relaxish.script import tir as T
from relaxish.tir import For
from relaxish.tir.functor import post_order_visit
from relaxish.tir.schedule import Schedule
from relaxish.tir.transform import PlanAndUpdateBufferAllocationLocation


@T.prim_func
def of_the_former(X: T.Buffer((9,), "float32"), Y: T.Buffer((9,), "float32")):
    B = T.alloc_buffer((9,))
    for i in range(9):
        with T.block("B"):
            v = T.axis.spatial(9, i)
            B[v] = X[v] * 2.0
        with T.block("Y"):
            v = T.axis.spatial(9, i)
            Y[v] = B[v] + B[T.max(v - 1, 0)]


@T.prim_func
def before_it_is_written(X: T.Buffer((9,), "float32"), Y: T.Buffer((9,), "float32")):
    B = T.alloc_buffer((1,))
    for i in range(9):
        with T.block("Y"):
            v = T.axis.spatial(9, i)
            if v > 0:
                Y[v] = B[0]
            else:
                Y[v] = 3.0
        with T.block("B"):
            v = T.axis.spatial(9, i)
            B[0] = X[v]


@T.prim_func
def parts_of_a_box(X: T.Buffer((40,), "float32"), Y: T.Buffer((18,), "float32")):
    B = T.alloc_buffer((10, 4))
    for i in range(8):
        for j in range(5):
            with T.block("B"):
                v = T.axis.spatial(40, i * 5 + j)
                B[v // 4, v % 4] = X[v]
        for j in range(4):
            with T.block("Y"):
                v = T.axis.spatial(18, i * 5 // 4 * 2 + j)
                T.where(i * 5 // 4 * 2 + j < 18)
                Y[v] = B[v // 2, v % 2 * 2]


@T.prim_func
def two_loops_out(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
    B = T.alloc_buffer((6,))
    for i, j in T.grid(4, 6):
        with T.block("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = T.if_then_else(vi > 0, B[vj], 1.0)
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vj] = X[vi, vj]


@T.prim_func
def sums(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
    B = T.alloc_buffer((4,))
    for i in range(4):
        for j in range(6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                if vj == 0:
                    B[vi] = 0.0
                B[vi] = B[vi] + X[vi, vj]
                Y[vi, vj] = B[vi]


@T.prim_func
def in_the_first_turn(X: T.Buffer((6,), "float32"), Y: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((6,))
    for again, i in T.grid(4, 6):
        with T.block("B"):
            v = T.axis.spatial(6, i)
            T.where(again < 1)
            B[v] = X[v] * 2.0
        with T.block("Y"):
            v = T.axis.spatial(6, i)
            Y[v] = B[v] + 1.0


CARRIED = [of_the_former, before_it_is_written, parts_of_a_box, two_loops_out, sums, in_the_first_turn]


@pytest.mark.parametrize("func", CARRIED, ids=lambda f: f.attrs["global_symbol"])
def test_values_of_former_iterations_are_kept(func):
    rng = np.random.default_rng(7)
    given = [rng.random([int(d) for d in func.buffer_map[p].shape]).astype("float32") for p in func.params]
    wanted = [a.copy() for a in given]
    run_primfunc(func, *wanted)
    arrays = [nd.array(a) for a in given]
    build_tir(func, "llvm")(*arrays)
    np.testing.assert_allclose(arrays[1].numpy(), wanted[1], rtol=1e-6)


def _place(func) -> int:
    """Around how many loops the one allocated buffer stands."""
    after = PlanAndUpdateBufferAllocationLocation()(IRModule({"main": func}))["main"]
    found = []

    def look(node, depth: int) -> None:
        if getattr(node, "alloc_buffers", ()):
            found.append(depth)
        for name in ("body", "block"):
            if hasattr(node, name):
                look(getattr(node, name), depth + isinstance(node, For))
        for part in getattr(node, "seq", ()):
            look(part, depth)

    look(after.body, 0)
    (depth,) = found
    return depth


@pytest.mark.parametrize(("func", "depth"), list(zip(CARRIED, [0, 0, 0, 0, 1, 0], strict=True)))
def test_they_stand_outside_of_the_loop_that_carries_them(func, depth):
    assert _place(func) == depth


@T.prim_func
def stencil(X: T.Buffer((32, 32), "float32"), Y: T.Buffer((30, 30), "float32")):
    B = T.alloc_buffer((32, 32))
    for i, j in T.grid(32, 32):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = X[vi, vj] * 2.0
    for i, j, k in T.grid(30, 30, 3):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = 0.0
            Y[vi, vj] += B[vi + vk, vj + 2 - vk]


@pytest.mark.parametrize("factors", [[None, 5], [None, 4], [7, None]])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_an_iteration_computes_for_itself_moves_inside(factors, level):
    sch = Schedule(stencil)
    i, j, _ = sch.get_loops("Y")
    outer, inner = sch.split(i, factors)
    sch.compute_at("B", (outer, inner, j)[level])
    func = sch.mod["main"]
    assert _place(func) == level + 1
    loops = []
    post_order_visit(func.body, lambda n: loops.append(n) if isinstance(n, For) else None)
    assert loops


def test_turns_that_are_left_out_by_all_blocks_keep_the_buffer_inside():
    @T.prim_func
    def guarded(X: T.Buffer((10,), "float32"), Y: T.Buffer((10,), "float32")):
        B = T.alloc_buffer((10,))
        for i, j in T.grid(3, 4):
            with T.block("B"):
                v = T.axis.spatial(10, i * 4 + j)
                T.where(i * 4 + j < 10)
                B[v] = X[v] * 2.0
            with T.block("Y"):
                v = T.axis.spatial(10, i * 4 + j)
                T.where(j + i * 4 < 10)
                Y[v] = B[v] + 1.0

    assert _place(guarded) == 2
