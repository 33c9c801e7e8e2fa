"""Splits of symbolic and scalable loops, sampling, traces, errors as they are rendered."""

from __future__ import annotations

import collections
import json
import math
import pickle

import pytest

import relaxish
from relaxish.ir import IRModule
from relaxish.script import tir as T
from relaxish.support.errors import InternalError
from relaxish.tir import IntImm, Var
from relaxish.tir.functor import renew_defs
from relaxish.tir.schedule import BlockRV, Instruction, InstructionKind, LoopRV, Schedule, ScheduleError, Trace
from relaxish.tir.schedule.testing import assert_structural_equal_ignore_global_symbol as assert_same
from relaxish.tir.schedule.testing import verify_trace_roundtrip


@T.prim_func
def scaled(A: T.Buffer((64, 96), "float32"), B: T.Buffer((64, 96), "float32")):
    for i, j in T.grid(64, 96):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0


@T.prim_func
def symbolic(a: T.handle, b: T.handle, n: T.int32):
    A = T.match_buffer(a, (4, 8, n))
    B = T.match_buffer(b, (4, 8, n))
    for i, j, k in T.grid(4, 8, n):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = A[vi, vj, vk] * 2.0


def make(func, **options):
    return Schedule(func, debug_mask="all", **options)


def test_fuse_of_symbolic_loops():
    @T.prim_func
    def expected(a: T.handle, b: T.handle, n: T.int32):
        A = T.match_buffer(a, (4, 8, n))
        B = T.match_buffer(b, (4, 8, n))
        for fused in range(n * 32):
            with T.block("B"):
                vi = T.axis.spatial(4, fused // (n * 8))
                vj = T.axis.spatial(8, fused % (n * 8) // n)
                vk = T.axis.spatial(n, fused % n)
                B[vi, vj, vk] = A[vi, vj, vk] * 2.0

    sch = make(symbolic)
    sch.fuse(*sch.get_loops("B"))
    assert_same(sch.mod["main"], expected)
    verify_trace_roundtrip(sch, symbolic)


def test_a_tile_of_a_symbolic_loop_is_left_to_split():
    sch = make(symbolic)
    loop = sch.get_loops("B")[2]
    factors = sch.sample_perfect_tile(loop, 3)
    assert factors[0] is None and [sch.get(f) for f in factors[1:]] == [1, 1]
    sch.split(loop, factors)
    assert sch.trace.decisions[sch.trace.insts[-2]] == [-1, 1, 1]
    assert "_, v4, v5 = sch.sample_perfect_tile(" in str(sch.trace)
    verify_trace_roundtrip(sch, symbolic)


def test_scalable_split_needs_a_scalable_target(capfd):
    @T.prim_func
    def expected(A: T.Buffer((64, 96), "float32"), B: T.Buffer((64, 96), "float32")):
        # Factors are simplified when they are read.
        for i, j_0, j_1 in T.grid(64, 95 // (T.vscale() * 4) + 1, T.vscale() * 4):
            with T.block("B"):
                vi = T.axis.spatial(64, i)
                vj = T.axis.spatial(96, j_0 * (T.vscale() * 4) + j_1)
                T.where(j_0 * (T.vscale() * 4) + j_1 < 96)
                B[vi, vj] = A[vi, vj] * 2.0

    def split():
        sch = make(scaled)
        sch.split(sch.get_loops("B")[1], [T.ceildiv(96, 4 * T.vscale()), 4 * T.vscale()])
        return sch

    with relaxish.target.Target("llvm -mtriple=aarch64-linux-gnu -mattr=+sve"):
        sch = split()
        assert_same(sch.mod["main"], expected)
        verify_trace_roundtrip(sch, scaled)
    wanted = "The product of factors is not larger than or equal to the extent of loop tir.For#0"
    assert "scalable values" not in capfd.readouterr().err
    with relaxish.target.Target("llvm"), pytest.raises(ScheduleError, match=wanted):
        split()
    said = capfd.readouterr().err
    assert "Warning: The expression contains scalable values" in said and "the target was llvm" in said


def test_perfect_tiles_are_drawn_prime_by_prime():
    sch = make(scaled, seed=42)
    i, j = sch.get_loops("B")
    drawn = collections.Counter()
    for _ in range(400):
        sizes = [sch.get(v) for v in sch.sample_perfect_tile(j, 3, 8)]
        assert math.prod(sizes) == 96 and sizes[-1] <= 8
        drawn[tuple(sizes)] += 1
    assert len(drawn) > 30
    again = make(scaled, seed=42)
    sch = make(scaled, seed=42)
    for s in (sch, again):
        s.sample_perfect_tile(s.get_loops("B")[0], 4)
        s.sample_categorical([1, 2, 3], [0.3, 0.3, 0.4])
    assert sch.trace.as_json() == again.trace.as_json()


def test_recorded_tiles_are_adapted():
    sch = make(scaled)
    i, j = sch.get_loops("B")
    assert [sch.get(v) for v in sch.sample_perfect_tile(j, 3, decision=[1, 5, 8])] == [1, 12, 8]
    assert [sch.get(v) for v in sch.sample_partitioned_tile(j, 3, 1, 8, decision=[8, 4, 3])] == [12, 8, 1]
    assert [sch.get(v) for v in sch.sample_partitioned_tile(j, 3, 1, 8, decision=[3, 8, 4])] == [3, 8, 4]
    assert [sch.get(v) for v in sch.sample_partitioned_tile(j, 2, 1, 5)] == [-1, 1]
    with pytest.raises(ValueError, match="number of candidates"):
        sch.sample_categorical([1, 2], [1.0])
    with pytest.raises(ValueError, match="Wrong decision"):
        sch.sample_categorical([1, 2], [0.5, 0.5], decision=2)


def test_instructions_as_text():
    block, loop, value = BlockRV(), LoopRV(), Var("v", "int32")
    get = Instruction(InstructionKind.get("GetBlock"), [], ["work", "main"], [block])
    assert str(get) == "_ = sch.get_block(name=work, func_name=main)"
    assert get.kind.same_as(InstructionKind.get("GetBlock")) and get.kind.is_pure
    assert get.outputs[0].same_as(block)
    split = Instruction(
        InstructionKind.get("Split"), [loop, None, value * 2, IntImm("int32", 4)], [True, False], [loop]
    )
    assert "factors=[None, _ * 2, 4]" in str(split)
    with pytest.raises(InternalError):
        InstructionKind.get("Nonsense")
    assert str(Trace([], {})).endswith("def apply_trace(sch: tir.Schedule) -> None:\n  pass")


def test_dictionaries_in_traces():
    sch = make(scaled)
    sch.annotate("B", "plan", {"sizes": [1, 2.5], "name": "wide"})
    as_json = sch.trace.as_json()
    assert as_json[0][1] == ["Annotate", ["b0", {"sizes": [1, 2.5], "name": "wide"}], ["plan"], []]
    replay = make(scaled)
    Trace.apply_json_to_schedule(json.loads(json.dumps(as_json)), replay)
    assert replay.get(replay.get_block("B")).annotations["plan"]["name"] == "wide"
    verify_trace_roundtrip(sch, scaled)


def test_error_levels():
    texts = {}
    for level in ("detail", "fast", "none"):
        sch = make(scaled, error_render_level=level)
        with pytest.raises(ScheduleError) as caught:
            sch.split(sch.get_loops("B")[0], [3, 4])
        texts[level] = str(caught.value)
    detail = texts["detail"]
    assert detail.startswith(
        "ScheduleError: An error occurred in the schedule primitive 'split'.\n\nThe IR with diagnostic is:\n"
    )
    assert "# tir.For#0\n" in detail and "^^^^" in detail and 'with T.block("root"):' in detail
    reason = "The product of factors is not larger than or equal to the extent of loop"
    assert f"Error message: {reason} tir.For#0" in detail
    assert texts["fast"] == f"ScheduleError: {reason}"
    assert texts["none"] == "ScheduleError: (not rendered)"
    with pytest.raises(ScheduleError, match="Cannot find a block with the name: nowhere"):
        make(scaled).get_block("nowhere")


@pytest.mark.parametrize("factors", [[None, None], [0, None], [-1, 64], [7, 9]])
def test_split_refuses(factors):
    sch = make(scaled)
    with pytest.raises(ScheduleError):
        sch.split(sch.get_loops("B")[0], factors)


def test_errors_carry_their_text():
    sch = make(scaled)
    with pytest.raises(ScheduleError) as caught:
        sch.get_block("nowhere")
    assert caught.value.args == (str(caught.value),) and "nowhere" in caught.value.args[0]
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.args == caught.value.args


def test_the_function_to_work_on_must_be_known():
    sch = Schedule(IRModule({name: renew_defs(func) for name, func in zip("fg", (scaled, scaled))}))
    with pytest.raises(ValueError, match="does not know which function to be working on"):
        sch.get_block("B")
    assert sch.get_block("B", func_name="g") is not None


def test_options_of_a_schedule():
    for wrong in (0, 2**31):
        with pytest.raises(ValueError):
            Schedule(scaled, seed=wrong)
    for options in ({"seed": "1"}, {"enable_check": 1}, {"debug_mask": 1.5}):
        with pytest.raises(TypeError):
            Schedule(scaled, **options)
    for options in ({"debug_mask": "some"}, {"error_render_level": "loud"}):
        with pytest.raises(ValueError):
            Schedule(scaled, **options)
    with pytest.raises(TypeError):
        Schedule("scaled")
    with pytest.raises(AttributeError):
        Schedule(scaled).no_such_primitive()


def test_references_know_their_place_in_a_sequence():
    @T.prim_func
    def two(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v]
        for i in range(8):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = A[v]

    sch = make(two)
    loops = [sch.get_sref(sch.get_loops(name)[0]) for name in "BC"]
    assert [s.seq_index for s in loops] == [0, 1]
    assert sch.get_sref(sch.get_block("B")).seq_index == -1
