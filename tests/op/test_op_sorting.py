"""Sorting and selection against NumPy's stable sort: types, lengths around every switch of algorithm, ties, NaN, axes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish import relax, te, tir, topi

TYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "uint32", "int64", "bool")


def as_numpy_type(dtype: str) -> Any:
    return ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, ties: bool) -> np.ndarray:
    """Random numbers, of floating-point types with NaN of both signs, infinities and both zeros among them."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.startswith(("float", "bfloat")):
        info = np.iinfo(dtype)
        low, high = (max(info.min, -3), 3) if ties else (info.min, info.max)
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    x = rng.integers(-4, 5, shape).astype("float64") if ties else rng.standard_normal(shape)
    for value in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
        x[rng.random(shape) < 0.04] = value
    return x.astype(as_numpy_type(dtype))


def order_of(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Positions of a stable sort in which NaN is above every number."""
    wide = x.astype("float64") if x.dtype.kind not in "iub" else x.astype("object")
    if x.dtype.kind in "iub":
        key = np.array([int(v) for v in wide.ravel()], object).reshape(x.shape)
        key = -key if descending else key
        return np.argsort(key, axis, kind="stable")
    missing = np.isnan(wide)
    filled = np.where(missing, 0.0, wide)
    group = -missing.astype(int) if descending else missing.astype(int)
    return np.lexsort((-filled if descending else filled, group), axis=axis)


def run(mod: Any, *arrays: np.ndarray) -> Any:
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm"), relaxish.cpu())
    return vm["main"](*(relaxish.nd.array(a) for a in arrays))


def program(shape: tuple[Any, ...], dtype: str, make: Any) -> Any:
    x = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(x)))
    return builder.get()


def same(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got.astype("float64"), want.astype("float64"))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_argsort_is_stable_for_every_type(dtype: str, descending: bool) -> None:
    rng = np.random.default_rng([1, len(dtype), descending])
    for length, ties in ((1, False), (7, True), (40, False), (41, True), (300, False)):
        x = numbers(rng, (3, length), dtype, ties)
        mod = program(x.shape, dtype, lambda v: relax.op.argsort(v, -1, descending, "int64"))
        same(run(mod, x).numpy(), order_of(x, -1, descending))


@pytest.mark.parametrize("length", [8191, 8192, 20011])
def test_long_lines_sort_by_wide_digits(length: int) -> None:
    x = numbers(np.random.default_rng(length), (2, length), "float32", False)
    order = order_of(x, -1, False)
    same(run(program(x.shape, "float32", lambda v: relax.op.sort(v, -1)), x).numpy(), np.take_along_axis(x, order, -1))


@pytest.mark.parametrize("seed", range(12))
def test_topk_selects_what_a_stable_sort_puts_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["float32", "float16", "int32", "float64", "bfloat16"]))
    shape = tuple(int(s) for s in rng.integers(1, 5, 2)) + (int(rng.integers(1, 400)),)
    axis, largest = int(rng.integers(-3, 3)), bool(rng.integers(2))
    shape = tuple(np.roll(shape, int(rng.integers(3))))
    k = int(rng.integers(1, shape[axis] + 1))
    x = numbers(rng, tuple(int(s) for s in shape), dtype, bool(rng.integers(2)))
    mod = program(x.shape, dtype, lambda v: relax.op.topk(v, k, axis, "both", largest, "int64"))
    values, positions = run(mod, x)
    order = np.take(order_of(x, axis, largest), range(k), axis)
    same(positions.numpy(), order)
    same(values.numpy(), np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("ascending", [True, False])
def test_lines_already_in_order_and_the_other_way_round(ascending: bool) -> None:
    x = np.arange(5000, dtype="float32")[:: 1 if ascending else -1].copy()
    values, positions = run(program(x.shape, "float32", lambda v: relax.op.topk(v, 20, -1, "both", True, "int64")), x)
    order = order_of(x, -1, True)[:20]
    same(positions.numpy(), order)
    same(values.numpy(), x[order])


def test_lengths_that_are_only_known_when_it_runs() -> None:
    n = tir.Var("n", "int64")
    rng = np.random.default_rng(3)
    selected = program((2, n), "float32", lambda v: relax.op.topk(v, 5, -1, "indices", True, "int64"))
    ordered = program((n, 3), "float32", lambda v: relax.op.argsort(v, 0, False, "int64"))
    for length in (5, 6, 63, 70, 1000):
        x = numbers(rng, (2, length), "float32", True)
        same(run(selected, x).numpy(), order_of(x, -1, True)[:, :5])
        y = numbers(rng, (length, 3), "float32", True)
        same(run(ordered, y).numpy(), order_of(y, 0, False))


def test_a_line_shorter_than_k_fails_when_it_runs() -> None:
    n = tir.Var("n", "int64")
    mod = program((2, n), "float32", lambda v: relax.op.topk(v, 5, -1, "values", True, "int64"))
    with pytest.raises(relaxish.support.errors.RelaxishError, match="more elements than there are"):
        run(mod, np.ones((2, 4), "float32"))


def test_valid_counts_still_sort_by_merging() -> None:
    x = te.placeholder((3, 20), "float32", "x")
    counts = te.placeholder((3,), "int32", "counts")
    order = topi.argsort(x, counts, -1, True, "int32")
    data = np.random.default_rng(8).standard_normal((3, 20)).astype("float32")
    got = relaxish.nd.empty((3, 20), "int32")
    built = relaxish.build(te.create_prim_func([x, counts, order]), "llvm")
    valid = np.array([20, 7, 1], "int32")
    built(relaxish.nd.array(data), relaxish.nd.array(valid), got)
    for line, length in enumerate(valid):
        same(got.numpy()[line, :length], np.argsort(data[line, :length], kind="stable"))
