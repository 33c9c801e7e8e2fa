"""Moves that would change what a program computes are refused; those next to them that would not are made."""

from __future__ import annotations

import pytest

from relaxish.ir import assert_structural_equal
from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
from relaxish.testing.fuzz.intrinsics import register_intrinsics
from relaxish.tir.analysis import verify_well_formed
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.subst import conjuncts


@T.prim_func
def two_stages(A: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
    B = T.alloc_buffer((10,))
    for i in range(10):
        with T.block("B"):
            v = T.axis.spatial(10, i)
            B[v] = A[v] * 2.0
    for i in range(10):
        with T.block("C"):
            v = T.axis.spatial(10, i)
            C[v] = B[v] + 1.0


@T.prim_func
def row_sums(A: T.Buffer((5, 6), "float32"), B: T.Buffer((5,), "float32")):
    for i, k in T.grid(5, 6):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = 0.0
            B[v] = B[v] + A[v, r]


@T.prim_func
def some_rows(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.block("all"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w]
    for i, j in T.grid(8, 4):
        with T.block("some"):
            v, w = T.axis.remap("SS", [i, j])
            T.where(i == 3 and 1 <= j)
            B[v, w] = T.float32(-1.0)


@pytest.mark.parametrize(
    "move",
    [
        lambda sch: sch.reindex("some", ("write", 0)),
        lambda sch: sch.blockize(sch.get_loops("some")[1]),
        lambda sch: sch.blockize(sch.get_loops("some")[0]),
    ],
)
def test_a_predicate_that_takes_a_part_of_the_domain(move):
    with pytest.raises(ScheduleError, match="part of its domain"):
        move(Schedule(some_rows))


def test_a_predicate_of_an_imperfect_split_is_no_hindrance():
    sch = Schedule(two_stages, debug_mask="all")
    sch.split(sch.get_loops("B")[0], [None, 4])
    sch.reindex("B", ("write", 0))
    sch.blockize(sch.get_loops("C")[0])
    assert check_program(two_stages, sch.mod["main"]) is None
    sch = Schedule(row_sums, debug_mask="all")
    fused = sch.fuse(*sch.get_loops("B"))
    sch.split(fused, [None, 7])
    assert check_program(row_sums, sch.mod["main"]) is None


def test_block_layout_takes_the_predicate_along():
    @T.prim_func
    def expected(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        for i, j in T.grid(8, 4):
            with T.block("all"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w]
        for ax0, ax1 in T.grid(4, 8):
            with T.block("some"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.where(ax1 == 3 and 1 <= ax0)
                B[v1, v0] = T.float32(-1.0)

    sch = Schedule(some_rows)
    sch.transform_block_layout("some", lambda i, j: (j, i))
    assert_structural_equal(sch.mod["main"], expected.with_attr("global_symbol", "some_rows"))


def test_initialisation_of_a_blockized_reduction_ignores_bounds_of_the_reduction():
    sch = Schedule(row_sums, debug_mask="all")
    i, k = sch.get_loops("B")
    sch.split(k, [None, 4])
    sch.blockize(i)
    verify_well_formed(sch.mod["main"])
    assert check_program(row_sums, sch.mod["main"]) is None


def test_rolling_buffer_wants_the_whole_region():
    sch = Schedule(two_stages)
    sch.compute_at("B", sch.get_loops("C")[0], preserve_unit_loops=True)
    sch.split(sch.get_loops("B")[1], [None, 3])
    with pytest.raises(ScheduleError, match="part of its domain"):
        sch.rolling_buffer("B", 0)


def test_reverse_compute_at_after_a_strided_producer():
    sch = Schedule(two_stages)
    outer, inner = sch.split(sch.get_loops("B")[0], [5, 2])
    sch.reorder(inner, outer)
    with pytest.raises(ScheduleError, match="leaves elements out"):
        sch.reverse_compute_at("C", inner)
    sch = Schedule(two_stages, debug_mask="all")
    outer, inner = sch.split(sch.get_loops("B")[0], [5, 2])
    sch.reverse_compute_at("C", outer)
    assert check_program(two_stages, sch.mod["main"]) is None


@T.prim_func
def framed(A: T.Buffer((4, 5), "float32"), C: T.Buffer((6, 5), "float32")):
    B = T.alloc_buffer((4, 5))
    for i, j in T.grid(4, 5):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] * 3.0
    for i, j in T.grid(6, 5):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, j])
            C[v, w] = T.if_then_else(1 <= v and v < 5, B[v - 1, w], T.float32(7.0))


@pytest.mark.parametrize("inside", [False, True])
def test_reverse_inlining_keeps_what_lies_outside_of_the_producer(inside):
    sch = Schedule(framed)
    if inside:
        sch.blockize(sch.get_loops("B")[1])
    with pytest.raises(ScheduleError, match="does not run over all values"):
        sch.reverse_compute_inline("C")


@T.prim_func
def product(A: T.Buffer((3, 10), "float32"), B: T.Buffer((10, 4), "float32"), C: T.Buffer((3, 4), "float32")):
    P = T.alloc_buffer((3, 10))
    for i, k in T.grid(3, 10):
        with T.block("P"):
            v, r = T.axis.remap("SS", [i, k])
            P[v, r] = A[v, r]
    for i, j, k in T.grid(3, 4, 10):
        with T.block("C"):
            v, w, r = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[v, w] = 0.0
            C[v, w] = C[v, w] + P[v, r] * B[r, w]


def test_padded_layout_in_a_blockized_program_has_loops_of_its_own():
    sch = Schedule(product, debug_mask="all")
    sch.blockize(sch.get_loops("C")[0])
    sch.transform_layout("P", ("write", 0), lambda i, k: (i, k // 4, k % 4), pad_value=0.0)
    verify_well_formed(sch.mod["main"])
    assert check_program(product, sch.mod["main"]) is None


def test_a_repeated_reduction_starts_anew_each_time():
    @T.prim_func
    def twice(A: T.Buffer((5, 6), "float32"), B: T.Buffer((5,), "float32")):
        for i, again, k in T.grid(5, 2, 6):
            with T.block("B"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0.0
                B[v] = B[v] + A[v, r]

    sch = Schedule(twice)
    i, again, k = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="repeats the reduction"):
        sch.decompose_reduction("B", again)
    sch.decompose_reduction("B", k)


def test_a_reduction_variable_that_indexes_nothing_cannot_be_padded():
    @T.prim_func
    def first_column(A: T.Buffer((5, 1), "float32"), B: T.Buffer((5,), "float32")):
        for i, k in T.grid(5, 1):
            with T.block("B"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0.0
                B[v] = B[v] + A[v, 0]

    with pytest.raises(ScheduleError, match="indexes nothing"):
        Schedule(first_column).pad_einsum("B", [2, 2])
    sch = Schedule(row_sums, debug_mask="all")
    sch.pad_einsum("B", [2, 4])
    assert check_program(row_sums, sch.mod["main"]) is None


def test_pieces_of_a_loop_have_buffers_of_their_own():
    sch = Schedule(product)
    block = sch.blockize(sch.get_loops("C")[1])
    inner = sch.get_child_blocks(block)[0]
    sch.reindex(inner, ("read", 2))
    sch.compute_inline("P")
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    update = sch.get_block("C_o_update")
    sch.loop_partition(sch.get_loops(update)[0], [1, None])
    verify_well_formed(sch.mod["main"])


def test_reindexed_reads_come_after_the_write():
    @T.prim_func
    def alternating(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        X = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("read"):
                v = T.axis.spatial(4, i)
                A[v] = X[v]
            with T.block("write"):
                v = T.axis.spatial(4, i)
                X[v] = B[v]

    sch = Schedule(alternating)
    with pytest.raises(ScheduleError, match="before"):
        sch.reindex_cache_read("read", 0, "global", lambda i: [i])


def test_views_keep_the_layout_they_were_made_for():
    register_intrinsics()

    @T.prim_func
    def copied(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v]

    sch = Schedule(copied)
    _, inner = sch.split(sch.get_loops("C")[0], [2, 4])
    sch.tensorize(inner, "fuzz.copy_4")
    with pytest.raises(ScheduleError, match="match_buffer"):
        sch.transform_layout("B", ("write", 0), lambda i: (i // 2, i % 2))
    [view] = sch.get_child_blocks(sch.get_block("C_o"))
    sch.reindex(view, ("read", 0))
    verify_well_formed(sch.mod["main"])
    assert check_program(copied, sch.mod["main"]) is None
    # An intrinsic for other memory does not fit.
    sch = Schedule(copied)
    sch.set_scope("B", 0, "local")
    _, inner = sch.split(sch.get_loops("C")[0], [2, 4])
    with pytest.raises(ScheduleError, match="scope"):
        sch.tensorize(inner, "fuzz.copy_4")


def test_caches_stay_inside_the_buffer():
    sch = Schedule(row_sums)
    outer, inner = sch.split(sch.get_loops("B")[0], [None, 2])
    sch.decompose_reduction("B", inner)
    del outer
    with pytest.raises(ScheduleError, match="leaves the buffer"):
        sch.cache_inplace("B_update", 0, "global")


def test_a_merged_loop_must_not_cut_a_reduction():
    @T.prim_func
    def doubled(A: T.Buffer((3, 5), "float32"), C: T.Buffer((3,), "float32")):
        B = T.alloc_buffer((5,))
        for k, j in T.grid(3, 5):
            with T.block("B"):
                r, w = T.axis.remap("RS", [k, j])
                with T.init():
                    B[w] = 0.0
                B[w] = B[w] + A[r, w]
        for i in range(3):
            with T.block("C"):
                v = T.axis.spatial(3, i)
                C[v] = B[v] * 2.0

    sch = Schedule(doubled)
    with pytest.raises(ScheduleError, match="merged loop"):
        sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])


def test_terms_of_a_moved_reduction_are_not_repeated():
    """Under one loop over rows, columns and terms each partial sum of ``P`` would come twice."""

    @T.prim_func
    def chained(A: T.Buffer((4, 2), "float32"), B: T.Buffer((2, 2), "float32"), C: T.Buffer((4,), "float32")):
        P = T.alloc_buffer((4, 2))
        for i, j, k in T.grid(4, 2, 2):
            with T.block("P"):
                v, w, r = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    P[v, w] = 0.0
                P[v, w] = P[v, w] + A[v, r] * B[r, w]
        for i, k in T.grid(4, 2):
            with T.block("C"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    C[v] = 0.0
                C[v] = C[v] + P[v, r]

    sch = Schedule(chained)
    fused = sch.fuse(*sch.get_loops("P"))
    with pytest.raises(ScheduleError, match="repeat terms"):
        sch.reverse_compute_at("C", fused)
    sch = Schedule(chained, debug_mask="all")
    sch.reverse_compute_at("C", sch.get_loops("P")[0])
    assert check_program(chained, sch.mod["main"]) is None


def test_block_layouts_without_loops_or_with_unit_ones():
    @T.prim_func
    def single(A: T.Buffer((1,), "float32"), B: T.Buffer((1,), "float32")):
        with T.block("B"):
            T.reads(A[0])
            T.writes(B[0])
            B[0] = A[0]
        with T.block("again"):
            T.reads(B[0])
            T.writes(B[0])
            B[0] = B[0] + T.float32(1)

    sch = Schedule(single)
    sch.transform_block_layout("B", lambda: [0])
    assert len(sch.get_loops("B")) == len(sch.get(sch.get_block("B")).iter_vars) == 1
    assert check_program(single, sch.mod["main"]) is None
    sch = Schedule(row_sums, debug_mask="all")
    sch.split(sch.get_loops("B")[1], [None, 8], preserve_unit_iters=False)
    sch.transform_block_layout("B", lambda i, k: (k, i))
    verify_well_formed(sch.mod["main"])
    assert check_program(row_sums, sch.mod["main"]) is None


def test_alignment_of_a_buffer_nobody_reads():
    @T.prim_func
    def unused(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32")):
        B = T.alloc_buffer((4, 6))
        for i, j in T.grid(4, 6):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v, w]
        for i, j in T.grid(4, 6):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, j])
                C[v, w] = A[v, w]

    sch = Schedule(unused)
    sch.storage_align("B", 0, 0, 8, 3)
    assert check_program(unused, sch.mod["main"]) is None


@pytest.mark.parametrize("axis", [0, 1])
def test_aligned_memory_is_large_enough(axis):
    sch = Schedule(framed, debug_mask="all")
    sch.storage_align("B", 0, axis, 8, 3)
    assert check_program(framed, sch.mod["main"]) is None


def test_the_guard_of_a_crop_goes_with_its_block():
    @T.prim_func
    def swapped(A: T.Buffer((1, 6, 1), "float32"), B: T.Buffer((1, 6, 1), "float32")):
        for i, j, k in T.grid(1, 6, 1):
            with T.block("B"):
                u, v, w = T.axis.remap("SSS", [i, j, k])
                B[u, v, w] = A[w, v, u]

    sch = Schedule(swapped, debug_mask="all")
    sch.pad_einsum("B", [1, 4, 4])
    sch.reverse_compute_inline("B_pad")
    i, j, k = sch.get_loops("A_pad")
    outer, _ = sch.split(k, [2, None])
    sch.reverse_compute_at("B", outer)
    realize = sch.get_sref(sch.get_block("B")).parent.stmt.body
    if hasattr(realize, "seq"):
        realize = realize.seq[-1]
    asked = {str(term) for term in conjuncts(realize.predicate)}
    assert {f"{sch.get(j).loop_var.name} < 6", f"{sch.get(i).loop_var.name} < 1"} <= asked
    assert check_program(swapped, sch.mod["main"]) is None


def test_no_copy_of_what_the_last_turn_wrote():
    @T.prim_func
    def carried(A: T.Buffer((6, 16), "float32"), B: T.Buffer((6, 16), "float32")):
        total = T.alloc_buffer((6,))
        before = T.alloc_buffer((6, 16))
        for i in range(6):
            with T.block("start"):
                v = T.axis.spatial(6, i)
                total[v] = T.float32(0)
        with T.block("running"):
            T.reads(A[0:6, 0:16], total[0:6])
            T.writes(B[0:6, 0:16], total[0:6])
            for i, j in T.grid(6, 16):
                with T.block("take"):
                    v, w = T.axis.remap("SS", [i, j])
                    before[v, w] = total[v]
                with T.block("add"):
                    v = T.axis.spatial(6, i)
                    w = T.axis.opaque(16, j)
                    total[v] = before[v, w] + A[v, w]
                with T.block("B"):
                    v, w = T.axis.remap("SS", [i, j])
                    B[v, w] = before[v, w]

    sch = Schedule(carried, debug_mask="all")
    with pytest.raises(ScheduleError, match="too late|not written"):
        sch.cache_read("take", 0, "global")
    assert check_program(carried, sch.mod["main"]) is None


def test_padding_reads_zeros_beside_the_part_that_is_summed():
    @T.prim_func
    def partial(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8, 4), "float32"), C: T.Buffer((4, 4), "float32")):
        for i, j, k in T.grid(4, 4, 6):
            with T.block("C"):
                u, v, w = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[u, v] = T.float32(0)
                C[u, v] = C[u, v] + A[u, w] * B[w, v]

    sch = Schedule(partial, debug_mask="all")
    sch.pad_einsum("C", [1, 1, 4])
    assert check_program(partial, sch.mod["main"]) is None


def test_residues_that_later_turns_write():
    @T.prim_func
    def packed(A: T.Buffer((6,), "float32"), C: T.Buffer((5,), "float32")):
        B = T.alloc_buffer((3, 2))
        for i, j in T.grid(3, 2):
            with T.block("B"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = A[v * 2 + w] + T.float32(1)
        for i in range(5):
            with T.block("C"):
                v = T.axis.spatial(5, i)
                C[v] = B[v // 2, v % 2] * T.float32(2)

    sch = Schedule(packed, debug_mask="all")
    row, column = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="than is written in a turn"):
        sch.reverse_compute_at("C", column)
    sch.reverse_compute_at("C", row)
    assert check_program(packed, sch.mod["main"]) is None


def test_a_reduction_is_initialised_before_it_goes_on():
    sch = Schedule(row_sums, debug_mask="all")
    fused = sch.fuse(*sch.get_loops("B"))
    outer, inner = sch.split(fused, [None, 4])
    with pytest.raises(ScheduleError, match="go on before it is initialised"):
        sch.reorder(inner, outer)
    sch.reorder(outer, inner)
    assert check_program(row_sums, sch.mod["main"]) is None
    sch = Schedule(row_sums, debug_mask="all")
    i, k = sch.get_loops("B")
    outer, inner = sch.split(k, [None, 2])
    sch.reorder(inner, i, outer)  # loops of the reduction alone may stand in any order
    assert check_program(row_sums, sch.mod["main"]) is None


def test_linked_axes_must_meet_all_pairs():
    """32 turns of a loop drive both axes of a padded layout; each reaches all its values, but 4 of 36 pairs are left out."""

    @T.prim_func
    def func(a: T.Buffer((32,), "float32"), c: T.Buffer((34,), "float32")):
        copy = T.alloc_buffer((32,))
        padded = T.alloc_buffer((9, 4))
        for i in range(32):
            with T.block("copy"):
                v = T.axis.spatial(32, i)
                copy[v] = a[v]
        for i, j in T.grid(9, 4):
            with T.block("padded"):
                vi, vj = T.axis.remap("SS", [i, j])
                padded[vi, vj] = T.if_then_else(
                    1 <= vi * 4 + vj and vi * 4 + vj < 33, copy[vi * 4 + vj - 1], T.float32(2)
                )
        for i in range(34):
            with T.block("c"):
                v = T.axis.spatial(34, i)
                c[v] = padded[v // 4, v % 4]

    sch = Schedule(func, debug_mask="all")
    (loop,) = sch.get_loops(sch.get_block("copy"))
    with pytest.raises(ScheduleError, match="32 of the 36 instances"):
        sch.reverse_compute_at(sch.get_block("padded"), loop)


def test_blockize_keeps_guards_on_initialisation():
    """A split leaves a unit loop in the guard; initialisation drops the loop, but not the guard."""

    @T.prim_func
    def func(a: T.Buffer((3, 8), "float32"), b: T.Buffer((3, 2), "float32")):
        for i, j, k in T.grid(3, 2, 8):
            with T.block("b"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    b[vi, vj] = T.float32(0)
                b[vi, vj] = b[vi, vj] + a[vi, vk]

    sch = Schedule(func, debug_mask="all")
    block = sch.get_block("b")
    sch.split(sch.get_loops(block)[1], [3, None], preserve_unit_iters=False)
    sch.blockize(sch.get_loops(block)[1], preserve_unit_iters=False)
    assert check_program(func, sch.mod["main"]) is None


def test_writes_are_not_cached_past_readers_of_the_next_turn():
    """Copies in and out of an update in place: a cache behind the copy out would leave the next copy in with old values."""

    @T.prim_func
    def func(a: T.Buffer((2, 12), "float32"), b: T.Buffer((2, 7), "float32"), w: T.Buffer((12, 7), "float32")):
        for i, j, k in T.grid(2, 7, 12):
            with T.block("b"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    b[vi, vj] = T.float32(0)
                b[vi, vj] = b[vi, vj] + a[vi, vk] * w[vk, vj]

    sch = Schedule(func, debug_mask="all")
    block = sch.get_block("b")
    sch.blockize(sch.get_loops(block)[1], preserve_unit_iters=False)
    sch.cache_inplace(sch.get_block("b"), 0, "global")
    assert check_program(func, sch.mod["main"]) is None
    out = sch.get_child_blocks(sch.get_block("b_o"))[-1]
    with pytest.raises(ScheduleError, match="would come too late"):
        sch.cache_write(out, 0, "global")


@pytest.mark.parametrize("step", ["decompose", "rfactor"])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_reduction_goes_on_from_one_instance_of_an_outer_block_to_the_next(step, kept):
    @T.prim_func
    def rows(A: T.Buffer((4, 6, 5, 3), "float32"), B: T.Buffer((4, 6), "float32")):
        for i, j, k, l in T.grid(4, 6, 5, 3):
            with T.block("B"):
                vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
                with T.init():
                    B[vi, vj] = 0.0
                B[vi, vj] += A[vi, vj, vk, vl]

    sch = Schedule(rows, debug_mask="all")
    i, j, k, l = sch.get_loops("B")
    sch.reorder(k, j, i, l)
    sch.loop_partition(j, [4, None])  # the blocks of pieces run once for each value of k
    piece = f"B_j{kept}"
    with pytest.raises(ScheduleError, match='outer block decides which values of "vk"'):
        if step == "decompose":
            sch.decompose_reduction(piece, sch.get_loops(piece)[0])
        else:
            sch.rfactor(sch.get_loops(piece)[-1], 0)
    assert check_program(rows, sch.mod["main"]) is None


@pytest.mark.parametrize("update", ["maximum", "shifted", "product"])
def test_only_sums_of_products_are_padded_along_their_reduction(update):
    @T.prim_func
    def maximum(A: T.Buffer((5, 3), "float32"), B: T.Buffer((5,), "float32")):
        for i, k in T.grid(5, 3):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.min_value("float32")
                B[vi] = T.max(B[vi], A[vi, vk])

    @T.prim_func
    def shifted(A: T.Buffer((5, 3), "float32"), B: T.Buffer((5,), "float32")):
        for i, k in T.grid(5, 3):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0.0
                B[vi] = B[vi] + (A[vi, vk] + 1.0)

    @T.prim_func
    def product(A: T.Buffer((5, 3), "float32"), B: T.Buffer((5,), "float32")):
        for i, k in T.grid(5, 3):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 1.0
                B[vi] = B[vi] * A[vi, vk]

    func = {"maximum": maximum, "shifted": shifted, "product": product}[update]
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="is no sum of terms that are zero"):
        sch.pad_einsum("B", [1, 4])
    sch.pad_einsum("B", [4, 1])  # further results are dropped, whatever they are
    assert check_program(func, sch.mod["main"]) is None


def test_padding_is_filled_after_blocks_in_blocks():
    @T.prim_func
    def rows(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i, k in T.grid(4, 3):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0.0
                B[vi] += A[vi, vk]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi] * 2.0

    sch = Schedule(rows, debug_mask="all")
    outer = sch.blockize(sch.get_loops("B")[1])
    sch.transform_layout(outer, ("write", 0), lambda i: (i // 3, i % 3), pad_value=0.0)
    verify_well_formed(sch.mod["main"])
    assert check_program(rows, sch.mod["main"]) is None


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_a_rolling_buffer_knows_which_variable_indexes_which_dimension(order):
    @T.prim_func
    def windows(A: T.Buffer((6, 8, 3), "float32"), C: T.Buffer((4, 8, 3), "float32")):
        B = T.alloc_buffer((6, 8, 3))
        for i, j, l in T.grid(6, 8, 3):
            with T.block("B"):
                vi, vj, vl = T.axis.remap("SSS", [i, j, l])
                B[vi, vj, vl] = A[vi, vj, vl] * 2.0
        for i, j, l, k in T.grid(4, 8, 3, 3):
            with T.block("C"):
                vi, vj, vl, vk = T.axis.remap("SSSR", [i, j, l, k])
                with T.init():
                    C[vi, vj, vl] = 0.0
                C[vi, vj, vl] += B[vi + vk, vj, vl]

    sch = Schedule(windows, debug_mask="all")
    sch.transform_block_layout("B", lambda *i: [i[place] for place in order])
    sch.compute_at("B", sch.get_loops("C")[1])
    sch.rolling_buffer("B", 0)
    verify_well_formed(sch.mod["main"])
    assert check_program(windows, sch.mod["main"]) is None


def test_what_a_predicate_leaves_out_is_not_copied_back():
    @T.prim_func
    def corner(A: T.Buffer((3, 4), "float32"), B: T.Buffer((3, 4), "float32")):
        for i, j in T.grid(3, 4):
            with T.block("all"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for i, j in T.grid(3, 4):
            with T.block("corner"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i == 2 and j == 3)
                B[vi, vj] = 7.0

    sch = Schedule(corner)
    with pytest.raises(ScheduleError, match="under a predicate"):
        sch.pad_einsum("corner", [4, 4])
    assert check_program(corner, sch.mod["main"]) is None


def test_what_an_outer_block_has_a_part_in_is_not_padded():
    @T.prim_func
    def rows(A: T.Buffer((5, 6), "float32"), C: T.Buffer((5, 6), "float32")):
        for i in range(5):
            with T.block("row"):
                vi = T.axis.spatial(5, i)
                T.reads(A[vi, 0:6])
                T.writes(C[vi, 0:6])
                B = T.alloc_buffer((6,))
                for j in range(6):
                    with T.block("B"):
                        vj = T.axis.spatial(6, j)
                        B[vj] = A[vi, vj] * 2.0
                for j in range(6):
                    with T.block("C"):
                        vj = T.axis.spatial(6, j)
                        C[vi, vj] = B[vj] + 1.0

    sch = Schedule(rows, debug_mask="all")
    with pytest.raises(ScheduleError, match="outer block decides which part of A"):
        sch.pad_einsum("B", [4])
    assert check_program(rows, sch.mod["main"]) is None


def test_only_what_all_variables_together_run_over_is_copied():
    """Quotients and remainders each take all of their values in the second piece, yet the first pair is missing."""

    @T.prim_func
    def plane(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32")):
        for i, j in T.grid(4, 6):
            with T.block("C"):
                v, w = T.axis.remap("SS", [i, j])
                C[v, w] = A[v, w] * 2.0

    sch = Schedule(plane, debug_mask="all")
    _, rest = sch.loop_partition(sch.fuse(*sch.get_loops("C")), [1, None])
    with pytest.raises(ScheduleError, match="part of the values"):
        sch.reindex(sch.get_child_blocks(rest)[0], ("write", 0))
    assert check_program(plane, sch.mod["main"]) is None
    for size in (3, 7):
        sch = Schedule(plane, debug_mask="all")
        sch.split(sch.fuse(*sch.get_loops("C")), [None, size])
        sch.reindex("C", ("write", 0))
        assert check_program(plane, sch.mod["main"]) is None


def test_a_merged_loop_must_not_cut_a_reduction_that_others_follow():
    """Under the loop of the reduction, whoever uses the sums is done with its last turn only."""

    @T.prim_func
    def doubled(A: T.Buffer((5, 5), "float32"), C: T.Buffer((5,), "float32"), D: T.Buffer((5,), "float32")):
        B = T.alloc_buffer((5,))
        for k in range(5):
            for i in range(5):
                with T.block("B"):
                    v, r = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[v] = 0.0
                    B[v] = B[v] + A[v, r]
                with T.block("C"):
                    v = T.axis.spatial(5, i)
                    C[v] = B[v] * 2.0
        for i in range(5):
            with T.block("D"):
                v = T.axis.spatial(5, i)
                D[v] = C[v] - 1.0

    sch = Schedule(doubled)
    with pytest.raises(ScheduleError, match="merged loop"):
        sch.merge(sch.get_loops("C")[0], sch.get_loops("D")[0])
    assert check_program(doubled, sch.mod["main"]) is None
