"""Default CPU schedules where batch, height and width are known only at run time, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import op as R
from relaxish import tir, topi
from relaxish.dlight.cpu.collapse import collapse_axes
from relaxish.ir.functor import all_nodes
from relaxish.relax import BlockBuilder, TensorStructInfo, Var, const
from relaxish.runtime import ndarray as nd
from relaxish.runtime.device import cpu
from relaxish.runtime.vm import VirtualMachine
from relaxish.te import compute, create_prim_func, placeholder
from relaxish.transform.cpu_layout import CPULayoutPacking

torch = pytest.importorskip("torch")
F = torch.nn.functional
# One, sizes below a tile, whole tiles, primes, more than a task.
SIZES = [(1, 1, 1), (2, 3, 5), (1, 16, 17), (3, 7, 64), (1, 33, 31), (1, 5, 131)]


def sizes(*names: str) -> list[Any]:
    return [tir.SizeVar(name, "int64") for name in names]


def weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")


def network(shape: Sequence[Any], layers: Callable[[BlockBuilder, Var], Any]) -> relaxish.IRModule:
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo(list(shape), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(layers(builder, x))
        builder.emit_func_output(out)
    return builder.finalize()


def check(mod: relaxish.IRModule, channels: int, want: Callable[[Any], Any], cores: int = 1) -> None:
    target = relaxish.Target({"kind": "llvm", "num-cores": cores})
    run = VirtualMachine(relaxish.build(mod, target=target), cpu())["main"]
    rng = np.random.default_rng(7)
    for n, h, w in SIZES:
        x = rng.standard_normal((n, channels, h, w)).astype("float32")
        got = run(nd.array(x)).numpy()
        np.testing.assert_allclose(got, want(torch.tensor(x)).numpy(), rtol=1e-4, atol=1e-4, err_msg=str((n, h, w)))


@pytest.mark.parametrize(
    ("channels", "filters", "kernel", "stride", "groups"),
    [(16, 48, 1, 1, 1), (8, 30, 3, 1, 1), (16, 32, 3, 2, 1), (24, 24, 5, 2, 24), (3, 16, 3, 2, 1)],
)
@pytest.mark.parametrize("cores", [1, 2])
def test_convolutions(channels: int, filters: int, kernel: int, stride: int, groups: int, cores: int) -> None:
    rng = np.random.default_rng(channels + filters)
    w, b = weight(rng, filters, channels // groups, kernel, kernel), weight(rng, 1, filters, 1, 1)

    def layers(builder: BlockBuilder, x: Var) -> Any:
        y = builder.emit(R.nn.conv2d(x, const(w), stride, kernel // 2, groups=groups))
        return builder.emit(R.nn.relu(builder.emit(R.add(y, const(b)))))

    mod = network([*sizes("n"), channels, *sizes("h", "w")], layers)
    assert CPULayoutPacking()(mod).script().count('data_layout="NHWC"') == 1

    def want(x: Any) -> Any:
        return F.relu(F.conv2d(x, torch.tensor(w), None, stride, kernel // 2, 1, groups) + torch.tensor(b))

    check(mod, channels, want, cores)


@pytest.mark.slow
def test_a_network() -> None:
    """Pooling, a residual sum, concatenation, a gate of one number for each channel."""
    rng = np.random.default_rng(3)
    w1, w2, w3 = weight(rng, 32, 16, 3, 3), weight(rng, 32, 32, 1, 1), weight(rng, 64, 64, 1, 1)

    def layers(builder: BlockBuilder, x: Var) -> Any:
        emit = builder.emit
        y = emit(R.nn.relu(emit(R.nn.conv2d(x, const(w1), 1, 1))))
        y = emit(R.nn.max_pool2d(y, (3, 3), (2, 2), (1, 1)))
        z = emit(R.add(emit(R.nn.conv2d(y, const(w2))), y))
        z = emit(R.concat([z, y], 1))
        gate = emit(R.sigmoid(emit(R.nn.conv2d(emit(R.mean(z, [2, 3], True)), const(w3)))))
        return emit(R.multiply(z, gate))

    def want(x: Any) -> Any:
        y = F.max_pool2d(F.relu(F.conv2d(x, torch.tensor(w1), None, 1, 1)), 3, 2, 1)
        z = torch.cat([F.conv2d(y, torch.tensor(w2)) + y, y], 1)
        return z * torch.sigmoid(F.conv2d(z.mean((2, 3), True), torch.tensor(w3)))

    check(network([*sizes("n"), 16, *sizes("h", "w")], layers), 16, want)


def loops_of(func: tir.PrimFunc) -> list[tir.For]:
    return [node for node in all_nodes(func.body) if isinstance(node, tir.For)]


def test_axes_of_unknown_extent_become_one() -> None:
    n, h, w = sizes("n", "h", "w")
    a, b = placeholder((n, h, w, 8), "float32", "A"), placeholder((n, h, w, 8), "float32", "B")
    made = collapse_axes(create_prim_func([a, b, topi.add(a, b)]))
    assert [str(loop.extent) for loop in loops_of(made)] == ["n * h * w", "8"]


def test_axes_that_an_operand_lacks_stay() -> None:
    n, h, w = sizes("n", "h", "w")
    a, b = placeholder((n, h, w, 8), "float32", "A"), placeholder((n, 1, 1, 8), "float32", "B")
    made = collapse_axes(create_prim_func([a, b, topi.add(a, b)]))
    assert [str(loop.extent) for loop in loops_of(made)] == ["n", "h * w", "8"]


def test_axes_that_are_computed_with_stay() -> None:
    h, w = sizes("h", "w")
    a = placeholder((h, w, 8), "float32", "A")
    shifted = compute((h, w, 8), lambda y, x, c: a[y, x, c] + x.astype("float32"), name="shifted")
    func = create_prim_func([a, shifted])
    assert collapse_axes(func) is func
