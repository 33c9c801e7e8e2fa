"""Remainders by sizes that are not known, but not negative: they stay below the size."""

from __future__ import annotations

import pytest

from relaxish import dlight, tir
from relaxish.arith import Analyzer, ProofStrength
from relaxish.ir import IRModule, Range
from relaxish.script import tir as T
from relaxish.target import Target

n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
x, y = tir.Var("x", "int64"), tir.Var("y", "int64")


def int64(value: int) -> tir.IntImm:
    return tir.IntImm("int64", value)


@pytest.mark.parametrize("is_size", [True, False])
@pytest.mark.parametrize(
    "condition",
    [
        tir.floormod(x, n) < n,
        tir.floormod(x, n) + y < n + 3,
        tir.floormod(x, n) * 4 + y < n * 4,
        tir.floormod(x + y, n) <= n - 1,
        m + tir.floormod(x, n) < m + n,
    ],
    ids=str,
)
def test_remainders_by_sizes(condition: tir.PrimExpr, is_size: bool) -> None:
    analyzer = Analyzer()
    if is_size:
        analyzer.mark_global_non_neg_value(n)
    analyzer.bind(x, Range(int64(0), m))
    analyzer.bind(y, Range(int64(0), int64(4)))
    assert analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND) == is_size


def test_what_is_not_below_stays() -> None:
    analyzer = Analyzer()
    analyzer.mark_global_non_neg_value(n)
    analyzer.mark_global_non_neg_value(m)
    analyzer.bind(x, Range(int64(0), m))
    analyzer.bind(y, Range(int64(0), int64(4)))
    for condition in (tir.floormod(x, n) < m, tir.floormod(x, n) + y < n, tir.floormod(x, n) < n - 1):
        assert not analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND)


def test_reductions_under_fused_loops_are_guarded_by_their_own_axis_alone() -> None:
    @T.prim_func
    def main(a: T.handle, c: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (T.int64(32), n, m))
        C = T.match_buffer(c, (T.int64(32), n, m))
        largest = T.alloc_buffer((T.int64(32), n))
        for i, j, k in T.grid(T.int64(32), n, m):
            with T.block("largest"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    largest[vi, vj] = T.float32(-3e38)
                largest[vi, vj] = T.max(largest[vi, vj], A[vi, vj, vk])
        for i, j, k in T.grid(T.int64(32), n, m):
            with T.block("out"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                C[vi, vj, vk] = A[vi, vj, vk] - largest[vi, vj]

    with Target("nvidia/geforce-rtx-3070"):
        made = dlight.ApplyDefaultSchedule(dlight.gpu.GeneralReduction())(IRModule({"main": main}))["main"]
    guards = [line.strip() for line in made.script().splitlines() if "T.where" in line]
    assert len(guards) == 2 and not any("% n" in guard or "and" in guard for guard in guards)
