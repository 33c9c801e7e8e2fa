"""Names that tools around the script and the graph level use."""

from __future__ import annotations

from relaxish import relax, te, tir
from relaxish.script import relax as R
from relaxish.script.parser.relax.entry import StructInfoProxy


def test_annotations_are_proxies() -> None:
    assert isinstance(R.Tensor((2,), "float32"), StructInfoProxy)
    assert isinstance(R.Prim("int64"), StructInfoProxy)


def test_the_legacy_type_of_variables() -> None:
    assert relax.Var("x")._checked_type_ is None
    for kind in (relax.Var, relax.DataflowVar):
        y = kind("y", relax.TensorStructInfo((2, 3), "float32"))
        assert y._checked_type_ == y.checked_type


def test_the_separator_of_axes_has_one_name_more() -> None:
    assert te.AXIS_SEPARATOR is tir.IndexMap.AXIS_SEPARATOR


def test_attributes_are_listed() -> None:
    @R.function(private=True)
    def func(x: R.Tensor((2,), "float32")):
        R.func_attr({"number": 3})
        return x

    assert func.attrs.items()[0] == ("number", 3)
