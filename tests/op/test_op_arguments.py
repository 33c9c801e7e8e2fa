"""Every operator with arguments of little or wrong information: what is unknown stays unknown, what is wrong is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_op_inference import cases, make_call

from relaxish import relax
from relaxish.relax.struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relaxish.support.errors import RelaxishError

_WRONG = {
    "shape": ShapeStructInfo([2, 3]),
    "function": FuncStructInfo([TensorStructInfo([2], "float32")], TensorStructInfo([2], "float32")),
    "object": ObjectStructInfo(),
    "tuple": TupleStructInfo([TensorStructInfo([2], "float32")]),
}
_TAKES_ANY = {"relax.print", "relax.assert_op"}
#: Where inference, as users know it, takes the rank of an operand of unknown shape for the result's.
_RANK_OF_OPERAND = {"relax.cumprod", "relax.cumsum", "relax.einsum"}
_COMPLAINTS = ("at least", "requires", "expects", "needs", "should", "must", "out of range")


def infos_of(params: list[Any]) -> list[Any]:
    return [p.struct_info for p in params]


def infer(name: str, args: Any, kwargs: dict[str, Any], infos: list[Any]) -> Any:
    """The struct info of the sample's call, its tensors described by ``infos``."""
    values = iter(infos)

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return relax.Var("x", next(values))
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return tuple(one(v) for v in value)
        return value

    from test_op_inference import public_function

    made = public_function("relax.nn.attention" if name == "relax.nn.attention_bias" else name)
    return relax.BlockBuilder().normalize(made(*[one(a) for a in args], **kwargs)).struct_info


def known(info: Any) -> list[Any]:
    return list(info.fields) if isinstance(info, TupleStructInfo) else [info]


@pytest.mark.parametrize(("name", "args", "kwargs"), cases())
def test_less_information_gives_less_not_errors(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    call, params, _ = make_call(name, args, kwargs)
    exact = known(relax.BlockBuilder().normalize(call).struct_info)
    full = infos_of(params)
    for place, info in enumerate(full):
        for vague in (
            TensorStructInfo(dtype=info.dtype, ndim=info.ndim),
            TensorStructInfo(dtype=info.dtype),
            TensorStructInfo(dtype="", ndim=info.ndim),
            TensorStructInfo(relax.Var("s", ShapeStructInfo(ndim=info.ndim)), info.dtype),
        ):
            infos = [vague if k == place else i for k, i in enumerate(full)]
            try:
                got = known(infer(name, args, kwargs, infos))
            except RelaxishError as error:
                assert any(word in str(error) for word in _COMPLAINTS), str(error)
                continue
            for ours, theirs in zip(got, exact):
                assert ours.dtype in ("", theirs.dtype)
                assert ours.ndim in (-1, theirs.ndim) or name in _RANK_OF_OPERAND


@pytest.mark.parametrize(("name", "args", "kwargs"), cases())
def test_wrong_kinds_of_arguments_are_errors_of_ours(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    _, params, _ = make_call(name, args, kwargs)
    full = infos_of(params)
    for place in range(len(full)):
        for kind, wrong in _WRONG.items():
            infos = [wrong if k == place else i for k, i in enumerate(full)]
            with pytest.raises(RelaxishError):
                infer(name, args, kwargs, infos)
                raise AssertionError(f"{name} took a {kind} as argument {place}")


def test_integers_in_attributes_tell_their_dtype() -> None:
    x = relax.Var("x", TensorStructInfo([2, 3, 28, 28], "float32"))
    w = relax.Var("w", TensorStructInfo([4, 3, 3, 3], "float32"))
    attrs = relax.op.nn.conv2d(x, w, strides=(1, 1), padding=(1, 1), dilation=(1, 1)).attrs
    assert all(v.dtype == "int64" for k in ("strides", "padding", "dilation") for v in attrs[k])
    assert relax.op.split(x, [3, 7], axis=2).attrs.indices_or_sections[0].dtype == "int64"


def test_a_shape_is_a_tuple() -> None:
    from relaxish import tir

    x = relax.Var("x", TensorStructInfo([2, 3], "float32"))
    value = relax.Var("v", TensorStructInfo([], "float32"))
    for shape in (4, tir.Var("m", "int64")):
        for make in (
            lambda s: relax.op.ones(s, "float32"),
            lambda s: relax.op.full(s, value),
            lambda s: relax.op.broadcast_to(x, s),
            lambda s: relax.op.reshape(x, s),
        ):
            with pytest.raises(RelaxishError) as caught:
                make(shape)
            assert isinstance(caught.value, TypeError)
