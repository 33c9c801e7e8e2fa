"""Device code of models built with ``index_bounds`` "clamp": hostile indices read and write inside their arrays."""

from __future__ import annotations

import numpy as np
import pytest

import relaxish
from relaxish import relax
from relaxish.relax import TensorStructInfo
from relaxish.runtime.nvidia import providers
from relaxish.transform import PassContext


def _lookup() -> relaxish.IRModule:
    x = relax.Var("x", TensorStructInfo((10, 6), "float32"))
    i = relax.Var("i", TensorStructInfo((8,), "int32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, i]):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(relax.op.take(x, i, axis=0)))
        bb.emit_func_output(out)
    return bb.get()


@pytest.mark.parametrize("target", ["nvidia/geforce-rtx-3090-ti"])
def test_lookup(target: str) -> None:
    with providers.use("emulator"):
        data = np.random.default_rng(0).random((10, 6), "float32")
        index = np.array([3, 10, -1, 10**8, -(2**31), 2**31 - 1, 0, 9], "int32")
        with PassContext(config={"relaxish.index_bounds": "clamp"}):
            executable = relaxish.build(_lookup(), target)
        device = relaxish.cuda()
        run = relaxish.VirtualMachine(executable, device)["main"]
        made = run(relaxish.nd.array(data, device), relaxish.nd.array(index, device)).numpy()
        np.testing.assert_array_equal(made, data[np.clip(index, 0, 9)])
