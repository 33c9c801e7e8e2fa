"""Every operator with symbolic shapes: one compiled program for all extents computes what the reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_op_inference import cases, flat, public_function

import relaxish
from relaxish import relax, tir
from relaxish.relax.op_table import all_op_records
from relaxish.support.errors import RelaxishError

pytestmark = pytest.mark.slow  # compiles a program for every sample

_STATIC = {"relax.collapse_sum_to": "the target of the sample is given in numbers, which a symbol may not equal"}


def known(info: Any) -> bool:
    return all(f.shape is not None for f in (info.fields if isinstance(info, relax.TupleStructInfo) else [info]))


def symbolic_program(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The operator on tensors whose extents, where larger than one, are symbols; equal extents are one symbol."""
    symbols: dict[int, tir.Var] = {}
    params: list[Any] = []
    arrays: list[Any] = []

    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            dims = [symbols.setdefault(d, tir.Var(f"n{d}", "int64")) if d > 1 else d for d in value.shape]
            params.append(relax.Var(f"x{len(params)}", relax.TensorStructInfo(dims, str(value.dtype))))
            arrays.append(value)
            return params[-1]
        if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
            return tuple(one(v) for v in value)
        return value

    made = [one(a) for a in args]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        call = public_function("relax.nn.attention" if name == "relax.nn.attention_bias" else name)(*made, **kwargs)
        result = builder.emit(call)
        if not known(result.struct_info):
            pytest.skip("the result's shape is not known without the extents")
        builder.emit_func_output(result)
    return builder.get(), arrays


def symbolic_cases() -> list[Any]:
    return [c for c in cases() if c.values[0] not in _STATIC and any(isinstance(a, np.ndarray) for a in c.values[1])]


@pytest.mark.parametrize(("name", "args", "kwargs"), symbolic_cases())
def test_symbolic_shapes(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    try:
        mod, arrays = symbolic_program(name, args, kwargs)
    except RelaxishError as error:
        pytest.skip(f"needs known extents: {error}")
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", relax_pipeline="default_build"), relaxish.cpu())
    got = vm["main"](*[relaxish.nd.array(a) for a in arrays])
    want = flat(all_op_records()[name].reference(*args, **kwargs))
    outs = [g.numpy() for g in got] if isinstance(got, (tuple, list)) else [got.numpy()]
    for result, expected in zip(outs, want, strict=True):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result.astype("float64"), expected.astype("float64"), rtol=2e-4, atol=2e-5)
