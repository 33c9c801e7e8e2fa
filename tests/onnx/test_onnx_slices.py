"""Slices with bounds anywhere, static and dynamic, against ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxish
from relaxish.frontend.onnx import from_onnx

_BOUNDS = [-(2**40), -(2**31), -7, -3, -1, 0, 1, 2, 5, 9, 2**31 - 1, 2**40]


def model_of(cases: list[tuple[int, int]], step: int, extent: int | str) -> onnx.ModelProto:
    nodes, weights = [], []
    for k, (begin, end) in enumerate(cases):
        for name, value in (("b", begin), ("e", end), ("a", 0), ("s", step)):
            weights.append(numpy_helper.from_array(np.array([value], "int64"), f"{name}{k}"))
        nodes.append(helper.make_node("Slice", ["x", f"b{k}", f"e{k}", f"a{k}", f"s{k}"], [f"y{k}"]))
    graph = helper.make_graph(
        nodes,
        "slices",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent, 3])],
        [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, None) for k in range(len(cases))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("step", [1, 2, -1, -3])
@pytest.mark.parametrize("dynamic", [False, True])
def test_bounds_anywhere(step, dynamic):
    # ONNX Runtime takes 2**31 - 1 as the end of a backward slice for "all", against the standard.
    cases = [c for c in itertools.product(_BOUNDS, _BOUNDS) if step > 0 or c[1] != 2**31 - 1]
    rng = np.random.default_rng(step + 3)
    chosen = [cases[i] for i in rng.choice(len(cases), 16, replace=False)]
    vm = None
    for extent in (0, 1, 2, 4, 8):
        model = model_of(chosen, step, "n" if dynamic else extent)
        x = rng.standard_normal((extent, 3)).astype("float32")
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        if vm is None or not dynamic:
            vm = relaxish.VirtualMachine(relaxish.build(from_onnx(model), "llvm"), relaxish.cpu())
        for (begin, end), got, want in zip(chosen, vm["main"](relaxish.nd.array(x)), expected, strict=True):
            np.testing.assert_array_equal(got.numpy(), want, f"x[{begin}:{end}:{step}] of {extent}")
