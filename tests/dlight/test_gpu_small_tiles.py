"""Products with few results keep most of a device's processors at work."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

from relaxish import dlight, te
from relaxish.dlight.gpu import MatmulSmallTiles
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.testing import emulate_cuda

TARGET = Target("nvidia/nvidia-a100", host="llvm")


def dense(rows, columns, depth, batch=1):
    a = te.placeholder((batch, rows, depth), "float16", name="A")
    b = te.placeholder((batch, columns, depth), "float16", name="B")
    bias = te.placeholder((columns,), "float16", name="bias")
    r = te.reduce_axis((0, depth), name="r")
    c = te.compute((batch, rows, columns), lambda s, i, j: te.sum(
        a[s, i, r].astype("float32") * b[s, j, r].astype("float32"), axis=r), name="C")  # fmt: skip
    d = te.compute(c.shape, lambda s, i, j: c[s, i, j].astype("float16") + bias[j], name="D")
    return te.create_prim_func([a, b, bias, d])


def blocks(func):
    """Thread blocks of the schedule; None where the rule leaves the product to others."""
    made = MatmulSmallTiles().apply(func, TARGET, False)
    if made is None:
        return None
    found = re.findall(r'thread_binding\((\d+), thread="(blockIdx\.\w)"', made.mod["main"].script())
    return prod({axis: int(n) for n, axis in found}.values())


@pytest.mark.parametrize(
    "sides, count",
    [
        ((128, 768, 768), 96),
        ((128, 3072, 768), 96),
        ((49, 2048, 512), 64),
        ((512, 512, 512), 64),
        ((12544, 64, 392), 196),
    ],
)
def test_blocks(sides, count):
    assert blocks(dense(*sides)) == count


@pytest.mark.parametrize("sides", [(1024, 1024, 512), (16, 768, 768), (128, 768, te.var("n", "int64"))])
def test_other_rules_take_the_rest(sides):
    assert blocks(dense(*sides)) is None


@pytest.mark.parametrize("rows, columns, depth, batch", [(64, 96, 128, 1), (49, 70, 100, 1), (40, 64, 64, 2)])
def test_right(rows, columns, depth, batch):
    func = dense(rows, columns, depth, batch)
    with TARGET:
        mod = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(TARGET))(IRModule({"main": func}))
    assert "wmma" in mod["main"].script()
    rng = np.random.default_rng(1)
    a, b, bias = (
        (rng.integers(-4, 5, s) / 4).astype("float16")
        for s in ((batch, rows, depth), (batch, columns, depth), (columns,))
    )
    out = np.zeros((batch, rows, columns), "float16")
    emulate_cuda(mod["main"], a, b, bias, out, target=TARGET, check=True)
    wanted = (a.astype("float32") @ b.astype("float32").swapaxes(-1, -2)).astype("float16") + bias
    np.testing.assert_array_equal(out, wanted)
