"""Traces of one program applied to another that has the same anchor block."""

import numpy as np
import pytest

from relaxish import te, tir, topi
from relaxish.interp import run_prim_func
from relaxish.ir import IRModule
from relaxish.meta_schedule.trace_apply import schedule_using_anchor_trace
from relaxish.target import Target
from relaxish.tir.schedule import Schedule

TARGET = Target("llvm -num-cores=2")


def product(epilogue):
    a, b = te.placeholder((32, 24), name="a"), te.placeholder((16, 24), name="b")
    made = topi.nn.dense(a, b)
    if epilogue is None:
        return te.create_prim_func([a, b, made])
    c = te.placeholder((1, 16), name="c")
    return te.create_prim_func([a, b, c, epilogue(made, c)])


def tiled_with_a_cache():
    """A trace that tiles the product, and keeps its tiles in a cache that is written back under the outer loops."""
    sch = Schedule(product(None))
    block = sch.get_block("T_matmul_NT")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [4, None])
    j0, j1 = sch.split(j, [2, None])
    sch.reorder(i0, j0, k, i1, j1)
    written = sch.cache_write(block, 0, "global")
    sch.reverse_compute_at(written, j0, preserve_unit_loops=True)
    sch.parallel(sch.fuse(i0, j0))
    return sch.trace


def applied(epilogue):
    sch = Schedule(IRModule({"main": product(epilogue)}))
    schedule_using_anchor_trace(sch, tiled_with_a_cache(), TARGET)
    func = sch.mod["main"]
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(s).astype("float32") for s in ((32, 24), (16, 24), (1, 16)))
    out = np.zeros((32, 16), "float32")
    run_prim_func(func, [a, b, c, out])
    return sch, a @ b.T, c, out


@pytest.mark.parametrize("chain", [False, True])
def test_an_epilogue_goes_into_the_write_back(chain):
    sch, made, c, out = applied((lambda x, c: topi.nn.relu(topi.add(x, c))) if chain else topi.add)
    np.testing.assert_allclose(out, np.maximum(made + c, 0) if chain else made + c, rtol=1e-4, atol=1e-5)
    blocks = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))]
    assert blocks == ["T_matmul_NT", "T_matmul_NT_global"]
    loops = [sch.get(loop) for loop in sch.get_loops("T_matmul_NT_global")]
    assert loops[0].kind == tir.ForKind.PARALLEL and len(loops) == 3


def test_an_epilogue_that_reads_other_elements_stays_a_nest():
    def shifted(x, c):
        return te.compute((32, 16), lambda i, j: x[i, tir.if_then_else(j > 0, j - 1, j)] + c[0, j], name="shifted")

    sch, made, c, out = applied(shifted)
    moved = made[:, np.maximum(np.arange(16) - 1, 0)]
    np.testing.assert_allclose(out, moved + c, rtol=1e-4, atol=1e-5)
    loops = [sch.get(loop) for loop in sch.get_loops("shifted")]
    assert loops[0].kind == tir.ForKind.PARALLEL and len(loops) == 1
