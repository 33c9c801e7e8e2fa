"""Which loops the postproc makes parallel, vectors, or parts of them, where several blocks share loops."""

import numpy as np
import pytest

from relaxish import te, tir
from relaxish.interp import run_prim_func
from relaxish.meta_schedule.postproc import RewriteParallelVectorizeUnroll
from relaxish.tir import ForKind, stmt_functor


def product():
    A = te.placeholder((12, 16), name="A")
    W = te.placeholder((16, 8), name="W")
    B = te.compute((12, 16), lambda i, j: A[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((12, 8), lambda i, j: te.sum(B[i, k] * W[k, j], axis=k), name="C")
    return te.create_prim_func([A, W, C])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_loop_over_which_another_block_reduces_is_not_parallel(at):
    """Of the producer's own axes every outer loop is data parallel; the consumer reduces over the third."""
    sch = tir.Schedule(product())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    outer, _ = sch.split(k, [4, None])
    sch.reorder(i, j, outer)
    sch.compute_at(sch.get_block("B"), [i, j, outer][at])
    sch.annotate(sch.get_block("root"), "meta_schedule.parallel", 1 << 20)
    sch.enter_postproc()
    assert RewriteParallelVectorizeUnroll().apply(sch)
    found = []
    stmt_functor.post_order_visit(sch.mod["main"].body, lambda s: found.append(s) if isinstance(s, tir.For) else None)
    assert [int(f.extent) for f in found if f.kind == ForKind.PARALLEL] == [[12], [96], [96]][at]
    rng = np.random.default_rng(at)
    a, w = rng.uniform(-1, 1, (12, 16)).astype("float32"), rng.uniform(-1, 1, (16, 8)).astype("float32")
    c = np.full((12, 8), np.nan, "float32")
    run_prim_func(sch.mod["main"], [a, w, c])
    np.testing.assert_allclose(c, 2 * a @ w, rtol=1e-5, atol=1e-5)
