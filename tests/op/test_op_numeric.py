"""Every operator with samples: its lowered program, compiled, computes what the reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_op_inference import cases, flat, make_call

from relaxish import relax
from relaxish.driver import build_tir
from relaxish.ir.dtype import numpy_dtype
from relaxish.relax.expr import Call, Constant, Tuple, TupleGetItem
from relaxish.relax.op_table import all_op_records
from relaxish.relax.struct_info import TensorStructInfo
from relaxish.runtime.ndarray import array
from relaxish.tir import PrimFunc


def lowered_module(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    call, params, arrays = make_call(name, args, kwargs)
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        call = builder.normalize(call)
        result = all_op_records()[call.op.name].legalize(builder, call)
        assert result is not call, "not lowered"
        builder.emit_func_output(builder.emit(result))
    return builder.get(), arrays


def run_module(mod: Any, arrays: list[Any]) -> list[Any]:
    """Run the straight-line ``main``: each call_tir with its compiled kernel."""
    main = mod["main"]
    kernels = (
        build_tir(type(mod)({g: f for g, f in mod.functions.items() if isinstance(f, PrimFunc)}))
        if any(isinstance(f, PrimFunc) for f in mod.functions.values())
        else None
    )
    values: dict[Any, Any] = dict(zip(main.params, arrays))

    def get(expr: Any) -> Any:
        if isinstance(expr, Constant):
            return expr.data.numpy()
        if isinstance(expr, Tuple):
            return [get(f) for f in expr.fields]
        if isinstance(expr, TupleGetItem):
            return get(expr.tuple_value)[expr.index]
        if isinstance(expr, Call):
            infos = expr.sinfo_args[0]
            outs = [infos] if isinstance(infos, TensorStructInfo) else list(infos.fields)
            made = [array(np.zeros([int(d) for d in i.shape.values], numpy_dtype(i.dtype))) for i in outs]
            ins = [array(np.ascontiguousarray(get(a))) for a in expr.args[1].fields]
            kernels[expr.args[0].name_hint](*ins, *made)
            got = [m.numpy() for m in made]
            return got[0] if isinstance(infos, TensorStructInfo) else got
        return values[expr]

    for block in main.body.blocks:
        for binding in block.bindings:
            values[binding.var] = get(binding.value)
    return flat(get(main.body.body))


@pytest.mark.parametrize(("name", "args", "kwargs"), cases())
def test_lowering_fits_reference(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    mod, arrays = lowered_module(name, args, kwargs)
    want = flat(all_op_records()[name].reference(*args, **kwargs))
    got = run_module(mod, arrays)
    assert len(got) == len(want)
    for result, expected in zip(got, want):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result.astype("float64"), expected.astype("float64"), rtol=2e-4, atol=2e-5)
