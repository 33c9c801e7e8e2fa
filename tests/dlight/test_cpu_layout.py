"""CPULayoutPacking: channels last through a small network, results unchanged."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import op as R
from relaxish.relax import BlockBuilder, TensorStructInfo, Var, const
from relaxish.transform.cpu_layout import CPULayoutPacking

RNG = np.random.default_rng(0)


def network() -> tuple[relaxish.IRModule, list[np.ndarray]]:
    shapes = [(16, 3, 3, 3), (1, 16, 1, 1), (16, 16, 3, 3), (16, 1, 3, 3)]
    weights = [RNG.standard_normal(s).astype("float32") for s in shapes]
    w1, b1, w2, wd = (const(w) for w in weights)
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((1, 3, 32, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.relu(builder.emit(R.add(builder.emit(R.nn.conv2d(x, w1, 2, 1)), b1))))
            z = builder.emit(R.nn.relu(builder.emit(R.add(builder.emit(R.nn.conv2d(y, w2, 1, 1)), y))))
            z = builder.emit(R.nn.conv2d(z, wd, 1, 1, groups=16))
            z = builder.emit(R.nn.max_pool2d(z, (2, 2), (2, 2)))
            z = builder.emit(R.reshape(builder.emit(R.nn.adaptive_avg_pool2d(z, (1, 1))), (1, 16)))
            out = builder.emit_output(z)
        builder.emit_func_output(out)
    return builder.finalize(), weights


def test_permutations_cancel_inside_the_graph() -> None:
    text = CPULayoutPacking()(network()[0]).script()
    assert text.count('data_layout="NHWC"') == 3
    assert text.count("permute_dims") == 2, "one at the entry, one before the reshape"


def test_results_are_unchanged() -> None:
    torch = pytest.importorskip("torch")
    from relaxish.runtime import ndarray as nd
    from relaxish.runtime.device import cpu
    from relaxish.runtime.vm.machine import VirtualMachine

    mod, weights = network()
    x = RNG.standard_normal((1, 3, 32, 32)).astype("float32")
    w1, b1, w2, wd = (torch.tensor(w) for w in weights)
    f = torch.nn.functional
    y = torch.relu(f.conv2d(torch.tensor(x), w1, None, 2, 1) + b1)
    z = torch.relu(f.conv2d(y, w2, None, 1, 1) + y)
    z = f.max_pool2d(f.conv2d(z, wd, None, 1, 1, 1, 16), 2, 2)
    want = f.adaptive_avg_pool2d(z, 1).reshape(1, 16).numpy()
    got = VirtualMachine(relaxish.build(mod, target="llvm"), cpu())["main"](nd.array(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("widths", "stride"), [([1, 1, 1, 1], 1), ([0, 1, 0, 1], 2), ([2, 0, 1, 3], 1)])
def test_border_becomes_padding_of_the_convolution(widths: list[int], stride: int) -> None:
    weight = RNG.standard_normal((16, 1, 3, 3)).astype("float32")
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((1, 16, 14, 14), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.pad(x, [0, 0, 0, 0, *widths]))
            out = builder.emit_output(R.nn.conv2d(y, const(weight), stride, 0, 1, 16))
        builder.emit_func_output(out)
    mod = builder.finalize()
    assert "nn.pad" not in CPULayoutPacking()(mod).script()
    data = RNG.standard_normal((1, 16, 14, 14)).astype("float32")
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", exec_mode="compiled"), relaxish.cpu())
    top, bottom, left, right = widths
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    rows, columns = ((n - 3) // stride + 1 for n in padded.shape[2:])
    want = sum(
        padded[:, :, i : i + rows * stride : stride, j : j + columns * stride : stride] * weight[:, 0, i, j, None, None]
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_allclose(vm["main"](relaxish.nd.array(data)).numpy(), want, rtol=1e-4, atol=1e-5)


def test_other_borders_stay() -> None:
    weight = RNG.standard_normal((16, 16, 3, 3)).astype("float32")
    builder = BlockBuilder()
    x = Var("x", TensorStructInfo((1, 16, 14, 14), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "constant", 2.0))
            out = builder.emit_output(R.nn.conv2d(y, const(weight)))
        builder.emit_func_output(out)
    assert "nn.pad" in CPULayoutPacking()(builder.finalize()).script()
