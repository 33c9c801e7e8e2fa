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
    from relaxish.runtime.vm import VirtualMachine

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
