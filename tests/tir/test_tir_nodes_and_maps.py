"""Nodes: what constructors refuse, buffers, index maps and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxish import TVMError, te, tir
from relaxish.ir import structural_equal


@pytest.mark.parametrize(
    "build",
    [
        lambda: tir.IntImm("int8", -129), lambda: tir.IntImm("uint8", 256), lambda: tir.const(128, "int8"),
        lambda: tir.FloatImm("float32", 3.5e38), lambda: tir.FloatImm("float16", 65535),
        lambda: te.var("x") << 33, lambda: te.var("x") >> -1, lambda: te.var("f", "float32") & te.var("g", "float32"),
        lambda: ~te.var("f", "float32"), lambda: tir.floordiv(te.var("x"), tir.const(0)),
        lambda: tir.truncmod(te.var("x"), tir.const(0)), lambda: tir.Shuffle([], []),
        lambda: tir.Ramp(0, 1, tir.Var("i", "int32")),
        lambda: tir.BufferStore(tir.decl_buffer((4,), "float32"), tir.const(1, "int32"), [0]),
    ],
)  # fmt: skip
def test_constructors_refuse(build: Callable[[], Any]) -> None:
    with pytest.raises(TVMError):
        build()


def test_special_floats_are_literals() -> None:
    assert np.isnan(tir.FloatImm("float32", float("nan")).value)
    assert tir.FloatImm("float16", float("inf")).value == float("inf")


def test_shift_amounts_take_the_type_of_the_shifted() -> None:
    assert (tir.const(1, "int8x2") >> 1).dtype == "int8x2"
    assert (te.var("x") >> tir.const(1, "int32x2")).dtype == "int32x2"


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_index_map_inverse(factor: int) -> None:
    forward = tir.IndexMap.from_func(lambda i: [i // factor, i % factor], index_dtype="int32")
    backward = tir.IndexMap.from_func(lambda i, j: [i * factor + j], index_dtype="int32")
    assert forward.inverse([16]).is_equivalent_to(backward)
    assert [int(d) for d in forward.map_shape([16])] == [16 // factor, factor]


def test_index_map_padding() -> None:
    forward = tir.IndexMap.from_func(lambda i: [i // 4, i % 4], index_dtype="int32")
    inverse, padding = forward.non_surjective_inverse([14])
    i, j = inverse.initial_indices
    assert structural_equal(padding, tir.And(tir.EQ(i, 3), tir.LE(tir.const(2), j)))


def test_index_map_errors() -> None:
    with pytest.raises(TVMError):
        tir.IndexMap.from_func(lambda i: [i // 4, i // 4]).inverse([16])
    with pytest.raises(TypeError, match="Expected mapping function to return"):
        tir.IndexMap.from_func(lambda i: ["x"])


def test_index_map_takes_indices_of_another_width() -> None:
    index_map = tir.IndexMap.from_func(lambda i, j: [i, j // 2, j % 2])
    mapped = index_map.map_indices([tir.Var("a", "int32"), tir.Var("b", "int32")])
    assert len(mapped) == 3


def test_bijective_layout() -> None:
    convert = tir.bijective_layout("NCHW", "NCHW16c")
    assert [int(v) for v in convert.forward_shape((1, 32, 7, 7))] == [1, 2, 7, 7, 16]
    assert [int(v) for v in convert.forward_index([0, 18, 6, 6])] == [0, 1, 6, 6, 2]
    assert [int(v) for v in convert.backward_index([0, 1, 6, 6, 2])] == [0, 18, 6, 6]


def test_access_pointer_of_a_strided_buffer() -> None:
    m, n = te.size_var("m"), te.size_var("n")
    buffer = tir.decl_buffer((m, n), "float32", strides=[n + 1, 1])
    pointer = buffer.access_ptr("rw")
    assert structural_equal(pointer.args[3], buffer.strides[0] * m) and int(pointer.args[4]) == 3


def test_flattened_buffer_keeps_axis_separators() -> None:
    flat = tir.decl_buffer((4, 16, 32, 64), axis_separators=[2]).get_flattened_buffer()
    assert [int(d) for d in flat.shape] == [64, 2048] and [int(a) for a in flat.axis_separators] == [1]


def test_axis_separators_are_for_the_other_constructor():
    with pytest.raises(AssertionError, match="from_func_with_separators"):
        tir.IndexMap.from_func(lambda i: [i // 4, tir.IndexMap.AXIS_SEPARATOR, i % 4])
    made, separators = tir.IndexMap.from_func_with_separators(lambda i: [i // 4, tir.IndexMap.AXIS_SEPARATOR, i % 4])
    assert separators == [1] and len(made.final_indices) == 2
