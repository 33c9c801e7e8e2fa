"""Which accesses of a block count, and how far they reach."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import tir
from relaxish.script import tir as T
from relaxish.tir.analysis import get_block_access_region, get_block_read_write_region


def block_of(statements: Any) -> Any:
    """A block around statements that were built by hand."""
    return tir.Block([], [], [], "b", tir.SeqStmt.flatten(*statements))


def spans(regions: Any) -> list[tuple[str, int, int]]:
    """(buffer, first, count) of one-dimensional regions."""
    return [(r.buffer.name, r.region[0].min.value, r.region[0].extent.value) for r in regions]


@pytest.fixture
def buffers() -> tuple[Any, Any]:
    """Two vectors of 16 numbers."""
    return tir.decl_buffer((16,), "int32", "A"), tir.decl_buffer((16,), "int32", "B")


def test_buffers_that_are_not_asked_for_do_not_count(buffers: tuple[Any, Any]) -> None:
    A, B = buffers
    block = block_of([tir.BufferStore(A, B[3] + A[4], [2])])
    reads, writes, opaque = get_block_access_region(block, {A.data: A})
    assert (spans(reads), spans(writes), spans(opaque)) == ([("A", 4, 1)], [("A", 2, 1)], [])
    reads, writes, _ = get_block_access_region(block, {A.data: A, B.data: B})
    assert (spans(reads), spans(writes)) == ([("B", 3, 1), ("A", 4, 1)], [("A", 2, 1)])


@pytest.mark.parametrize(("mask", "where"), [("r", 0), ("w", 1), ("rw", 2)])
def test_pointer_masks(buffers: tuple[Any, Any], mask: str, where: int) -> None:
    A, _ = buffers
    block = block_of([tir.Evaluate(A.access_ptr(mask))])
    found = get_block_access_region(block, {A.data: A})
    assert [spans(group) for group in found] == [[("A", 0, 16)] if i == where else [] for i in range(3)]
    reads, writes = get_block_read_write_region(block, {A.data: A})
    assert [bool(reads), bool(writes)] == [mask != "w", mask != "r"]


def test_loops_reach_only_as_far_as_conditions_let_them(buffers: tuple[Any, Any]) -> None:
    A, B = buffers
    i = tir.Var("i", "int32")
    choice = tir.IfThenElse(i * 2 < 10, tir.BufferStore(A, 1, [i]), tir.BufferStore(B, B[i - 1], [i]))
    block = block_of([tir.For(i, 0, 16, tir.ForKind.SERIAL, choice)])
    reads, writes, _ = get_block_access_region(block, {A.data: A, B.data: B})
    assert spans(writes) == [("A", 0, 5), ("B", 5, 11)]
    assert spans(reads) == [("B", 4, 11)]


def test_a_reduction_does_not_read_its_own_result() -> None:
    @T.prim_func
    def total(A: T.Buffer((16,), "int32"), B: T.Buffer((1,), "int32")) -> None:
        for k in range(16):
            with T.block("sum"):
                v = T.axis.reduce(16, k)
                with T.init():
                    B[0] = 0
                B[0] = B[0] + A[v]

    block = total.body.block.body.body.block
    assert [r.buffer.name for r in block.reads] == ["A"]


def test_memory_allocated_inside_is_nobody_elses(buffers: tuple[Any, Any]) -> None:
    A, B = buffers
    own = tir.decl_buffer((16,), "int32", "own")
    use = tir.SeqStmt.flatten(tir.BufferStore(own, A[3], [0]), tir.BufferStore(B, own[0], [2]))
    block = block_of([tir.Allocate(own.data, "int32", (16,), tir.const(True, "bool"), use)])
    known = {buffer.data: buffer for buffer in (A, B, own)}
    assert [spans(group) for group in get_block_access_region(block, known)] == [[("A", 3, 1)], [("B", 2, 1)], []]
