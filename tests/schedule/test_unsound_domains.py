"""Guards on loops that drive nothing, and domains larger than what is there, decide what runs after a move or a copy."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.schedule import Schedule, ScheduleError


@T.prim_func
def product(A: T.Buffer((4, 8), "int32"), W: T.Buffer((8, 1), "int32"), C: T.Buffer((4,), "int32")):
    B = T.alloc_buffer((4, 1), "int32")
    for i, j, k in T.grid(4, 1, 8):
        with T.block("B"):
            v, w, r = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[v, w] = 0
            B[v, w] = B[v, w] + A[v, r] * W[r, w]
    for i in range(4):
        with T.block("C"):
            v = T.axis.spatial(4, i)
            C[v] = B[v, 0]


@pytest.mark.parametrize("parts", [2, 3])
def test_a_guard_over_a_unit_loop_goes_with_the_block(parts):
    sch = Schedule(product, debug_mask="all")
    sch.split(sch.get_loops("B")[1], [parts, None], preserve_unit_iters=False)
    outer = sch.blockize(sch.get_loops("B")[-1], preserve_unit_iters=True)
    first, _ = sch.split(sch.get_loops("C")[0], [1, None])
    sch.reverse_compute_at(outer, first, preserve_unit_loops=True, index=-2)
    assert check_program(product, sch.mod["main"]) is None


@T.prim_func
def maximum(A: T.Buffer((8,), "int32"), C: T.Buffer((6,), "int32")):
    B = T.alloc_buffer((6,), "int32")
    for i, k in T.grid(6, 3):
        with T.block("B"):
            v, r = T.axis.remap("SR", [i, k])
            with T.init():
                B[v] = T.min_value("int32")
            B[v] = T.max(B[v], A[v + r])
    for i in range(6):
        with T.block("C"):
            v = T.axis.spatial(6, i)
            C[v] = B[v] + 1


def _with_idle_loop() -> Schedule:
    sch = Schedule(maximum, debug_mask="all")
    sch.decompose_reduction("B", sch.get_loops("B")[1])
    _, unit = sch.split(sch.get_loops("B_update")[0], [6, 1], preserve_unit_iters=False)
    sch.split(unit, [3, None])
    return sch


@pytest.mark.parametrize("level", [1, 2])
def test_a_consumer_does_not_come_back_after_the_turns_of_its_producer(level):
    sch = _with_idle_loop()
    with pytest.raises(ScheduleError, match="would bring the block back"):
        sch.reverse_compute_at("C", sch.get_loops("B_update")[level])


def test_a_consumer_moves_outside_of_the_loop_that_drives_nothing():
    sch = _with_idle_loop()
    sch.reverse_compute_at("C", sch.get_loops("B_update")[0])
    assert check_program(maximum, sch.mod["main"]) is None


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_consumer_follows_a_producer_split_unevenly_twice(level):
    @T.prim_func
    def chain(A: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
        B = T.alloc_buffer((10,))
        for i in range(10):
            with T.block("B"):
                v = T.axis.spatial(10, i)
                B[v] = A[v] * 3.0
        for i in range(10):
            with T.block("C"):
                v = T.axis.spatial(10, i)
                C[v] = B[v] + 1.0

    sch = Schedule(chain, debug_mask="all")
    _, inner = sch.split(sch.get_loops("B")[0], [None, 5])
    sch.split(inner, [None, 3])
    sch.reverse_compute_at("C", sch.get_loops("B")[level])
    assert check_program(chain, sch.mod["main"]) is None


@T.prim_func
def doubled(A: T.Buffer((5,), "float32"), C: T.Buffer((5,), "float32")):
    B = T.alloc_buffer((5,))
    for i in range(5):
        with T.block("B"):
            v = T.axis.spatial(5, i)
            B[v] = A[v] * 3.0
    for i in range(5):
        with T.block("C"):
            v = T.axis.spatial(5, i)
            C[v] = B[v] + B[v]


@pytest.mark.parametrize("again", [4, 5, 6])
def test_a_padded_copy_that_is_padded_again_reads_what_is_there(again):
    sch = Schedule(doubled, debug_mask="all")
    sch.pad_einsum("C", [2])
    sch.pad_einsum(sch.get_producers("C")[0], [again])
    assert check_program(doubled, sch.mod["main"]) is None


@T.prim_func
def framed(A: T.Buffer((10, 4), "float32"), C: T.Buffer((12, 4), "float32")):
    B = T.alloc_buffer((4, 4, 3))
    for i, j in T.grid(10, 4):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v // 3, w, v % 3] = A[v, w] * 3.0
    for i, j in T.grid(12, 4):
        with T.block("C"):
            v, w = T.axis.remap("SS", [i, j])
            C[v, w] = T.if_then_else(1 <= v and v < 11, B[(v - 1) // 3, w, (v - 1) % 3], T.float32(7.0))


@pytest.mark.parametrize("piece", [0, 1])
def test_cached_indices_keep_a_guard_on_the_variable_of_an_outer_block(piece):
    sch = Schedule(framed, debug_mask="all")
    sch.decompose_padding("C", sch.get_loops("C")[1])
    pieces = sch.loop_partition(sch.get_loops("C")[-1], [3, None])
    inner = sch.get_child_blocks(pieces[piece])[0]
    sch.cache_index(inner, "global", 1)
    assert check_program(framed, sch.mod["main"]) is None


@T.prim_func
def overlapping_sums(A: T.Buffer((18, 3), "int32"), C: T.Buffer((18,), "int32")):
    for x, y, k in T.grid(5, 6, 3):
        with T.block("C"):
            v = T.axis.spatial(18, x * 3 + y)
            r = T.axis.reduce(3, k)
            with T.init():
                C[v] = 0
            C[v] = C[v] + A[v, r]


@T.prim_func
def overlapping_copies(A: T.Buffer((18, 3), "int32"), C: T.Buffer((18, 3), "int32")):
    for x, y, k in T.grid(5, 6, 3):
        with T.block("C"):
            v = T.axis.spatial(18, x * 3 + y)
            r = T.axis.spatial(3, k)
            C[v, r] = A[v, r] * 2


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1)])
def test_overlapping_copies_come_in_any_order(order):
    sch = Schedule(overlapping_copies, debug_mask="all")
    assert sch.state.flags(sch.get_sref(sch.get_block("C"))).affine_binding
    loops = sch.get_loops("C")
    sch.reorder(*[loops[i] for i in order])
    assert check_program(overlapping_copies, sch.mod["main"]) is None


def test_overlapping_sums_are_not_updated_in_between():
    sch = Schedule(overlapping_sums, debug_mask="all")
    x, y, k = sch.get_loops("C")
    sch.reorder(y, x)
    assert check_program(overlapping_sums, sch.mod["main"]) is None
    for order in [(k, x), (k, y, x), (x, k, y)]:
        other = Schedule(overlapping_sums, debug_mask="all")
        byname = {loop: o for loop, o in zip((x, y, k), other.get_loops("C"), strict=True)}
        with pytest.raises(ScheduleError):
            other.reorder(*[byname[loop] for loop in order])
    with pytest.raises(ScheduleError):
        sch.decompose_reduction("C", sch.get_loops("C")[0])
