"""compute_at, reverse_compute_at, inlining, merging: exact results, and refusal of what would change the program."""

from __future__ import annotations

import pytest

from relaxish import tir
from relaxish.script import tir as T
from relaxish.testing.examples import chain, matmul, outline, padded, window
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


def check(sch, before, expected):
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, before)
    assert check_program(before, sch.mod["main"]) is None


def test_reverse_compute_at_under_an_imperfect_split_is_guarded():
    @T.prim_func
    def expected(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
        B = T.alloc_buffer((16, 8))
        for i0 in range(3):
            for i1, j in T.grid(6, 8):
                with T.block("B"):
                    vi = T.axis.spatial(16, i0 * 6 + i1)
                    vj = T.axis.spatial(8, j)
                    T.where(i0 * 6 + i1 < 16)
                    B[vi, vj] = A[vi, vj] * 2.0
            for i1, j in T.grid(6, 8):
                with T.block("C"):
                    vi = T.axis.spatial(16, i0 * 6 + i1)
                    vj = T.axis.spatial(8, j)
                    T.where(i0 * 6 + i1 < 16)
                    C[vi, vj] = B[vi, vj] + 1.0

    sch = Schedule(chain, debug_mask="all")
    i, _ = sch.get_loops("B")
    outer, _ = sch.split(i, [None, 6])
    sch.reverse_compute_at("C", outer)
    check(sch, chain, expected)


def test_compute_at_with_a_halo_keeps_the_offset_of_the_region():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v] = A[v] * 2.0
        for i in range(16):
            with T.block("C"):
                v = T.axis.spatial(16, i)
                C[v] = T.if_then_else(1 <= v, B[v - 1], 0.0) + T.if_then_else(v < 15, B[v + 1], 0.0)

    sch = Schedule(before, debug_mask="all")
    (i,) = sch.get_loops("C")
    outer, _ = sch.split(i, [None, 4])
    sch.compute_at("B", outer)
    text = outline(sch)
    assert "for ax0 in range(6):" in text
    assert "v = T.axis.spatial(16, i_0 * 4 - 1 + ax0)" in text
    assert "T.where(1 <= i_0 * 4 + ax0" in text
    verify_trace_roundtrip(sch, before)
    assert check_program(before, sch.mod["main"]) is None


def test_flat_buffers_are_inverted():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), D: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((64,))
        for i in range(64):
            with T.block("B"):
                v = T.axis.spatial(64, i)
                B[v] = A[v]
        for i, j in T.grid(8, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi * 8 + vj]

    sch = Schedule(before, debug_mask="all")
    (i,) = sch.get_loops("B")
    outer, _ = sch.split(i, [None, 16])
    sch.reverse_compute_at("D", outer)
    assert "for ax0, ax1 in T.grid(2, 8):" in outline(sch)
    assert "vi = T.axis.spatial(8, i_0 * 2 + ax0)" in outline(sch)
    assert check_program(before, sch.mod["main"]) is None


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda s: s.compute_at("C", s.get_loops("B")[0]), "output block"),
        (lambda s: s.compute_at("B", s.get_loops("B")[0]), "ancestor of block"),
        (lambda s: s.reverse_compute_at("C", s.get_loops("C")[0]), "ancestor of block"),
        (lambda s: s.merge(s.get_loops("B")[0], s.get_loops("B")[1]), "not in separate nests|depths"),
    ],
)
def test_illegal_moves(act, match):
    sch = Schedule(chain)
    before = sch.mod
    with pytest.raises(ScheduleError, match=match):
        act(sch)
    assert sch.mod is before


def test_not_all_consumers_under_the_loop():
    @T.prim_func
    def twice(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v]
        for i in range(8):
            with T.block("D"):
                v = T.axis.spatial(8, i)
                D[v] = B[v]

    sch = Schedule(twice)
    with pytest.raises(ScheduleError, match="requires all the consumer"):
        sch.compute_at("B", sch.get_loops("C")[0])


def test_a_padded_border_is_not_lost():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((10,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(10):
            with T.block("C"):
                v = T.axis.spatial(10, i)
                C[v] = T.if_then_else(1 <= v and v < 9, B[v - 1], 0.0)

    with pytest.raises(ScheduleError, match="less than all"):
        sch = Schedule(before)
        sch.reverse_compute_at("C", sch.get_loops("B")[0])
    with pytest.raises(ScheduleError, match="does not run over all"):
        Schedule(before).reverse_compute_inline("C")


def test_strided_reads_stay_where_all_of_them_is_produced():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(4):
            with T.block("C"):
                v = T.axis.spatial(4, i)
                C[v] = B[v * 2]

    sch = Schedule(before, debug_mask="all")
    (i,) = sch.get_loops("B")
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at("C", i)
    with pytest.raises(ScheduleError, match="in steps"):
        sch.reverse_compute_inline("C")
    outer, _ = sch.split(i, [None, 4])
    sch.reverse_compute_at("C", outer)
    assert check_program(before, sch.mod["main"]) is None


def test_merge_keeps_dependences():
    sch = Schedule(chain, debug_mask="all")
    sch.merge(sch.get_loops("B")[1], sch.get_loops("C")[1])
    assert check_program(chain, sch.mod["main"]) is None
    sch = Schedule(window)
    (i,) = sch.get_loops("B")
    first, _ = sch.split(i, [2, 5])
    other, _ = sch.split(sch.get_loops("C")[0], [2, 4])
    with pytest.raises(ScheduleError, match="needs more"):
        sch.merge(first, other)


def test_inlining_refuses_pointers_views_and_reductions():
    @T.prim_func
    def pointer(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                T.reads(B[0:8])
                T.writes(C[v])
                C[v] = T.call_extern("float32", "f", B.data, v)

    with pytest.raises(ScheduleError, match="opaque access"):
        Schedule(pointer).compute_inline("B")
    with pytest.raises(ScheduleError, match="init statement"):
        Schedule(matmul).compute_inline("C")


def test_inlining_reaches_blocks_inside_blocks():
    sch = Schedule(chain, debug_mask="all")
    _, j = sch.get_loops("C")
    sch.blockize(j)
    sch.compute_inline("B")
    assert "B" not in {r.buffer.name for r in sch.get(sch.get_block("C")).reads}
    assert check_program(chain, sch.mod["main"]) is None


def test_blockize_keeps_the_predicate_of_a_unit_loop():
    @T.prim_func
    def column(A: T.Buffer((12, 1), "float32"), B: T.Buffer((12, 1), "float32")):
        for i, j in T.grid(12, 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]

    sch = Schedule(column, debug_mask="all")
    sch.split(sch.get_loops("B")[1], [None, 5])
    sch.blockize(sch.get_loops("B")[0], preserve_unit_iters=False)
    assert "T.where" in outline(sch)
    assert check_program(column, sch.mod["main"]) is None


def test_decompose_padding_and_partition():
    sch = Schedule(padded, debug_mask="all")
    assert sch.can_decompose_padding("B", sch.get_loops("B")[0])
    sch.decompose_padding("B", sch.get_loops("B")[0])
    assert check_program(padded, sch.mod["main"]) is None
    sch = Schedule(padded)
    with pytest.raises(ScheduleError, match="sum of factors is larger than or equal"):
        sch.loop_partition(sch.get_loops("B")[0], [10, None])


def test_a_reduction_is_not_repeated_by_the_reduction_loop_of_its_producer():
    @T.prim_func
    def twice(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4, 6))
        for i, j, k in T.grid(4, 6, 3):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    B[vi, vj] = 0.0
                B[vi, vj] = B[vi, vj] + A[vi, vj]
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = 0.0
                C[vi] = C[vi] + B[vi, vk]

    sch = Schedule(twice, debug_mask="all")
    _, j, k = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="would be repeated"):
        sch.reverse_compute_at("C", k)
    sch.reverse_compute_at("C", j)
    assert check_program(twice, sch.mod["main"]) is None


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("keep_units", [False, True])
def test_outer_loops_of_one_iteration_are_not_in_bindings(backwards: bool, keep_units: bool) -> None:
    @T.prim_func
    def rows(A: T.Buffer((1, 16), "float32"), C: T.Buffer((1, 16), "float32")) -> None:
        B = T.alloc_buffer((1, 16))
        for i, j in T.grid(1, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + 1.0
        for i, j in T.grid(1, 16):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] * 2.0

    sch = Schedule(rows)
    moved, stays = ("C", "B") if backwards else ("B", "C")
    loop = sch.get_loops(sch.get_block(stays))[0]
    move = sch.reverse_compute_at if backwards else sch.compute_at
    move(sch.get_block(moved), loop, preserve_unit_loops=keep_units)
    realizes: list[tir.BlockRealize] = []
    tir.stmt_functor.post_order_visit(
        sch.mod["main"].body, lambda s: realizes.append(s) if isinstance(s, tir.BlockRealize) else None
    )
    ((unit, _),) = (r.iter_values for r in realizes if r.block.name_hint == moved)
    assert (unit.name == "ax0") if keep_units else (unit.value == 0)
