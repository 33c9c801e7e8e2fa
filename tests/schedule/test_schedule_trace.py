"""Sampling, traces and the reference tree."""

from __future__ import annotations

import collections
import math

import pytest

from relaxish import tir
from relaxish.ir import assert_structural_equal, structural_equal
from relaxish.script import tir as T
from relaxish.tir.schedule import Schedule, Trace
from relaxish.tir.schedule.sampling import LinearCongruentialEngine, factor_tuples, sample_perfect_factors
from relaxish.tir.schedule.trace_text import evaluate_expr

V, W = tir.Var("v", "int32"), tir.Var("w", "int32")


@T.prim_func
def copy(A: T.Buffer((256, 512), "float32"), C: T.Buffer((256, 512), "float32")):
    B = T.alloc_buffer((256, 512))
    for i, j in T.grid(256, 512):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i, j in T.grid(256, 512):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj]


def test_perfect_tiles_are_uniform():
    # Primes are dealt out one by one, each uniformly, so all factorisations are equally likely.
    engine = LinearCongruentialEngine(7)
    tuples = factor_tuples(48, 3, 8)
    counts = collections.Counter(tuple(sample_perfect_factors(engine, 48, 3, 8)) for _ in range(200 * len(tuples)))
    assert set(counts) == set(tuples)
    assert all(math.prod(t) == 48 and t[-1] <= 8 for t in counts)
    assert min(counts.values()) > 120 and max(counts.values()) < 300


def test_categorical_follows_probabilities():
    sch = Schedule(copy, seed=3)
    counts = collections.Counter(sch.get(sch.sample_categorical([1, 5, 9], [0.1, 0.3, 0.6])) for _ in range(3000))
    assert abs(counts[9] / 3000 - 0.6) < 0.05


def test_decisions_replay_and_change():
    sch = Schedule(copy, seed=1)
    i, _ = sch.get_loops("C")
    sch.split(i, sch.sample_perfect_tile(i, 2, max_innermost_factor=64))
    inst = next(x for x in sch.trace.insts if x.kind.name == "SamplePerfectTile")
    assert math.prod(sch.trace.get_decision(inst)) == 256
    changed = sch.trace.with_decision(inst, [16, 16], remove_postproc=True)
    again = Schedule(copy)
    changed.apply_to_schedule(again, remove_postproc=False)
    assert [int(again.get(x).extent) for x in again.get_loops("C")] == [16, 16, 512]
    third = Schedule(copy)
    sch.trace.apply_to_schedule(third, decision_provider=lambda inst, inputs, attrs, decision: [4, 64])
    assert int(third.get(third.get_loops("C")[0]).extent) == 4


def test_json_form():
    sch = Schedule(copy, seed=1)
    block = sch.get_block("C")
    i, j = sch.get_loops(block)
    sch.sample_perfect_tile(i, 2, decision=[32, 8])
    sch.split(i, [None, 8])
    sch.annotate(block, "key", "value")
    sch.enter_postproc()
    sch.vectorize(j)
    insts, decisions = sch.trace.as_json()
    assert insts[0] == ["GetBlock", [], ["C", "main"], ["b0"]]
    assert insts[1] == ["GetLoops", ["b0"], [], ["l1", "l2"]]
    assert insts[2] == ["SamplePerfectTile", ["l1"], [2, 16], ["v3", "v4"]]
    assert insts[3] == ["Split", ["l1", "None", 8], [True, False], ["l5", "l6"]]
    assert insts[4] == ["Annotate", ["b0", '"value"'], ["key"], []]
    assert decisions == [[2, [32, 8]]]
    assert len(sch.trace.as_json(remove_postproc=True)[0]) == 5
    assert [i.kind.name for i in sch.trace.simplified(True).insts] == ["GetBlock", "GetLoops", "Split", "Annotate"]
    assert Trace.from_json(sch.trace.as_json()).as_json() == sch.trace.as_json()


def test_bad_json_is_one_clear_error():
    with pytest.raises(ValueError, match="before it is defined"):
        Trace.from_json([[["GetLoops", ["b0"], [], ["l1"]]], []])
    with pytest.raises(ValueError, match="no schedule instruction"):
        Trace.from_json([[["Nothing", [], [], []]], []])
    with pytest.raises(ValueError, match="instructions, decisions"):
        Trace.from_json({"a": 1})


def test_text_runs_nothing_but_schedule_calls():
    with pytest.raises(ValueError, match="schedule methods"):
        Trace.apply_python_to_schedule('__import__("os")', Schedule(copy))
    with pytest.raises(ValueError, match="not allowed"):
        Trace.apply_python_to_schedule('sch.get_block(name=open("x"))', Schedule(copy))


def test_compute_location_decisions():
    seen = set()
    for seed in range(1, 40):
        sch = Schedule(copy, seed=seed * 50_000_017)
        loop = sch.sample_compute_location("B")
        decision = sch.trace.decisions[sch.trace.insts[-1]]
        seen.add(decision)
        sch.compute_at("B", loop)
    assert seen == {-2, -1, 0, 1}


def test_trace_through_random_tiles_round_trips():
    for seed in range(1, 8):
        sch = Schedule(copy, seed=seed, debug_mask="all")
        loops = [sch.split(x, sch.sample_perfect_tile(x, 3)) for x in sch.get_loops("C")]
        sch.reorder(loops[0][0], loops[1][0], loops[0][1], loops[1][1], loops[0][2], loops[1][2])
        sch.compute_at("B", loops[1][1])
        other = Schedule(copy, debug_mask="all")
        Trace.apply_json_to_schedule(sch.trace.as_json(), other)
        assert structural_equal(sch.mod, other.mod)


@pytest.mark.parametrize(
    "e",
    [
        tir.Add(0, V * 2), tir.Mul(V, 1), tir.FloorDiv(V, tir.const(1)), tir.Select(V == 1, V, W), tir.EQ(V, V),
        tir.And(V < 2, tir.Or(W != 3, tir.Not(V > 1))), tir.Max(V, W),
    ],
    ids=str,
)  # fmt: skip
def test_expressions_of_a_trace_are_read_as_printed(e):
    """Also those that an operator would fold, and comparisons and logic in the maps of layouts."""
    assert_structural_equal(evaluate_expr(str(e), {"v": V, "w": W}), e)
