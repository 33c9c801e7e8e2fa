"""Copies, index caches and circular buffers: what they look like, and that the program still computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import interp
from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.analysis import verify_well_formed
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


def check(sch, before, expected=None):
    if expected is not None:
        assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, before)
    rng = np.random.default_rng(0)
    buffers = [before.buffer_map[p] for p in before.params]
    args = [(rng.random([int(d) for d in b.shape]) * 8).astype(b.dtype) for b in buffers]
    one, two = [a.copy() for a in args], [a.copy() for a in args]
    interp.run_primfunc(before, *one)
    interp.run_primfunc(sch.mod["main"], *two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@T.prim_func
def blur(A: T.Buffer((18, 20), "float32"), C: T.Buffer((16, 20), "float32")):
    B = T.alloc_buffer((18, 20))
    for i, j in T.grid(18, 20):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j, k in T.grid(16, 20, 3):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + B[vi + vk, vj]


def test_rolling_buffer():
    @T.prim_func
    def expected(A: T.Buffer((18, 20), "float32"), C: T.Buffer((16, 20), "float32")):
        B = T.alloc_buffer((6, 20))
        for i0 in range(4):
            for ax0, ax1 in T.grid(6, 20):
                with T.block("B"):
                    vi = T.axis.opaque(18, i0 * 4 + ax0)
                    vj = T.axis.spatial(20, ax1)
                    T.where(i0 < 1 or 2 <= ax0)
                    B[vi % 6, vj] = A[vi, vj] * 2.0
            for i1, j, k in T.grid(4, 20, 3):
                with T.block("C"):
                    vi = T.axis.opaque(16, i0 * 4 + i1)
                    vj, vk = T.axis.remap("SR", [j, k])
                    with T.init():
                        C[vi, vj] = 0.0
                    C[vi, vj] = C[vi, vj] + B[(vi + vk) % 6, vj]

    sch = Schedule(blur, debug_mask="all")
    i, _, _ = sch.get_loops("C")
    outer, _ = sch.split(i, [None, 4])
    sch.compute_at("B", outer)
    sch.rolling_buffer("B", 0)
    check(sch, blur, expected)


def test_rolling_buffer_needs_a_shared_loop_and_an_overlap():
    sch = Schedule(blur)
    with pytest.raises(ScheduleError, match="under a loop"):
        sch.rolling_buffer("B", 0)
    with pytest.raises(ScheduleError, match="output block"):
        sch.rolling_buffer("C", 0)


@T.prim_func
def gather(A: T.Buffer((1, 3, 40, 40), "float32"), B: T.Buffer((1, 3, 80, 80), "float32")):
    for n, c, i, j in T.grid(1, 3, 80, 80):
        with T.block("B"):
            vn, vc, vi, vj = T.axis.remap("SSSS", [n, c, i, j])
            B[vn, vc, vi, vj] = A[vn, vc, vi // 4 + vj // 4, vj // 2]


def test_cache_index():
    @T.prim_func
    def expected(A: T.Buffer((1, 3, 40, 40), "float32"), B: T.Buffer((1, 3, 80, 80), "float32")):
        first = T.alloc_buffer((80, 80), "int32", strides=[1])
        second = T.alloc_buffer((80,), "int32", strides=[1])
        for i, j in T.grid(80, 80):
            with T.block("index_0"):
                vi, vj = T.axis.remap("SS", [i, j])
                first[vi, vj] = vi // 4 + vj // 4
        for j in range(80):
            with T.block("index_1"):
                vj = T.axis.spatial(80, j)
                second[vj] = vj // 2
        for n, c, i, j in T.grid(1, 3, 80, 80):
            with T.block("B"):
                vn, vc, vi, vj = T.axis.remap("SSSS", [n, c, i, j])
                T.reads(A[vn, vc, vi // 4 + vj // 4, vj // 2])
                T.writes(B[vn, vc, vi, vj])
                B[vn, vc, vi, vj] = A[vn, vc, first[vi, vj], second[vj]]

    sch = Schedule(gather, debug_mask="all")
    made = sch.cache_index("B", "global")
    assert [sch.get(b).name_hint for b in made] == ["index_0", "index_1"]
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, gather)


@T.prim_func
def product(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"), C: T.Buffer((32, 32), "float32")):
    for i, j, k in T.grid(32, 32, 32):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_read_at_and_write_at():
    @T.prim_func
    def expected(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"), C: T.Buffer((32, 32), "float32")):
        A_shared = T.alloc_buffer((32, 32), scope="shared")
        C_local = T.alloc_buffer((32, 32), scope="local")
        for i0 in range(4):
            with T.block("A_shared"):
                v0 = T.axis.spatial(4, i0)
                T.reads(A[v0 * 8 : v0 * 8 + 8, 0:32])
                T.writes(A_shared[v0 * 8 : v0 * 8 + 8, 0:32])
                T.block_attr({"auto_copy": 1})
                for ax0, ax1 in T.grid(8, 32):
                    A_shared[v0 * 8 + ax0, ax1] = A[v0 * 8 + ax0, ax1]
            for i1, j, k in T.grid(8, 32, 32):
                with T.block("C"):
                    vi = T.axis.spatial(32, i0 * 8 + i1)
                    vj, vk = T.axis.remap("SR", [j, k])
                    with T.init():
                        C_local[vi, vj] = 0.0
                    C_local[vi, vj] = C_local[vi, vj] + A_shared[vi, vk] * B[vk, vj]
            with T.block("C_local"):
                v0 = T.axis.spatial(4, i0)
                T.reads(C_local[v0 * 8 : v0 * 8 + 8, 0:32])
                T.writes(C[v0 * 8 : v0 * 8 + 8, 0:32])
                T.block_attr({"auto_copy": 1})
                for ax0, ax1 in T.grid(8, 32):
                    C[v0 * 8 + ax0, ax1] = C_local[v0 * 8 + ax0, ax1]

    sch = Schedule(product, debug_mask="all")
    block = sch.get_block("C")
    i, _, _ = sch.get_loops(block)
    outer, _ = sch.split(i, [None, 8])
    sch.read_at(outer, block, 0, "shared")
    sch.write_at(outer, block, 0, "local")
    check(sch, product, expected)


def test_cache_read_in_a_nested_scope_holds_the_region_only():
    sch = Schedule(product, debug_mask="all")
    i, _, _ = sch.get_loops("C")
    _, inner = sch.split(i, [None, 8])
    sch.blockize(inner)
    cache = sch.cache_read("C", 0, "local")
    buffer = sch.get(cache).writes[0].buffer
    assert [int(d) for d in buffer.shape] == [8, 32]
    check(sch, product)


def test_cache_read_stands_right_before_its_first_reader():
    @T.prim_func
    def chain(A: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32"), E: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v] = A[v] + 1.0
        for i in range(16):
            with T.block("E"):
                v = T.axis.spatial(16, i)
                E[v] = A[v] * 2.0
        for i in range(16):
            with T.block("D"):
                v = T.axis.spatial(16, i)
                D[v] = B[v] * 3.0

    sch = Schedule(chain, debug_mask="all")
    sch.cache_read("D", 0, "local")
    names = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))]
    assert names == ["B", "E", "B_local", "D"]
    check(sch, chain)


def test_reindex_cache_read_copies_the_loops_of_the_reader():
    sch = Schedule(product, debug_mask="all")
    sch.reindex_cache_read("C", 1, "shared", lambda i, j, k: (j, k))
    buffer = sch.get(sch.get_block("B_shared")).writes[0].buffer
    assert [int(d) for d in buffer.shape] == [32, 32]
    sch.reindex_cache_write("C", 0, "local", lambda i, j, k: (j, i))
    check(sch, product)
    with pytest.raises(ScheduleError, match="appears in"):
        sch.reindex_cache_read("C", 0, "shared", lambda i, j, k: (i, j))


@pytest.mark.parametrize("way", ["read_at", "write_at", "cache_read", "cache_write"])
def test_a_copy_of_a_view_has_a_layout_of_its_own(way):
    @T.prim_func
    def strided(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block("rows"):
                vi = T.axis.spatial(8, i)
                T.reads(A[0:8, vi])
                T.writes(B[0:8, vi])
                X = T.match_buffer(A[0:8, vi], (8, 1), strides=("xs", "xt"), offset_factor=1)
                Y = T.match_buffer(B[0:8, vi], (8, 1), strides=("ys", "yt"), offset_factor=1)
                for j in range(8):
                    with T.block("move"):
                        vj = T.axis.spatial(8, j)
                        Y[vj, 0] = X[vj, 0] + 1.0

    sch = Schedule(strided, debug_mask="all")
    (loop,) = sch.get_loops("move")
    if way == "read_at":
        sch.read_at(loop, "move", 0, "global")
    elif way == "write_at":
        sch.write_at(loop, "move", 0, "global")
    elif way == "cache_read":
        sch.cache_read("move", 0, "global")
    else:
        sch.cache_write("move", 0, "global")
    verify_well_formed(sch.mod["main"])
    assert check_program(strided, sch.mod["main"]) is None
    verify_trace_roundtrip(sch, strided)


@T.prim_func
def triangle(
    A: T.Buffer((9, 9), "float32"),
    D: T.Buffer((9, 9, 3), "float32"),
    B: T.Buffer((9, 9), "float32"),
    C: T.Buffer((9, 9, 3), "float32"),
):
    for i in range(9):
        for j in range(i % 4 // 2 * 4 + 5):
            for k in range(3):
                with T.block("C"):
                    vi = T.axis.spatial(9, i)
                    vj = T.axis.spatial(9, j)
                    vk = T.axis.spatial(3, k)
                    C[vi, vj, vk] = A[vj // 3 + vi // 3, vj]
    for i in range(9):
        for j in range(i % 4 // 2 * 4 + 5):
            for k in range(3):
                with T.block("B"):
                    vi = T.axis.spatial(9, i)
                    vj = T.axis.spatial(9, j)
                    vk = T.axis.reduce(3, k)
                    with T.init():
                        B[vi, vj] = 0.0
                    B[vi, vj] += D[vi, vj, vk]


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.reindex_cache_read("C", 0, "global", lambda i, j, k: (i, j)),
        lambda s: s.reindex_cache_write("C", 0, "global", lambda i, j, k: (k, i, j)),
        lambda s: s.cache_index("C", "global"),
        lambda s: s.decompose_reduction("B", s.get_loops("B")[0]),
        lambda s: s.decompose_reduction("B", s.get_loops("B")[1]),
        lambda s: s.rfactor(s.get_loops("B")[2], 0),
        lambda s: s.blockize(s.get_loops("B")[2]),
    ],
)
def test_copied_loops_run_as_far_as_the_loops_they_copy(step):
    sch = Schedule(triangle, debug_mask="all")
    step(sch)
    verify_well_formed(sch.mod["main"])
    assert check_program(triangle, sch.mod["main"]) is None
    verify_trace_roundtrip(sch, triangle)


def test_a_loop_that_only_says_how_far_another_runs_is_copied_with_it():
    @T.prim_func
    def shifting(A: T.Buffer((9,), "float32"), B: T.Buffer((4, 9), "float32")):
        for i in range(4):
            for j in range(i * 2 + 3):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(9, j)
                    B[vi, vj] = A[vj // 2 + vj // 3]

    sch = Schedule(shifting, debug_mask="all")
    sch.cache_index("B", "global")
    verify_well_formed(sch.mod["main"])
    assert check_program(shifting, sch.mod["main"]) is None


def test_an_index_computed_ahead_is_computed_where_its_block_runs():
    @T.prim_func
    def inside(A: T.Buffer((14,), "float32"), B: T.Buffer((12,), "float32")):
        for i in range(14):
            with T.block("B"):
                v = T.axis.spatial(12, i - 1)
                T.where(1 <= i and i < 13)
                B[v] = A[v // 2 + 3]

    sch = Schedule(inside, debug_mask="all")
    (made,) = sch.cache_index("B", "global")
    verify_well_formed(sch.mod["main"])
    assert check_program(inside, sch.mod["main"]) is None


def test_padding_under_loops_that_depend_on_each_other_is_left_alone():
    @T.prim_func
    def padded(A: T.Buffer((9, 7), "float32"), B: T.Buffer((9, 9), "float32")):
        for i in range(9):
            for j in range(i % 4 // 2 * 4 + 5):
                with T.block("B"):
                    vi = T.axis.spatial(9, i)
                    vj = T.axis.spatial(9, j)
                    B[vi, vj] = T.if_then_else(1 <= vj and vj < 8, A[vi, vj - 1], T.float32(0))

    sch = Schedule(padded, debug_mask="all")
    with pytest.raises(ScheduleError, match="depends on another loop"):
        sch.decompose_padding("B", sch.get_loops("B")[0])
