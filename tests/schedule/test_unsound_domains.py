"""Guards on loops that drive nothing, and domains larger than what is there, decide what runs after a move or a copy."""

from __future__ import annotations

import pytest

from relaxish.script import tir as T
from relaxish.testing.fuzz.cases import check_program
from relaxish.tir.schedule import Schedule


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
