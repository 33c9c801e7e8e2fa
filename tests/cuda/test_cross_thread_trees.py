"""Reductions over threads through shared memory: types that lanes cannot shuffle."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from relaxish import IRModule, te, tir, topi
from relaxish.backend.cuda.build import build_device
from relaxish.script import tir as T
from relaxish.target import Target
from relaxish.testing import emulate_cuda
from relaxish.tir.transform.device.warp_barriers import MaskWarpBarriers


def by_threads(func, threads):
    """The rows of a reduction, each by so many threads."""
    sch = tir.Schedule(func)
    row, column = sch.get_loops("X_red")
    sch.bind(row, "blockIdx.x")
    _, lane = sch.split(column, [None, threads])
    sch.bind(lane, "threadIdx.x")
    return sch.mod["main"]


CASES = {
    "all": ("bool", topi.all, lambda x: x.all(axis=1)),
    "any": ("bool", topi.any, lambda x: x.any(axis=1)),
    "int8": ("int8", topi.max, lambda x: x.max(axis=1)),
    "bfloat16": ("bfloat16", topi.max, lambda x: x.max(axis=1)),
}


@pytest.mark.parametrize("threads", [8, 32, 64, 96])
@pytest.mark.parametrize("name", list(CASES))
def test_reduction_by_a_tree(name, threads):
    dtype, reduce, expected = CASES[name]
    x = te.placeholder((5, 192), dtype, name="X")
    func = by_threads(te.create_prim_func([x, reduce(x, axis=1)]), threads)
    rng = np.random.default_rng(3)
    if dtype == "bool":
        values = rng.random((5, 192)) < (0.995 if name == "all" else 0.005)
    else:
        values = rng.integers(-100, 100, (5, 192)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    found = np.zeros(5, values.dtype)
    emulate_cuda(func, values, found)
    np.testing.assert_array_equal(found, expected(values))


def test_a_warp_barrier_names_the_lanes_that_come():
    x = te.placeholder((5, 64), "int8", name="X")
    func = by_threads(te.create_prim_func([x, topi.max(x, axis=1)]), 32)
    source = build_device(IRModule({"main": func}), Target("nvidia/nvidia-a100")).get_source("cu")
    assert "= __ballot_sync(4294967295U, (((int)threadIdx.x) < 16));" in source
    assert "__syncwarp(lanes);" in source and "__syncwarp();" not in source


@T.prim_func
def branches(a: T.handle("float32")):
    T.func_attr({"target": T.target("nvidia/nvidia-a100")})
    A = T.decl_buffer((128,), data=a)
    tx = T.launch_thread("threadIdx.x", 128)
    if tx // 32 == 1:
        T.evaluate(T.tvm_storage_sync("warp"))
    if tx < 40:
        if tx % 2 == 0:
            T.evaluate(T.tvm_storage_sync("warp"))
        else:
            A[tx] = T.float32(1)
            T.evaluate(T.tvm_storage_sync("warp"))


def test_masks_are_for_branches_that_part_a_warp():
    text = MaskWarpBarriers()(IRModule({"main": branches}))["main"].script()
    assert text.count('T.tvm_storage_sync("warp")') == 1
    assert text.count("__ballot_sync") == 2 and text.count("__syncwarp") == 2
    assert "T.bitwise_xor(" in text
