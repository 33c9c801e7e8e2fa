"""Inlining and moving that would lose stores or read what is not there is refused; the like is made."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import interp
from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.schedule import Schedule, ScheduleError


@T.prim_func
def framed_and_folded(A: T.Buffer((6,), "float32"), D: T.Buffer((12,), "float32")):
    B = T.alloc_buffer((6,))
    C = T.alloc_buffer((3, 4))
    for i in range(6):
        with T.block("B"):
            v = T.axis.spatial(6, i)
            B[v] = A[v] * 3.0
    for i, j in T.grid(3, 4):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, j])
            C[v, w] = T.if_then_else(3 <= v * 4 + w and v * 4 + w < 9, B[v * 4 + w - 3], T.float32(7.0))
    for i in range(12):
        with T.block("D"):
            v = T.axis.spatial(12, i)
            D[v] = C[v // 4, v % 4]


@T.prim_func
def some_computed(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            if 3 <= v:
                B[v] = A[v] * 3.0
    for i in range(8):
        with T.block("C"):
            v = T.axis.spatial(8, i)
            C[v] = T.if_then_else(3 <= v, B[v], T.float32(7.0))


@pytest.mark.parametrize("program", [framed_and_folded, some_computed])
def test_reverse_inlining_loses_no_instance_that_reads_under_a_condition(program):
    with pytest.raises(ScheduleError, match="not each of its instances"):
        Schedule(program).reverse_compute_inline("C")


@pytest.mark.parametrize("factor", [12, 4, 5])
def test_reverse_inlining_of_conditional_reads_that_are_all_there(factor):
    @T.prim_func
    def masked(A: T.Buffer((12,), "float32"), C: T.Buffer((3, 4), "float32")):
        B = T.alloc_buffer((12,))
        for i in range(12):
            with T.block("B"):
                v = T.axis.spatial(12, i)
                B[v] = A[v] * 3.0
        for i, j in T.grid(3, 4):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, j])
                C[v, w] = T.if_then_else(3 <= v * 4 + w, B[v * 4 + w], T.float32(7.0))

    sch = Schedule(masked, debug_mask="all")
    _, inner = sch.split(sch.get_loops("B")[0], [None, factor])
    if 12 % factor == 0:
        sch.blockize(inner)
    sch.reverse_compute_inline("C")
    assert [b.name_hint for b in map(sch.get, sch.get_child_blocks("root"))] == ["B_o" if 12 % factor == 0 else "B"]
    assert check_program(masked, sch.mod["main"]) is None


def test_reverse_inlining_of_conditional_reads_of_symbolic_length():
    @T.prim_func
    def masked(a: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,))
        C = T.match_buffer(c, (n,))
        B = T.alloc_buffer((n,))
        for i in range(n):
            with T.block("B"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * 3.0
        for i in range(n):
            with T.block("C"):
                v = T.axis.spatial(n, i)
                C[v] = T.if_then_else(3 <= v, B[v], T.float32(7.0))

    sch = Schedule(masked, debug_mask="all")
    sch.split(sch.get_loops("B")[0], [None, 4])
    sch.reverse_compute_inline("C")
    data = np.random.default_rng(3).standard_normal(10, dtype="float32")
    out = np.empty_like(data)
    interp.run_primfunc(sch.mod["main"], data, out)
    np.testing.assert_allclose(out, np.where(np.arange(10) >= 3, data * 3, np.float32(7)), rtol=1e-6)


def test_reverse_inlining_into_what_an_initialisation_begins():
    @T.prim_func
    def sums(A: T.Buffer((5, 6), "float32"), C: T.Buffer((5,), "float32")):
        B = T.alloc_buffer((5,))
        for i, k in T.grid(5, 6):
            with T.block("B"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0.0
                B[v] = B[v] + A[v, r]
        for i in range(5):
            with T.block("C"):
                v = T.axis.spatial(5, i)
                C[v] = B[v] * 2.0

    sch = Schedule(sums)
    sch.blockize(sch.get_loops("B")[1], preserve_unit_iters=False)
    sch.cache_inplace("B", 0, "local")
    before = sch.mod["main"]
    with pytest.raises(ScheduleError, match="2 producers"):
        sch.reverse_compute_inline("C")
    assert check_program(before, sch.mod["main"]) is None


@pytest.mark.parametrize(("move", "block"), [("compute_inline", "B"), ("reverse_compute_inline", "C")])
def test_inlining_keeps_what_an_initialisation_begins(move, block):
    @T.prim_func
    def rows(A: T.Buffer((5, 6), "float32"), C: T.Buffer((5, 6), "float32")):
        for i in range(5):
            with T.block("row"):
                vi = T.axis.spatial(5, i)
                T.reads(A[vi, 0:6])
                T.writes(C[vi, 0:6])
                B = T.alloc_buffer((6,))
                with T.init():
                    B[0] = T.float32(0)
                for j in range(6):
                    with T.block("B"):
                        vj = T.axis.spatial(6, j)
                        B[vj] = A[vi, vj] * 2.0
                for j in range(6):
                    with T.block("C"):
                        vj = T.axis.spatial(6, j)
                        C[vi, vj] = B[vj] + 1.0

    sch = Schedule(rows)
    with pytest.raises(ScheduleError, match="begun"):
        getattr(sch, move)(block)


@T.prim_func
def folded(A: T.Buffer((12,), "float32"), C: T.Buffer((3, 4), "float32")):
    B = T.alloc_buffer((12,))
    for i in range(12):
        with T.block("B"):
            v = T.axis.spatial(12, i)
            B[v] = A[v] * 3.0
    for i, j in T.grid(3, 4):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, j])
            C[v, w] = B[v * 4 + w] + 1.0


@pytest.mark.parametrize(("program", "factor"), [(framed_and_folded, 3), (folded, 6)])
def test_moved_rows_begin_where_their_producer_does(program, factor):
    sch = Schedule(program)
    outer, _ = sch.split(sch.get_loops("B")[0], [None, factor])
    with pytest.raises(ScheduleError, match="from before"):
        sch.reverse_compute_at("C", outer)


@pytest.mark.parametrize("factor", [4, 12])
def test_moved_rows_that_begin_with_their_producer(factor):
    sch = Schedule(folded, debug_mask="all")
    outer, _ = sch.split(sch.get_loops("B")[0], [None, factor])
    sch.reverse_compute_at("C", outer)
    assert check_program(folded, sch.mod["main"]) is None


def test_index_cache_takes_all_of_the_guard_along():
    @T.prim_func
    def joined(A: T.Buffer((12,), "float32"), B: T.Buffer((6,), "float32")):
        for i, j in T.grid(3, 8):
            with T.block("B"):
                v = T.axis.spatial(6, j - 1)
                T.where(i < j and j < 7 - i)
                B[v] = A[v * 2]

    sch = Schedule(joined)
    sch.cache_index("B", "local", 1)
    assert check_program(joined, sch.mod["main"]) is None
