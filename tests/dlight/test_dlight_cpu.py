"""Default CPU schedules: numerics against NumPy, and that inner loops really are vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxish import te, tir, topi
from relaxish.backend.llvm.compile import compile_primfuncs, jit_load
from relaxish.dlight import ApplyDefaultSchedule, ScheduleRule, cpu, default_cpu_rules
from relaxish.carver import CpuModel, recommend
from relaxish.ir import IRModule
from relaxish.runtime.kernels.kernel import NativeKernel
from relaxish.target import Target
from relaxish.tir.transform.pipeline import lower_for_cpu

RNG = np.random.default_rng(0)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def build(func: Any, rules: list[ScheduleRule] | None = None, target: str = "llvm -num-cores 2") -> tuple[Any, str]:
    """Schedule by the default rules, lower, compile; returns the kernel and its LLVM text."""
    made = Target(target)
    with made:
        mod = ApplyDefaultSchedule(*(rules or default_cpu_rules(made)))(IRModule({"main": func}))
        assert mod["main"].attrs["tir.is_scheduled"]
        lowered = lower_for_cpu(mod, made)
    compiled = compile_primfuncs(lowered, made)
    return NativeKernel(next(iter(compiled.kernels.values())), jit_load(compiled)), compiled.llvm_text


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 32), (17, 48, 20), (197, 96, 33), (1, 64, 64), (5, 7, 3)])
@pytest.mark.parametrize("epilogue", [False, True])
def test_matmul(m: int, n: int, k: int, epilogue: bool) -> None:
    a, b = te.placeholder((m, k), "float32", "A"), te.placeholder((k, n), "float32", "B")
    bias = te.placeholder((n,), "float32", "bias")
    out = topi.matmul(a, b)
    if epilogue:
        out = topi.nn.relu(topi.add(out, bias))
    func = te.create_prim_func([a, b, bias, out])
    kernel, text = build(func)
    x, y, z, result = data(m, k), data(k, n), data(n), np.zeros((m, n), "float32")
    kernel(x, y, z, result)
    want = x @ y
    np.testing.assert_allclose(result, np.maximum(want + z, 0) if epilogue else want, rtol=1e-4, atol=1e-4)
    if n % 16 == 0:
        assert "llvm.fma.v" in text


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("size", "cin", "cout", "kernel", "stride", "pad"),
    [(14, 8, 32, 3, 1, 1), (16, 3, 16, 3, 2, 1), (7, 16, 16, 1, 1, 0)],
)
def test_conv2d(layout: str, size: int, cin: int, cout: int, kernel: int, stride: int, pad: int) -> None:
    torch = pytest.importorskip("torch")
    x, w = data(1, cin, size, size), data(cout, cin, kernel, kernel)
    want = torch.conv2d(torch.tensor(x), torch.tensor(w), None, stride, pad).numpy()
    weights = "OIHW"
    if layout == "NHWC":
        x, w, want = x.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy(), want.transpose(0, 2, 3, 1)
        weights = "HWIO"
    a, b = te.placeholder(x.shape, "float32", "A"), te.placeholder(w.shape, "float32", "B")
    out = topi.nn.relu(topi.nn.conv2d(a, b, stride, pad, 1, layout, weights))
    run, text = build(te.create_prim_func([a, b, out]))
    result = np.zeros(want.shape, "float32")
    run(x, w, result)
    np.testing.assert_allclose(result, np.maximum(want, 0), rtol=1e-4, atol=1e-4)
    assert " x float>" in text


@pytest.mark.parametrize("shape", [(4, 64), (3, 5, 100), (128, 33)])
def test_softmax_and_sums(shape: tuple[int, ...]) -> None:
    a = te.placeholder(shape, "float32", "A")
    kernel, text = build(te.create_prim_func([a, topi.nn.softmax(a)]))
    x, out = data(*shape), np.zeros(shape, "float32")
    kernel(x, out)
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)
    assert " x float>" in text
    for keepdims in (False, True):
        total, _ = build(te.create_prim_func([a, topi.sum(a, axis=-1, keepdims=keepdims)]))
        out = np.zeros(x.sum(-1, keepdims=keepdims).shape, "float32")
        total(x, out)
        np.testing.assert_allclose(out, x.sum(-1, keepdims=keepdims), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, (0, 2), None])
def test_sums_over_any_axis(axis: Any) -> None:
    a = te.placeholder((6, 20, 33), "float32", "A")
    kernel, _ = build(te.create_prim_func([a, topi.sum(a, axis=axis)]))
    x = data(6, 20, 33)
    want = x.sum(axis=axis)
    out = np.zeros(want.shape, "float32")
    kernel(x, out)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_elementwise_chain(size: int) -> None:
    a = te.placeholder((size,), "float32", "A")
    kernel, text = build(te.create_prim_func([a, topi.tanh(topi.add(topi.exp(a), a))]))
    x, out = data(size), np.zeros(size, "float32")
    kernel(x, out)
    np.testing.assert_allclose(out, np.tanh(np.exp(x) + x), rtol=1e-5, atol=1e-6)
    if size >= 64:
        assert "x float>" in text


def test_dynamic_shapes() -> None:
    n = tir.Var("n", "int64")
    a, b = te.placeholder((n, 32), "float32", "A"), te.placeholder((32, 48), "float32", "B")
    kernel, text = build(te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))]))
    assert "llvm.fma.v" in text
    for size in (1, 5, 24):
        x, y, out = data(size, 32), data(32, 48), np.zeros((size, 48), "float32")
        kernel(x, y, out)
        np.testing.assert_allclose(out, np.maximum(x @ y, 0), rtol=1e-4, atol=1e-4)


def test_scheduled_functions_are_left_alone() -> None:
    a = te.placeholder((8,), "float32", "A")
    func = te.create_prim_func([a, topi.exp(a)]).with_attr("tir.is_scheduled", True)
    mod = IRModule({"main": func})
    with Target("llvm"):
        assert ApplyDefaultSchedule(*default_cpu_rules())(mod)["main"] is mod["main"]
    with pytest.raises(ValueError, match="context"):
        ApplyDefaultSchedule(cpu.Fallback())(IRModule({"main": func.without_attr("tir.is_scheduled")}))


def test_rules_from_callables_and_order() -> None:
    seen: list[str] = []

    @ScheduleRule.from_callable("First")
    def first(func: Any, target: Target, tunable: bool) -> Any:
        seen.append("first")
        return None

    a = te.placeholder((64, 64), "float32", "A")
    build(te.create_prim_func([a, topi.exp(a)]), [first, *default_cpu_rules()])
    assert seen == ["first"]


@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"])
def test_tiles_fit_the_register_file(target: str) -> None:
    machine = CpuModel.of_target(Target(target))
    assert machine.registers == (32 if "512" in target else 16)
    for width in (16, 48, 64, 96, 1000, 7, 3072):
        for height in (1, 7, 14, 53, 56, 128):
            a, b = te.placeholder((height, 64), "float32", "A"), te.placeholder((64, width), "float32", "B")
            k = te.reduce_axis((0, 64), "k")
            c = te.compute((height, width), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
            for hint in recommend(te.create_prim_func([a, b, c]), target, 10):
                lanes, (rows, columns) = hint.vectorize["C"], hint.thread
                assert width % columns == 0 and columns % lanes == 0 and lanes <= machine.lanes(4)
                assert (rows + 1) * (columns // lanes) + 1 <= machine.registers
                assert height % rows == 0 or (rows in (6, 12) and height == 53)
