"""Layout rules: behind a convolution turned to NHWC, every operator gives what it gave before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax import op
from relaxish.relax.transform import ConvertLayout

nn = op.nn
_AFTER: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda y, v: nn.relu(y),
    "clip": lambda y, v: op.clip(y, -0.5, 0.5),
    "astype": lambda y, v: op.astype(y, "float64"),
    "add_same_rank": lambda y, v: op.add(y, op.reshape(v, (1, 4, 1, 1))),
    "add_lower_rank": lambda y, v: op.multiply(y, op.reshape(v, (4, 1, 1))),
    "add_scalar": lambda y, v: op.add(y, relax.const(2.0, "float32")),
    "ewise_fma": lambda y, v: op.ewise_fma(y, y, y),
    "sum": lambda y, v: op.sum(y, [2, 3]),
    "mean_keepdims": lambda y, v: op.mean(y, [1], True),
    "max_all": lambda y, v: op.max(y),
    "softmax": lambda y, v: nn.softmax(y, 1),
    "batch_norm": lambda y, v: nn.batch_norm(y, v, v, v, op.multiply(v, v), axis=1, training=False)[0],
    "layer_norm": lambda y, v: nn.layer_norm(y, op.reshape(v, (4,)), v, axes=[1]),
    "group_norm": lambda y, v: nn.group_norm(y, v, v, 2, 1, [2, 3]),
    "dropout": lambda y, v: nn.dropout(y)[0],
    "concat": lambda y, v: op.concat((y, y), 1),
    "split": lambda y, v: op.split(y, 2, 1)[1],
    "expand_dims": lambda y, v: op.expand_dims(y, [1]),
    "squeeze": lambda y, v: op.squeeze(op.mean(y, [2], True), [2]),
    "permute_dims": lambda y, v: op.permute_dims(y, [1, 0, 3, 2]),
    "strided_slice": lambda y, v: op.strided_slice(y, [1, 3], [1, 0], [3, 5]),
    "max_pool2d": lambda y, v: nn.max_pool2d(y, 2, 2),
    "avg_pool2d": lambda y, v: nn.avg_pool2d(y, 2, 2, 1),
    "adaptive_avg_pool2d": lambda y, v: nn.adaptive_avg_pool2d(y, 1),
    "resize2d": lambda y, v: op.image.resize2d(y, (12, 12)),
    "reshape_has_no_rule": lambda y, v: op.reshape(y, (2, -1)),
}


def program(after: Callable[[Any, Any], Any]) -> Any:
    shapes = {"x": [2, 3, 8, 8], "w": [4, 3, 3, 3], "v": [4]}
    x, w, v = (relax.Var(n, relax.TensorStructInfo(s, "float32")) for n, s in shapes.items())
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w, v]):
        with builder.dataflow():
            out = builder.emit_output(after(builder.emit(nn.conv2d(x, w)), v))
        builder.emit_func_output(out)
    return builder.get()


def run(mod: Any, arrays: list[np.ndarray]) -> np.ndarray:
    vm = relaxish.VirtualMachine(relaxish.build(mod, "llvm", relax_pipeline="default_build"), relaxish.cpu())
    return vm["main"](*[relaxish.nd.array(a) for a in arrays]).numpy()


_QUICK = ("add_same_rank", "sum", "concat", "max_pool2d")


@pytest.mark.parametrize("name", [n if n in _QUICK else pytest.param(n, marks=pytest.mark.slow) for n in _AFTER])
def test_layout_rule(name: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, s).astype("float32") for s in ((2, 3, 8, 8), (4, 3, 3, 3))]
    arrays.append(rng.uniform(0.5, 1, 4).astype("float32"))
    mod = program(_AFTER[name])
    turned = ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(mod)
    assert 'data_layout="NHWC"' in turned.script()
    want, got = run(mod, arrays), run(turned, arrays)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
