"""Blocks inside others, guards that loops share, and reductions begun elsewhere: what would go wrong is refused."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
from relaxish.testing.fuzz.intrinsics import register_intrinsics
from relaxish.tir.schedule import Schedule, ScheduleError


@T.prim_func
def turned(A: T.Buffer((2, 4), "int32"), C: T.Buffer((4, 2), "int32")):
    B = T.alloc_buffer((4, 2), "int32")
    for i, j in T.grid(4, 2):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[w, v] * 3
    for i, j in T.grid(4, 2):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, j])
            C[v, w] = B[v, w] - 1


@T.prim_func
def row_sums(A: T.Buffer((6, 7), "float32"), C: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((6,))
    for i, k in T.grid(6, 7):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = 0.0
            B[v] = B[v] + A[v, r]
    for i in range(6):
        with T.block("C"):
            v = T.axis.spatial(6, i)
            C[v] = B[v] * 2.0


@T.prim_func
def product(A: T.Buffer((8, 6), "float32"), B: T.Buffer((6, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    for i, j, k in T.grid(8, 4, 6):
        with T.block("C"):
            v, w, r = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[v, w] = 0.0
            C[v, w] = C[v, w] + A[v, r] * B[r, w]


@T.prim_func
def nested(A: T.Buffer((5, 6), "float32"), C: T.Buffer((5, 6), "float32")):
    """The outer block says which row the inner ones run over."""
    for i in range(5):
        with T.block("row"):
            vi = T.axis.spatial(5, i)
            T.reads(A[vi, 0:6])
            T.writes(C[vi, 0:6])
            B = T.alloc_buffer((5, 6))
            for j in range(6):
                with T.block("B"):
                    v = T.axis.spatial(5, vi)
                    w = T.axis.spatial(6, j)
                    B[v, w] = A[v, w] * 2.0
            for j in range(6):
                with T.block("C"):
                    v = T.axis.spatial(5, vi)
                    w = T.axis.spatial(6, j)
                    C[v, w] = B[v, w] + 1.0


def _twice_split(sch: Schedule, block: str) -> None:
    """Guards that name loops which drive nothing: ``(i_0 * 2 + i_1) * 5 + i_2 < 4 and i_0 * 2 + i_1 < 1``."""
    outer, _ = sch.split(sch.get_loops(block)[0], [None, 5], preserve_unit_iters=False)
    sch.split(outer, [None, 2], preserve_unit_iters=False)


def test_reindexing_caches_take_guards_along_that_name_other_loops():
    sch = Schedule(turned, debug_mask="all")
    _twice_split(sch, "B")
    sch.reindex_cache_read("B", 0, "global", lambda i, j: (i, j))
    assert check_program(turned, sch.mod["main"]) is None
    sch = Schedule(turned, debug_mask="all")
    _twice_split(sch, "B")
    sch.reindex_cache_write("B", 0, "global", lambda i, j: (j, i))
    assert check_program(turned, sch.mod["main"]) is None


def test_reindexing_caches_leave_guards_of_a_reduction_behind():
    sch = Schedule(row_sums, debug_mask="all")
    sch.split(sch.get_loops("B")[1], [None, 3])
    copy = sch.reindex_cache_write("B", 0, "global", lambda i, k: (i,))
    assert len(sch.get_loops(copy)) == 1
    assert check_program(row_sums, sch.mod["main"]) is None


@pytest.mark.parametrize("inverse", [lambda v, w: (w, v), lambda v, w: (v, w)])
def test_block_layouts_leave_alone_what_an_outer_block_decides(inverse):
    sch = Schedule(nested)
    with pytest.raises(ScheduleError, match="plain loop variables"):
        sch.transform_block_layout("B", inverse)
    assert check_program(nested, sch.mod["main"]) is None


def test_block_layouts_want_a_loop_for_each_variable():
    @T.prim_func
    def diagonal(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("all"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w]
        for i in range(4):
            with T.block("diagonal"):
                v = T.axis.spatial(4, i)
                w = T.axis.spatial(4, i)
                B[v, w] = T.float32(-1)

    @T.prim_func
    def part(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("all"):
                v = T.axis.spatial(4, i)
                B[v] = A[v]
        for i in range(2):
            with T.block("part"):
                v = T.axis.spatial(4, i)
                B[v] = T.float32(-1)

    with pytest.raises(ScheduleError, match="plain loop variables"):
        Schedule(diagonal).transform_block_layout("diagonal", lambda v, w: (w, v))
    with pytest.raises(ScheduleError, match="does not run over all"):
        Schedule(part).transform_block_layout("part", lambda v: (v,))


def test_block_layouts_of_a_repeated_update():
    @T.prim_func
    def tripled(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("init"):
                v = T.axis.spatial(4, i)
                B[v] = T.float32(0)
        for i, again in T.grid(4, 3):
            with T.block("update"):
                v = T.axis.spatial(4, i)
                B[v] = B[v] + A[v]

    with pytest.raises(ScheduleError, match="drives no variable"):
        Schedule(tripled).transform_block_layout("update", lambda v: (v,))


def test_block_layouts_rename_what_is_viewed():
    register_intrinsics()
    sch = Schedule(product, debug_mask="all")
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 2])
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.decompose_reduction("C", i0)
    sch.tensorize(i1, "fuzz.product_4x2x2", preserve_unit_iters=False)
    sch.transform_block_layout("C_update_o", lambda v, w, r: (r, w, v))
    assert check_program(product, sch.mod["main"]) is None


def test_moved_blocks_stay_with_what_the_outer_block_decides():
    @T.prim_func
    def compact(A: T.Buffer((5, 6), "float32"), C: T.Buffer((5, 6), "float32")):
        for i in range(5):
            with T.block("row"):
                vi = T.axis.spatial(5, i)
                T.reads(A[vi, 0:6])
                T.writes(C[vi, 0:6])
                B = T.alloc_buffer((1, 6))
                for j in range(6):
                    with T.block("B"):
                        v = T.axis.spatial(5, vi)
                        w = T.axis.spatial(6, j)
                        B[v - vi, w] = A[v, w] * 2.0
                for one, j in T.grid(1, 6):
                    with T.block("C"):
                        v, w = T.axis.remap("SS", [one, j])
                        C[vi + v, w] = B[v, w] + 1.0

    sch = Schedule(compact)
    with pytest.raises(ScheduleError, match="outer block decides"):
        sch.reverse_compute_at("B", sch.get_loops("C")[0], index=0)
    assert check_program(compact, sch.mod["main"]) is None
    # What is asked for is the very row that the outer block says.
    sch = Schedule(nested, debug_mask="all")
    sch.compute_at("B", sch.get_loops("C")[0])
    assert check_program(nested, sch.mod["main"]) is None


def test_no_copies_of_a_block_that_goes_on_with_what_was_begun_outside():
    sch = Schedule(row_sums)
    i, k = sch.get_loops("B")
    sch.decompose_reduction("B", i)
    outer = sch.blockize(k, preserve_unit_iters=False)
    for made in (
        lambda: sch.reindex(outer, ("write", 0)),
        lambda: sch.cache_write(outer, 0, "global"),
        lambda: sch.write_at(sch.get_loops(outer)[0], outer, 0, "global"),
    ):
        with pytest.raises(ScheduleError, match="initialised elsewhere|written by single block"):
            made()
    assert check_program(row_sums, sch.mod["main"]) is None


def test_copies_of_a_block_that_begins_inside():
    sch = Schedule(row_sums, debug_mask="all")
    i, k = sch.get_loops("B")
    outer = sch.blockize(k)
    inner = sch.get_child_blocks(outer)[0]
    del i, inner
    sch.cache_write(outer, 0, "global")
    assert check_program(row_sums, sch.mod["main"]) is None


def test_write_at_leaves_alone_what_was_written_before_its_loop():
    sch = Schedule(row_sums)
    outer = sch.blockize(sch.get_loops("B")[0], preserve_unit_iters=False)
    inner = sch.get_child_blocks(outer)[0]
    _, back = sch.cache_inplace(inner, 0, "local")
    with pytest.raises(ScheduleError, match="before"):
        sch.write_at(sch.get_loops(back)[0], back, 0, "local")
    assert check_program(row_sums, sch.mod["main"]) is None


def test_rolling_leaves_reductions_what_they_are():
    @T.prim_func
    def windows(A: T.Buffer((16, 7), "int32"), B: T.Buffer((7, 8), "int32"), C: T.Buffer((6, 8), "int32")):
        P = T.alloc_buffer((8, 8), "int32")
        Q = T.alloc_buffer((8, 8), "int32")
        for k, j, i in T.grid(7, 8, 8):
            with T.block("P"):
                r, w, v = T.axis.remap("RSS", [k, j, i])
                with T.init():
                    P[v, w] = 0
                P[v, w] = P[v, w] + A[v * 2, r] * B[r, w]
        for i, j in T.grid(8, 8):
            with T.block("Q"):
                v, w = T.axis.remap("SS", [i, j])
                Q[v, w] = P[v, w] + 1
        for i, j, k in T.grid(6, 8, 3):
            with T.block("C"):
                v, w, r = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v, w] = 0
                C[v, w] = C[v, w] + Q[v + r, w]

    sch = Schedule(windows, debug_mask="all")
    sch.compute_at("Q", sch.get_loops("C")[1])
    sch.rolling_buffer("Q", 0)
    assert check_program(windows, sch.mod["main"]) is None


def test_no_copies_of_a_reduction_that_an_outer_block_takes_in_steps():
    @T.prim_func
    def stepwise(A: T.Buffer((5, 6), "float32"), C: T.Buffer((5,), "float32")):
        for k in range(6):
            with T.block("step"):
                vk = T.axis.reduce(6, k)
                T.reads(A[0:5, vk])
                T.writes(C[0:5])
                for i in range(5):
                    with T.block("C"):
                        v = T.axis.spatial(5, i)
                        r = T.axis.reduce(6, vk)
                        with T.init():
                            C[v] = 0.0
                        C[v] = C[v] + A[v, r]

    sch = Schedule(stepwise)
    for made in (
        lambda: sch.cache_write("C", 0, "global"),
        lambda: sch.reindex("C", ("write", 0)),
        lambda: sch.reindex_cache_write("C", 0, "global", lambda v, r: (v,)),
        lambda: sch.write_at(sch.get_loops("C")[0], "C", 0, "global"),
    ):
        with pytest.raises(ScheduleError, match="initialised elsewhere|not a stage pipeline"):
            made()
    assert check_program(stepwise, sch.mod["main"]) is None


def test_terms_of_turns_that_overlap_are_not_repeated():
    """A guard keeps the producer's innermost loop of three to two values; the next turn begins with the third."""

    @T.prim_func
    def rows(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4, 8))
        for i, j in T.grid(4, 8):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] * 2.0
        for i, k in T.grid(4, 8):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = 0.0
                C[v] = C[v] + B[v, r]

    def split(sch: Schedule, size: int):
        outer, inner = sch.split(sch.get_loops("B")[1], [4, 2])
        sch.split(inner, [None, size])
        return outer

    sch = Schedule(rows)
    with pytest.raises(ScheduleError, match="repeat terms"):
        sch.reverse_compute_at("C", split(sch, 3))
    sch = Schedule(rows, debug_mask="all")
    sch.reverse_compute_at("C", split(sch, 2))
    assert check_program(rows, sch.mod["main"]) is None


def test_reindexed_writes_do_not_come_after_reads_of_the_next_turn():
    sch = Schedule(row_sums)
    outer = sch.blockize(sch.get_loops("B")[0], preserve_unit_iters=False)
    _, back = sch.cache_inplace(sch.get_child_blocks(outer)[0], 0, "local")
    with pytest.raises(ScheduleError, match="too late"):
        sch.reindex_cache_write(back, 0, "local", lambda v: (v,))
    assert check_program(row_sums, sch.mod["main"]) is None


def test_turns_that_share_elements_are_not_updated_after_one_initialisation():
    """Each turn of the second loop computes the whole tile of four that its element lies in."""

    @T.prim_func
    def tiles(A: T.Buffer((3, 12, 5), "float32"), C: T.Buffer((3, 12), "float32")):
        for i, j, t, k in T.grid(3, 12, 4, 5):
            with T.block("C"):
                v = T.axis.spatial(3, i)
                w = T.axis.spatial(12, j // 4 * 4 + t)
                r = T.axis.reduce(5, k)
                with T.init():
                    C[v, w] = 0.0
                C[v, w] = C[v, w] + A[v, w, r]

    for further_out in (0, 1):
        sch = Schedule(tiles)
        with pytest.raises(ScheduleError, match="repeat updates"):
            sch.decompose_reduction("C", sch.get_loops("C")[further_out])
    sch = Schedule(tiles, debug_mask="all")
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    assert check_program(tiles, sch.mod["main"]) is None


def test_initialisation_before_fused_and_split_loops_with_a_rest():
    sch = Schedule(product, debug_mask="all")
    i, j, k = sch.get_loops("C")
    outer, inner = sch.split(sch.fuse(i, j), [None, 7])
    sch.split(k, [None, 4])
    sch.decompose_reduction("C", inner)
    assert check_program(product, sch.mod["main"]) is None
    sch = Schedule(product, debug_mask="all")
    sch.split(sch.fuse(*sch.get_loops("C")[:2]), [None, 7])
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    assert check_program(product, sch.mod["main"]) is None


def test_no_copies_of_an_update_that_works_on_a_view():
    """What the tensorized update adds to was set to zero by a block before the loop."""
    register_intrinsics()
    sch = Schedule(product)
    i, j, k = (sch.split(loop, [None, size]) for loop, size in zip(sch.get_loops("C"), (2, 2, 3), strict=True))
    sch.reorder(i[0], j[0], k[0], i[1], j[1], k[1])
    sch.decompose_reduction("C", i[0])
    sch.tensorize(i[1], "fuzz.product_2x2x3")
    update = sch.get_block("C_update_o")
    with pytest.raises(ScheduleError, match="initialised elsewhere"):
        sch.write_at(j[0], update, 0, "global")
    assert check_program(product, sch.mod["main"]) is None


def test_no_copies_of_an_update_by_statements_that_load_first():
    @T.prim_func
    def summed(A: T.Buffer((6, 7), "float32"), C: T.Buffer((6,), "float32")):
        for i in range(6):
            with T.block("zero"):
                v = T.axis.spatial(6, i)
                C[v] = 0.0
        for i in range(6):
            with T.block("C"):
                v = T.axis.spatial(6, i)
                T.reads(A[v, 0:7], C[v])
                T.writes(C[v])
                for j in range(7):
                    C[v] = C[v] + A[v, j]

    sch = Schedule(summed)
    with pytest.raises(ScheduleError, match="initialised elsewhere"):
        sch.write_at(sch.get_loops("C")[0], "C", 0, "global")
    assert check_program(summed, sch.mod["main"]) is None


def test_alignment_outlives_the_dimensions_it_was_made_for():
    @T.prim_func
    def one(A: T.Buffer((1,), "float32"), C: T.Buffer((3,), "float32")):
        B = T.alloc_buffer((1,))
        for i in range(1):
            with T.block("B"):
                v = T.axis.spatial(1, i)
                B[v] = A[v] - 2.0
        for i in range(3):
            with T.block("C"):
                v = T.axis.spatial(3, i)
                C[v] = B[0] * 3.0

    sch = Schedule(one, debug_mask="all")
    sch.storage_align("B", 0, 0, 8, 2)
    sch.blockize(sch.get_loops("B")[0], preserve_unit_iters=False)
    sch.reindex("B", ("write", 0))
    assert check_program(one, sch.mod["main"]) is None
