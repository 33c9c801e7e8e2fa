"""The script's annotations stand for struct infos outside the parser too, and struct infos know their legacy types."""

import pytest

from relaxish import relax, tir
from relaxish.ir import PrimType, assert_structural_equal, structural_equal, structural_hash
from relaxish.script import relax as R


def test_variable_from_annotation():
    m = tir.Var("m", "int64")
    var = relax.Var("x", R.Tensor((m, 8), "float16"))
    assert_structural_equal(var.struct_info, relax.TensorStructInfo([m, 8], "float16"))
    assert relax.Var("s", R.Shape([m, 4])).struct_info.values[0].same_as(m)
    assert isinstance(relax.Var("t", R.Tuple(R.Tensor((2,), "int32"), R.Object())).struct_info, relax.TupleStructInfo)


def test_annotations_nest_in_struct_infos():
    info = relax.FuncStructInfo([R.Tensor((2, 3), "float32")], R.Tensor(ndim=2, dtype="float32"))
    assert info.params[0].ndim == 2 and info.ret.ndim == 2
    pair = relax.TupleStructInfo([R.Tensor((1,), "int8"), R.Prim("int64")])
    assert [type(f).__name__ for f in pair.fields] == ["TensorStructInfo", "PrimStructInfo"]


def test_calls_and_match_cast_take_annotations():
    x = relax.Var("x", R.Tensor(ndim=2, dtype="float32"))
    call = relax.Call(relax.ExternFunc("f"), [x], sinfo_args=R.Tensor((2, 3), "float32"))
    assert isinstance(call.sinfo_args[0], relax.TensorStructInfo)
    builder = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    with builder.function("main", [x]):
        y = builder.match_cast(x, R.Tensor((n, 3), "float32"))
        builder.emit_func_output(y)
    assert y.struct_info.shape.values[0].same_as(n)


def test_no_struct_info():
    with pytest.raises(TypeError, match="struct info"):
        relax.Var("x", 3)


@pytest.mark.parametrize(
    "info, expected",
    [
        (R.Tensor((2, 3), "float32"), relax.DynTensorType(2, "float32")),
        (R.Tensor(ndim=4, dtype="int8"), relax.DynTensorType(4, "int8")),
        (R.Shape(ndim=3), relax.ShapeType(3)),
        (R.Prim("int64"), PrimType("int64")),
        (R.Object(), relax.ObjectType()),
        (R.Tuple(R.Object(), R.Shape(ndim=1)), relax.TupleType([relax.ObjectType(), relax.ShapeType(1)])),
        (R.Callable((R.Object(),), R.Object()), relax.FuncType([relax.ObjectType()], relax.ObjectType())),
    ],
)
def test_checked_type(info, expected):
    var = relax.Var("x", info)
    assert_structural_equal(var.checked_type, expected)
    assert_structural_equal(relax.analysis.get_static_type(var.struct_info), expected)


def test_flag_attributes_equal_numbers():
    function = relax.Function([], relax.Tuple([]), relax.TupleStructInfo([]))
    flag, number = function.with_attr("Primitive", True), function.with_attr("Primitive", 1)
    assert structural_equal(flag, number) and structural_hash(flag) == structural_hash(number)
    assert not structural_equal(flag, function.with_attr("Primitive", False))
