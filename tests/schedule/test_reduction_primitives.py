"""decompose_reduction and rfactor: order of predicates, known reducers, tuple reductions."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.testing.examples import matmul, outline
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.testing import verify_trace_roundtrip


def test_the_init_keeps_predicates_of_spatial_loops():
    sch = Schedule(matmul, debug_mask="all")
    i, j, k = sch.get_loops("C")
    sch.split(i, [None, 5])
    sch.split(j, [None, 7])
    sch.split(k, [None, 6])
    loops = sch.get_loops("C")
    sch.decompose_reduction("C", loops[4])
    text = outline(sch)
    assert "T.where(j_0 * 7 + j_1 < 16 and i_0 * 5 + i_1 < 16)" in text
    assert "T.where(i_0 * 5 + i_1 < 16 and j_0 * 7 + j_1 < 16 and k_0 * 6 + k_1 < 16)" in text
    assert check_program(matmul, sch.mod["main"]) is None


def test_update_alone_cannot_run_in_parallel():
    sch = Schedule(matmul)
    i, _, k = sch.get_loops("C")
    sch.decompose_reduction("C", k)
    with pytest.raises(ScheduleError, match="compact dataflow"):
        sch.parallel(i)


def test_decompose_at_a_loop_inside_the_reduction():
    sch = Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    with pytest.raises(ScheduleError, match="to be higher than all the loops"):
        sch.decompose_reduction("C", i)


@T.prim_func
def argmin(
    index: T.Buffer((4, 12), "int32"),
    value: T.Buffer((4, 12), "float32"),
    best: T.Buffer((4,), "int32"),
    low: T.Buffer((4,), "float32"),
):
    for i, k in T.grid(4, 12):
        with T.block("argmin"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                best[vi] = -1
                low[vi] = T.max_value("float32")
            v_best: T.int32 = T.Select(low[vi] <= value[vi, vk], best[vi], index[vi, vk])
            v_low: T.float32 = T.Select(low[vi] <= value[vi, vk], low[vi], value[vi, vk])
            best[vi] = v_best
            low[vi] = v_low


@T.prim_func
def moments(x: T.Buffer((4, 12), "float32"), s: T.Buffer((4,), "float32"), q: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 12):
        with T.block("moments"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = 0.0
                q[vi] = 0.0
            v_s: T.float32 = s[vi] + x[vi, vk]
            v_q: T.float32 = q[vi] + x[vi, vk] * x[vi, vk]
            s[vi] = v_s
            q[vi] = v_q


@pytest.mark.parametrize(("func", "name"), [(argmin, "argmin"), (moments, "moments")])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_rfactor_of_pairs(func, name, axis):
    sch = Schedule(func, debug_mask="all")
    _, k = sch.get_loops(name)
    outer, _ = sch.split(k, [3, 4])
    made = sch.rfactor(outer, axis)
    assert sch.get(made).name_hint == f"{name}_rf"
    assert len(sch.get(made).writes) == 2
    verify_trace_roundtrip(sch, func)
    assert check_program(func, sch.mod["main"]) is None


def test_rfactor_needs_a_neutral_start():
    @T.prim_func
    def biased(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 5.0
                B[vi] = B[vi] + A[vi, vk]

    sch = Schedule(biased)
    with pytest.raises(ScheduleError, match="No matched reducer"):
        sch.rfactor(sch.get_loops("B")[1], 0)


def test_rfactor_loop_must_be_a_serial_reduction():
    sch = Schedule(matmul)
    i, _, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="not a reduction loop"):
        sch.rfactor(i, 0)
    with pytest.raises(ScheduleError, match="out of range"):
        sch.rfactor(k, 3)
    sch.unroll(k)
    with pytest.raises(ScheduleError, match="not serial"):
        sch.rfactor(k, 0)


def test_the_init_is_guarded_by_predicates_over_unit_loops():
    @T.prim_func
    def column(A: T.Buffer((4, 1, 8), "float32"), B: T.Buffer((4, 1), "float32")):
        for i, j, k in T.grid(4, 1, 8):
            with T.block("B"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    B[vi, vj] = 0.0
                B[vi, vj] = B[vi, vj] + A[vi, vj, vk]

    sch = Schedule(column, debug_mask="all")
    _, j, k = sch.get_loops("B")
    sch.split(j, [None, 3], preserve_unit_iters=False)
    sch.decompose_reduction("B", k)
    assert check_program(column, sch.mod["main"]) is None
    sch = Schedule(column, debug_mask="all")
    i, j, k = sch.get_loops("B")
    sch.split(j, [None, 3], preserve_unit_iters=False)
    sch.decompose_reduction("B", i)
    assert check_program(column, sch.mod["main"]) is None
