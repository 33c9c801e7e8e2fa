"""compute_inline and reverse_compute_inline: exact results, where predicates go, and what is refused."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


def check(before, expected, act):
    sch = Schedule(before, debug_mask="all")
    act(sch)
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, before)


@T.prim_func
def regrouped(A: T.Buffer((32, 64), "float32"), D: T.Buffer((4, 16, 4, 8), "float32")):
    B = T.alloc_buffer((32, 64))
    for i, j in T.grid(32, 64):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j, k, l in T.grid(4, 16, 4, 8):
        with T.block("D"):
            a, b, c, d = T.axis.remap("SSSS", [i, j, k, l])
            D[a, b, c, d] = B[(((a * 16 + b) * 4 + c) * 8 + d) // 64, (((a * 16 + b) * 4 + c) * 8 + d) % 64] + 1.0


def test_a_consumer_that_regroups_indices_is_inverted_as_it_comes():
    @T.prim_func
    def expected(A: T.Buffer((32, 64), "float32"), D: T.Buffer((4, 16, 4, 8), "float32")):
        for i, j in T.grid(32, 64):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[(vj + vi * 64) // 512, (vj + vi * 64) // 32 % 16, (vj + vi * 64) // 8 % 4, (vj + vi * 64) % 8] = (
                    A[vi, vj] * 2.0 + 1.0
                )

    check(regrouped, expected, lambda sch: sch.reverse_compute_inline("D"))


def test_a_producer_is_put_where_it_is_read():
    @T.prim_func
    def expected(A: T.Buffer((32, 64), "float32"), D: T.Buffer((4, 16, 4, 8), "float32")):
        for i, j, k, l in T.grid(4, 16, 4, 8):
            with T.block("D"):
                a, b, c, d = T.axis.remap("SSSS", [i, j, k, l])
                D[a, b, c, d] = (
                    A[(((a * 16 + b) * 4 + c) * 8 + d) // 64, (((a * 16 + b) * 4 + c) * 8 + d) % 64] * 2.0 + 1.0
                )

    check(regrouped, expected, lambda sch: sch.compute_inline("B"))


def test_a_producer_that_regroups_indices_is_inverted():
    @T.prim_func
    def before(A: T.Buffer((4, 8, 1), "float32"), D: T.Buffer((32, 1), "float32")):
        B = T.alloc_buffer((32, 1))
        for i, j, k in T.grid(4, 8, 1):
            with T.block("B"):
                a, b, c = T.axis.remap("SSS", [i, j, k])
                B[a * 8 + b, c] = A[a, b, c] * 2.0
        for i, j in T.grid(32, 1):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi, vj] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((4, 8, 1), "float32"), D: T.Buffer((32, 1), "float32")):
        for i, j in T.grid(32, 1):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = A[vi // 8, vi % 8, 0] * 2.0 + 1.0

    check(before, expected, lambda sch: sch.compute_inline("B"))


def test_a_smaller_consumer_becomes_a_predicate():
    @T.prim_func
    def before(A: T.Buffer((16, 16), "float32"), D: T.Buffer((15, 13), "float32")):
        B = T.alloc_buffer((16, 16))
        for i, j in T.grid(16, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for i, j in T.grid(15, 13):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi, vj] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((16, 16), "float32"), D: T.Buffer((15, 13), "float32")):
        for i, j in T.grid(16, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i < 15 and j < 13)
                D[vi, vj] = A[vi, vj] * 2.0 + 1.0

    check(before, expected, lambda sch: sch.reverse_compute_inline("D"))


@T.prim_func
def guarded(A: T.Buffer((12,), "float32"), D: T.Buffer((12,), "float32")):
    B = T.alloc_buffer((12,))
    for i in range(16):
        with T.block("B"):
            v = T.axis.spatial(12, i)
            T.where(i < 12)
            B[v] = A[v] * 2.0
    for i in range(12):
        with T.block("D"):
            v = T.axis.spatial(12, i)
            D[v] = B[v] + 1.0


def test_the_predicate_of_a_producer_stays():
    @T.prim_func
    def expected(A: T.Buffer((12,), "float32"), D: T.Buffer((12,), "float32")):
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(12, i)
                T.where(i < 12)
                D[v] = A[v] * 2.0 + 1.0

    check(guarded, expected, lambda sch: sch.reverse_compute_inline("D"))


def test_a_predicate_that_the_new_one_does_not_imply_is_refused():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), D: T.Buffer((12,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                T.where(i < 10)
                B[v] = A[v] * 2.0
        for i in range(12):
            with T.block("D"):
                v = T.axis.spatial(12, i)
                D[v] = B[v] + 1.0

    sch = Schedule(before)
    sch.state.enable_check = False
    with pytest.raises(ScheduleError, match="The producer block .* has a non-trivial predicate .* cannot be implied"):
        sch.reverse_compute_inline("D")


def test_a_condition_in_the_producer_joins_the_predicate():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), D: T.Buffer((12,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                if v % 2 == 0:
                    B[v] = A[v] * 2.0
        for i in range(12):
            with T.block("D"):
                v = T.axis.spatial(12, i)
                D[v] = B[v] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), D: T.Buffer((12,), "float32")):
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                T.where(i < 12 and i % 2 == 0)
                D[v] = A[v] * 2.0 + 1.0

    check(before, expected, lambda sch: sch.reverse_compute_inline("D"))


def test_a_producer_inside_a_block_takes_the_consumer():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        for i in range(2):
            with T.block("tile"):
                vo = T.axis.spatial(2, i)
                T.reads(A[vo * 4 : vo * 4 + 4, 0:8])
                T.writes(B[vo * 4 : vo * 4 + 4, 0:8])
                for j, k in T.grid(4, 8):
                    with T.block("B"):
                        vi = T.axis.spatial(8, vo * 4 + j)
                        vk = T.axis.spatial(8, k)
                        B[vi, vk] = A[vi, vk] * 2.0
        for i, j in T.grid(8, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi, vj] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "float32")):
        for i in range(2):
            with T.block("tile"):
                vo = T.axis.spatial(2, i)
                T.reads(A[vo * 4 : vo * 4 + 4, 0:8])
                T.writes(D[vo * 4 : vo * 4 + 4, 0:8])
                for j, k in T.grid(4, 8):
                    with T.block("B"):
                        vi = T.axis.spatial(8, vo * 4 + j)
                        vk = T.axis.spatial(8, k)
                        D[vi, vk] = A[vi, vk] * 2.0 + 1.0

    check(before, expected, lambda sch: sch.reverse_compute_inline("D"))


def test_an_automatic_copy_takes_its_consumer():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        for i in range(2):
            with T.block("copy"):
                vo = T.axis.spatial(2, i)
                T.reads(A[vo * 4 : vo * 4 + 4, 0:8])
                T.writes(B[vo * 4 : vo * 4 + 4, 0:8])
                T.block_attr({"auto_copy": 1})
                for j, k in T.grid(4, 8):
                    B[vo * 4 + j, k] = A[vo * 4 + j, k]
        for i, j in T.grid(8, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = T.max(B[vi, vj], 0.0)

    sch = Schedule(before)
    sch.reverse_compute_inline("D")
    body = sch.get(sch.get_block("copy")).body.body.body
    assert body.buffer.name == "D"
    assert str(body.value) == "T.max(A[vo * 4 + j, k], T.float32(0.0))"


def test_pointers_of_other_buffers_count_as_accesses():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), W: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")):
        B = T.alloc_buffer((16,))
        for i in range(16):
            with T.block("B"):
                v = T.axis.spatial(16, i)
                B[v] = A[v] * 2.0
        for i in range(16):
            with T.block("D"):
                v = T.axis.spatial(16, i)
                T.reads(B[v], W[0:16])
                T.writes(D[v])
                D[v] = B[v] + T.call_extern("float32", "lookup", W.data, v)

    sch = Schedule(before)
    sch.compute_inline("B")
    assert {r.buffer.name for r in sch.get(sch.get_block("D")).reads} == {"A", "W"}


def test_what_cannot_be_inlined_backwards():
    @T.prim_func
    def two(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        C = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] * 2.0
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = B[v] + A[v]
        for i in range(8):
            with T.block("D"):
                v = T.axis.spatial(8, i)
                D[v] = C[v] + B[v]

    sch = Schedule(two)
    with pytest.raises(ScheduleError, match="single buffer region"):
        sch.reverse_compute_inline("D")
    with pytest.raises(ScheduleError, match="single buffer region"):
        sch.reverse_compute_inline("B")
    with pytest.raises(ScheduleError, match="other consumers"):
        sch.reverse_compute_inline("C")


def test_inlining_within_the_constants_of_a_scope():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        table = T.allocate_const([1.0, 2.0, 3.0, 4.0], "float32", [4])
        W = T.decl_buffer((4,), data=table)
        for i in range(4):
            with T.block("B"):
                v = T.axis.spatial(4, i)
                B[v] = A[v] + W[v]
        for i in range(4):
            with T.block("D"):
                v = T.axis.spatial(4, i)
                D[v] = B[v] * 2.0

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        table = T.allocate_const([1.0, 2.0, 3.0, 4.0], "float32", [4])
        W = T.decl_buffer((4,), data=table)
        for i in range(4):
            with T.block("D"):
                v = T.axis.spatial(4, i)
                D[v] = (A[v] + W[v]) * 2.0

    check(before, expected, lambda sch: sch.compute_inline("B"))


def test_predicates_that_read_the_producer_are_inlined_too():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "float32")):
        B = T.alloc_buffer((8, 8))
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for i, j in T.grid(8, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(B[i, j] < 10.0)
                D[vi, vj] = B[vi, vj] + 1.0

    @T.prim_func
    def expected(A: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(A[i, j] * 2.0 < 10.0)
                D[vi, vj] = A[vi, vj] * 2.0 + 1.0

    sch = Schedule(before)
    sch.compute_inline("B")
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)


def test_a_part_of_an_automatic_copy_is_refused():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), D: T.Buffer((7,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(1):
            with T.block("copy"):
                vo = T.axis.spatial(1, i)
                T.reads(A[0:8])
                T.writes(B[0:8])
                T.block_attr({"auto_copy": 1})
                for j in range(8):
                    B[j] = A[j]
        for i in range(7):
            with T.block("D"):
                v = T.axis.spatial(7, i)
                D[v] = B[v] * 2.0

    with pytest.raises(ScheduleError, match="no predicate of that block"):
        Schedule(before).reverse_compute_inline("D")


def test_an_index_without_bounds_is_covered():
    """The consumer undoes a fusion by a dynamic size: nothing is known of the ends of its indices."""

    @T.prim_func
    def before(d: T.handle, a: T.handle, n: T.int64):
        m = T.int64()
        D = T.match_buffer(d, (m, n, T.int64(8)))
        A = T.match_buffer(a, (m * n, T.int64(8)))
        B = T.alloc_buffer((m * n, T.int64(8)))
        for i, j in T.grid(m * n, T.int64(8)):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0
        for i, j, k in T.grid(m, n, T.int64(8)):
            with T.block("D"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                D[vi, vj, vk] = B[vi * n + vj, vk] + 1.0

    sch = Schedule(before, debug_mask="all")
    sch.reverse_compute_inline(sch.get_block("D"))
    store = sch.get(sch.get_block("B")).body
    assert store.buffer.name == "D" and len(store.indices) == 3
    verify_trace_roundtrip(sch, before)
