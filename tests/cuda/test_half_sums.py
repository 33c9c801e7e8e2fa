"""Graph operators of 16 bits on GPUs: their sums are kept in float32, also where tensor cores compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxish import op, pipeline, tir
from relaxish.ir.transform import Sequential
from relaxish.relax import BlockBuilder, TensorStructInfo, Var
from relaxish.runtime.arrays.dtype import numpy_dtype
from relaxish.target import Target
from relaxish.testing.emulation import emulate_cuda

A100 = Target("nvidia/nvidia-a100", host="llvm")


def kernels(make: Callable[..., Any], args: list[Any]) -> list[tir.PrimFunc]:
    inputs = [Var(f"x{k}", TensorStructInfo(a.shape, str(a.dtype))) for k, a in enumerate(args)]
    builder = BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            out = builder.emit_output(make(*inputs))
        builder.emit_func_output(out)
    with A100:
        mod = Sequential(pipeline.legalize_passes(A100))(builder.get())
    return [f for f in mod.functions.values() if isinstance(f, tir.PrimFunc)]


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "tensor cores": (op.matmul, np.matmul, [(64, 1024), (1024, 64)]),
    "vector": (op.matmul, np.matmul, [(1, 2048), (2048, 32)]),
    "sum": (lambda x: op.sum(x, [1]), lambda x: x.sum(1), [(3, 4096)]),
    "columns": (lambda x: op.sum(x, [0]), lambda x: x.sum(0), [(2048, 16)]),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", list(CASES))
def test_sums(name: str, dtype: str) -> None:
    ours, theirs, shapes = CASES[name]
    rng = np.random.default_rng(0)
    args = [rng.uniform(0, 1, s).astype(numpy_dtype(dtype)) for s in shapes]
    exact = theirs(*(a.astype("float64") for a in args))
    (func,) = kernels(ours, args)
    out = np.zeros(exact.shape, numpy_dtype(dtype))
    emulate_cuda(func, *args, out, target=A100)
    step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert np.abs(out.astype("float64") - exact).max() <= 1.1 * step * np.abs(exact).max()


def test_tensor_cores_are_still_used() -> None:
    """With an accumulator of 32 bits."""
    args = [np.zeros((64, 1024), "float16"), np.zeros((1024, 64), "float16")]
    (func,) = kernels(op.matmul, args)
    text = func.script()
    assert "tvm_mma_sync" in text
    assert 'scope="wmma.accumulator"' in text.replace("'", '"') and '"float16", scope="wmma.accumulator"' not in text
