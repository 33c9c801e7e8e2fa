"""Default schedules of programs that end in one number, or whose reads have no strides: every block is in threads."""

from __future__ import annotations

import numpy as np
import pytest

from relaxish import dlight, interp, te, tir, topi
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.tir.analysis import verify_memory

TARGET = Target("nvidia/nvidia-a100", host="llvm")
rng = np.random.default_rng(4)


def mean_of_all():
    a = te.placeholder((7, 60), name="A")
    total = topi.sum(a)
    return [a, te.compute((), lambda: total() / tir.const(420.0, "float32"), name="M")]


def place_of_largest():
    a = te.placeholder((5, 13), name="A")
    return [a, topi.argmax(a)]


def one():
    return [te.compute((), lambda: tir.const(1.0, "float32"), name="one")]


def every_other():
    """A read at a rounded-down place, which no sum of strides gives."""
    a = te.placeholder((40,), name="A")
    r = te.reduce_axis((0, 3), name="r")
    return [a, te.compute((32,), lambda i: te.sum(a[(i + r * 5 - r // 2 + 1) // 2], axis=r), name="B")]


WANTED = {
    mean_of_all: lambda a: np.mean(a),
    place_of_largest: lambda a: np.argmax(a),
    one: lambda: 1.0,
    every_other: lambda a: sum(a[(np.arange(32) + r * 5 - r // 2 + 1) // 2] for r in range(3)),
}


@pytest.mark.parametrize("program", WANTED, ids=lambda p: p.__name__)
def test_program(program):
    tensors = program()
    mod = IRModule({"main": te.create_prim_func(tensors).with_attr("global_symbol", "main")})
    with TARGET:
        [func] = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules(TARGET))(mod).functions.values()
    assert func.attrs["tir.is_scheduled"] and verify_memory(func.with_attr("target", TARGET))
    inputs = [rng.standard_normal([int(d) for d in t.shape]).astype(t.dtype) for t in tensors[:-1]]
    out = np.zeros([int(d) for d in tensors[-1].shape], tensors[-1].dtype)
    interp.run_prim_func(func, [*inputs, out])
    np.testing.assert_allclose(out, WANTED[program](*inputs), rtol=1e-5, atol=1e-6)
