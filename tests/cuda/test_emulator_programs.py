"""Kernels of the GPU rules in emulation, against the unscheduled programs in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from programs.gpu import CASES, N, typed_product

from relaxish import dlight, interp, relax, transform
from relaxish.backend.emulator import EmulatedModule
from relaxish.ir import IRModule
from relaxish.target import Target
from relaxish.testing import emulate_cuda

TARGET = Target("nvidia/nvidia-a100")
rng = np.random.default_rng(31)


def both(rule, func, data, check, target=TARGET):
    """(what the emulated kernels give, what the program means)."""
    schedule = rule.apply(func, target, False)
    wanted, got = [d.copy() for d in data], [d.copy() for d in data]
    wanted[-1][...] = got[-1][...] = 0
    interp.run_prim_func(func, wanted)
    module = EmulatedModule(schedule.mod, target, check=check)
    module.run("main", *got)
    return got[-1], wanted[-1]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_same_result(name, check):
    rule, func, shapes = CASES[name]
    data = [rng.standard_normal(s).astype("float32") for s in shapes]
    got, wanted = both(rule, func, data, check)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype, out_dtype",
    [
        ("float16", "float32"),
        ("float16", "float16"),
        ("int8", "int32"),
        ("bfloat16", "float32"),
        ("float64", "float64"),
    ],
)
@pytest.mark.parametrize("rule", [dlight.gpu.Matmul(), dlight.gpu.Fallback()], ids=["matmul", "fallback"])
def test_types(rule, dtype, out_dtype):
    func = typed_product(32, 48, 64, dtype, out_dtype)
    kinds = [interp.prim_func.np_dtype(d) for d in (dtype, dtype, out_dtype)]
    shapes = [(32, 64), (48, 64), (32, 48)]
    data = [
        rng.integers(-5, 5, s).astype(k) if dtype == "int8" else rng.uniform(-1, 1, s).astype("float32").astype(k)
        for s, k in zip(shapes, kinds)
    ]
    got, _ = both(rule, func, data, True)
    wanted = data[0].astype("float64") @ data[1].astype("float64").T
    np.testing.assert_allclose(got.astype("float64"), wanted, rtol=0, atol=0.1 if out_dtype == "float16" else 1e-4)


def test_dynamic_sizes_in_one_module():
    schedule = dlight.gpu.Matmul().apply(CASES["matmul, dynamic"][1], TARGET, False)
    module = EmulatedModule(schedule.mod, TARGET)
    b = rng.standard_normal((24, 65)).astype("float32")
    for n in (1, 33, 100):
        a, c = rng.standard_normal((n, 24)).astype("float32"), np.zeros((n, 65), "float32")
        module.run("main", a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert N.dtype == "int64"


def test_public_function():
    rule, func, shapes = CASES["softmax"]
    x, y = rng.standard_normal(shapes[0]).astype("float32"), np.zeros(shapes[1], "float32")
    emulate_cuda(rule.apply(func, TARGET, False).mod["main"], x, y, target=TARGET)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("name", ["mean", "sum", "max", "argmax"])
def test_reductions_to_a_scalar(name):
    """The block of a scalar has an axis of int32, the other blocks of the kernel have axes of int64."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((33, 48), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(getattr(relax.op, name)(x, None)))
    functions = transform.LegalizeOps()(builder.get()).functions.values()
    module = IRModule({"main": next(f for f in functions if not isinstance(f, relax.Function))})
    with TARGET:
        scheduled = dlight.ApplyDefaultSchedule(*dlight.default_gpu_rules())(module)
    data = rng.standard_normal((33, 48)).astype("float32")
    got = np.full((), 7, "int64" if name == "argmax" else "float32")
    emulate_cuda(scheduled, data, got)
    np.testing.assert_allclose(got, getattr(np, name)(data.astype("float64")), rtol=1e-4)
