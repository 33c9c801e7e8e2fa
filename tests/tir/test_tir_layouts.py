"""Layouts: their axes, and which convert into which."""

from __future__ import annotations

import pytest

from relaxish import tir
from relaxish.arith import Analyzer
from relaxish.ir import assert_structural_equal
from relaxish.tir.stmt_functor import substitute

simplify = Analyzer().simplify


def test_axes_are_iteration_variables() -> None:
    made = tir.layout("NHW4w", "int64")
    assert [axis.var.name for axis in made.axes] == ["N", "H", "W", "4w"]
    assert made.axes[1].dom.extent.name == "H_shape" and int(made.axes[3].dom.extent) == 4
    assert {axis.var.dtype for axis in made.axes} == {"int64"}
    assert made[-1] == "w" and made[0] == "N"
    with pytest.raises(IndexError):
        made[4]


@pytest.mark.parametrize("dtype", ["float32", None])
def test_axes_are_integers(dtype) -> None:
    with pytest.raises(TypeError):
        tir.layout("NCHW", dtype)


@pytest.mark.parametrize(("src", "dst"), [("NCHW", "NCDHW"), ("", "NCHW"), ("NCHW", "__undef__"), ("", "")])
def test_no_conversion(src: str, dst: str) -> None:
    assert tir.bijective_layout(src, dst) is None


def test_conversion_there_and_back() -> None:
    made = tir.bijective_layout("NHWC", "NCHW8c")
    assert [int(d) for d in made.forward_shape((2, 5, 6, 20))] == [2, 3, 5, 6, 8]
    assert [int(d) for d in made.backward_shape((2, 3, 5, 6, 8))] == [2, 5, 6, 24]
    assert [int(i) for i in made.forward_index((1, 4, 5, 19))] == [1, 2, 4, 5, 3]
    assert [int(i) for i in made.backward_index((1, 2, 4, 5, 3))] == [1, 4, 5, 19]


@pytest.mark.parametrize("factor", [4, 16])
def test_unknown_numbers_of_whole_blocks_come_back(factor: int) -> None:
    made = tir.bijective_layout("NCHW", f"NCHW{factor}c")
    c = tir.Var("c", "int64")
    plain = made.backward_shape((2, c, 7, 9, factor))
    assert_structural_equal(plain[1], c * factor)
    assert_structural_equal(made.forward_shape(plain)[1], c)
    parts = made.forward_shape((2, c, 7, 9))[1]  # the last block may be filled in part
    assert [int(simplify(substitute(parts, {c: tir.IntImm("int64", i)}))) for i in range(34)] == [
        -(-i // factor) for i in range(34)
    ]
