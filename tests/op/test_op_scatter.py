"""Scattering against NumPy: smaller indices than data, negative and repeated positions, every way to combine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax import op

_RNG = np.random.default_rng(17)
_COMBINE = {
    "update": lambda old, new: new, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "mean": lambda old, new: (old + new) / 2,
}  # fmt: skip


def run(function: Any, *arrays: Any) -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{k}", relax.TensorStructInfo(a.shape, str(a.dtype))) for k, a in enumerate(arrays)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(function(*params)))
    vm = relax.VirtualMachine(relaxish.build(builder.get(), "llvm"), relaxish.cpu())
    return vm["main"](*[relaxish.nd.array(a) for a in arrays]).numpy()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("data", "indices", "axis"),
    [((4, 4), (2, 2), 1), ((4, 4), (2, 3), 0), ((4, 5, 6), (2, 3, 4), 0), ((4, 5, 6), (2, 3, 4), 1),
     ((4, 5, 6), (2, 3, 4), 2), ((3, 4, 2, 5), (2, 3, 1, 4), 2), ((7,), (9,), -1)],
)  # fmt: skip
def test_indices_may_be_smaller_and_negative(data: Any, indices: Any, axis: int, dtype: str) -> None:
    x, new = _RNG.random(data, "float32"), _RNG.random(indices, "float32")
    where = _RNG.integers(-data[axis], data[axis], indices).astype(dtype)
    want = x.copy()
    for at in np.ndindex(*indices):
        place = list(at)
        place[axis] = int(where[at])
        want[tuple(place)] += new[at]
    got = run(lambda *p: op.scatter_elements(*p, axis, "add"), x, where, new)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("reduction", list(_COMBINE))
def test_scatter_elements_combines(reduction: str) -> None:
    x, new = _RNG.random((5, 3), "float32"), _RNG.random((2, 3), "float32")
    where = np.array([[0, 4, 2], [0, 1, 2]])
    want = x.copy()
    for at in np.ndindex(2, 3):
        place = (where[at], at[1])
        want[place] = _COMBINE[reduction](want[place], new[at])
    got = run(lambda *p: op.scatter_elements(*p, 0, reduction), x, where, new)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "min", "max"])
def test_scatter_nd_combines(reduction: str) -> None:
    x, new = _RNG.random((4, 5, 6), "float32"), _RNG.random((3, 2, 6), "float32")
    where = np.array([[[0, 1], [3, 4]], [[1, 1], [2, 0]], [[3, 0], [0, 0]]])
    want = x.copy()
    for at in np.ndindex(3, 2):
        place = tuple(where[at])
        want[place] = _COMBINE[reduction](want[place], new[at])
    got = run(lambda *p: op.scatter_nd(*p, reduction), x, where, new)
    np.testing.assert_allclose(got, want, rtol=1e-5)
