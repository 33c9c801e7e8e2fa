"""Scattering and scans on GPUs: every reduction, axis and shape that the default pipeline is given."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.runtime.nvidia import providers
from relaxish.target import Target

pytest.importorskip("llvmlite")

TARGET = Target("nvidia/nvidia-a100", host="llvm")
JOIN = {
    "update": lambda old, new: new, "add": lambda old, new: old + new, "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2, "min": min, "max": max,
}  # fmt: skip


def compute(make, params, *arrays):
    """The result of one operator, by the default pipeline, on the emulated device."""
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    with TARGET:
        executable = relaxish.compile(builder.get(), TARGET, relax_pipeline=relax.get_default_pipeline(TARGET))
    with providers.use("emulator"):
        machine = relaxish.VirtualMachine(executable, relaxish.cuda())
        out = machine["main"](*(relaxish.nd.array(a, relaxish.cuda()) for a in arrays))
        assert out.device == relaxish.cuda()
        return out.numpy()


def scattered(data, indices, updates, axis, reduction):
    out = data.copy()
    for at in np.ndindex(indices.shape):
        to = list(at)
        to[axis] = indices[at]
        out[tuple(to)] = JOIN[reduction](out[tuple(to)], updates[at])
    return out


def tensors(*arrays, first=None):
    """Parameters for arrays; ``first`` is what their first dimension is called."""
    return [
        relax.Var(f"p{i}", relax.TensorStructInfo([a.shape[0] if first is None else first, *a.shape[1:]], str(a.dtype)))
        for i, a in enumerate(arrays)
    ]


@pytest.mark.parametrize(
    ("reduction", "axis", "picked"),
    [("update", 0, 2), ("add", 1, 9), ("mul", 2, 3), ("mean", 1, 4), ("min", -1, 5), ("max", 0, 5)],
)
def test_elements(reduction, axis, picked):
    rng = np.random.default_rng(0)
    shape = [3, 5, 7]
    data = rng.standard_normal(shape).astype("float32")
    extent = shape[axis]
    shape[axis] = picked
    indices = rng.integers(-extent, extent, shape).astype("int64")
    if reduction == "update":  # which of two is the last is the same as on a CPU, yet unknown to the reference
        indices[:] = np.arange(picked).reshape(-1, 1, 1) - extent
    updates = rng.standard_normal(shape).astype("float32")
    arrays = data, indices, updates
    out = compute(lambda d, i, u: relax.op.scatter_elements(d, i, u, axis, reduction), tensors(*arrays), *arrays)
    np.testing.assert_allclose(out, scattered(data, indices % extent, updates, axis, reduction), rtol=1e-5, atol=1e-6)


def test_elements_of_unknown_count():
    """More lines than threads of a block, their number known at run time only."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((300, 4)).astype("float32")
    indices = rng.integers(0, 4, (300, 2)).astype("int32")
    updates = rng.standard_normal((300, 2)).astype("float32")
    n = relaxish.tir.Var("n", "int64")
    params = tensors(data, indices, updates, first=n)
    out = compute(lambda d, i, u: relax.op.scatter_elements(d, i, u, 1, "add"), params, data, indices, updates)
    np.testing.assert_allclose(out, scattered(data, indices, updates, 1, "add"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("mode", "width"), [("update", 5), ("add", 300), ("max", 256)])
def test_slices(mode, width):
    """A place that several slices go to takes them one after the other."""
    rng = np.random.default_rng(0)
    data, updates = (rng.standard_normal((rows, width)).astype("float32") for rows in (6, 4))
    indices = np.array([[1], [4], [0], [4]], "int64")
    params = tensors(data, indices, updates)
    out = compute(lambda d, i, u: relax.op.scatter_nd(d, i, u, mode), params, data, indices, updates)
    want = data.copy()
    for row, update in zip(indices[:, 0], updates):
        want[row] = {"update": update, "add": want[row] + update, "max": np.maximum(want[row], update)}[mode]
    np.testing.assert_allclose(out, want, rtol=1e-6)


@pytest.mark.parametrize(("name", "reference"), [("cumsum", np.cumsum), ("cumprod", np.cumprod)])
@pytest.mark.parametrize(
    ("axis", "dtype", "exclusive"),
    [(None, "float64", True), (1, "int32", True), (0, "float32", False), (-1, "int64", False)],
)
def test_scans(name, reference, axis, dtype, exclusive):
    data = np.random.default_rng(0).integers(1, 3, (3, 12)).astype("int32")
    out = compute(lambda x: getattr(relax.op, name)(x, axis, dtype, exclusive), tensors(data), data)
    want = reference(data if axis is not None else data.ravel(), axis=axis or 0).astype(dtype)
    if exclusive:
        along = 0 if axis is None else axis
        want = np.roll(want, 1, along)
        first = [slice(None)] * want.ndim
        first[along] = 0
        want[tuple(first)] = 0 if name == "cumsum" else 1
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, want)


def test_sets_stay_on_the_device():
    data = np.array([[0, 3, 3], [1, 0, 3]], "int32")
    np.testing.assert_array_equal(compute(relax.op.nonzero, tensors(data), data), np.stack(np.nonzero(data)))
    np.testing.assert_array_equal(compute(relax.op.unique, tensors(data), data), np.unique(data))
