"""Merged and partitioned loops compute what the program did: order, dependences, and what stands around pieces."""

from __future__ import annotations

import pytest

from relaxish.ir import assert_structural_equal
from relaxish.script import tir as T
from relaxish.support.errors import ScheduleError
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.analysis import verify_well_formed
from relaxish.tir.schedule import Schedule
from relaxish.tir.schedule.state import blocks_in_order
from relaxish.tir.schedule.testing import verify_trace_roundtrip


@T.prim_func
def chain(A: T.Buffer((4, 24), "float32"), C: T.Buffer((4, 24), "float32")):
    B = T.alloc_buffer((4, 24))
    for n, i in T.grid(4, 24):
        with T.block("B"):
            vn, vi = T.axis.remap("SS", [n, i])
            B[vn, vi] = A[vn, vi] * 2.0
    for n, i in T.grid(4, 24):
        with T.block("C"):
            vn, vi = T.axis.remap("SS", [n, i])
            C[vn, vi] = B[vn, vi] + 1.0


@pytest.mark.parametrize("level", [0, 1])
def test_merged_loops_keep_the_order_of_the_program(level):
    sch = Schedule(chain, debug_mask="all")
    sch.merge(sch.get_loops("C")[level], sch.get_loops("B")[level])
    assert check_program(chain, sch.mod["main"]) is None
    verify_trace_roundtrip(sch, chain)


def test_a_merged_loop_does_not_overwrite_what_is_still_to_be_read():
    @T.prim_func
    def reversing(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[7 - v]
        for i in range(8):
            with T.block("again"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] + 1.0
        for i in range(8):
            with T.block("A"):
                v = T.axis.spatial(8, i)
                A[v] = B[v]

    sch = Schedule(reversing)
    with pytest.raises(ScheduleError, match="is there in a merged loop"):
        sch.merge(sch.get_loops("C")[0], sch.get_loops("again")[0])


def test_merged_loops_do_not_pass_what_depends_on_them():
    @T.prim_func
    def between(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v] + 1.0
        for i in range(8):
            with T.block("D"):
                v = T.axis.spatial(8, i)
                D[v] = A[v] - 1.0

    sch = Schedule(between)
    with pytest.raises(ScheduleError, match="depends on it"):
        sch.merge(sch.get_loops("B")[0], sch.get_loops("D")[0])
    sch.merge(sch.get_loops("C")[0], sch.get_loops("D")[0])
    assert check_program(between, sch.mod["main"]) is None


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("cut", ["B", "C"])
@pytest.mark.parametrize("step", ["cache_read", "cache_write", "reindex", "compute_at", "reverse_compute_at", "inline"])
def test_what_follows_a_partition_knows_what_its_pieces_access(cut, axis, step):
    sch = Schedule(chain, debug_mask="all")
    sch.loop_partition(sch.get_loops(cut)[axis], [5 - 3 * (1 - axis), None])
    first, last = (f"{name}_{'ni'[axis]}1" if name == cut else name for name in "BC")
    taken = True
    try:
        if step == "cache_read":
            sch.cache_read(last, 0, "global")
        elif step == "cache_write":
            sch.cache_write(first, 0, "global")
        elif step == "reindex":
            sch.reindex(last, ("read", 0))
        elif step == "compute_at":
            sch.compute_at(first, sch.get_loops(last)[-1])
        elif step == "reverse_compute_at":
            sch.reverse_compute_at(last, sch.get_loops(first)[-1])
        else:
            sch.compute_inline(first)
    except ScheduleError:
        taken = False
    assert taken or not step.startswith("cache")
    verify_well_formed(sch.mod["main"])
    assert check_program(chain, sch.mod["main"]) is None
    verify_trace_roundtrip(sch, chain)


def test_a_refused_step_leaves_pieces_as_they_were():
    sch = Schedule(chain, debug_mask="all")
    sch.loop_partition(sch.get_loops("B")[1], [5, None])
    before = sch.mod
    with pytest.raises(ScheduleError):
        sch.compute_inline("C")
    assert_structural_equal(sch.mod, before)
    sch.annotate(sch.get_loops("C")[0], "note", 1)
    common = sch.get(sch.get_block("B_i_common"))
    assert [str(r) for r in (*common.reads, *common.writes)] == ["A[vn, 0:24]", "B[vn, 0:24]"]


def test_a_partition_of_a_parsed_program_is_declared_too():
    sch = Schedule(chain)
    sch.loop_partition(sch.get_loops("B")[1], [5, None])
    again = Schedule(sch.mod, debug_mask="all")
    again.cache_read("C", 0, "global")
    assert check_program(chain, again.mod["main"]) is None


def test_a_partition_of_a_piece_runs_all_of_it():
    sch = Schedule(chain, debug_mask="all")
    _, rest = sch.loop_partition(sch.get_loops("B")[1], [5, None])
    sch.loop_partition(rest, [3, 2, None])
    assert check_program(chain, sch.mod["main"]) is None


def test_a_partition_around_pieces_is_declared_with_them():
    sch = Schedule(chain, debug_mask="all")
    outer, inner = sch.get_loops("B")
    sch.loop_partition(inner, [5, None])
    sch.loop_partition(outer, [1, None])
    sch.cache_write("C", 0, "global")
    for block in blocks_in_order(sch.get(sch.get_block("root"))):
        assert block.writes or block.name_hint == "root", f"{block.name_hint} does not say what it writes"
    sch.cache_read("C", 0, "global")
    assert check_program(chain, sch.mod["main"]) is None
    verify_trace_roundtrip(sch, chain)


def test_blocks_inside_of_pieces_stay_known():
    sch = Schedule(chain, debug_mask="all")
    outer = sch.blockize(sch.get_loops("B")[1])
    (loop,) = sch.get_loops(outer)
    sch.loop_partition(loop, [1, None])
    inner = sch.get_block("B_n1")
    sch.annotate(inner, "note", 1)
    assert "note" in sch.get(inner).annotations
    sch.cache_read("C", 0, "global")
    assert sch.get(inner).name_hint == "B_n1"
    assert check_program(chain, sch.mod["main"]) is None


def test_a_piece_that_hides_what_it_accesses_is_declared_once():
    @T.prim_func
    def silent(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("nothing"):
                T.reads()
                T.writes()
                T.evaluate(i)
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]

    sch = Schedule(silent, debug_mask="all")
    sch.loop_partition(sch.get_loops("nothing")[0], [5, None])
    sch.cache_read("B", 0, "global")
    assert check_program(silent, sch.mod["main"]) is None


def test_copies_back_write_no_more_than_their_block():
    sch = Schedule(chain, debug_mask="all")
    fused = sch.fuse(*sch.get_loops("B"))
    sch.loop_partition(fused, [None, 2])
    with pytest.raises(ScheduleError, match="writes only parts"):
        sch.cache_write("B_n_i_fused1", 0, "local")
    assert check_program(chain, sch.mod["main"]) is None


def test_a_copy_back_leaves_the_gaps_of_a_result_alone():
    @T.prim_func
    def even(A: T.Buffer((8,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v * 2] = A[v]

    sch = Schedule(even)
    with pytest.raises(ScheduleError, match="writes only parts"):
        sch.cache_write("B", 0, "global")


@pytest.mark.parametrize("step", ["blockize", "pad_einsum"])
def test_variables_that_do_not_begin_at_zero(step):
    @T.prim_func
    def shifted(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(3):
            with T.block("B"):
                v = T.axis.spatial((5, 8), i + 5)
                B[v] = A[v] + 1.0

    sch = Schedule(shifted)
    with pytest.raises(ScheduleError, match="do not begin at zero"):
        if step == "blockize":
            sch.blockize(sch.get_loops("B")[0])
        else:
            sch.pad_einsum("B", [4])


def test_a_copy_by_variables_that_an_outer_block_decides_is_refused():
    sch = Schedule(chain)
    sch.loop_partition(sch.get_loops("B")[1], [5, None])
    with pytest.raises(ScheduleError, match="An outer block decides"):
        sch.reindex("B_i1", ("write", 0))
    with pytest.raises(ScheduleError, match="An outer block decides"):
        sch.reindex("B_i1", ("read", 0))
    assert check_program(chain, sch.mod["main"]) is None
