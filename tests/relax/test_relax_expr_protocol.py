"""Constructors, conversions and operators of graph expressions: what they accept and which errors they raise."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import TVMError, relax, tir
from relaxish.ir import structural_equal
from relaxish.script import relax as R

n, m = tir.Var("n", "int64"), tir.Var("m", "int64")


def _tensor(name="x", shape=(2, 3), dtype="float32"):
    return relax.Var(name, R.Tensor(shape, dtype))


def test_projection_out_of_bounds_is_an_index_error_only_when_written_with_brackets():
    pair = relax.Var("p", relax.TupleStructInfo([relax.PrimStructInfo("int64"), relax.ObjectStructInfo()]))
    first, second = pair
    assert (first.index, second.index) == (0, 1)
    for index in (2, -1):
        with pytest.raises(IndexError):
            pair[index]
        with pytest.raises(TVMError):
            relax.TupleGetItem(pair, index)


def test_tuples_and_shapes_index_like_sequences():
    x = _tensor()
    pair = relax.Tuple([x, 4])
    assert pair[-1].value.value == 4 and len(pair) == 2 and next(iter(pair)) is x
    shape = relax.ShapeExpr([n, 4])
    assert shape[-1].value == 4 and shape[0] is n
    for sequence in (pair, shape):
        for index in (2, -3):
            with pytest.raises(IndexError):
                sequence[index]


@pytest.mark.parametrize("dim", [1.5, "n", tir.Var("k", "int32"), tir.Var("k", "float32"), tir.Var("k", "int32") + 1])
def test_dimensions_are_64_bit_integers(dim):
    with pytest.raises(TVMError):
        relax.ShapeExpr([dim])


def test_operators_take_graph_expressions_only():
    x = _tensor()
    assert (x + relax.const(1.0)).op.name == "relax.add"
    assert (relax.const(1.0) - x).op.name == "relax.subtract"
    for write in (
        lambda: x + 1,
        lambda: 2.0 * x,
        lambda: 1 - x,
        lambda: 3 / x,
        lambda: 2**x,
        lambda: x + n,
        lambda: [x] + x,
    ):
        with pytest.raises(TypeError):
            write()


def test_a_tuple_plus_a_python_tuple_is_a_python_tuple():
    x = _tensor()
    pair = relax.Var("p", relax.TupleStructInfo([x.struct_info, x.struct_info]))
    joined = pair + (x,)
    assert isinstance(joined, tuple) and [type(v).__name__ for v in joined] == ["TupleGetItem", "TupleGetItem", "Var"]


def test_only_functions_can_be_called():
    x = _tensor()
    for callee in (x, relax.Var("o", relax.ObjectStructInfo())):
        with pytest.raises(ValueError):
            relax.Call(callee, [x])
    relax.Call(relax.Var("f", relax.FuncStructInfo.opaque_func()), [x])
    relax.Call(relax.Var("unknown"), [x])


def test_calls_of_module_functions_are_graph_or_scalar_calls():
    x, function = _tensor(), relax.GlobalVar("f")
    assert isinstance(function(x), relax.Call) and isinstance(function(n, 1), tir.Call)
    with pytest.raises(RuntimeError):
        function(x, 1)


def test_struct_info_before_inference_is_an_error():
    with pytest.raises(ValueError):
        relax.Var("x").struct_info
    with pytest.raises(TVMError):
        relax.Tuple([relax.Var("x")]).struct_info
    assert relax.Var("x").struct_info_ is None


def test_scalar_struct_info_demands_a_type_or_a_value():
    assert relax.PrimStructInfo(value=n).dtype == "int64"
    assert relax.PrimStructInfo(value=3).dtype == "int64"
    assert relax.PrimStructInfo("int32", 3).value.dtype == "int32"
    assert relax.PrimStructInfo(value=1.5).dtype == "float32"
    for wrong in ({}, {"dtype": n}, {"dtype": 4}):
        with pytest.raises(TypeError):
            relax.PrimStructInfo(**wrong)
    with pytest.raises(AssertionError):
        relax.PrimStructInfo("int32", n)


@pytest.mark.parametrize(
    "make",
    [
        lambda: relax.ShapeStructInfo([n, 2], ndim=3),
        lambda: relax.ShapeStructInfo(ndim=-2),
        lambda: relax.TensorStructInfo([n, 2], "float32", ndim=3),
        lambda: relax.TensorStructInfo(ndim=-2),
        lambda: relax.TensorStructInfo(4, "float32"),
        lambda: relax.TensorStructInfo(relax.Var("s"), "float32"),
        lambda: relax.FuncStructInfo.opaque_func(ret=relax.ObjectStructInfo(), derive_func="infer"),
        lambda: relax.ExternFunc("f", relax.ObjectStructInfo()),
    ],
)
def test_contradicting_struct_infos_are_refused(make):
    with pytest.raises(TVMError):
        make()


def test_function_signatures_compare_up_to_renaming_of_dimensions():
    def signature(dim, result):
        return relax.FuncStructInfo([R.Tensor((dim, 2), "float32")], R.Tensor((result,), "float32"))

    assert structural_equal(signature(n, n), signature(m, m)) and hash(signature(n, n)) == hash(signature(m, m))
    assert not structural_equal(signature(n, n), signature(m, n))


def test_constants_choose_the_usual_types():
    kinds = [relax.const(v).struct_info.dtype for v in (1, 2.5, True, [1, 2], np.float16(3))]
    assert kinds == ["int32", "float32", "bool", "int32", "float16"]
    assert [relax.const(1, d).struct_info.dtype for d in ("bfloat16", "float8_e4m3fn", np.int8)] == [
        "bfloat16",
        "float8_e4m3fn",
        "int8",
    ]
    for wrong in ("text", None):
        with pytest.raises(ValueError):
            relax.const(wrong)


def test_python_values_as_expressions():
    convert = relax.utils.convert_to_expr
    assert isinstance(convert([1, n]), relax.Tuple) and isinstance(convert(n), relax.PrimValue)
    assert convert("a").value == "a" and convert(7).value.dtype == "int64"
    for wrong in (None, {"a": 1}, tir.StringImm("a")):
        with pytest.raises(TypeError):
            convert(wrong)


def test_argument_converters():
    converter = relax.utils.args_converter

    @converter.to_expr("x", "rest")
    def single(x, y=2, *rest):
        return x, y, rest

    x, y, rest = single(1, 3, "a")
    assert isinstance(x, relax.PrimValue) and y == 3 and isinstance(rest[0], relax.StringImm)
    assert single(None)[0] is None
    with pytest.raises(TypeError):
        single({"no": "expression"})
    with pytest.raises(ValueError):
        converter.to_expr("missing")(lambda x: x)
    with pytest.raises(ValueError):
        converter.convert(["x"], ["x"])

    @converter.auto
    def several(a: relax.Expr, b: list[relax.Expr], c: relax.Expr | None = None, d: int = 1):
        return a, b, c, d

    a, b, c, d = several(1, (2, "z"), d=5)
    assert isinstance(a, relax.PrimValue) and [type(v).__name__ for v in b] == ["PrimValue", "StringImm"]
    assert c is None and d == 5
    with pytest.raises(TypeError):
        several(1, 2)


def test_metadata_is_split_from_the_program():
    program, metadata = relax.utils.metadata_partitioner('{"a": {"b": 1}}\nbody\n')
    assert (program, metadata) == ("\nbody", '{"a": {"b": 1}}')
    with pytest.raises(ValueError):
        relax.utils.metadata_partitioner("no braces")


def test_run_time_fields_are_those_of_tensors():
    x = relax.Var("x", R.Tensor((n, 4), "float16"))
    bb = relax.BlockBuilder()
    assert bb.normalize(x.shape[0]).value is n and bb.normalize(x.dtype.bits).value.value == 16
    assert isinstance(relax.Var("later").ndim, relax.Call)
    for owner in (relax.Var("o", relax.ObjectStructInfo()), relax.Var("s", R.Shape([1, 2]))):
        with pytest.raises(TypeError):
            owner.shape
    with pytest.raises(TypeError):
        x.shape[relax.StringImm("axis")]
    for axis in (-1, 2):
        with pytest.raises(TVMError):
            bb.normalize(x.shape[axis])
