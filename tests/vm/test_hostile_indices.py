"""Operators that take indices from data: legal ones as NumPy does, hostile ones an error, in every way to run a model."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax import TensorStructInfo
from relaxish.runtime import VirtualMachine, cpu
from relaxish.support.errors import IndexBoundsError, RelaxishError
from relaxish.tir import Var as TirVar

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` gives in a process of its own, so that one that dies is a failed test and no more."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        try:
            try:
                answer = ("value", work())
            except BaseException as err:
                answer = ("error", f"{type(err).__name__}: {err}")
            os.write(writer, pickle.dumps(answer))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0 and told, f"the process died with signal {status & 127}"
    kind, value = pickle.loads(told)
    assert kind == "value", value
    return value


def _scatter_nd(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    out = x.copy()
    for at in np.ndindex(*i.shape[:-1]):
        out[tuple(i[at])] = u[at]
    return out


def _scatter_elements(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
    out = x.copy()
    np.put_along_axis(out, i, u, 1)
    return out


X = (6, 5)
# name: (shapes of the data, of the indices, of the updates; the operator; the same in NumPy; the size indices stay below)
OPERATORS: dict[str, tuple[Any, ...]] = {
    "take0": (X, (4,), None, lambda x, i, u: relax.op.take(x, i, axis=0), lambda x, i, u: x[i], 6),
    "take1": (X, (2, 3), None, lambda x, i, u: relax.op.take(x, i, axis=1), lambda x, i, u: x[:, i], 5),
    "gather_elements": (
        X, (6, 3), None, lambda x, i, u: relax.op.gather_elements(x, i, axis=1),
        lambda x, i, u: np.take_along_axis(x, i, 1), 5,
    ),
    "gather_nd": (
        (5, 5), (3, 2), None, lambda x, i, u: relax.op.gather_nd(x, i), lambda x, i, u: x[i[:, 0], i[:, 1]], 5,
    ),
    "scatter_elements": (
        X, (6, 2), (6, 2), lambda x, i, u: relax.op.scatter_elements(x, i, u, axis=1),
        lambda x, i, u: _scatter_elements(x, i, u), 5,
    ),
    "scatter_nd": (X, (3, 1), (3, 5), lambda x, i, u: relax.op.scatter_nd(x, i, u), _scatter_nd, 6),
    "scatter_nd2": ((5, 5, 2), (4, 2), (4, 2), lambda x, i, u: relax.op.scatter_nd(x, i, u), _scatter_nd, 5),
}  # fmt: skip


def _model(name: str, dtype: str, dynamic: bool) -> Any:
    data, index, update, make, _, _ = OPERATORS[name]
    shape: tuple[Any, ...] = (TirVar("n", "int64"), *data[1:]) if dynamic else data
    if dynamic and name in ("gather_elements", "scatter_elements"):
        index = (shape[0], *index[1:])
        update = None if update is None else (shape[0], *update[1:])
    x = relax.Var("x", TensorStructInfo(shape, "float32"))
    i = relax.Var("i", TensorStructInfo(index, dtype))
    u = None if update is None else relax.Var("u", TensorStructInfo(update, "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, i] if u is None else [x, i, u]):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(make(x, i, u)))
        bb.emit_func_output(out)
    return bb.get()


def _arguments(name: str, dtype: str, seed: int) -> list[np.ndarray]:
    data, index, update, _, _, size = OPERATORS[name]
    rng = np.random.default_rng(seed)
    made = rng.integers(0, size, index).astype(dtype)
    if name.startswith("scatter"):  # no element is written twice
        picks = rng.permuted(np.tile(np.arange(size), (6, 1)), axis=1)
        by_rows = name == "scatter_elements"
        made = picks[: index[0], : index[1]] if by_rows else picks[: index[1], : index[0]].T
        made = made.astype(dtype)
    args = [rng.standard_normal(data).astype("float32"), made]
    return args if update is None else [*args, rng.standard_normal(update).astype("float32")]


def _hostile(dtype: str, size: int) -> list[int]:
    info = np.iinfo(dtype)
    values = [size, 10**8, -size - 1, -(10**6), info.min, info.max]
    if dtype == "int64":
        # Times a row of elements these overflow, some to an offset that is inside.
        values += [2**62, -(2**62), 2**63 // 5, (2**64 // 5 + 1) // 2, 2**33, -(2**32)]
    return [int(v) for v in values]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in OPERATORS for d in ("int32", "int64")
                                             if (n, d) != ("gather_nd", "int32")])  # fmt: skip
def test_hostile_indices_are_errors(name: str, dtype: str, dynamic: bool) -> None:
    def work() -> list[str]:
        reference, size = OPERATORS[name][4:]
        run = VirtualMachine(relaxish.build(_model(name, dtype, dynamic), "llvm -num-cores=2"), cpu())["main"]
        args = _arguments(name, dtype, 0)
        update = args[2] if len(args) > 2 else None
        want = reference(args[0], args[1].astype("int64"), update)
        np.testing.assert_array_equal(run(*args).numpy(), want)
        silent = []
        for value in _hostile(dtype, size):
            for place in (0, args[1].size - 1):
                bad = args[1].copy()
                bad.flat[place] = value
                try:
                    run(args[0], bad, *args[2:])
                    silent.append(f"{value} at {place}")
                except IndexBoundsError as err:
                    assert isinstance(err, IndexError) and isinstance(err, RelaxishError)
                    assert f" {value} is out of bounds" in str(err) or f" {value + size} is out" in str(err), err
                    assert "size there is" in str(err)
        # A failed call leaves nothing behind.
        np.testing.assert_array_equal(run(*args).numpy(), want)
        return silent

    assert in_child(work) == []


@pytest.mark.parametrize("dtype", ["int64"])
def test_bounds_of_slices_that_are_data(dtype: str) -> None:
    def work() -> list[Any]:
        x = relax.Var("x", TensorStructInfo((8, 9), "float32"))
        bounds = [relax.Var(n, TensorStructInfo((2,), dtype)) for n in "bes"]
        bb = relax.BlockBuilder()
        with bb.function("main", [x, *bounds]):
            with bb.dataflow():
                out = bb.emit_output(bb.emit(relax.op.dynamic_strided_slice(x, *bounds)))
            bb.emit_func_output(out)
        run = VirtualMachine(relaxish.build(bb.get(), "llvm"), cpu())["main"]
        data = np.random.default_rng(0).standard_normal((8, 9)).astype("float32")
        made = run(data, np.array([1, 2]), np.array([7, 9]), np.array([2, 3])).numpy()
        np.testing.assert_array_equal(made, data[1:7:2, 2:9:3])
        silent = []
        big = 2**62
        for b, e, s in [
            ((20, 0), (24, 9), (1, 1)),
            ((-30, 0), (8, 9), (1, 1)),
            ((0, 0), (8, 10**4), (1, 1)),
            ((-big, 0), (-big + 3, 9), (1, 1)),
            ((0, 0), (8, 9), (0, 1)),
            ((0, big), (8, big + 2), (1, 1)),
        ]:
            try:
                out = run(data, *(np.array(v, dtype) for v in (b, e, s))).numpy()
            except (RelaxishError, ValueError):
                continue
            want = data[b[0] : e[0] : s[0], b[1] : e[1] : s[1]] if all(s) else None
            if not np.array_equal(out, want):
                silent.append((b, e, s, out.shape))
        return silent

    assert in_child(work) == []
