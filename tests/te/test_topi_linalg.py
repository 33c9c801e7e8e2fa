"""topi products by axes, compiled, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import te, topi
from relaxish.driver import build_tir
from relaxish.runtime.ndarray import array


def run(function: Any, *arrays: np.ndarray) -> np.ndarray:
    ins = [te.placeholder(a.shape, str(a.dtype), f"x{k}") for k, a in enumerate(arrays)]
    out = function(*ins)
    made = array(np.zeros([int(d) for d in out.shape], "float32"))
    build_tir(te.create_prim_func([*ins, out]))["main"](*[array(a) for a in arrays], made)
    return made.numpy()


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape).astype("float32")


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_matmul(ta: bool, tb: bool) -> None:
    a, b = rand(*((4, 3) if ta else (3, 4))), rand(*((5, 4) if tb else (4, 5)))
    got = run(lambda x, y: topi.matmul(x, y, ta, tb), a, b)
    np.testing.assert_allclose(got, (a.T if ta else a) @ (b.T if tb else b), rtol=1e-5)


@pytest.mark.parametrize("axes", [1, 2, ([0, 2], [2, 0])])
def test_tensordot(axes: Any) -> None:
    a, b = rand(2, 3, 4), rand(4, 5, 2) if not isinstance(axes, int) else rand(*((4, 5) if axes == 1 else (3, 4, 5)))
    np.testing.assert_allclose(run(lambda x, y: topi.tensordot(x, y, axes), a, b), np.tensordot(a, b, axes), rtol=1e-5)
