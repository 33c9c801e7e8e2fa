"""What stands at one place of a nest must not speak of another: guards inside blocks, copies and moved blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from relaxish.interp import run_prim_func
from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import verify_trace_roundtrip

rng = np.random.default_rng(12)


def test_the_guard_of_a_rolling_buffer_stands_at_the_block_that_rolls():
    """The blocks inside it know nothing of the loop that brings the overlap about."""

    @T.prim_func
    def windows(A: T.Buffer((12, 4), "int32"), C: T.Buffer((10, 4), "int32")):
        B = T.alloc_buffer((12, 4), "int32")
        for i, j in T.grid(12, 4):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] * 2
        for i, j, k in T.grid(10, 4, 3):
            with T.block("C"):
                v, w, r = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v, w] = 0
                C[v, w] = C[v, w] + B[v + r, w]

    sch = Schedule(windows, debug_mask="all")
    sch.compute_at("B", sch.get_loops("C")[0])
    outer = sch.blockize(sch.get_loops("B")[-1], preserve_unit_iters=False)
    sch.rolling_buffer(outer, 0)
    assert check_program(windows, sch.mod["main"]) is None


def padded(inside: bool):
    """A border of threes, and ones of what the guard of an outer or inner variable lets through."""

    @T.prim_func
    def by_outer(A: T.Buffer((7, 2), "int32"), B: T.Buffer((9, 2), "int32")):
        for i, j in T.grid(9, 2):
            with T.block("border"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = 3
        for i in range(9):
            with T.block("row"):
                vi = T.axis.spatial(9, i)
                T.reads(A[vi - 1, 0:2])
                T.writes(B[vi, 0:2])
                for j in range(2):
                    with T.block("core"):
                        v = T.axis.spatial(7, vi - 1)
                        w = T.axis.spatial(2, j)
                        T.where(1 <= vi and vi < 8)
                        B[v + 1, w] = A[v, w]

    @T.prim_func
    def by_inner(A: T.Buffer((7, 2), "int32"), B: T.Buffer((9, 2), "int32")):
        for i, j in T.grid(9, 2):
            with T.block("border"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = 3
        for i in range(7):
            with T.block("row"):
                vi = T.axis.spatial(7, i)
                T.reads(A[vi, 0:2])
                T.writes(B[vi + 1, 0:2])
                for j, j1 in T.grid(1, 3):
                    with T.block("core"):
                        v = T.axis.spatial(7, vi)
                        w = T.axis.spatial(2, j * 3 + j1)
                        T.where(j * 3 + j1 < 2)
                        B[v + 1, w] = A[v, w]

    return by_inner if inside else by_outer


def test_no_copy_back_where_a_guard_leaves_the_whole_block_out():
    sch = Schedule(padded(inside=False))
    with pytest.raises(ScheduleError, match="only parts of the region"):
        sch.cache_write("core", 0, "global")
    assert check_program(padded(inside=False), sch.mod["main"]) is None
    sch = Schedule(padded(inside=True), debug_mask="all")
    sch.cache_write("core", 0, "global")
    assert check_program(padded(inside=True), sch.mod["main"]) is None


@T.prim_func
def normalised(A: T.Buffer((6, 4), "float32"), D: T.Buffer((6, 4), "float32")):
    B = T.alloc_buffer((6, 4))
    C = T.alloc_buffer((6,))
    for i, j in T.grid(6, 4):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] * 2.0
    for i, k in T.grid(6, 4):
        with T.block("C"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                C[v] = 0.0
            C[v] = C[v] + B[v, r]
    for i, j in T.grid(6, 4):
        with T.block("D"):
            v, w = T.axis.remap("SS", [i, j])
            D[v, w] = B[v, w] - C[v]


def test_results_of_a_reduction_are_read_when_it_is_complete():
    """The merged loop runs over the columns, and each element would subtract the sum as far as its own column."""
    sch = Schedule(normalised)
    inner = sch.merge(sch.get_loops("B")[1], sch.get_loops("C")[1])
    with pytest.raises(ScheduleError, match="complete"):
        sch.reverse_compute_at("D", inner)
    sch.reverse_compute_at("D", sch.get_loops("C")[0])
    assert check_program(normalised, sch.mod["main"]) is None


def test_a_reduction_over_one_digit_of_a_loop_is_complete_with_the_other():
    sch = Schedule(normalised, debug_mask="all")
    sch.compute_inline("B")
    fused = sch.fuse(*sch.get_loops("C"))
    sch.reverse_compute_at("D", fused)
    assert check_program(normalised, sch.mod["main"]) is None


def test_a_guard_about_an_outer_block_only_is_no_bound():
    @T.prim_func
    def second_row(A: T.Buffer((4, 5), "int32"), B: T.Buffer((4, 5), "int32")):
        for i, j in T.grid(4, 5):
            with T.block("all"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w]
        for i in range(4):
            with T.block("row"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi, 0:5])
                T.writes(B[vi, 0:5])
                for j in range(5):
                    with T.block("some"):
                        v = T.axis.spatial(1, vi - 1)
                        w = T.axis.spatial(5, j)
                        T.where(vi == 1)
                        B[v + 1, w] = A[v + 1, w] * 2

    for move in (
        lambda sch: sch.reindex("some", ("write", 0)),
        lambda sch: sch.blockize(sch.get_loops("some")[0]),
    ):
        sch = Schedule(second_row)
        with pytest.raises(ScheduleError, match="part of"):
            move(sch)
        assert check_program(second_row, sch.mod["main"]) is None


def test_blocks_around_blocks_do_not_declare_what_inner_variables_say():
    """The hull of two accesses has no one size; seen from outside, each end of it is relaxed by itself."""

    @T.prim_func
    def transposed_sum(A: T.Buffer((6, 6), "int32"), B: T.Buffer((6, 6), "int32")):
        for i, j in T.grid(6, 6):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] + A[w, v]

    sch = Schedule(transposed_sum, debug_mask="all")
    inner = sch.blockize(sch.get_loops("B")[1])
    outer = sch.blockize(sch.get_loops(inner)[0])
    assert [(int(r.min), int(r.extent)) for r in sch.get(outer).reads[0].region] == [(0, 6), (0, 6)]
    assert check_program(transposed_sum, sch.mod["main"]) is None


def test_blocks_begin_their_reductions_for_all_variables_that_are_none():
    """A rolling buffer makes the variables of its axis opaque, those of later blocks, too."""

    @T.prim_func
    def windows(A: T.Buffer((12, 4), "int32"), D: T.Buffer((10,), "int32")):
        B = T.alloc_buffer((12, 4), "int32")
        C = T.alloc_buffer((10, 4), "int32")
        for i, j in T.grid(12, 4):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] * 2
        for i, j, k in T.grid(10, 4, 3):
            with T.block("C"):
                v, w, r = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[v, w] = 0
                C[v, w] = C[v, w] + B[v + r, w]
        for i, k in T.grid(10, 4):
            with T.block("D"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    D[v] = 0
                D[v] = D[v] + C[v, r]

    sch = Schedule(windows, debug_mask="all")
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.rolling_buffer("B", 0)
    sch.blockize(sch.get_loops("D")[0])
    assert check_program(windows, sch.mod["main"]) is None


@T.prim_func
def cropped(A: T.Buffer((9, 4), "int32"), C: T.Buffer((9, 4), "int32")):
    B = T.alloc_buffer((12, 4), "int32")
    for i, j in T.grid(12, 4):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = T.if_then_else(v < 9, A[v, w], 0)
    for i, j in T.grid(12, 4):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, j])
            T.where(i < 9)
            C[v, w] = B[v, w] * 2


def test_guards_go_along_with_a_block_wherever_it_moves():
    """Once under the loop of rows, and then under that of columns, where a loop of one turn is part of the binding."""
    for depths in ((0, 1), (1,), (0,)):
        sch = Schedule(cropped, debug_mask="all")
        for depth in depths:
            sch.reverse_compute_at("C", sch.get_loops("B")[depth], preserve_unit_loops=depth == 0)
        with pytest.raises(ScheduleError):
            sch.reverse_compute_inline("C")
        assert check_program(cropped, sch.mod["main"]) is None


def test_a_guard_that_no_variable_of_the_block_can_express_is_not_lost():
    """The last two elements keep what they held."""

    @T.prim_func
    def pairs(A: T.Buffer((6,), "int32"), C: T.Buffer((6,), "int32")):
        B = T.alloc_buffer((6,), "int32")
        for i in range(6):
            with T.block("B"):
                v = T.axis.spatial(6, i)
                B[v] = A[v] + 1
        for i, k in T.grid(3, 2):
            with T.block("C"):
                v = T.axis.spatial(6, i * 2 + k)
                T.where(i < 2)
                C[v] = B[v]

    sch = Schedule(pairs)
    with pytest.raises(ScheduleError, match="would be lost"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])
    assert check_program(pairs, sch.mod["main"]) is None


def test_blocks_that_left_out_a_border_do_not_come_back_to_it():
    """Asked for every second row only, the copy needs its guard no more; moved on, it would need it again."""

    @T.prim_func
    def strided(A: T.Buffer((9, 4), "int32"), D: T.Buffer((4, 4), "int32")):
        B = T.alloc_buffer((12, 4), "int32")
        C = T.alloc_buffer((9, 4), "int32")
        for i, j in T.grid(12, 4):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = T.if_then_else(v < 9, A[v, w], 0)
        for i, j in T.grid(12, 4):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, j])
                T.where(i < 9)
                C[v, w] = B[v, w] * 2
        for i, j in T.grid(4, 4):
            with T.block("D"):
                v, w = T.axis.remap("SS", [i, j])
                D[v, w] = C[v * 2, w] + 1

    sch = Schedule(strided, debug_mask="all")
    sch.compute_at("C", sch.get_loops("D")[0])
    assert check_program(strided, sch.mod["main"]) is None
    with pytest.raises(ScheduleError, match="beyond the end of C"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])
    assert check_program(strided, sch.mod["main"]) is None


def test_rolling_buffers_compute_nothing_before_what_it_needs_is_there():
    """Of the guarded rows of B, the consumer asks for one too many in each turn, and once more in the next."""

    @T.prim_func
    def pairs(A: T.Buffer((2, 2), "int32"), D: T.Buffer((2,), "int32")):
        B = T.alloc_buffer((2, 2), "int32")
        C = T.alloc_buffer((4,), "int32")
        for i, j in T.grid(2, 2):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w] * 2
        for i in range(4):
            with T.block("C"):
                v = T.axis.spatial(4, i)
                C[v] = B[v // 2, v % 2]
        for i in range(2):
            with T.block("D"):
                v = T.axis.spatial(2, i)
                D[v] = C[v * 2]

    sch = Schedule(pairs, debug_mask="all")
    i, j = sch.get_loops("B")
    sch.split(j, [3, None])
    sch.reverse_compute_at("C", i, preserve_unit_loops=False)
    sch.reverse_compute_at("D", i, preserve_unit_loops=False)
    with pytest.raises(ScheduleError, match="later iteration"):
        sch.rolling_buffer("C", 0)
    assert check_program(pairs, sch.mod["main"]) is None


@T.prim_func
def repeated(A: T.Buffer((3, 5), "float32"), C: T.Buffer((3,), "float32")):
    for i, again, k in T.grid(3, 2, 5):
        with T.block("C"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                C[v] = 0.0
            C[v] = C[v] + A[v, r]


def test_loops_that_repeat_a_reduction_stay_around_it():
    for order in itertools.permutations(range(3)):
        sch = Schedule(repeated, debug_mask="all")
        loops = sch.get_loops("C")
        if order.index(1) < order.index(2):
            sch.reorder(*[loops[i] for i in order])
        else:
            with pytest.raises(ScheduleError, match="repeats the reduction"):
                sch.reorder(*[loops[i] for i in order])
        assert check_program(repeated, sch.mod["main"]) is None
    sch = Schedule(repeated)
    outer, inner = sch.split(sch.fuse(*sch.get_loops("C")[1:]), [5, 2])
    with pytest.raises(ScheduleError, match="repeat updates"):
        sch.reorder(inner, outer)
    assert check_program(repeated, sch.mod["main"]) is None


def test_blocks_around_a_repeated_reduction():
    """The initialisation would stand before the repetitions."""
    for depth in (0, 1):
        sch = Schedule(repeated)
        with pytest.raises(ScheduleError, match="repeats the reduction"):
            sch.blockize(sch.get_loops("C")[depth])
        assert check_program(repeated, sch.mod["main"]) is None
    sch = Schedule(repeated, debug_mask="all")
    sch.blockize(sch.get_loops("C")[2])
    assert check_program(repeated, sch.mod["main"]) is None


def test_no_copy_out_of_turns_that_a_guard_leaves_out():
    """The guard of a split unit loop lets the first of three turns through; the copy would come in all three."""

    @T.prim_func
    def doubled(A: T.Buffer((5,), "float32"), B: T.Buffer((5,), "float32")):
        for i, u in T.grid(5, 1):
            with T.block("B"):
                v = T.axis.spatial(5, i)
                B[v] = A[v] * 2.0

    sch = Schedule(doubled)
    outer, inner = sch.split(sch.get_loops("B")[1], [3, None], preserve_unit_iters=False)
    with pytest.raises(ScheduleError, match="sure to be written"):
        sch.write_at(outer, "B", 0, "global")
    assert check_program(doubled, sch.mod["main"]) is None
    sch = Schedule(doubled, debug_mask="all")
    outer, inner = sch.split(sch.get_loops("B")[0], [None, 2])
    sch.cache_write("B", 0, "global")
    sch.reverse_compute_at("B_global", outer)
    assert check_program(doubled, sch.mod["main"]) is None


def test_traces_of_accesses_without_dimensions_can_be_printed():
    @T.prim_func
    def scalar(A: T.Buffer((), "float32"), B: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.block("B"):
                v = T.axis.spatial(3, i)
                B[v] = A[()] + 1.0

    sch = Schedule(scalar, debug_mask="all")
    sch.annotate_buffer_access("B", 0, "read", lambda v: [])
    verify_trace_roundtrip(sch, scalar)


@T.prim_func
def row_sums(A: T.Buffer((12, 4), "int32"), B: T.Buffer((12,), "int32")):
    for k, i in T.grid(4, 12):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = 0
            B[v] = B[v] + A[v, r]


def test_pieces_of_a_loop_around_pieces_of_a_reduction_do_not_begin_anew():
    """The blocks that a partition makes hide the reduction from the loops above them."""
    sch = Schedule(row_sums, debug_mask="all")
    sch.loop_partition(sch.get_loops("B")[1], [None, 3], preserve_unit_iters=False)
    (common,) = sch.get_child_blocks("root")
    (k,) = sch.get_loops(common)
    with pytest.raises(ScheduleError, match="initialised again"):
        sch.loop_partition(k, [1, None])
    assert check_program(row_sums, sch.mod["main"]) is None


def test_what_follows_a_reduction_under_a_loop_that_rfactor_drops_does_not_use_it():
    sch = Schedule(row_sums, debug_mask="all")
    sch.cache_write("B", 0, "local")
    k, i = sch.get_loops("B")
    outer, inner = sch.split(k, [2, None])
    sch.write_at(outer, "B", 0, "local")
    sch.split(outer, [None, 3])
    before = sch.mod
    with pytest.raises(ScheduleError, match="only the reduction"):
        sch.rfactor(inner, 0)
    assert sch.mod is before


def test_the_guard_of_one_access_does_not_place_another():
    """Only iteration 2 reads ``B``: what that says of the outer loop must not shift the accesses of ``D``."""

    @T.prim_func
    def shifted(A: T.Buffer((1,), "int32"), E: T.Buffer((5,), "int32")):
        B, C, D = T.alloc_buffer((1,), "int32"), T.alloc_buffer((3,), "int32"), T.alloc_buffer((5,), "int32")
        for i in range(1):
            with T.block("B"):
                v = T.axis.spatial(1, i)
                B[v] = A[v] * 3
        for i in range(3):
            with T.block("C"):
                v = T.axis.spatial(3, i)
                C[v] = T.if_then_else(1 <= v and v < 2, B[v - 1], 3)
        for i in range(5):
            with T.block("D"):
                v = T.axis.spatial(5, i)
                D[v] = T.if_then_else(1 <= v and v < 4, C[v - 1], 2)
        for i in range(5):
            with T.block("E"):
                v = T.axis.spatial(5, i)
                E[v] = D[v] * 5

    sch = Schedule(shifted, debug_mask="all")
    (loop,) = sch.get_loops("D")
    sch.reverse_compute_at("E", loop)
    sch.compute_inline("C")
    sch.split(loop, [None, 2])
    assert check_program(shifted, sch.mod["main"]) is None


@pytest.mark.parametrize("asked", [False, True])
def test_what_a_partition_made_is_judged_where_it_stands(asked):
    """Flags of its blocks are those of the program it leaves, whether a step in between asked for them or not."""

    @T.prim_func
    def chain(A: T.Buffer((3, 6), "int32"), E: T.Buffer((3, 6), "int32")):
        B, C = T.alloc_buffer((3,), "int32"), T.alloc_buffer((3, 6), "int32")
        for i, k in T.grid(3, 6):
            with T.block("B"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0
                B[v] = B[v] + A[v, r]
        for i, j in T.grid(3, 6):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, j])
                C[v, w] = A[v, w] - B[v]
        for i, j in T.grid(3, 6):
            with T.block("E"):
                v, w = T.axis.remap("SS", [i, j])
                E[v, w] = C[v, w] * 2

    sch = Schedule(chain, debug_mask="all")
    sch.loop_partition(sch.get_loops("E")[1], [1, None])
    sch.unroll(sch.get_loops("C")[1])
    if asked:
        with pytest.raises(ScheduleError):
            sch.compute_inline("E_j0")
    sch.transform_layout("B", ("write", 0), lambda i: (i // 4, i % 4), pad_value=0)
    sch.reindex("C", ("read", 1))
    assert check_program(chain, sch.mod["main"]) is None


def test_a_stated_access_of_a_piece_is_of_its_variables_as_they_are_seen():
    """The variables of a later piece begin where it does until some primitive needs them to begin at zero."""

    @T.prim_func
    def copied(A: T.Buffer((1, 6), "int32"), B: T.Buffer((6,), "int32")):
        for i in range(6):
            with T.block("B"):
                v = T.axis.spatial(6, i)
                B[v] = A[v // 6, v % 6] * 2

    sch = Schedule(copied, debug_mask="all")
    sch.loop_partition(sch.get_loops("B")[0], [2, None])
    sch.annotate_buffer_access("B_i1", 0, "read", lambda v: [(v // 6, v // 6 + 1), (v % 6, v % 6 + 1)])
    sch.reindex_cache_read("B_i1", 0, "global", lambda v: (v,))
    assert check_program(copied, sch.mod["main"]) is None


def test_blocks_over_every_other_value_are_not_cut():
    """The values of ``i * 2`` reach beyond their number, which is what an outer variable would be given as domain."""

    @T.prim_func
    def strided(A: T.Buffer((84,), "int32"), C: T.Buffer((42,), "int32")):
        B = T.alloc_buffer((84,), "int32")
        for i in range(42):
            for j in range(1):
                with T.block("B"):
                    v = T.axis.spatial(84, i * 2 + j)
                    B[v] = A[v] + 1
            with T.block("C"):
                v = T.axis.spatial(42, i)
                C[v] = B[v * 2]

    sch = Schedule(strided, debug_mask="all")
    with pytest.raises(ScheduleError, match="can not be blockized"):
        sch.blockize(sch.get_loops("B")[1], preserve_unit_iters=False)


def test_rows_of_three_in_tiles_of_four_live_outside_of_the_loop():
    """An iteration reads what the one before has written: the tile that both have a part of."""

    @T.prim_func
    def tiled(A: T.Buffer((4, 3), "int32"), C: T.Buffer((6,), "int32")):
        B = T.alloc_buffer((3, 4), "int32")
        for i in range(4):
            for j in range(3):
                with T.block("B"):
                    v = T.axis.spatial(12, i * 3 + j)
                    B[v // 4, v % 4] = A[v // 3, v % 3]
            for k in range((i * 3 % 4 + 2) // 4 * 2 + 2):
                with T.block("C"):
                    v = T.axis.spatial(6, i * 3 // 4 * 2 + k)
                    C[v] = B[v // 2, v % 2 * 2]

    assert check_program(tiled, tiled) is None


@pytest.mark.parametrize("guard", [False, True])
def test_a_copy_of_the_row_that_data_choose_reads_no_other_row(guard):
    """Under a guard the row may be none, and a copy without the guard would look for it all the same."""

    @T.prim_func
    def chosen(W: T.Buffer((5, 8), "int32"), I: T.Buffer((3,), "int32"), Y: T.Buffer((3, 8), "int32")):
        for e in range(3):
            with T.block("outer"):
                ve = T.axis.spatial(3, e)
                for i in range(8):
                    with T.block("Y"):
                        v = T.axis.spatial(8, i)
                        Y[ve, v] = T.if_then_else(0 <= I[ve], W[I[ve], v], 0) if guard else W[I[ve], v]

    sch = Schedule(chosen, debug_mask="all")
    place = next(i for i, r in enumerate(sch.get(sch.get_block("Y")).reads) if r.buffer.name == "W")
    if guard:
        with pytest.raises(ScheduleError, match="leaves the buffer"):
            sch.cache_read("Y", place, "local")
        return
    sch.cache_read("Y", place, "local")
    data = [rng.integers(-9, 9, (5, 8), dtype="int32"), np.array([4, 0, 3], "int32"), np.zeros((3, 8), "int32")]
    run_prim_func(sch.mod["main"], data)
    np.testing.assert_array_equal(data[2], data[0][data[1]])
    verify_trace_roundtrip(sch, chosen)
