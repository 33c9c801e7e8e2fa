"""What tensorize takes over from the intrinsic and the program, and which loops an intrinsic is mapped to."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.tir import TensorIntrin
from relaxish.tir.schedule import Schedule, ScheduleError
from relaxish.tir.schedule.analysis import get_tensorize_loop_mapping
from relaxish.tir.schedule.testing import verify_trace_roundtrip


@T.prim_func
def add_desc(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8,), offset_factor=1)
    B = T.match_buffer(b, (8,), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:8])
        T.writes(B[0:8])
        for i in range(8):
            with T.block("add"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] + T.float32(1)


@T.prim_func
def add_impl(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (8,), offset_factor=1)
    B = T.match_buffer(b, (8,), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:8])
        T.writes(B[0:8])
        T.block_attr({"lanes": 8, "unit": "vector"})
        T.evaluate(T.call_extern("int32", "add8", A.access_ptr("r"), B.access_ptr("w")))


@T.prim_func
def shifted(A: T.Buffer((6, 32), "float32"), B: T.Buffer((6, 32), "float32")):
    for i, j in T.grid(6, 32):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)


TensorIntrin.register("tests.add8", add_desc, add_impl, override=True)


def tiled():
    sch = Schedule(shifted, debug_mask="all")
    _, j = sch.get_loops("B")
    return sch, sch.split(j, [None, 8])[1]


def test_annotations_of_the_program_stand():
    sch, inner = tiled()
    block = sch.blockize(inner)
    sch.annotate(block, "lanes", 4)
    sch.annotate(block, "mine", 1)
    sch.tensorize(block, "tests.add8")
    annotations = sch.get(block).annotations
    assert {k: getattr(v, "value", v) for k, v in annotations.items()} == {"lanes": 4, "mine": 1, "unit": "vector"}
    verify_trace_roundtrip(sch, shifted)


def test_views_keep_the_unit_variables_of_outer_dimensions():
    """A view is addressed as the program addresses the buffer, also where only one index is possible."""

    @T.prim_func
    def one_row(A: T.Buffer((1, 32), "float32"), B: T.Buffer((1, 32), "float32")):
        for i, j in T.grid(1, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    sch = Schedule(one_row, debug_mask="all")
    sch.tensorize(sch.split(sch.get_loops("B")[1], [None, 8])[1], "tests.add8")
    node = sch.get(sch.get_block("B_o"))
    assert all(m.source.region[0].min is node.iter_vars[0].var for m in node.match_buffers)
    verify_trace_roundtrip(sch, one_row)


def test_views_cover_one_row():
    sch, inner = tiled()
    sch.tensorize(inner, "tests.add8")
    node = sch.get(sch.get_block("B_o"))
    assert [len(m.source.region) for m in node.match_buffers] == [2, 2]
    assert [str(r.extent) for r in node.match_buffers[0].source.region] == ["1", "8"]


def test_loops_of_another_kind_do_not_match():
    sch, inner = tiled()
    sch.unroll(inner)
    with pytest.raises(ScheduleError):
        sch.tensorize(inner, "tests.add8")
    with pytest.raises(ValueError):
        sch.tensorize(inner, "tests.unknown")


def test_mapping_looks_at_loops_only():
    @T.prim_func
    def other(A: T.Buffer((6, 30), "float32"), B: T.Buffer((6, 30), "float32")):
        for i, j in T.grid(6, 30):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    sch = Schedule(shifted)
    info = get_tensorize_loop_mapping(sch, sch.get_block("B"), add_desc)
    ((loop, desc_loop),) = info.loop_map.items()
    assert loop is sch.get_sref(sch.get_loops("B")[1])
    assert desc_loop.same_as(add_desc.body.block.body) and info.desc_loop_indexer == {desc_loop: 0}
    assert info.block_iter_paddings is None
    sch = Schedule(other)
    assert get_tensorize_loop_mapping(sch, sch.get_block("B"), add_desc) is None
    padded = get_tensorize_loop_mapping(sch, sch.get_block("B"), add_desc, allow_padding=True)
    assert [int(x) for x in padded.block_iter_paddings] == [1, 8]


@T.prim_func
def branch_desc(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (4,), offset_factor=1)
    B = T.match_buffer(b, (4,), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in range(4):
            with T.block("copy"):
                v = T.axis.spatial(4, i)
                if v < 2:
                    B[v] = A[v]
                else:
                    B[v] = A[v] * T.float32(2)


@T.prim_func
def steps_desc(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (4,), offset_factor=1)
    B = T.match_buffer(b, (4,), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in range(4):
            with T.block("copy"):
                v = T.axis.spatial(4, i)
                B[v] = A[v]
                B[v] = B[v] * T.float32(2)


@T.prim_func
def copy_impl(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (4,), offset_factor=1)
    B = T.match_buffer(b, (4,), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        T.evaluate(T.call_extern("int32", "copy4", A.access_ptr("r"), B.access_ptr("w")))


@T.prim_func
def without_else(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            if vj < 2:
                B[vi, vj] = A[vi, vj]


@T.prim_func
def three_steps(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
            B[vi, vj] = B[vi, vj] * T.float32(2)
            B[vi, vj] = B[vi, vj] + T.float32(1)


@pytest.mark.parametrize(("desc", "program"), [(branch_desc, without_else), (steps_desc, three_steps)])
def test_statements_that_the_description_lacks_or_has_alone(desc, program):
    TensorIntrin.register("tests.copy4", desc, copy_impl, override=True)
    sch = Schedule(program)
    with pytest.raises(ScheduleError, match="does not match the tensor intrinsic"):
        sch.tensorize(sch.get_loops("B")[1], "tests.copy4")
