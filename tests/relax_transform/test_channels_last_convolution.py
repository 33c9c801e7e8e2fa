"""Convolutions of groups, and volumes, on a channels-last copy, against torch in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxish
from relaxish import Target, relax
from relaxish.transform.channels_last_convolution import ChannelsLastConvolution

torch = pytest.importorskip("torch")

WIDE = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512")
OPERATORS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
KINDS = ("float32", "float32", "bfloat16", "float16", "float64")
# Rounded once to the type of the result; sums in float32 at least.
BOUNDS = {"float32": 2e-6, "float64": 1e-13, "float16": 1e-3, "bfloat16": 8e-3}


def values(rng: np.random.Generator, shape: Any, dtype: str) -> np.ndarray:
    made = rng.standard_normal(shape)
    return made.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def program(x: np.ndarray, weight: np.ndarray, constant: bool = True, **attrs: Any) -> Any:
    data = relax.Var("x", relax.TensorStructInfo(x.shape, str(x.dtype)))
    kernel = (
        relax.const(weight) if constant else relax.Var("w", relax.TensorStructInfo(weight.shape, str(weight.dtype)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [data] if constant else [data, kernel]):
        with builder.dataflow():
            y = builder.emit(OPERATORS[x.ndim - 2](data, kernel, **attrs))
            out = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get()


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    dims, kind = (1, 2, 3)[seed % 3], KINDS[seed % len(KINDS)]
    groups = int(rng.choice([1, 2, 3, 4] if dims == 3 else [2, 3, 4]))
    window = [int(k) for k in rng.integers(1, 5, dims)]
    attrs = {
        "strides": [int(s) for s in rng.integers(1, 4, dims)],
        "padding": [int(rng.integers(0, k)) for k in window],
        "dilation": [int(d) for d in rng.integers(1, 3, dims)],
        "groups": groups,
    }
    least, most = {1: (200, 300), 2: (12, 18), 3: (9, 12)}[dims]
    size = [d * (k - 1) + int(rng.integers(least, most)) for d, k in zip(attrs["dilation"], window)]
    inside, outside = int(rng.integers(4, 11)), int(rng.integers(16, 40))
    x = values(rng, (int(rng.integers(1, 4)), groups * inside, *size), kind)
    return x, values(rng, (groups * outside, inside, *window), kind), attrs


def reference(x: np.ndarray, weight: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[x.ndim - 3]
    wide = [torch.from_numpy(a.astype("float64")) for a in (x, weight)]
    a = attrs
    return torch.relu(function(*wide, None, a["strides"], a["padding"], a["dilation"], a["groups"])).numpy()


@pytest.mark.parametrize("seed", range(15))
def test_random_convolutions(seed: int) -> None:
    x, weight, attrs = drawn(seed)
    want = reference(x, weight, attrs)
    vm = relaxish.VirtualMachine(relaxish.build(program(x, weight, **attrs), "llvm -num-cores 2"), relaxish.cpu())
    made = vm["main"](relaxish.nd.array(x)).numpy()
    assert made.shape == want.shape and made.dtype == x.dtype
    error = np.abs(made.astype("float64") - want).max() / np.abs(want).max()
    assert error <= BOUNDS[str(x.dtype)]


def calls(mod: Any) -> list[str]:
    """Operators and kernels called, in order."""
    found: list[str] = []

    def look(e: Any) -> None:
        if isinstance(e, relax.Call):
            kernel = e.op.name == "relax.call_tir"
            found.append(e.args[0].name_hint if kernel else e.op.name)

    relax.analysis.post_order_visit(mod["main"], look)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_the_interpreter_agrees(seed: int) -> None:
    """The rewritten graph as such, without schedules and code generation."""
    x, weight, attrs = drawn(seed)
    x, weight = x.astype("float32"), weight.astype("float32")
    mod = ChannelsLastConvolution(WIDE)(program(x, weight, **attrs))
    assert any("channels_last" in name for name in calls(mod))
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", exec_mode="interpret"), relaxish.cpu())
    np.testing.assert_allclose(
        vm["main"](relaxish.nd.array(x)).numpy(), reference(x, weight, attrs), rtol=1e-4, atol=1e-4
    )


def test_which_are_rewritten() -> None:
    rng = np.random.default_rng(0)

    def rewritten(x: Any, w: Any, **attrs: Any) -> bool:
        mod = program(values(rng, x, "float32"), values(rng, w, "float32"), **attrs)
        return any("channels_last" in name for name in calls(ChannelsLastConvolution(WIDE)(mod)))

    assert rewritten((1, 16, 70), (32, 8, 3), groups=2)
    assert rewritten((1, 16, 9, 9), (32, 8, 3, 3), groups=2)
    assert rewritten((1, 16, 7, 9, 9), (32, 8, 3, 3, 3), groups=2)
    assert rewritten((1, 16, 7, 9, 9), (32, 16, 3, 3, 3))
    assert rewritten((1, 3, 9, 19, 19), (32, 3, 3, 3, 3))
    assert not rewritten((1, 3, 9, 18, 18), (32, 3, 3, 3, 3))  # whole vectors of columns, few channels
    assert not rewritten((1, 16, 70), (32, 16, 3))
    assert not rewritten((1, 16, 9, 9), (32, 16, 3, 3))  # has a layout for the whole graph
    assert not rewritten((1, 16, 9, 9), (16, 1, 3, 3), groups=16)  # one output a group fills no vector
    assert not rewritten((1, 16, 3), (32, 8, 3), groups=2)  # too little to do
    assert not rewritten((1, 16, 70), (32, 8, 3), groups=2, constant=False)
