"""Loop, reduction and block primitives against the very program they must give: names, order, annotations, regions."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish.interp import run_prim_func
from relaxish.script import tir as T
from relaxish.support.errors import InternalError
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol as assert_same
from relaxish.tir.schedule.testing import verify_trace_roundtrip


@T.prim_func
def pair(A: T.Buffer((24, 8), "float32"), B: T.Buffer((24, 8), "float32"), C: T.Buffer((24, 8), "float32")):
    for i, j in T.grid(24, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for p, q in T.grid(24, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [p, q])
            C[vi, vj] = A[vi, vj] + 1.0


@T.prim_func
def rowsum(A: T.Buffer((32, 64), "float32"), S: T.Buffer((32,), "float32")):
    for i, k in T.grid(32, 64):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + A[vi, vk]


def make(func):
    return Schedule(func, debug_mask="all")


def names(sch, block):
    return [sch.get(loop).loop_var.name for loop in sch.get_loops(block)]


def test_merge_is_named_after_the_first_nest_and_stands_at_the_last():
    @T.prim_func
    def three(
        A: T.Buffer((8,), "float32"),
        B: T.Buffer((8,), "float32"),
        C: T.Buffer((8,), "float32"),
        D: T.Buffer((4,), "float32"),
    ):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(4):
            with T.block("D"):
                v = T.axis.spatial(4, i)
                D[v] = A[v] - 1.0
        for j in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, j)
                C[v] = A[v] + 1.0

    @T.prim_func
    def expected(
        A: T.Buffer((8,), "float32"),
        B: T.Buffer((8,), "float32"),
        C: T.Buffer((8,), "float32"),
        D: T.Buffer((4,), "float32"),
    ):
        for i in range(4):
            with T.block("D"):
                v = T.axis.spatial(4, i)
                D[v] = A[v] - 1.0
        for i_m in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i_m)
                B[v] = A[v] * 2.0
            with T.block("C"):
                v = T.axis.spatial(8, i_m)
                C[v] = A[v] + 1.0

    sch = make(three)
    sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    assert_same(sch.mod["main"], expected)
    assert names(sch, "C") == ["i_m"]
    verify_trace_roundtrip(sch, three)


def test_loop_partition_makes_blocks_of_pieces():
    @T.prim_func
    def expected(A: T.Buffer((24, 8), "float32"), B: T.Buffer((24, 8), "float32"), C: T.Buffer((24, 8), "float32")):
        with T.block("B_i_common"):
            T.reads()
            T.writes()
            with T.block("B_i0_partition"):
                T.reads()
                T.writes()
                for i0, j in T.grid(5, 8):
                    with T.block("B_i0"):
                        vi = T.axis.spatial(5, i0)
                        vj = T.axis.spatial(8, j)
                        T.reads(A[0:5, 0:8])
                        T.writes(B[0:5, 0:8])
                        B[vi, vj] = A[vi, vj] * 2.0
            with T.block("B_i1_partition"):
                T.reads()
                T.writes()
                for i1 in range(5, 24):
                    for j in range(8):
                        with T.block("B_i1"):
                            vi = T.axis.spatial((5, 24), i1)
                            vj = T.axis.spatial(8, j)
                            T.reads(A[5:24, 0:8])
                            T.writes(B[5:24, 0:8])
                            B[vi, vj] = A[vi, vj] * 2.0
        for p, q in T.grid(24, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [p, q])
                C[vi, vj] = A[vi, vj] + 1.0

    for factors in ([5], [5, None], [None, 19]):
        sch = make(pair)
        loops = sch.loop_partition(sch.get_loops("B")[0], factors)
        assert [sch.get(loop).loop_var.name for loop in loops] == ["i0", "i1"]
        assert_same(sch.mod["main"], expected)
        verify_trace_roundtrip(sch, pair)


@pytest.mark.parametrize("factors", [[12, 12], [24], [20, None, None], [0, None], [30, None]])
def test_loop_partition_refuses(factors):
    sch = make(pair)
    with pytest.raises(ScheduleError):
        sch.loop_partition(sch.get_loops("B")[0], factors)


def test_a_reduction_is_partitioned_only_after_its_init():
    sch = make(rowsum)
    i, k = sch.get_loops("S")
    with pytest.raises(ScheduleError, match="initialised again"):
        sch.loop_partition(k, [8, None])
    sch.decompose_reduction("S", k)
    sch.loop_partition(k, [8, None])
    verify_trace_roundtrip(sch, rowsum)


def test_fuse_of_one_loop_renames_it():
    sch = make(pair)
    sch.fuse(sch.get_loops("B")[1])
    assert names(sch, "B") == ["i", "j_fused"]


def test_unit_loops_count_in_int32():
    @T.prim_func
    def wide(A: T.Buffer((T.int64(8),), "float32"), B: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.block("B"):
                v = T.axis.spatial(T.int64(8), i)
                B[v] = A[v] * 2.0

    sch = make(wide)
    outer = sch.add_unit_loop(sch.get_loops("B")[0])
    inner = sch.add_unit_loop("B")
    assert sch.get(outer).loop_var.dtype == sch.get(inner).loop_var.dtype == "int32"
    assert names(sch, "B") == ["u", "i", "u"]
    with pytest.raises(ValueError, match="root block"):
        sch.add_unit_loop(sch.get_block("root"))


def test_reorder_of_nothing_is_nothing():
    sch = make(pair)
    before = sch.mod["main"]
    sch.reorder()
    sch.reorder(sch.get_loops("B")[0])
    assert sch.mod["main"].same_as(before)


def test_init_loops_keep_kinds_but_no_annotations():
    @T.prim_func
    def expected(A: T.Buffer((32, 64), "float32"), S: T.Buffer((32,), "float32")):
        for i_init in T.parallel(32):
            with T.block("S_init"):
                T.block_attr({"note": 1})
                vi = T.axis.spatial(32, i_init)
                S[vi] = T.float32(0)
        for i in T.parallel(32, annotations={"mark": 1}):
            for k in range(64):
                with T.block("S_update"):
                    T.block_attr({"note": 1})
                    vi, vk = T.axis.remap("SR", [i, k])
                    S[vi] = S[vi] + A[vi, vk]

    sch = make(rowsum)
    i, _ = sch.get_loops("S")
    sch.annotate(i, "mark", 1)
    sch.annotate("S", "note", 1)
    sch.parallel(i)
    init = sch.decompose_reduction("S", i)
    assert_same(sch.mod["main"], expected)
    assert [iv.var.name for iv in sch.get(init).iter_vars] == ["vi"]
    assert names(sch, init) == ["i_init"]


def test_rfactor_of_the_only_reduction_loop_just_stores():
    @T.prim_func
    def expected(A: T.Buffer((32, 64), "float32"), S: T.Buffer((32,), "float32")):
        S_rf = T.alloc_buffer((64, 32))
        for i, k in T.grid(32, 64):
            with T.block("S_rf"):
                vk, vi = T.axis.remap("SS", [k, i])
                S_rf[vk, vi] = A[vi, vk]
        for i, k in T.grid(32, 64):
            with T.block("S"):
                vk, vi = T.axis.remap("RS", [k, i])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + S_rf[vk, vi]

    sch = make(rowsum)
    sch.rfactor(sch.get_loops("S")[1], 0)
    assert_same(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, rowsum)


def test_blockize_of_a_reduction_moves_the_init_out():
    @T.prim_func
    def expected(A: T.Buffer((32, 64), "float32"), S: T.Buffer((32,), "float32")):
        for i_0 in range(8):
            with T.block("S_o"):
                vi_o = T.axis.spatial(8, i_0)
                vk_o = T.axis.reduce(1, 0)
                T.reads(A[vi_o * 4 : vi_o * 4 + 4, 0:64])
                T.writes(S[vi_o * 4 : vi_o * 4 + 4])
                with T.init():
                    for i_1 in range(4):
                        with T.block("S_init"):
                            vi_i_init = T.axis.spatial(4, i_1)
                            T.reads()
                            T.writes(S[vi_o * 4 + vi_i_init])
                            S[vi_o * 4 + vi_i_init] = T.float32(0)
                for i_1, k in T.grid(4, 64):
                    with T.block("S"):
                        vi_i, vk_i = T.axis.remap("SR", [i_1, k])
                        T.reads(S[vi_o * 4 + vi_i], A[vi_o * 4 + vi_i, vk_i])
                        T.writes(S[vi_o * 4 + vi_i])
                        S[vi_o * 4 + vi_i] = S[vi_o * 4 + vi_i] + A[vi_o * 4 + vi_i, vk_i]

    sch = make(rowsum)
    i, _ = sch.get_loops("S")
    _, i1 = sch.split(i, [None, 4])
    sch.blockize(i1)
    assert_same(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, rowsum)


def test_blockize_units_are_kept_or_dropped():
    @T.prim_func
    def unit(A: T.Buffer((1, 16), "float32"), B: T.Buffer((1, 16), "float32")):
        for i, j in T.grid(1, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0

    @T.prim_func
    def kept(A: T.Buffer((1, 16), "float32"), B: T.Buffer((1, 16), "float32")):
        for i in range(1):
            with T.block("B_o"):
                vi_o, vj_o = T.axis.spatial(1, i), T.axis.spatial(1, 0)
                T.reads(A[vi_o, 0:16])
                T.writes(B[vi_o, 0:16])
                for j in range(16):
                    with T.block("B"):
                        vj_i = T.axis.spatial(16, j)
                        B[vi_o, vj_i] = A[vi_o, vj_i] * 2.0

    @T.prim_func
    def dropped(A: T.Buffer((1, 16), "float32"), B: T.Buffer((1, 16), "float32")):
        for i in range(1):
            with T.block("B_o"):
                vi_o, vj_o = T.axis.spatial(1, 0), T.axis.spatial(1, 0)
                T.reads(A[0, 0:16])
                T.writes(B[0, 0:16])
                for j in range(16):
                    with T.block("B"):
                        vj_i = T.axis.spatial(16, j)
                        B[0, vj_i] = A[0, vj_i] * 2.0

    for keep, expected in ((True, kept), (False, dropped)):
        sch = make(unit)
        sch.blockize(sch.get_loops("B")[1], preserve_unit_iters=keep)
        assert_same(sch.mod["main"], expected)


def test_blockize_of_neighbours():
    @T.prim_func
    def fused(A: T.Buffer((24, 8), "float32"), C: T.Buffer((24, 8), "float32")):
        B = T.alloc_buffer((24, 8))
        for i in range(24):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * 2.0
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((24, 8), "float32"), C: T.Buffer((24, 8), "float32")):
        B = T.alloc_buffer((24, 8))
        for i in range(24):
            with T.block("outer_B_C_"):
                vi_o, vj_o = T.axis.spatial(24, i), T.axis.spatial(1, 0)
                T.reads(A[vi_o, 0:8], B[vi_o, 0:8])
                T.writes(B[vi_o, 0:8], C[vi_o, 0:8])
                for j in range(8):
                    with T.block("B"):
                        vj_i = T.axis.spatial(8, j)
                        B[vi_o, vj_i] = A[vi_o, vj_i] * 2.0
                for j in range(8):
                    with T.block("C"):
                        vj_i = T.axis.spatial(8, j)
                        C[vi_o, vj_i] = B[vi_o, vj_i] + 1.0

    sch = make(fused)
    made = sch.blockize([sch.get_block("B"), sch.get_block("C")])
    assert_same(sch.mod["main"], expected)
    assert sch.get(made).name_hint == "outer_B_C_"
    verify_trace_roundtrip(sch, fused)


def test_blockize_needs_one_block_below():
    sch = make(pair)
    sch.merge(sch.get_loops("B")[1], sch.get_loops("C")[1])
    with pytest.raises(ScheduleError, match="only one child block"):
        sch.blockize(sch.get_loops("B")[0])


def test_thread_tags():
    sch = make(rowsum)
    i, k = sch.get_loops("S")
    for tag in ("blockIdx.x", "vthread.y"):
        with pytest.raises(ScheduleError, match='The "bind" cannot be fulfilled'):
            sch.bind(k, tag)
    with pytest.raises(InternalError, match="Unknown threadscope"):
        sch.bind(i, "lane.x")
    sch.bind(k, "threadIdx.z")
    with pytest.raises(ScheduleError, match="annotation or thread binding"):
        sch.split(k, [None, 2])
    sch.unroll(k)
    assert sch.get(k).thread_binding is None


def test_a_loop_around_nested_blocks_is_judged_by_all_of_them():
    @T.prim_func
    def nested(A: T.Buffer((4, 8), "float32"), S: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("outer"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi, 0:8])
                T.writes(S[vi])
                for k in range(8):
                    with T.block("inner"):
                        vk = T.axis.reduce(8, k)
                        with T.init():
                            S[vi] = T.float32(0)
                        S[vi] = S[vi] + A[vi, vk]

    sch = make(nested)
    with pytest.raises(ScheduleError, match="parallel"):
        sch.parallel(sch.get_loops("inner")[0])
    sch.parallel(sch.get_loops("outer")[0])


def test_annotations_stay_until_removed():
    sch = make(rowsum)
    loop = sch.get_loops("S")[0]
    sch.annotate(loop, "step", 4)
    sch.annotate(loop, "step", 8)
    assert int(sch.get(loop).annotations["step"]) == 4
    sch.unannotate(loop, "step")
    sch.annotate(loop, "step", 8)
    assert int(sch.get(loop).annotations["step"]) == 8
    for wrong in (None, object(), {1: 2}):
        with pytest.raises(TypeError):
            sch.annotate(loop, "other", wrong)
    with pytest.raises((InternalError, IndexError), match="Cannot find annotation key"):
        sch.unannotate(loop, "none")


def test_fused_digits_of_one_axis_are_one_number():
    """``f // 4 * 32 + f % 4 * 8`` is ``f * 8``, and so for any number of tiles, with others between them or not."""
    rng = np.random.default_rng(3)
    for _ in range(12):
        tiles = [int(n) for n in rng.integers(1, 5, 4)]
        size = int(np.prod(tiles))

        @T.prim_func
        def scaled(A: T.Buffer((size, 6), "float32"), B: T.Buffer((size, 6), "float32")):
            for i, j in T.grid(size, 6):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)

        sch = make(scaled)
        i, j = sch.get_loops("B")
        parts = sch.split(i, tiles)
        first, count = int(rng.integers(0, 2)), int(rng.integers(2, 4))
        between = bool(rng.integers(0, 2))
        run = parts[first : first + count]
        if between:
            sch.reorder(*parts[:first], run[0], j, *run[1:], *parts[first + count :])
            run = [run[0], j, *run[1:]]
        sch.fuse(*run)
        if not between:
            assert "//" not in sch.mod["main"].script() and "%" not in sch.mod["main"].script()
        a = rng.standard_normal((size, 6)).astype("float32")
        b = np.zeros_like(a)
        run_prim_func(sch.mod["main"], [a, b])
        np.testing.assert_array_equal(b, 2 * a)
        verify_trace_roundtrip(sch, scaled)
