"""Operators whose result size the data decides, compiled and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax import op


def run(function: Any, x: np.ndarray) -> Any:
    builder = relax.BlockBuilder()
    var = relax.Var("x", relax.TensorStructInfo(x.shape, str(x.dtype)))
    with builder.function("main", [var]):
        builder.emit_func_output(builder.emit(function(var)))
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(x))
    return [g.numpy() for g in got] if isinstance(got, (tuple, list)) else got.numpy()


_X = np.array([[3, 1, 3], [2, 1, 0], [3, 1, 3]], "int32")


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_with_everything(axis: int | None) -> None:
    got = run(lambda x: op.unique(x, True, True, True, True, axis), _X)
    want = np.unique(_X, True, True, True, axis=axis)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, np.asarray(w).reshape(g.shape))


def test_unique_in_order_of_appearance() -> None:
    np.testing.assert_array_equal(run(lambda x: op.unique(x, sorted=False), _X), [3, 1, 2, 0])


def test_nonzero() -> None:
    np.testing.assert_array_equal(run(op.nonzero, _X - 1), np.stack(np.nonzero(_X - 1)))


def test_dynamic_strided_slice() -> None:
    x = np.arange(40, dtype="float32").reshape(8, 5)
    builder = relax.BlockBuilder()
    names = ("begin", "end", "strides")
    params = [relax.Var("x", relax.TensorStructInfo([8, 5], "float32"))]
    params += [relax.Var(n, relax.TensorStructInfo([2], "int64")) for n in names]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(op.dynamic_strided_slice(*params)))
    vm = relaxish.VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    bounds = [np.array(v, "int64") for v in ([1, 4], [7, -9], [2, -2])]
    got = vm["main"](*[relaxish.nd.array(a) for a in (x, *bounds)]).numpy()
    np.testing.assert_array_equal(got, x[1:7:2, 4::-2])


def test_sum_of_truth_values_is_any() -> None:
    x = np.array([[True, False], [False, False]])
    np.testing.assert_array_equal(run(lambda v: op.sum(v, axis=1), x), x.any(1))
