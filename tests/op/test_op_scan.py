"""Running sums and products against NumPy: every axis, exclusive and not, lengths around the block of the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import relax, te, tir, topi


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    return vm["main"](relaxish.nd.array(x)).numpy()


def program(shape: tuple[Any, ...], dtype: str, make: Any) -> Any:
    x = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(x)))
    return builder.get()


def scanned(x: np.ndarray, axis: int | None, product: bool, exclusive: bool) -> np.ndarray:
    x = x.ravel() if axis is None else x
    axis = 0 if axis is None else axis
    full = (np.cumprod if product else np.cumsum)(x, axis)
    if not exclusive:
        return full
    begin = np.full_like(np.take(full, [0], axis), 1 if product else 0)
    return np.concatenate([begin, np.delete(full, -1, axis)], axis)


@pytest.mark.parametrize("seed", range(16))
def test_scans_fit_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(s) for s in rng.choice([1, 2, 3, 8, 9, 10, 17, 33, 100], int(rng.integers(1, 4))))
    axis = None if rng.integers(4) == 0 else int(rng.integers(-len(shape), len(shape)))
    product, exclusive = bool(rng.integers(2)), bool(rng.integers(2))
    whole = bool(rng.integers(2))
    x = rng.integers(-9, 10, shape) if whole else rng.uniform(0.8, 1.2, shape)
    operator = relax.op.cumprod if product else relax.op.cumsum
    mod = program(shape, str(x.dtype), lambda v: operator(v, axis, None, exclusive))
    want = scanned(x, axis, product, exclusive)
    if whole:
        np.testing.assert_array_equal(run(mod, x), want)
    else:
        np.testing.assert_allclose(run(mod, x), want, rtol=1e-12)


def test_lengths_that_are_only_known_when_it_runs() -> None:
    n = tir.Var("n", "int64")
    rows = program((3, n), "int64", lambda v: relax.op.cumsum(v, -1))
    columns = program((n, 3), "int64", lambda v: relax.op.cumsum(v, 0, None, True))
    for length in (0, 1, 8, 9, 10, 77):
        x = np.random.default_rng(length).integers(-99, 100, (3, length))
        np.testing.assert_array_equal(run(rows, x), np.cumsum(x, 1))
        want = scanned(x.T, 0, False, True) if length else x.T
        np.testing.assert_array_equal(run(columns, np.ascontiguousarray(x.T)), want)


def test_not_a_number_stays_from_where_it_stands() -> None:
    x = np.ones((2, 40), "float32")
    x[0, 13], x[1, 5] = np.nan, np.inf
    got = run(program(x.shape, "float32", lambda v: relax.op.cumsum(v, 1)), x)
    np.testing.assert_array_equal(got, np.cumsum(x, 1))


def test_no_number_overflows_that_does_not_on_the_way() -> None:
    """Numbers are combined in their order: of (0, large, large) the products are 0, of (-l, l, l) the sums finite."""
    x = np.tile(np.array([0, 1e30, 1e30, 1e30], "float32"), 5)
    np.testing.assert_array_equal(run(program(x.shape, "float32", lambda v: relax.op.cumprod(v, 0)), x), 0 * x)
    y = np.tile(np.array([-3e38, 3e38, 3e38, -3e38], "float32"), 5)
    np.testing.assert_array_equal(run(program(y.shape, "float32", lambda v: relax.op.cumsum(v, 0)), y), np.cumsum(y))


def test_scanop_takes_any_associative_operator() -> None:
    x = te.placeholder((4, 50), "int32", "x")
    largest = topi.scanop(x, tir.max, -(2**31), "cummax", 1)
    data = np.random.default_rng(2).integers(-99, 99, (4, 50), "int32")
    got = relaxish.nd.empty((4, 50), "int32")
    relaxish.build(te.create_prim_func([x, largest]), "llvm")(relaxish.nd.array(data), got)
    np.testing.assert_array_equal(got.numpy(), np.maximum.accumulate(data, 1))
