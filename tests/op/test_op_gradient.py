"""Gradients against finite differences of the references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_op_inference import flat, make_call

import relaxish
from relaxish import relax
from relaxish.ir.op import Op
from relaxish.relax.expr import Call, Tuple
from relaxish.relax.op_table import all_op_records
from relaxish.relax.struct_info import TensorStructInfo, TupleStructInfo

pytestmark = pytest.mark.slow  # compiles a forward and a backward program for every operand


def cases() -> list[Any]:
    found = []
    for name, record in sorted(all_op_records().items()):
        if record.gradient is None or record.samples is None or record.reference is None:
            continue
        for index, (args, kwargs) in enumerate(record.samples()):
            first = args[0][0] if isinstance(args[0], tuple) and args[0] else args[0]
            if not isinstance(first, np.ndarray):
                continue  # made of a shape alone
            outs = flat(record.reference(*args, **kwargs))
            if first.dtype == np.float32 or name == "relax.where":
                if all(o.dtype.kind == "f" for o in outs):
                    found.append(pytest.param(name, args, kwargs, id=f"{name}-{index}"))
    return found


@pytest.mark.parametrize(("name", "args", "kwargs"), cases())
def test_gradient_fits_differences(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    call, params, arrays = make_call(name, args, kwargs)
    record = all_op_records()[name]
    builder = relax.BlockBuilder()
    info = builder.normalize(call).struct_info
    outs = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
    seeds = [relax.Var(f"g{i}", TensorStructInfo(o.shape, o.dtype)) for i, o in enumerate(outs)]
    places: list[int] = []
    with builder.function("main", [*params, *seeds]):
        with builder.dataflow():
            var = builder.emit(call)
            bound = builder.lookup_binding(var)
            seed = Tuple(seeds) if isinstance(info, TupleStructInfo) else seeds[0]
            made = record.gradient(var, bound, seed, builder)
            results = []
            for arg, grad in zip(bound.args, made):
                if isinstance(grad, Call) and isinstance(grad.op, Op) and grad.op.name == "relax.grad.no_grad":
                    continue
                fields = list(arg.fields) if isinstance(arg, Tuple) else [arg]
                got = builder.emit(grad)
                parts = [builder.emit(got[k]) for k in range(len(fields))] if isinstance(arg, Tuple) else [got]
                for field, part in zip(fields, parts):
                    index = [i for i, p in enumerate(params) if p is field]
                    if index:
                        places.append(index[0])
                        results.append(part)
            result = builder.emit_output(Tuple(results))
        builder.emit_func_output(result)
    if not results:
        return
    weights = [
        np.random.default_rng(1).uniform(-1, 1, [int(d) for d in o.shape.values]).astype("float32") for o in outs
    ]
    executable = relaxish.build(builder.get(), "llvm", relax_pipeline="default_build")
    vm = relaxish.VirtualMachine(executable, relaxish.cpu())
    got = vm["main"](*[relaxish.nd.array(a) for a in [*arrays, *weights]])
    rng = np.random.default_rng(2)
    for place, grad in zip(places, got):
        x = arrays[place].astype("float64")
        assert grad.numpy().shape == x.shape
        for _ in range(4):
            at = tuple(int(rng.integers(n)) for n in x.shape)
            values = []
            for step in (1e-4, -1e-4):
                moved = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
                moved[place] = x.copy()
                moved[place][at] += step
                grouped = tuple(moved) if isinstance(args[0], tuple) else None
                value = record.reference(*([grouped] if grouped is not None else moved), **kwargs)
                values.append(sum(float((v * w).sum()) for v, w in zip(flat(value), weights)))
            want = (values[0] - values[1]) / 2e-4
            assert abs(float(grad.numpy()[at]) - want) < 2e-3 * max(1.0, abs(want)), (place, at)
