"""transform_layout: index maps, and each of the three ways in which padding is written."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import tir
from relaxish.script import tir as T
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


def relayout(before, expected, buffer, index_map, pad_value=None, block="work", **options):
    sch = Schedule(before, debug_mask="all")
    sch.transform_layout(block, buffer, index_map, pad_value, **options)
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)
    return sch


@T.prim_func
def copy14(A: T.Buffer((14,), "int32"), C: T.Buffer((14,), "int32")):
    for i in range(14):
        with T.block("work"):
            vi = T.axis.spatial(14, i)
            C[vi] = A[vi] + 1


def test_tile_a_matrix_everywhere():
    @T.prim_func
    def before(A: T.Buffer((64, 48), "float32"), C: T.Buffer((64, 48), "float32")):
        B = T.alloc_buffer((64, 48))
        for i, j in T.grid(64, 48):
            with T.block("work"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for i, j in T.grid(64, 48):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] * 2.0

    @T.prim_func
    def expected(A: T.Buffer((64, 48), "float32"), C: T.Buffer((64, 48), "float32")):
        B = T.alloc_buffer((4, 3, 16, 16))
        for i, j in T.grid(64, 48):
            with T.block("work"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi // 16, vj // 16, vi % 16, vj % 16] = A[vi, vj]
        for i, j in T.grid(64, 48):
            with T.block("use"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi // 16, vj // 16, vi % 16, vj % 16] * 2.0

    def tile(i, j):
        return i // 16, j // 16, i % 16, j % 16

    sch = relayout(before, expected, ("write", 0), tile)
    verify_trace_roundtrip(sch, before)
    relayout(before, expected, "B", tile, block="use")


def test_nested_index_is_simplified_as_a_map():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("work"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi * 8 + vj] = A[vi * 8 + vj]

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), C: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("work"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi * 8 + vj]

    relayout(before, expected, ("write", 0), lambda i: [i // 8, i % 8])


@pytest.mark.parametrize("dtype", ["int32", "int8"])
def test_padding_by_a_longer_traversal(dtype):
    @T.prim_func
    def before(A: T.Buffer((14,), dtype)):
        B = T.alloc_buffer((14,), dtype)
        for i in range(14):
            with T.block("work"):
                vi = T.axis.spatial(14, i)
                B[vi] = A[vi]

    zero = tir.IntImm(dtype, 0)

    @T.prim_func
    def expected(A: T.Buffer((14,), dtype)):
        B = T.alloc_buffer((4, 4), dtype)
        for i, j in T.grid(4, 4):
            with T.block("work"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.if_then_else(vi == 3 and 2 <= vj, zero, A[vi * 4 + vj])

    sch = relayout(before, expected, ("write", 0), lambda i: [i // 4, i % 4], 0)
    verify_trace_roundtrip(sch, before)


def test_padding_of_a_reduction():
    @T.prim_func
    def before(A: T.Buffer((14, 32), "int32")):
        B = T.alloc_buffer((14,), "int32")
        for i, k in T.grid(14, 32):
            with T.block("work"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk]

    @T.prim_func
    def expected(A: T.Buffer((14, 32), "int32")):
        B = T.alloc_buffer((4, 4), "int32")
        for i, j, k in T.grid(4, 4, 32):
            with T.block("work"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    B[vi, vj] = T.if_then_else(vi == 3 and 2 <= vj, 0, 0)
                B[vi, vj] = T.if_then_else(vi == 3 and 2 <= vj, 0, B[vi, vj] + A[vi * 4 + vj, vk])

    relayout(before, expected, "B", lambda i: [i // 4, i % 4], 0)


def test_padding_without_block_variables():
    @T.prim_func
    def before(A: T.Buffer((14, 32), "int32")):
        B = T.alloc_buffer((14,), "int32")
        for i in range(14):
            B[i] = 0
            for k in range(32):
                with T.block("work"):
                    B[i] = B[i] + A[i, k]

    @T.prim_func
    def expected(A: T.Buffer((14, 32), "int32")):
        B = T.alloc_buffer((4, 4), "int32")
        for i, j in T.grid(4, 4):
            B[i, j] = T.if_then_else(i == 3 and 2 <= j, 0, 0)
            for k in range(32):
                with T.block("work"):
                    B[i, j] = T.if_then_else(i == 3 and 2 <= j, 0, B[i, j] + A[i * 4 + j, k])

    relayout(before, expected, "B", lambda i: [i // 4, i % 4], 0)


def test_padding_by_a_fill_when_the_block_does_more():
    @T.prim_func
    def before(A: T.Buffer((14,), "int32")):
        B = T.alloc_buffer((14,), "int32")
        C = T.alloc_buffer((14,), "int32")
        for i in range(14):
            with T.block("work"):
                vi = T.axis.spatial(14, i)
                B[vi] = A[vi]
                C[vi] = 0

    @T.prim_func
    def expected(A: T.Buffer((14,), "int32")):
        B = T.alloc_buffer((4, 4), "int32")
        C = T.alloc_buffer((14,), "int32")
        for i in range(14):
            with T.block("work"):
                vi = T.axis.spatial(14, i)
                B[vi // 4, vi % 4] = A[vi]
                C[vi] = 0
        for i, j in T.grid(4, 4):
            with T.block("fill"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i == 3 and 2 <= j)
                B[vi, vj] = 0

    relayout(before, expected, "B", lambda i: [i // 4, i % 4], 0)


def test_padding_of_an_input_is_an_assumption():
    @T.prim_func
    def expected(A: T.Buffer((4, 4), "int32"), C: T.Buffer((14,), "int32")):
        for i, j in T.grid(4, 4):
            with T.block("assume"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.evaluate(T.assume(not (vi == 3 and 2 <= vj) or A[vi, vj] == 42))
        for i in range(14):
            with T.block("work"):
                vi = T.axis.spatial(14, i)
                C[vi] = A[vi // 4, vi % 4] + 1

    relayout(copy14, expected, "A", lambda i: [i // 4, i % 4], 42)


def test_pad_value_may_depend_on_the_index():
    @T.prim_func
    def expected(A: T.Buffer((14,), "int32"), C: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            with T.block("work"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.if_then_else(vi == 3 and 2 <= vj, vi + vj, A[vi * 4 + vj] + 1)

    relayout(copy14, expected, "C", lambda i: [i // 4, i % 4], lambda i, j: i + j)


def test_padding_needs_a_value():
    sch = Schedule(copy14)
    with pytest.raises(ScheduleError, match="padding"):
        sch.transform_layout("work", "C", lambda i: [i // 4, i % 4])
    with pytest.raises(ScheduleError, match="type"):
        sch.transform_layout("work", "C", lambda i: [i // 4, i % 4], tir.IntImm("int8", 0))
    sch.transform_layout("work", "C", lambda i: [i // 4, i % 4], assume_injective_transform=True)
    assert [int(d) for d in sch.get(sch.get_block("work")).writes[0].buffer.shape] == [4, 4]


def test_pad_value_must_not_read_another_buffer():
    A = copy14.buffer_map[copy14.params[0]]
    sch = Schedule(copy14)
    with pytest.raises(ScheduleError, match="pad value"):
        sch.transform_layout("work", "C", lambda i: [i // 4, i % 4], lambda i, j: A[i])


def test_axis_separators_come_with_the_map():
    sch = Schedule(copy14)
    separator = tir.IndexMap.AXIS_SEPARATOR
    sch.transform_layout("work", "C", lambda i: [i // 7, separator, i % 7])
    buffer = sch.get(sch.get_block("work")).writes[0].buffer
    assert [int(s) for s in buffer.axis_separators] == [1]
    with pytest.raises(AssertionError):
        sch.set_axis_separator("work", ("write", 1), [1])


def test_variables_of_one_value_stay_in_indices():
    """They tell later steps what a dimension belongs to; what is computed of them becomes a number."""

    @T.prim_func
    def before(A: T.Buffer((1, 6, 1, 8), "float32"), C: T.Buffer((1, 6, 1, 8), "float32")):
        for a, b, c, d in T.grid(1, 6, 1, 8):
            with T.block("work"):
                va, vb, vc, vd = T.axis.remap("SSSS", [a, b, c, d])
                C[va, vb, vc, vd] = A[va, vb, vc, vd] * 3.0

    @T.prim_func
    def swapped(A: T.Buffer((1, 6, 1, 8), "float32"), C: T.Buffer((1, 8, 6, 1), "float32")):
        for a, b, c, d in T.grid(1, 6, 1, 8):
            with T.block("work"):
                va, vb, vc, vd = T.axis.remap("SSSS", [a, b, c, d])
                C[vc, vd, vb, va] = A[va, vb, vc, vd] * 3.0

    @T.prim_func
    def fused(A: T.Buffer((1, 6, 1, 8), "float32"), C: T.Buffer((1, 6, 1, 8), "float32")):
        for ax0, ax1, ax2 in T.grid(6, 1, 8):
            with T.block("work"):
                v0, v1, v2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                C[0, v0, v1, v2] = A[0, v0, v1, v2] * 3.0

    relayout(before, swapped, "C", lambda a, b, c, d: [c, d, b, a])
    sch = Schedule(before, debug_mask="all")
    sch.transform_block_layout("work", lambda a, b, c, d: [a * 6 + b, c, d])
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], fused)


def test_sums_that_share_a_scale_are_simplified():
    """Windows of a convolution overlap; what the ranges of the variables decide goes all the same."""

    @T.prim_func
    def before(A: T.Buffer((1, 10), "float32"), C: T.Buffer((1, 8, 3), "float32")):
        for n, i, r in T.grid(1, 8, 3):
            with T.block("work"):
                vn, vi, vr = T.axis.remap("SSS", [n, i, r])
                C[vn, vi, vr] = A[vn, vi + vr]

    @T.prim_func
    def expected(A: T.Buffer((1, 10), "float32"), C: T.Buffer((1, 8, 3), "float32")):
        for ax0 in range(24):
            with T.block("work"):
                v0 = T.axis.spatial(24, ax0)
                T.reads(A[0, v0 // 3 + v0 % 3])
                T.writes(C[0, v0 // 3, v0 % 3])
                C[0, v0 // 3, v0 % 3] = A[0, v0 // 3 + v0 % 3]

    sch = Schedule(before, debug_mask="all")
    sch.transform_block_layout("work", lambda n, i, r: [n * 24 + i * 3 + r])
    assert_structural_equal_ignore_global_symbol(sch.mod["main"], expected)


def test_domains_of_inner_blocks_follow_the_variables_of_the_outer():
    """Adaptive pooling: the inner block sums a window that begins and ends at variables of the outer block."""

    @T.prim_func
    def windows(A: T.Buffer((2, 10), "float32"), C: T.Buffer((2, 3), "float32")):
        for n, i in T.grid(2, 3):
            with T.block("work"):
                vn, vi = T.axis.remap("SS", [n, i])
                for r in range((vi * 10 + 12) // 3 - vi * 10 // 3):
                    with T.block("sum"):
                        wn = T.axis.spatial((vn, vn + 1), vn)
                        wi = T.axis.spatial((vi, vi + 1), vi)
                        wr = T.axis.reduce((vi * 10 + 12) // 3 - vi * 10 // 3, r)
                        with T.init():
                            C[wn, wi] = 0.0
                        C[wn, wi] = C[wn, wi] + A[wn, wi * 10 // 3 + wr]

    sch = Schedule(windows, debug_mask="all")
    sch.transform_block_layout("work", lambda n, i: [n * 3 + i])
    assert tir.analysis.verify_well_formed(sch.mod, assert_mode=False)
    a = np.random.default_rng(5).standard_normal((2, 10)).astype("float32")
    want = np.stack([a[:, i * 10 // 3 : (i * 10 + 12) // 3].sum(1) for i in range(3)], 1)
    got = relaxish.nd.empty((2, 3), "float32")
    relaxish.build(sch.mod, "llvm")(relaxish.nd.array(a), got)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
