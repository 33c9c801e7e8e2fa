"""Every operator with samples: what inference promises is what the reference gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import relax
from relaxish.relax.op_table import all_op_records
from relaxish.relax.struct_info import TensorStructInfo, TupleStructInfo


def public_function(name: str) -> Any:
    import relaxish.op as op

    target: Any = op
    for part in name.removeprefix("relax.").split("."):
        target = getattr(target, part)
    return target


def cases() -> list[Any]:
    found = []
    for name, record in sorted(all_op_records().items()):
        if record.samples is None or record.reference is None:
            continue
        for index, (args, kwargs) in enumerate(record.samples()):
            found.append(pytest.param(name, args, kwargs, id=f"{name}-{index}"))
    return found


def as_vars(args: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Call arguments, the variables among them, and the arrays those stand for."""
    params: list[Any] = []
    arrays: list[Any] = []

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            var = relax.Var(f"x{len(params)}", TensorStructInfo(list(value.shape), str(value.dtype)))
            params.append(var)
            arrays.append(value)
            return var
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return tuple(one(v) for v in value)
        return value

    return [one(a) for a in args], params, arrays


def make_call(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, list[Any], list[Any]]:
    if name == "relax.nn.attention_bias":
        name = "relax.nn.attention"
    call_args, params, arrays = as_vars(args)
    return public_function(name)(*call_args, **kwargs), params, arrays


def flat(value: Any) -> list[Any]:
    return [np.asarray(v) for v in value] if isinstance(value, (tuple, list)) else [np.asarray(value)]


@pytest.mark.parametrize(("name", "args", "kwargs"), cases())
def test_inference_fits_reference(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    call, _, _ = make_call(name, args, kwargs)
    info = relax.BlockBuilder().normalize(call).struct_info
    want = flat(all_op_records()[name].reference(*args, **kwargs))
    infos = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
    assert len(infos) == len(want)
    for got, expected in zip(infos, want):
        assert [int(d) for d in got.shape.values] == list(expected.shape)
