"""InjectRollingBuffer: windows that slide with a loop."""

from __future__ import annotations

from typing import Any

import pytest

from relaxish import tir
from relaxish.ir import IRModule, Range, assert_structural_equal
from relaxish.tir import transform


def program(low: Any, extent: int, mark: bool = True) -> tuple[Any, Any, Any, Any]:
    """A producer of ``extent`` rows at ``low(i)`` in a loop over ``i``, and its consumer."""
    A, B = tir.decl_buffer((16,), "int32", "A"), tir.decl_buffer((16,), "int32", "B")
    C = tir.decl_buffer((8,), "int32", "C")
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    start = low(i)
    produce = tir.For(j, 0, extent, 0, tir.BufferStore(B, A[start + j], [start + j]))
    consume = tir.BufferStore(C, B[start] + B[start + (extent - 1)], [i])
    body: Any = tir.SeqStmt([produce, consume])
    if mark:
        body = tir.AttrStmt(B, "rolling_buffer_scope", 1, body)
    realize = tir.BufferRealize(B, [Range.from_min_extent(start, extent)], True, body)
    return tir.PrimFunc([A, C], tir.For(i, 0, 8, 0, tir.AttrStmt(B, "realize_scope", "local", realize))), A, B, C


def inject(func: Any) -> Any:
    return transform.InjectRollingBuffer()(IRModule({"main": func}))["main"]


def test_overlapping_rows_are_kept() -> None:
    func, A, B, C = program(lambda i: i, 3)
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")

    def turn(e: Any) -> Any:
        return tir.FloorMod(e, 3)

    fresh = tir.likely(tir.Or(i < 1, j >= 2))
    produce = tir.For(j, 0, 3, 0, tir.IfThenElse(fresh, tir.BufferStore(B, A[i + j], [turn(i + j)])))
    consume = tir.BufferStore(C, B[turn(i)] + B[turn(i + 2)], [i])
    loop = tir.For(i, 0, 8, 0, tir.SeqStmt([produce, consume]))
    realize = tir.BufferRealize(B, [Range(0, 3)], True, loop)
    after = tir.PrimFunc([A, C], tir.AttrStmt(B, "realize_scope", "local", realize))
    assert_structural_equal(inject(func), after)


def test_strides_reduce_the_overlap() -> None:
    text = str(inject(program(lambda i: i * 2, 3)[0]))
    assert "T.likely(i < 1 or j >= 1)" in text
    # Steps as long as the window leave nothing to keep.
    assert "likely" not in str(inject(program(lambda i: i * 3, 3)[0]))


def test_fractional_strides() -> None:
    assert "j >= 2" in str(inject(program(lambda i: tir.floordiv(i, 2), 3)[0]))


def test_unmarked_buffers_are_left_alone() -> None:
    func = program(lambda i: i, 3, mark=False)[0]
    assert inject(func) is func


def test_errors() -> None:
    with pytest.raises(ValueError, match="striding is unsupported"):
        inject(program(lambda i: i * 2 + 1, 3)[0])
    with pytest.raises(ValueError, match="no rolling axis found"):
        inject(program(lambda i: tir.IntImm("int32", 0), 3)[0])
