"""Winograd convolutions against direct ones, and which convolutions are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import op as R
from relaxish import tir
from relaxish.dlight.cpu import WinogradConv2D
from relaxish.dlight.cpu.winograd import transformed_kernel
from relaxish.ir.functor import all_nodes
from relaxish.ir.transform import PassContext, Sequential
from relaxish.relax import BlockBuilder, TensorStructInfo, Var, const
from relaxish.target import Target

RNG = np.random.default_rng(0)


def model(
    shape: tuple[Any, ...], kernel: np.ndarray, stride: int = 1, padding: object = 1, groups: int = 1
) -> relaxish.IRModule:
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = R.nn.conv2d(x, const(kernel), stride, padding, 1, groups, "NHWC", "HWIO")
            out = builder.emit_output(R.nn.relu(builder.emit(y)))
        builder.emit_func_output(out)
    return builder.finalize()


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype("float32")


def reference(x: np.ndarray, kernel: np.ndarray, padding: list[int]) -> np.ndarray:
    top, left, bottom, right = padding
    x = np.pad(x.astype("float64"), ((0, 0), (top, bottom), (left, right), (0, 0)))
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    parts = [x[:, i : i + rows, j : j + columns] @ kernel[i, j] for i in range(3) for j in range(3)]
    return np.maximum(sum(parts), 0)


@pytest.mark.parametrize(
    ("shape", "out", "padding"),
    [((1, 16, 16, 32), 32, [1, 1, 1, 1]), ((1, 13, 18, 32), 64, [1, 1, 1, 1]), ((2, 15, 14, 32), 32, [0, 0, 2, 1])],
)
def test_results(shape: tuple[int, ...], out: int, padding: list[int]) -> None:
    kernel, x = weights(3, 3, shape[-1], out), RNG.standard_normal(shape).astype("float32")
    mod = WinogradConv2D(Target("llvm"))(model(shape, kernel, padding=padding))
    assert "nn.conv2d" not in mod.script()
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", exec_mode="compiled"), relaxish.cpu())
    got = vm["main"](relaxish.nd.array(x)).numpy()
    want = reference(x, kernel, padding)
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


def test_transformed_kernel_of_a_delta() -> None:
    kernel = np.zeros((3, 3, 1, 1), "float32")
    kernel[0, 0] = 1
    made = transformed_kernel(kernel).reshape(6, 6)
    column = np.array([1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24, 0])
    np.testing.assert_allclose(made, np.outer(column, column), rtol=1e-6)


@pytest.mark.parametrize(
    "mod",
    [
        model((1, 16, 16, 32), weights(3, 3, 32, 32), stride=2),
        model((1, 16, 16, 32), weights(1, 1, 32, 32), padding=0),
        model((1, 7, 7, 32), weights(3, 3, 32, 32)),
        model((1, 16, 16, 16), weights(3, 3, 16, 32)),
        model((1, 16, 16, 32), weights(3, 3, 1, 32), groups=32),
    ],
    ids=["strided", "1x1", "few tiles", "few channels", "depthwise"],
)
def test_others_stay(mod: relaxish.IRModule) -> None:
    assert WinogradConv2D(Target("llvm"))(mod) is mod


def test_pass_can_be_disabled() -> None:
    mod = model((1, 16, 16, 32), weights(3, 3, 32, 32))
    with PassContext(disabled_pass=["WinogradConv2D"]):
        assert "nn.conv2d" in Sequential([WinogradConv2D(Target("llvm"))])(mod).script()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "padding", "out"),
    [
        ("none", [1, 1, 1, 1], 32),
        ("none", [0, 2, 1, 0], 64),
        ("image", [1, 1, 1, 1], 32),
        ("small image", [1, 1, 1, 1], 32),
    ],
)
@pytest.mark.parametrize("cores", [1, 2])
def test_sizes_known_only_at_run_time(known: str, padding: list[int], out: int, cores: int) -> None:
    """Where there are too few tiles the kernel of the output is a direct convolution."""
    side = {"none": None, "image": 13, "small image": 6}[known]
    n, h, w = (tir.SizeVar(name, "int64") for name in "nhw")
    kernel = weights(3, 3, 32, out)
    target = Target({"kind": "llvm", "num-cores": cores})
    mod = WinogradConv2D(target)(model((n, side or h, side or w, 32), kernel, padding=padding))
    assert "nn.conv2d" not in mod.script()
    run = relaxish.VirtualMachine(relaxish.build(mod, target), relaxish.cpu())["main"]
    least = 3 - min(padding[0] + padding[2], padding[1] + padding[3])
    for a, b, c in [
        (1, least, least),
        (1, 7, 5),
        (1, 13, 18),
        (2, 16, 16),
        (3, 6, 9),
        (5, 4, 4),
        (1, 1, 50),
        (0, 16, 16),
    ]:
        x = RNG.standard_normal((a, side or b, side or max(c, least), 32)).astype("float32")
        if x.shape[1] + padding[0] + padding[2] < 3:
            continue
        got, want = run(relaxish.nd.array(x)).numpy(), reference(x, kernel, padding)
        assert got.shape == want.shape
        assert not want.size or np.abs(got - want).max() < 2e-5 * np.abs(want).max(), x.shape


def test_both_ways_stand_in_one_kernel() -> None:
    n, h, w = (tir.SizeVar(name, "int64") for name in "nhw")
    mod = WinogradConv2D(Target("llvm"))(model((n, h, w, 32), weights(3, 3, 32, 32)))
    branches = [x for x in all_nodes(mod["winograd_output"].body) if isinstance(x, tir.IfThenElse)]
    assert str(branches[0].condition) == "tiles > T.int64(0)"
    # Enough tiles whatever the number of images: there is nothing to choose.
    mod = WinogradConv2D(Target("llvm"))(model((n, 16, 16, 32), weights(3, 3, 32, 32)))
    assert "kernel" not in [b.name for b in mod["winograd_output"].buffer_map.values()]
