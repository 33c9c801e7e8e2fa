"""Operators of users' own, made of attributes alone; and users' own attributes on operators there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from relaxish import relax
from relaxish.ir import Op, register_op_attr
from relaxish.relax.op import op_attrs
from relaxish.relax.op_table import all_op_records
from relaxish.relax.transform import LegalizeOps
from relaxish.script import relax as R
from relaxish.support.errors import RelaxishError


@pytest.fixture
def double() -> Iterator[Op]:
    """An operator that doubles its argument."""
    register_op_attr("testing.double", "FInferStructInfo", lambda call, ctx: call.args[0].struct_info)
    register_op_attr("testing.double", "FPurity", True)
    made = Op.get("testing.double")
    yield made
    for name in list(made.attr_map):
        made.reset_attr(name)


def var() -> Any:
    return relax.Var("x", R.Tensor((2, 3), "float32"))


def test_inference_of_ones_own(double: Op) -> None:
    x = var()
    assert relax.BlockBuilder().normalize(relax.Call(double, [x])).struct_info.same_as(x.struct_info)


def test_without_inference_there_is_none() -> None:
    bare = Op.register("testing.bare")
    with pytest.raises(RelaxishError, match=r"testing\.bare has no struct-info inference"):
        relax.BlockBuilder().normalize(relax.Call(bare, [var()]))


def test_lowering_of_ones_own(double: Op) -> None:
    register_op_attr("testing.double", "FLegalize", lambda bb, call: relax.op.add(call.args[0], call.args[0]))
    builder, x = relax.BlockBuilder(), var()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.Call(double, [x]))
        builder.emit_func_output(out)
    assert "R.call_tir(cls.add, (x, x)" in LegalizeOps()(builder.get()).script()


def test_normalisation_of_ones_own(double: Op) -> None:
    x = var()
    double.set_attr("FNormalize", lambda bb, call: relax.op.add(call.args[0], call.args[0]))
    assert relax.BlockBuilder().normalize(relax.Call(double, [x])).op.name == "relax.add"
    double.reset_attr("FNormalize")
    assert relax.BlockBuilder().normalize(relax.Call(double, [x])).op is double


def test_lower_levels_do_not_replace(double: Op) -> None:
    double.set_attr("testing.note", "kept", 11)
    double.set_attr("testing.note", "lost")
    assert double.get_attr("testing.note") == "kept"
    double.reset_attr("testing.note")
    assert not double.has_attr("testing.note")


def test_attributes_of_known_operators() -> None:
    add = Op.get("relax.add")
    x = var()
    assert add.get_attr("FInferStructInfo")(relax.op.add(x, x), relax.BlockBuilder()).ndim == 2
    assert add.get_attr("FPurity") is True
    assert Op.get("relax.print").get_attr("FPurity") is False
    assert Op.get("relax.unique").get_attr("FCallPacked") == "relax.run.unique"
    with pytest.raises(AttributeError, match="not registered"):
        Op.get("relax.no_such_operator")


#: Operators that take any number of arguments, or whose count others check.
_VARIADIC = {
    "relax.call_builtin_with_ctx", "relax.call_inplace_packed", "relax.dist.call_tir_local_view",
    "relax.invoke_closure", "relax.invoke_pure_closure", "relax.make_closure", "relax.null_value", "relax.print",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(n for n in all_op_records() if n not in _VARIADIC and n.startswith("relax.")))
def test_wrong_number_of_arguments(name: str) -> None:
    x = var()
    for args in ([], [x] * 9):
        with pytest.raises(RelaxishError):
            relax.BlockBuilder().normalize(relax.Call(Op.get(name), args))


def test_kinds_of_attributes() -> None:
    attrs = relax.op.nn.softmax(var()).attrs
    assert isinstance(attrs, op_attrs.SoftmaxAttrs)
    assert not isinstance(attrs, op_attrs.PermuteDimsAttrs)
    assert isinstance(relax.op.memory.view(var()).attrs, op_attrs.SoftmaxAttrs) is False
    assert "Conv2DAttrs" in dir(op_attrs)
    with pytest.raises(AttributeError):
        _ = op_attrs.NoSuchAttrs
