"""Classes given as bytes or flags, where the class that is ignored has no number in their type."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.script import relax as R


def losses_and_gradients(p, t, w, g, reduction, ignored):
    classes = t.astype("int64")
    weight = np.where(classes == ignored, 0, w[classes]).astype("float32")
    loss = -np.take_along_axis(p, classes[:, None], 1)[:, 0] * weight
    share = g * weight
    if reduction != "none":
        loss = loss.sum()
    if reduction == "mean":
        loss, share = loss / weight.sum(), share / weight.sum()
    by_p = np.zeros_like(p)
    np.put_along_axis(by_p, classes[:, None], -share[:, None], 1)
    return loss, by_p


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("dtype", "count", "ignored"), [("bool", 2, -100), ("bool", 2, 1), ("uint8", 200, -100), ("int8", 100, -200)]
)
def test_targets_of_narrow_types(dtype, count, ignored, reduction):
    rng = np.random.default_rng(11)
    p = rng.normal(size=(24, count)).astype("float32")
    t = rng.integers(0, count, 24).astype(dtype)
    t[3] = ignored % 256 if dtype == "uint8" else t[3]  # the class that the ignored number would be as a byte
    w = rng.uniform(0.5, 2, count).astype("float32")
    g = rng.normal(size=24 if reduction == "none" else ()).astype("float32")
    values = (p, t, w, g)
    params = [relax.Var(name, R.Tensor(v.shape, str(v.dtype))) for name, v in zip("ptwg", values)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            given, out = params[:3], params[3]
            loss = relax.op.nn.nll_loss(*given, reduction, ignored)
            by_p = relax.op.grad.nll_loss_backward(out, *given, reduction, ignored)
            both = builder.emit_output(relax.Tuple([builder.emit(loss), builder.emit(by_p)]))
        builder.emit_func_output(both)
    vm = relax.VirtualMachine(relax.build(builder.get(), "llvm"), relaxish.cpu())
    made = vm["main"](*(relaxish.nd.array(v) for v in values))
    for got, want in zip(made, losses_and_gradients(*values, reduction, ignored)):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
