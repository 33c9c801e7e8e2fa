"""External products of tensor expressions run by the library behind NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish as rx
from relaxish import te
from relaxish.contrib import cblas


@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("transb", [False, True])
@pytest.mark.parametrize("batch", [0, 3])
def test_products(transa: bool, transb: bool, batch: int) -> None:
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((batch or 1, 4, 5)), rng.standard_normal((batch or 1, 5, 6))
    given = [np.swapaxes(a, 1, 2).copy() if transa else a, np.swapaxes(b, 1, 2).copy() if transb else b]
    if not batch:
        given = [t[0] for t in given]
    places = [te.placeholder(t.shape, "float64") for t in given]
    bias = te.placeholder((6,), "float64")
    product = (cblas.batch_matmul if batch else cblas.matmul)(*places, transa, transb)
    out = te.compute(product.shape, lambda *i: product(*i) + bias(i[-1]), "D")
    func = te.create_prim_func([*places, bias, out]).with_attr("global_symbol", "main")
    shift = rng.standard_normal(6)
    result = rx.nd.empty([int(d) for d in out.shape], "float64")
    rx.tir.build(func, target="llvm")["main"](*(rx.nd.array(t) for t in given), rx.nd.array(shift), result)
    expected = a @ b + shift
    np.testing.assert_allclose(result.numpy(), expected if batch else expected[0], rtol=1e-12)
