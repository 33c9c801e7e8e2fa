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
from relaxish.runtime.vm.machine import VirtualMachine
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


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 4e-3)])
@pytest.mark.parametrize("cores", [1, 2])
def test_products_of_unknown_width(dtype: str, tolerance: float, cores: int) -> None:
    """Scores of attention: batch, rows and columns are known only at run time."""
    n, s, t = sizes("n", "s", "t")
    shapes = [(n, 3, s, 24), (n, 3, t, 24), (n, 1, s, t)]
    params = [Var(name, TensorStructInfo(shape, dtype)) for name, shape in zip("qkm", shapes, strict=True)]
    q, k, m = params
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            scores = builder.emit(R.matmul(q, builder.emit(R.permute_dims(k, [0, 1, 3, 2]))))
            out = builder.emit_output(R.nn.softmax(builder.emit(R.add(scores, m)), -1))
        builder.emit_func_output(out)
    target = relaxish.Target({"kind": "llvm", "num-cores": cores})
    run = VirtualMachine(relaxish.build(builder.finalize(), target=target), cpu())["main"]
    rng = np.random.default_rng(5)
    for a, b, c in [(1, 1, 1), (2, 7, 5), (1, 16, 33), (1, 65, 64), (3, 31, 32), (1, 130, 97), (2, 0, 3), (1, 4, 0)]:
        given = [rng.standard_normal(x).astype(dtype) for x in ((a, 3, b, 24), (a, 3, c, 24), (a, 1, b, c))]
        x, y, z = (torch.tensor(each.astype("float32")) for each in given)
        want = torch.softmax(x @ y.transpose(2, 3) + z, -1).numpy()
        got = run(*[nd.array(each) for each in given]).numpy()
        np.testing.assert_allclose(got.astype("float32"), want, rtol=tolerance, atol=tolerance, err_msg=str((a, b, c)))


@pytest.mark.parametrize("multiple", [16, 24, 32, 96])
def test_columns_that_are_a_multiple(multiple: int) -> None:
    """The extent is written as a product: tiles divide it, no column is computed for nothing."""
    s, t = sizes("s", "t")
    a, b = Var("a", TensorStructInfo([s, 40], "float32")), Var("b", TensorStructInfo([40, t, multiple], "float32"))
    builder = BlockBuilder()
    with builder.function("main", [a, b]):
        with builder.dataflow():
            flat = builder.emit(R.reshape(b, (40, t * multiple)))
            out = builder.emit_output(R.nn.relu(builder.emit(R.matmul(a, flat))))
        builder.emit_func_output(out)
    run = VirtualMachine(relaxish.build(builder.finalize(), target="llvm"), cpu())["main"]
    rng = np.random.default_rng(multiple)
    for rows, count in [(1, 1), (9, 2), (70, 3), (5, 0)]:
        x = rng.standard_normal((rows, 40)).astype("float32")
        y = rng.standard_normal((40, count, multiple)).astype("float32")
        got = run(nd.array(x), nd.array(y)).numpy()
        np.testing.assert_allclose(got, np.maximum(x @ y.reshape(40, -1), 0), rtol=1e-4, atol=1e-4)


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
