"""Everything has a text, also what the script languages have no form for."""

import pytest

from relaxish import arith, relax, tir
from relaxish.ir import Range, TensorType

x = tir.Var("x", "int32")


@pytest.mark.parametrize(
    "node, text",
    [
        (arith.IterMark(x, tir.IntImm("int32", 8)), "arith.IterMark(source=x, extent=8)"),
        (TensorType((2, 3), "float32"), 'ir.TensorType(shape=(2, 3), dtype="float32")'),
        (relax.DynTensorType(2, "int8"), 'R.Tensor(ndim=2, dtype="int8")'),
        (relax.ShapeType(3), "R.Shape(ndim=3)"),
        (relax.ObjectType(), "R.Object"),
    ],
)
def test_text(node, text):
    assert str(node) == text


def test_nested():
    found = arith.detect_iter_map([x // 4, x % 4], {x: Range(0, 8)})
    assert str(found).startswith("arith.IterMapResult(indices=(arith.IterSumExpr(") and "lower_factor=4" in repr(found)
