"""``R.unique`` and ``R.nonzero`` as machine code give what NumPy gives, for static and symbolic shapes."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax, tir
from relaxish.relax import op
from relaxish.runtime import VirtualMachine, cpu

pytest.importorskip("llvmlite")


def machine(make, *inputs, dynamic=False, expect_native=True):
    shapes = [[tir.Var(f"d{i}", "int64") if dynamic else d for i, d in enumerate(x.shape)] for x in inputs]
    params = [
        relax.Var(f"x{i}", relax.TensorStructInfo(s, str(x.dtype))) for i, (s, x) in enumerate(zip(shapes, inputs))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    executable = relaxish.build(builder.finalize(), "llvm")
    assert any(f.name.startswith("relax.run.") for f in executable.functions) != expect_native
    return VirtualMachine(executable, cpu())["main"]


def data(shape, dtype, seed=0):
    values = np.random.default_rng(seed).integers(-2, 3, shape)
    return values.astype(bool) if dtype == "bool" else values.astype(dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype"), [((17,), "float32"), ((4, 9), "int64"), ((2, 3, 5), "bool"), ((3, 4), "int8")]
)
def test_nonzero(shape, dtype, dynamic):
    x = data(shape, dtype)
    run = machine(op.nonzero, x, dynamic=dynamic)
    got = run(x)
    assert got.dtype == "int64"
    np.testing.assert_array_equal(got.numpy(), np.stack(np.nonzero(x)))
    empty = run(np.zeros_like(x)).numpy()
    assert empty.shape == (len(shape), 0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("shape", "dtype"), [((23,), "float32"), ((4, 9), "int64"), ((2, 3, 5), "int32")])
def test_unique(shape, dtype, dynamic):
    x = data(shape, dtype)
    run = machine(
        lambda e: op.unique(e, return_index=True, return_inverse=True, return_counts=True), x, dynamic=dynamic
    )
    values, index, inverse, counts = np.unique(x, True, True, True)
    for got, want in zip(run(x), (values, index, inverse.reshape(-1), counts)):
        np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(machine(op.unique, x, dynamic=dynamic)(x).numpy(), values)
    partial = machine(lambda e: op.unique(e, return_counts=True), x, dynamic=dynamic)(x)
    np.testing.assert_array_equal(partial[1].numpy(), counts)


def test_uses_that_stay_with_the_runtime():
    x = data((4, 3), "int64")
    rows = machine(lambda e: op.unique(e, axis=0), x, expect_native=False)(x)
    np.testing.assert_array_equal(rows.numpy(), np.unique(x, axis=0))
    unsorted = machine(lambda e: op.unique(e, sorted=False), x, expect_native=False)(x).numpy()
    _, first = np.unique(x, return_index=True)
    np.testing.assert_array_equal(unsorted, x.reshape(-1)[np.sort(first)])


def test_results_of_unknown_size_flow_on():
    x = data((30,), "float32")

    def make(e):
        y = relax.BlockBuilder.current().emit(op.unique(e))
        return op.sum(op.multiply(y, y))

    assert float(machine(make, x)(x).numpy()) == float((np.unique(x) ** 2).sum())
