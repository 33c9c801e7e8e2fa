"""Parallel reductions in the space: which reductions the rules take up, and what may become a vector."""

import numpy as np
import pytest

from relaxish import meta_schedule as ms
from relaxish import te, tir, topi
from relaxish.interp import run_prim_func
from relaxish.ir import IRModule
from relaxish.meta_schedule.testing.space_generation import generate_design_space
from relaxish.script import tir as T
from relaxish.target import Target


def arg_extreme(rows: int, columns: int):
    """Position and value of the largest element of each row: one reduction with two results."""

    @T.prim_func
    def func(
        index: T.Buffer((rows, columns), "int32"),
        value: T.Buffer((rows, columns), "float32"),
        where: T.Buffer((rows,), "int32"),
        best: T.Buffer((rows,), "float32"),
    ):
        for i, k in T.grid(rows, columns):
            with T.block("extreme"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    where[vi] = -1
                    best[vi] = T.min_value("float32")
                new_where: T.int32 = T.Select(best[vi] >= value[vi, vk], where[vi], index[vi, vk])
                new_best: T.float32 = T.Select(best[vi] >= value[vi, vk], best[vi], value[vi, vk])
                where[vi] = new_where
                best[vi] = new_best

    return func.with_attr("global_symbol", "main")


def spaces(func, target, rule):
    return generate_design_space(
        target.kind.name, IRModule({"main": func}), target=target, types=None, sch_rules=[rule]
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(1, 24), (7, 60)])
def test_reductions_with_two_results_are_factored(rows, columns):
    rule = ms.schedule_rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64)
    made = spaces(arg_extreme(rows, columns), Target("llvm --num-cores=8"), rule)
    assert len(made) == 3
    rng = np.random.default_rng(rows)
    index = rng.permutation(rows * columns).reshape(rows, columns).astype("int32")
    value = rng.standard_normal((rows, columns)).astype("float32")
    for sch in made:
        where, best = np.zeros(rows, "int32"), np.zeros(rows, "float32")
        run_prim_func(sch.mod["main"], [index, value, where, best])
        chosen = value.argmax(axis=1)
        np.testing.assert_array_equal(where, index[np.arange(rows), chosen])
        np.testing.assert_array_equal(best, value.max(axis=1))


def test_reductions_with_two_results_are_shared_by_threads():
    rule = ms.schedule_rule.CrossThreadReduction(thread_extents=[4, 8, 16])
    made = spaces(arg_extreme(7, 60), Target("nvidia/geforce-rtx-3090"), rule)
    assert ["threadIdx.x" in sch.mod.script() for sch in made] == [False, True]


@pytest.mark.parametrize(("columns", "count"), [(1, 1), (2, 3), (6, 3)])
def test_short_reductions_without_reuse_are_factored_as_well(columns, count):
    a = te.placeholder((4, columns), "float32", name="A")
    func = te.create_prim_func([a, topi.sum(a, axis=1)]).with_attr("global_symbol", "main")
    rule = ms.schedule_rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64)
    assert len(spaces(func, Target("llvm --num-cores=32"), rule)) == count


def test_only_innermost_blocks_become_vectors():
    @T.prim_func
    def nested(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
        with T.block("root"):
            T.block_attr({"meta_schedule.parallel": 16, "meta_schedule.vectorize": 32})
            for i0, j0 in T.grid(4, 4):
                with T.block("tile"):
                    vi, vj = T.axis.remap("SS", [i0, j0])
                    for i1, j1 in T.grid(16, 16):
                        with T.block("copy"):
                            wi = T.axis.spatial(64, vi * 16 + i1)
                            wj = T.axis.spatial(64, vj * 16 + j1)
                            B[wi, wj] = A[wi, wj]

    sch = tir.Schedule(nested)
    assert ms.postproc.RewriteParallelVectorizeUnroll().apply(sch)
    kinds = [sch.get(loop).kind for loop in sch.get_loops(sch.get_block("tile"))]
    assert tir.ForKind.VECTORIZED not in kinds and kinds[0] == tir.ForKind.PARALLEL
