"""The types of scalars in legalised operators and in inference."""

from __future__ import annotations

import numpy as np

import relaxish as rx
from relaxish import relax, te, topi, tir
from relaxish.ir.functor import all_nodes
from relaxish.runtime.arrays.dtype import DataType
from relaxish.script import tir as T
from relaxish.script.ir_builder import IRBuilder
from relaxish.script.ir_builder import tir as TB


def _info(call: relax.Call) -> relax.TensorStructInfo:
    return relax.BlockBuilder().normalize(call).struct_info


def test_python_floats_make_float32() -> None:
    x = relax.Var("x", relax.TensorStructInfo((3,), "int32"))
    assert _info(relax.op.one_hot(x, 1.0, 0.0, 4)).dtype == "float32"
    assert _info(relax.op.one_hot(x, 1, 0, 4)).dtype == "int64"
    wide = relax.PrimValue(tir.FloatImm("float64", 1.0)), relax.PrimValue(tir.FloatImm("float64", 0.0))
    assert _info(relax.op.one_hot(x, *wide, 4)).dtype == "float64"


def _conditions(func: tir.PrimFunc) -> list[tir.PrimExpr]:
    return [node.condition for node in all_nodes(func.body) if isinstance(node, tir.Select)]


def test_conditions_are_compared_in_the_type_of_indices() -> None:
    for index, shape in (("int64", [tir.IntImm("int64", 3), tir.IntImm("int64", 2)]), ("int32", [3, 2])):
        c, x, y = (te.placeholder(shape, kind) for kind in ("bool", "float32", "float32"))
        func = te.create_prim_func([c, x, y, topi.where(c, x, y)])
        (condition,) = _conditions(func)
        assert {side.dtype for side in (condition.a, condition.b)} == {index}
        kernel = rx.tir.build(func.with_attr("global_symbol", "main"), target="llvm")["main"]
        rng = np.random.default_rng(1)
        flags, a, b = rng.random((3, 2)) < 0.5, *(rng.random((3, 2)).astype("float32") for _ in range(2))
        out = rx.nd.empty((3, 2))
        kernel(rx.nd.array(flags), rx.nd.array(a), rx.nd.array(b), out)
        np.testing.assert_array_equal(out.numpy(), np.where(flags, a, b))


def test_lanes_of_small_floats() -> None:
    for name, bits in (("float8_e4m3fn", 8), ("float8_e5m2", 8), ("float4_e2m1fn", 4), ("float8_e8m0fnu", 8)):
        for lanes in (1, 4, 16):
            dtype = DataType(name if lanes == 1 else f"{name}x{lanes}")
            assert (dtype.bits, dtype.lanes, dtype.itemsize()) == (bits, lanes, (bits * lanes + 7) // 8)


def test_resizing_has_a_usual_layout() -> None:
    a = te.placeholder((1, 3, 4, 4))
    assert [int(d) for d in topi.image.resize2d(a, [0.0] * 4, (8, 6)).shape] == [1, 3, 8, 6]


def test_what_is_left_to_detect_is_an_int64() -> None:
    with IRBuilder() as builder:
        with TB.block("b"):
            TB.evaluate(0)
    made = builder.get()
    mark = made.block.annotations["tir.script_parsing_detect_access"]
    assert (mark.value, mark.dtype) == (3, "int64")


def test_scopes_of_names_are_python_s_own() -> None:
    size = 3

    def make() -> tir.PrimFunc:
        nonlocal size

        @T.prim_func
        def main(A: T.Buffer((4,), "int32")):
            nonlocal size
            for i in range(4):
                A[i] = size

        size = 5
        return main

    (store,) = [n for n in all_nodes(make().body) if isinstance(n, tir.BufferStore)]
    assert store.value.value == 3
