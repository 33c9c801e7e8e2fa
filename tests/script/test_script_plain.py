"""Everything has a text, also what the script languages have no form for."""

import pytest

from relaxish import arith, relax, tir
from relaxish.ir import FuncType, PrimType, Range, TensorType, TupleType

x = tir.Var("x", "int32")


@pytest.mark.parametrize(
    "node, text",
    [
        (arith.IterMark(x, tir.IntImm("int32", 8)), "IterMark(x, extent=8)"),
        (TensorType((2, 3), "float32"), 'I.TensorType([2, 3], "float32")'),
        (relax.DynTensorType(2, "int8"), 'R.Tensor(ndim=2, dtype="int8")'),
        (relax.ShapeType(3), "R.Shape(ndim=3)"),
        (relax.ObjectType(), "R.Object"),
    ],
)
def test_text(node, text):
    assert str(node) == text


@pytest.mark.parametrize(
    "node, text, in_graphs",
    [
        (
            TupleType([relax.ShapeType(3), relax.ObjectType()]),
            "T.Tuple(R.Shape(ndim=3), R.Object)",
            "R.Tuple(R.Shape(ndim=3), R.Object)",
        ),
        (TupleType([]), "None", "R.Tuple"),
        (
            FuncType([relax.ObjectType(), TupleType([relax.ObjectType()])], relax.DynTensorType()),
            'I.FuncType([R.Object, T.Tuple(R.Object)], R.Tensor(ndim=-1, dtype="float32"))',
            'R.Callable((R.Object, R.Tuple(R.Object)), R.Tensor(ndim=-1, dtype="float32"))',
        ),
        (PrimType("int32"), "T.int32", "T.int32"),
    ],
)
def test_types_that_both_levels_have(node, text, in_graphs):
    assert node.script() == text
    assert node._relax_script() == in_graphs


def test_nested():
    found = arith.detect_iter_map([x // 4, x % 4], {x: Range(0, 8)})
    first = "IterSum([IterSplit(IterMark(x, extent=8), lower_factor=4, extent=2, scale=1)], 0)"
    assert str(found).startswith("arith.IterMapResult(indices=(IterSum([") and str(found.indices[0]) == first
