"""Every operator with samples, built by the default CUDA pipeline, computes on the emulated GPU what its reference does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "op"))
from test_op_inference import cases, flat, make_call

import relaxish
from relaxish import relax
from relaxish.relax.op_table import all_op_records
from relaxish.target import Target
from relaxish.testing import use_cuda_provider

TARGET = Target("nvidia/nvidia-a100", host="llvm")
QUICK = {
    "add", "argmax", "concat", "cumsum", "mean", "matmul", "nn.conv2d",
    "nn.layer_norm", "nn.softmax", "permute_dims", "sort", "strided_slice", "take",
}  # fmt: skip


def run_on_cuda(name: str, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The operator alone in a function, through the default pipeline, on an emulated device."""
    call, params, arrays = make_call(name, args, kwargs)
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    with TARGET:
        executable = relaxish.compile(builder.get(), TARGET, relax_pipeline=relax.get_default_pipeline(TARGET))
    with use_cuda_provider("emulator"):
        device = relaxish.cuda()
        vm = relaxish.VirtualMachine(executable, device)
        return _results(vm["main"](*[relaxish.nd.array(np.ascontiguousarray(a), device) for a in arrays]))


def _results(value: Any) -> list[Any]:
    if isinstance(value, relaxish.nd.NDArray):
        return [value.numpy()]
    return [item for part in value for item in _results(part)]


def _parameters() -> list[Any]:
    """All samples; only the first of a few operators belongs to the default tests."""
    made, seen = [], set()
    for case in cases():
        name, args, kwargs = case.values
        if all_op_records()[name].legalize is None:
            continue
        marks = () if name in QUICK and name not in seen else (pytest.mark.slow,)
        seen.add(name)
        made.append(pytest.param(name, args, kwargs, marks=marks, id=str(case.id)))
    return made


@pytest.mark.parametrize(("name", "args", "kwargs"), _parameters())
def test_operator(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    want = flat(all_op_records()[name].reference(*args, **kwargs))
    got = run_on_cuda(name, args, kwargs)
    assert len(got) == len(want)
    for result, expected in zip(got, want, strict=True):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result.astype("float64"), expected.astype("float64"), rtol=5e-4, atol=5e-5)
