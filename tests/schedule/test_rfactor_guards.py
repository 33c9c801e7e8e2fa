"""Partial results that a guarded reduction never updates are the identity, not what memory held before."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import te, tir


@pytest.mark.parametrize("extent", [1, 3, 5, 12, 13])
@pytest.mark.parametrize("factor", [4, 5, 8])
@pytest.mark.parametrize("outer", [False, True])
def test_sum_in_parts_that_do_not_divide(extent: int, factor: int, outer: bool) -> None:
    A = te.placeholder((6, extent), name="A")
    k = te.reduce_axis((0, extent), name="k")
    B = te.compute((6,), lambda i: te.sum(A[i, k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    _, loop = sch.get_loops("B")
    parts = sch.split(loop, [factor, None] if outer else [None, factor])
    sch.rfactor(parts[0 if outer else 1], 0)
    given = np.random.default_rng(extent * factor).standard_normal((6, extent)).astype("float32")
    for _ in range(3):
        junk = [np.full((64, 1024), np.nan, "float32") for _ in range(4)]  # memory that is given out again
        del junk
        out = relaxish.nd.array(np.full(6, np.nan, "float32"))
        relaxish.build(sch.mod, target="llvm")(relaxish.nd.array(given), out)
        np.testing.assert_allclose(out.numpy(), given.sum(axis=1), rtol=1e-5, atol=1e-5)
